"""A client that knows Cursus's protocol page and nothing else: positional commands, the page's own
batch header, its reply words. Nothing of it comes from the product's codec.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import cramjam
import trio

_MAGIC = b"\xba\x7c"
_PATIENCE_S = 30.0


def _plain(data: bytes) -> bytes:
    return data


def _snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _lz4(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress(data))


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "none": _plain,
    "gzip": gzip.compress,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
    "registered": zlib.compress,
}


class Record(NamedTuple):
    offset: int
    sequence: int
    payload: bytes


class SeedClient:
    """One connection to one node, for ``async with``."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._data = bytearray()

    async def __aenter__(self) -> SeedClient:
        self._stream = await trio.open_tcp_stream(*self._address)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await trio.aclose_forcefully(self._stream)

    async def send(self, body: bytes) -> None:
        await self._stream.send_all(struct.pack(">I", len(body)) + body)

    async def receive(self) -> bytes:
        with trio.fail_after(_PATIENCE_S):
            size = struct.unpack(">I", await self._take(4))[0]
            return await self._take(size)

    async def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            data = await self._stream.receive_some(65536)
            assert data, "the node closed the connection"
            self._data += data
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken

    async def say(self, line: str) -> str:
        await self.send(line.encode())
        return (await self.receive()).decode()

    async def produce(self, body: bytes) -> dict[str, Any]:
        await self.send(body)
        answer = await self.receive()
        assert answer.startswith(b"{"), answer
        ack: dict[str, Any] = json.loads(answer)
        return ack

    async def consume(self, topic: str, partition: int, offset: int) -> list[Record]:
        await self.send(f"CONSUME {topic} {partition} {offset}".encode())
        return records_of(await self.receive())


def batch(
    topic: str, partition: int, producer: str, sequences: Sequence[int], *, acks: str = "-1"
) -> bytes:
    """An idempotent batch whose payloads are the partition and the number."""
    head = _MAGIC + b"".join(map(_text, (topic, str(partition), acks)))
    head += struct.pack(">?qqi", True, sequences[0], sequences[-1], len(sequences))
    return head + b"".join(_record(partition, producer, each) for each in sequences)


def _record(partition: int, producer: str, sequence: int) -> bytes:
    payload = b"%d:%d" % (partition, sequence)
    return b"".join(
        (
            struct.pack(">qq", 0, sequence),
            _text(producer),
            _text(f"key-{sequence}"),
            struct.pack(">q", 1),
            struct.pack(">i", len(payload)),
            payload,
            _text("Paid"),
            struct.pack(">iq", 2, 3),
            _text('{"by": "seed"}'),
        )
    )


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw


def records_of(body: bytes) -> list[Record]:
    """The records of a batch in the page's layout, all of which must be as they were written."""
    assert body[:2] == _MAGIC, body[:200]
    at = 2
    for _ in range(3):
        _, at = _read_text(body, at)
    *_, count = struct.unpack_from(">?qqi", body, at)
    at += 21
    found = []
    for _ in range(count):
        offset, sequence = struct.unpack_from(">qq", body, at)
        _, at = _read_text(body, at + 16)
        key, at = _read_text(body, at)
        epoch, size = struct.unpack_from(">qi", body, at)
        payload = body[at + 12 : at + 12 + size]
        event_type, at = _read_text(body, at + 12 + size)
        versions = struct.unpack_from(">iq", body, at)
        metadata, at = _read_text(body, at + 12)
        assert (key, epoch, event_type) == (f"key-{sequence}", 1, "Paid")
        assert (versions, metadata) == ((2, 3), '{"by": "seed"}')
        found.append(Record(offset, sequence, payload))
    assert at == len(body)
    return found


def _read_text(body: bytes, at: int) -> tuple[str, int]:
    end = at + 2 + struct.unpack_from(">H", body, at)[0]
    return body[at + 2 : end].decode(), end
