"""Attacks on the Cursus listener: bodies of frames, to be sent by anybody."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.types import Acks, Compression
from paceline.wire.compression import compress
from paceline.wire.cursus.batch import (
    MAX_RECORDS,
    CursusBatch,
    CursusRecord,
    Dialect,
    encode_batch,
)

LONG_NAME = "a" * 240 + "b"
"""A topic that ``wildcards`` nearly match."""
_MIB = 1024 * 1024


def wildcards(*, stars: int) -> list[str]:
    """Commands whose pattern has a matcher that tries again try as often as there are ways."""
    pattern = "*a" * stars
    return [
        f"CONSUME topic={pattern} partition=0 offset=0 member=m group=g",
        f"STREAM topic={pattern} partition=0 group=g offset=0",
    ]


def compressed_commands(*, megabytes: int = 64) -> Iterator[bytes]:
    """Commands of a few kilobytes on the wire and ``megabytes`` behind it."""
    for filler in (b" ", b"x", b"k=v "):
        text = b"PUBLISH topic=t message=" + filler * ((megabytes * _MIB - 64) // len(filler))
        for codec in (Compression.GZIP, Compression.ZSTD, Compression.SNAPPY):
            yield compress(codec, text)


def crowded_batches(topic: str, *, records: int = MAX_RECORDS) -> Iterator[bytes]:
    """Batches of ``records`` tiny records: nobody's, of one producer, and each of another one; one
    of them compressed."""
    for producers in (0, 1, records):
        made = [
            CursusRecord(
                sequence=(number // max(producers, 1) + 1) if producers else 0,
                producer_id=b"p%d" % (number % producers) if producers else b"",
                epoch=1,
                payload=b"x",
            )
            for number in range(records)
        ]
        body = encode_batch(CursusBatch(Dialect.REAL, topic, 0, Acks.LEADER, bool(producers), made))
        yield body
        if producers == 1:
            yield compress(Compression.ZSTD, body)


def great_batches(topic: str, *, megabytes: int = 60) -> Iterator[bytes]:
    """Batches that unpack to nearly what may be: one of zeros, packed, and one of many payloads."""
    record = CursusRecord(0, 0, b"", b"", 0, bytes(_MIB))
    body = encode_batch(
        CursusBatch(Dialect.REAL, topic, 0, Acks.LEADER, False, [record] * megabytes)
    )
    yield compress(Compression.ZSTD, body)
    yield compress(Compression.GZIP, body)
