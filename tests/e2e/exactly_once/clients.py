"""The clients that copy, and how each is started and asked."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paceline.client import Client
from paceline.types import TopicPartition
from paceline.wire.native.groups import CommittedOffset
from tests.e2e.exactly_once.copiers import python_command
from tests.e2e.exactly_once.copying import Course

_HERE = Path(__file__).parent
_LIBRARIES = Path(__file__).parents[3] / "build" / "exactly-once-java"


class NotHere(Exception):
    """A client cannot be had on this machine; the text says why."""


Committed = Callable[[Client, Course], Awaitable[dict[int, int]]]


async def kafka_offsets(client: Client, course: Course) -> dict[int, int]:
    """The group's committed offsets; Kafka's and the native clients' groups are one family."""
    return _of_input(await client.admin.groups.offsets(course.group), course)


async def cursus_offsets(client: Client, course: Course) -> dict[int, int]:
    offsets = await client.admin.groups.offsets(course.group, family="cursus", subject=course.input)
    return _of_input(offsets, course)


def _of_input(offsets: Mapping[TopicPartition, CommittedOffset], course: Course) -> dict[int, int]:
    return {
        at: offsets[TopicPartition(course.input, at)].offset
        for at in range(len(course.ends))
        if TopicPartition(course.input, at) in offsets
    }


def java_command(saved: Path) -> list[str]:
    """Maven brings the client's libraries the first time."""
    missing = [tool for tool in ("mvn", "java", "javac") if shutil.which(tool) is None]
    if missing:
        raise NotHere(f"not installed here: {', '.join(missing)}")
    if not _LIBRARIES.is_dir():
        fresh = _LIBRARIES.with_name(f"{_LIBRARIES.name}.part")
        words = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
        pom = str(_HERE / "java.pom.xml")
        done = subprocess.run(
            ["mvn", "-B", "-q", "-f", pom, *words], capture_output=True, text=True
        )
        if done.returncode:
            raise NotHere(f"Maven brings no libraries: {done.stdout[-500:]}")
        fresh.rename(_LIBRARIES)
    course = Course(**json.loads(saved.read_text(encoding="utf-8")))
    return [
        *("java", "-cp", f"{_LIBRARIES}/*", str(_HERE / "Copier.java"), ",".join(course.servers)),
        *(course.name, course.input, course.output, course.group, ",".join(map(str, course.ends))),
        *(str(course.batch), str(course.abort_every), course.journal),
        str(course.first_attempt),
    ]


@dataclass(frozen=True)
class Kind:
    """``listener``: which of the cluster's addresses it dials. ``command`` starts a copier with a
    course; raises NotHere. At the signal ``dump`` it shows where its threads are."""

    listener: str
    command: Callable[[Path], list[str]]
    committed: Committed = kafka_offsets
    dump: signal.Signals = signal.SIGUSR1


CLIENTS: dict[str, Kind] = {
    "aiokafka": Kind("coordinator", partial(python_command, "aio")),
    "confluent-kafka": Kind("coordinator", partial(python_command, "rdkafka")),
    "cursus": Kind("cursus", partial(python_command, "cursus"), cursus_offsets),
    "java": Kind("coordinator", java_command, dump=signal.SIGQUIT),
    "kafka-python": Kind("coordinator", partial(python_command, "kafka_python")),
    "native": Kind("native", partial(python_command, "native")),
}
