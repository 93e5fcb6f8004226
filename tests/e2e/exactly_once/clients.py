"""The clients that copy, and how each is started and asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paceline.client import Client
from paceline.types import TopicPartition
from paceline.wire.native.groups import CommittedOffset
from tests.e2e.exactly_once.copiers import python_command
from tests.e2e.exactly_once.copying import Course


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


@dataclass(frozen=True)
class Kind:
    """``listener``: which of the cluster's addresses it dials. ``command`` starts a copier with a
    course; raises NotHere."""

    listener: str
    command: Callable[[Path], list[str]]
    committed: Committed = kafka_offsets


CLIENTS: dict[str, Kind] = {
    "aiokafka": Kind("coordinator", partial(python_command, "aio")),
    "confluent-kafka": Kind("coordinator", partial(python_command, "rdkafka")),
    "cursus": Kind("cursus", partial(python_command, "cursus"), cursus_offsets),
    "kafka-python": Kind("coordinator", partial(python_command, "kafka_python")),
    "native": Kind("native", partial(python_command, "native")),
}
