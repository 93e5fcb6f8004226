"""A Cursus client as thin as can be: frames out, frames in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import trio

from paceline.types import Acks
from paceline.wire.cursus.batch import (
    CursusBatch,
    CursusRecord,
    Dialect,
    encode_batch,
    parse_batch,
)
from paceline.wire.cursus.frames import FrameReader, framed
from tests.integration.node.machines import open_stream

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
"""Settings of a node that is alone."""
_PATIENCE_S = 30.0


class CursusClient:
    """One connection, for ``async with``."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    async def __aenter__(self) -> CursusClient:
        self.stream: trio.abc.Stream = await open_stream(self.address)
        self._reader = FrameReader()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await trio.aclose_forcefully(self.stream)

    async def send(self, body: bytes) -> None:
        await self.stream.send_all(framed(body))

    async def receive(self) -> bytes:
        """The next frame, empty ones too; b"EOF" at the end of the stream."""
        with trio.fail_after(_PATIENCE_S):
            while (body := self._reader.next_frame()) is None:
                data = await self.stream.receive_some(65536)
                if not data:
                    return b"EOF"
                self._reader.feed(data)
        return body

    async def say(self, line: str) -> str:
        """A raw command and its answer."""
        await self.send(line.encode())
        return (await self.receive()).decode()

    async def ok(self, line: str) -> dict[str, str]:
        """As :meth:`say` for one that must succeed; its fields. Asks again where nobody leads."""
        answer = await self.say(line)
        with trio.move_on_after(_PATIENCE_S):
            while "_not_available" in answer:
                await trio.sleep(0.1)
                answer = await self.say(line)
        assert answer.startswith("OK"), answer
        return dict(word.partition("=")[::2] for word in answer.split()[1:])

    async def create(self, words: str) -> dict[str, str]:
        """A CREATE of ``words``, whose fields are returned once all of the topic is led: a slow
        machine may need longer than a node waits with what comes next."""
        made = await self.ok(f"CREATE {words}")
        with trio.fail_after(_PATIENCE_S):
            while True:
                if "_not_available" not in await self.say(f"LIST_OFFSETS topic={made['topic']}"):
                    return made
                await trio.sleep(0.1)

    async def produce(self, batch: CursusBatch) -> dict[str, Any]:
        return await self.acked(encode_batch(batch))

    async def acked(self, body: bytes) -> dict[str, Any]:
        """A frame whose answer must be an acknowledgement."""
        await self.send(body)
        answer = await self.receive()
        assert answer.startswith(b"{"), answer
        found: dict[str, Any] = json.loads(answer)
        return found

    async def read(self, line: str) -> list[CursusRecord]:
        """What a CONSUME answers, in whatever dialect."""
        await self.send(line.encode())
        answer = await self.receive()
        assert answer.startswith(b"\xba\x7c"), answer
        return parse_batch(answer).records


def batch(
    topic: str,
    records: Sequence[CursusRecord],
    *,
    partition: int = 0,
    acks: Acks = Acks.LEADER,
    idempotent: bool = False,
    dialect: Dialect = Dialect.REAL,
) -> CursusBatch:
    return CursusBatch(dialect, topic, partition, acks, idempotent, list(records))


def numbered(
    first: int, count: int, *, producer: str = "p", epoch: int = 1, key: str = ""
) -> list[CursusRecord]:
    """Records with the numbers from ``first`` on, each with its number as payload."""
    return [
        CursusRecord(0, n, producer.encode(), key.encode(), epoch, b"%d" % n)
        for n in range(first, first + count)
    ]


def payloads(records: Sequence[CursusRecord]) -> list[bytes]:
    return [record.payload for record in records]
