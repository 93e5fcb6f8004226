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

_JAVA = Path(__file__).parent / "java"
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


def kafka_java_command(saved: Path) -> list[str]:
    """Maven brings the client's libraries the first time."""
    _need("mvn", "java", "javac")
    if not _LIBRARIES.is_dir():
        fresh = _LIBRARIES.with_name(f"{_LIBRARIES.name}.part")
        words = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
        done = _run("mvn", "-B", "-q", "-f", str(_JAVA / "pom.xml"), *words)
        if done.returncode:
            raise NotHere(f"Maven brings no libraries: {done.stdout[-500:]}")
        fresh.rename(_LIBRARIES)
    return _java("KafkaCopier", saved, f"{_LIBRARIES}/*")


def cursus_java_command(saved: Path) -> list[str]:
    _need("java", "javac")
    return _java("CursusCopier", saved, "")


def compiled(name: str, libraries: str, folder: Path) -> str:
    """The class path of a copier that is written in Java, built below ``folder``."""
    classes = folder / f"{name}.classes"
    if not classes.is_dir():
        sources = [str(_JAVA / f"{each}.java") for each in ("Copying", name)]
        done = _run("javac", "-cp", libraries, "-d", str(classes), *sources)
        if done.returncode:
            raise NotHere(f"{name} was not built, a JDK of 17 is needed: {done.stderr[-500:]}")
    return f"{classes}:{libraries}" if libraries else str(classes)


def _java(name: str, saved: Path, libraries: str) -> list[str]:
    path = compiled(name, libraries, saved.parent)
    course = Course(**json.loads(saved.read_text(encoding="utf-8")))
    return [
        *("java", "-cp", path, name, ",".join(course.servers)),
        *(course.name, course.input, course.output, course.group, ",".join(map(str, course.ends))),
        *(str(course.batch), str(course.abort_every), course.journal),
        str(course.first_attempt),
    ]


def _need(*tools: str) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise NotHere(f"not installed here: {', '.join(missing)}")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


@dataclass(frozen=True)
class Kind:
    """``listener``: which of the cluster's addresses it dials. ``command`` starts a copier with a
    course; raises NotHere. At the signal ``dump`` it shows where its threads are. Of a call that
    ``hangs_in`` names in that, the library is known to return from it never, in spite of its
    time-out: the copier is killed then, as by a blow."""

    listener: str
    command: Callable[[Path], list[str]]
    committed: Committed = kafka_offsets
    dump: signal.Signals = signal.SIGUSR1
    hangs_in: str = ""


CLIENTS: dict[str, Kind] = {
    "aiokafka": Kind("kafka", partial(python_command, "aio")),
    # librdkafka 5456: rd_kafka_send_offsets_to_transaction ignores its time-out.
    "confluent-kafka": Kind(
        "kafka", partial(python_command, "rdkafka"), hangs_in="in send_offsets"
    ),
    "cursus": Kind("cursus", partial(python_command, "cursus"), cursus_offsets),
    "cursus-java": Kind("cursus", cursus_java_command, cursus_offsets, dump=signal.SIGQUIT),
    "java": Kind("kafka", kafka_java_command, dump=signal.SIGQUIT),
    "kafka-python": Kind("kafka", partial(python_command, "kafka_python")),
    "native": Kind("native", partial(python_command, "native")),
}
