"""Batches of Cursus records in both dialects, all big-endian (DESIGN 2)::

    real   u16 BA7C | u16 n | topic | i32 partition             | u8  n | acks | flags
    seed   u16 BA7C | u16 n | topic | u16 n | partition decimal | u16 n | acks | flags

    flags  u8 idempotent | i64 first sequence | i64 last sequence | i32 record count | records

    record i64 offset | i64 sequence | u16 n | producer id | u16 n | key | i64 epoch
           | i32 n | payload | u16 n | event type | i32 schema version
           | i64 aggregate version | u16 n | metadata

Every shipped client writes ``real``; only the protocol's page says ``seed``. They are told apart by
the u16 behind the topic: 0 begins a real partition below 65,536, 1 to 11 the length of a seed one.
The other dialect is tried when the first does not parse to the last byte. Strings stay bytes here:
who stores them need not know their encoding.
"""

from __future__ import annotations

import enum
import re
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, overload

from paceline.types import Acks
from paceline.wire.cursus.errors import CursusError, malformed_batch

MAGIC = b"\xba\x7c"
MAX_RECORDS = 100_000
MIN_RECORD_BYTES = 48
MAX_PARTITIONS = 65_535
"""A topic with more would make a real batch look like a seed one (DESIGN 2.1)."""
MAX_STRING_BYTES = 0xFFFF
_FEW_RECORDS = 64
"""So many are kept as objects."""

_U16 = struct.Struct(">H")
_REAL_ACKS = struct.Struct(">iB")
_FLAGS = struct.Struct(">Bqqi")
_RECORD_HEAD = struct.Struct(">qqH")
_RECORD_MIDDLE = struct.Struct(">qi")
_RECORD_TAIL = struct.Struct(">iqH")
_DECIMAL = re.compile(rb"-?[0-9]{1,10}\Z")
_SEED_PARTITION_BYTES = 11
_ACKS = {
    b"": Acks.LEADER,
    b"0": Acks.NONE,
    b"1": Acks.LEADER,
    b"-1": Acks.ALL,
    b"all": Acks.ALL,
}


class Dialect(enum.Enum):
    """How the header before the records is written."""

    REAL = "real"
    SEED = "seed"


class CursusRecord(NamedTuple):
    """One record. ``sequence`` 0 is none, an empty key is no key; ``offset`` is of no meaning when
    a client sends it."""

    offset: int = 0
    sequence: int = 0
    producer_id: bytes = b""
    key: bytes = b""
    epoch: int = 0
    payload: bytes = b""
    event_type: bytes = b""
    schema_version: int = 0
    aggregate_version: int = 0
    metadata: bytes = b""


class PackedRecords(Sequence[CursusRecord]):
    """Records of ``body`` that were looked through once, made one at a time as they are asked for.
    As objects 100,000 of them take 40 MB, and Python's collector half a second to look through."""

    __slots__ = ("_at", "_body", "_count", "_ends")

    def __init__(
        self, body: bytes, at: int, count: int, ends: tuple[CursusRecord, CursusRecord]
    ) -> None:
        self._body = body
        self._at = at
        self._count = count
        self._ends = ends

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[CursusRecord]:
        return _records(self._body, self._at, self._count)

    @overload
    def __getitem__(self, index: int) -> CursusRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[CursusRecord]: ...

    def __getitem__(self, index: int | slice) -> CursusRecord | list[CursusRecord]:
        """Quick for the first and the last one alone."""
        if isinstance(index, slice):
            return list(self)[index]
        at = range(self._count)[index]
        if at in (0, self._count - 1):
            return self._ends[at > 0]
        return next(islice(self, at, None))

    @property
    def encoded(self) -> memoryview:
        """All of them, as they arrived."""
        return memoryview(self._body)[self._at :]


class CursusBatch(NamedTuple):
    """A batch that a client sent, or that it is sent."""

    dialect: Dialect
    topic: str
    partition: int
    acks: Acks
    idempotent: bool
    records: Sequence[CursusRecord]


class _Head(NamedTuple):
    dialect: Dialect
    partition: int
    acks: bytes
    idempotent: int
    record_count: int
    end: int


class _Malformed(Exception):
    """The bytes are no batch in the dialect that was tried."""


def acks_of(value: bytes) -> Acks:
    """What an acks text asks for. Raises CursusError."""
    acks = _ACKS.get(value.lower())
    if acks is None:
        raise CursusError("invalid_acks", f"value={value.decode('utf-8', 'replace')}")
    return acks


def parse_batch(body: bytes) -> CursusBatch:
    """The batch that fills ``body``, which begins with the magic.

    Raises CursusError ``batch_decode_failed``, and ``invalid_acks`` for a batch that is sound but
    for that.
    """
    try:
        topic, position = _topic(body)
        first = _likely_dialect(body, position)
    except (struct.error, _Malformed) as error:
        raise malformed_batch(str(error)) from None
    reasons = []
    bad_acks: CursusError | None = None
    for dialect in (first, _OTHER[first]):
        try:
            head = _HEADS[dialect](body, position)
            records = _parse_records(body, head)
            acks = acks_of(head.acks)
        except (struct.error, _Malformed) as error:
            reasons.append(f"{dialect.value}: {error}")
        except CursusError as error:
            bad_acks = bad_acks or error.with_traceback(None)
        else:
            idempotent = head.idempotent == 1
            return CursusBatch(dialect, topic, head.partition, acks, idempotent, records)
    try:
        raise bad_acks or malformed_batch("; ".join(reasons))
    finally:
        del bad_acks  # its traceback leads here: a cycle


def _topic(body: bytes) -> tuple[str, int]:
    (size,) = _U16.unpack_from(body, len(MAGIC))
    start = len(MAGIC) + _U16.size
    end = start + size
    if end > len(body):
        raise _Malformed(f"topic of {size} bytes in {len(body) - start}")
    try:
        return body[start:end].decode(), end
    except UnicodeDecodeError:
        raise _Malformed("the topic is not UTF-8") from None


def _likely_dialect(body: bytes, position: int) -> Dialect:
    (word,) = _U16.unpack_from(body, position)
    if not 1 <= word <= _SEED_PARTITION_BYTES:
        return Dialect.REAL
    text = body[position + _U16.size : position + _U16.size + word]
    return Dialect.SEED if len(text) == word and _DECIMAL.match(text) else Dialect.REAL


def _real_head(body: bytes, position: int) -> _Head:
    partition, size = _REAL_ACKS.unpack_from(body, position)
    start = position + _REAL_ACKS.size
    return _flags(body, Dialect.REAL, partition, start, start + size)


def _seed_head(body: bytes, position: int) -> _Head:
    (size,) = _U16.unpack_from(body, position)
    start = position + _U16.size
    text = body[start : start + size]
    if not _DECIMAL.match(text):
        raise _Malformed(f"partition of {size} bytes is no number")
    (acks_size,) = _U16.unpack_from(body, start + size)
    start += size + _U16.size
    return _flags(body, Dialect.SEED, int(text), start, start + acks_size)


_OTHER = {Dialect.REAL: Dialect.SEED, Dialect.SEED: Dialect.REAL}
_HEADS = {Dialect.REAL: _real_head, Dialect.SEED: _seed_head}


def _flags(body: bytes, dialect: Dialect, partition: int, start: int, end: int) -> _Head:
    acks = body[start:end]
    idempotent, first, last, count = _FLAGS.unpack_from(body, end)
    if idempotent > 1:
        raise _Malformed(f"idempotent is {idempotent}, expected 0 or 1")
    if first < 0 or last < 0:
        raise _Malformed(f"sequences {first} to {last}")
    if not -(2**31) <= partition < 2**31:
        raise _Malformed(f"partition {partition}")
    if not 0 <= count <= MAX_RECORDS:
        raise _Malformed(f"{count} records, expected 0 to {MAX_RECORDS}")
    return _Head(dialect, partition, acks, idempotent, count, end + _FLAGS.size)


def _parse_records(body: bytes, head: _Head) -> Sequence[CursusRecord]:
    """All records, which must end where the body does."""
    size, count = len(body) - head.end, head.record_count
    if count * MIN_RECORD_BYTES > size:
        raise _Malformed(f"{count} records in {size} bytes")
    found = _records(body, head.end, count)
    if count <= _FEW_RECORDS:
        return list(found)
    first = next(found)
    (last,) = deque(found, maxlen=1)
    return PackedRecords(body, head.end, count, (first, last))


def _records(body: bytes, at: int, count: int) -> Iterator[CursusRecord]:
    """One after the other; flat, for it runs once per record."""
    size = len(body)
    make: Any = tuple.__new__
    read_head, read_middle = _RECORD_HEAD.unpack_from, _RECORD_MIDDLE.unpack_from
    read_tail, read_u16 = _RECORD_TAIL.unpack_from, _U16.unpack_from
    for _ in range(count):
        offset, sequence, length = read_head(body, at)
        at += 18
        end = at + length
        producer_id = body[at:end]
        (length,) = read_u16(body, end)
        at = end + 2
        end = at + length
        key = body[at:end]
        epoch, length = read_middle(body, end)
        if length < 0:
            raise _Malformed(f"payload of {length} bytes")
        at = end + 12
        end = at + length
        payload = body[at:end]
        (length,) = read_u16(body, end)
        at = end + 2
        end = at + length
        event_type = body[at:end]
        schema_version, aggregate_version, length = read_tail(body, end)
        at = end + 14
        end = at + length
        if end > size:
            raise _Malformed(f"a record runs {end - size} bytes over the end")
        if offset | sequence | schema_version | aggregate_version < 0:
            raise _Malformed("a number of 2^63 or more, or a schema version of 2^31 or more")
        fields = (offset, sequence, producer_id, key, epoch, payload, event_type)
        yield make(CursusRecord, (*fields, schema_version, aggregate_version, body[at:end]))
        at = end
    if at != size:
        raise _Malformed(f"{size - at} bytes behind the last record")


# --- encoding -------------------------------------------------------------------------------


def encode_batch(batch: CursusBatch) -> bytes:
    """The batch as one frame body, sequences taken from the first and last record."""
    records = batch.records
    first, last = (records[0].sequence, records[-1].sequence) if records else (0, 0)
    head = encode_head(
        batch.dialect,
        batch.topic,
        batch.partition,
        acks=str(int(batch.acks)).encode(),
        idempotent=batch.idempotent,
        sequences=(first, last),
        count=len(records),
    )
    if isinstance(records, PackedRecords):
        return b"".join((head, records.encoded))
    return b"".join((head, *map(encode_record, records)))


def encode_head(
    dialect: Dialect,
    topic: str,
    partition: int,
    *,
    acks: bytes = b"1",
    idempotent: bool = False,
    sequences: tuple[int, int] = (0, 0),
    count: int,
) -> bytes:
    """Everything before the records; the defaults are those of data that a client is sent."""
    name = topic.encode()
    if dialect is Dialect.REAL:
        place = _REAL_ACKS.pack(partition, len(acks))
    else:
        text = str(partition).encode()
        place = b"".join((_U16.pack(len(text)), text, _U16.pack(len(acks))))
    flags = _FLAGS.pack(idempotent, *sequences, count)
    return b"".join((MAGIC, _U16.pack(len(name)), name, place, acks, flags))


def encode_record(record: CursusRecord) -> bytes:
    """One record's bytes. Every string but the payload has at most 65,535 bytes."""
    offset, sequence, producer_id, key, epoch, payload, event_type, schema, aggregate, metadata = (
        record
    )
    return b"".join(
        (
            _RECORD_HEAD.pack(offset, sequence, len(producer_id)),
            producer_id,
            _U16.pack(len(key)),
            key,
            _RECORD_MIDDLE.pack(epoch, len(payload)),
            payload,
            _U16.pack(len(event_type)),
            event_type,
            _RECORD_TAIL.pack(schema, aggregate, len(metadata)),
            metadata,
        )
    )


def record_bytes(records: Sequence[CursusRecord]) -> int:
    """How many bytes the records take when encoded."""
    if isinstance(records, PackedRecords):
        return len(records.encoded)
    return sum(
        MIN_RECORD_BYTES
        + len(record.producer_id)
        + len(record.key)
        + len(record.payload)
        + len(record.event_type)
        + len(record.metadata)
        for record in records
    )
