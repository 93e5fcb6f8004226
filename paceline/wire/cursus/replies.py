"""Replies as the clients' parsers expect them (DESIGN 4).

A success is ``OK`` or ``OK k=v k=v``; nothing but ``k=v`` may stand there, except the bracketed
list of JOIN and SYNC. JSON is compact, and an acknowledgement has all its eight fields in their
order: one client reads it with patterns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from paceline.wire.cursus.errors import CursusError
from paceline.wire.cursus.requests import TopicPolicy


def ok(**fields: object) -> str:
    """``OK`` with fields in the order given; True and False in lower case."""
    return " ".join(("OK", *(f"{name}={_shown(value)}" for name, value in fields.items())))


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def compact_json(value: Any) -> str:
    """JSON without blanks, so that it can be the value of a field."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# --- acknowledgements ---------------------------------------------------------------------------


class Ack(NamedTuple):
    """What became of a batch; sequences and the offset inclusive."""

    status: str
    last_offset: int
    producer_epoch: int
    producer_id: str
    sequence_start: int
    sequence_end: int
    leader: str
    error: str = ""


def ack_json(ack: Ack) -> str:
    """The acknowledgement. Its error must not hold a quote: Java's reader ends there."""
    return compact_json(
        {
            "status": ack.status,
            "last_offset": ack.last_offset,
            "producer_epoch": ack.producer_epoch,
            "producer_id": ack.producer_id,
            "seq_start": ack.sequence_start,
            "seq_end": ack.sequence_end,
            "leader": ack.leader,
            "error": ack.error.replace('"', "'").replace("\\", "/"),
        }
    )


# --- streams ------------------------------------------------------------------------------------


def stream_close(reason: str, offset: int) -> str:
    """The frame that ends a stream; ``offset`` is where the reader would go on."""
    return f"STREAM_CONTROL type=CLOSE reason={reason} offset={offset}"


def stream_out_of_range(requested: int, earliest: int, latest: int, offset: int) -> str:
    """The frame that ends a stream whose offset the log does not have."""
    close = stream_close("offset_out_of_range", offset)
    return f"{close} requested={requested} earliest={earliest} latest={latest}"


# --- topics -------------------------------------------------------------------------------------


def policy_fields(policy: TopicPolicy) -> dict[str, object]:
    """A topic's rules as CREATE and METADATA show them."""
    return {
        "cleanup_policy": policy.cleanup,
        "partitioner": policy.partitioner.value,
        "auth_policy": policy.auth.value,
        "read_acl": ",".join(policy.read_acl),
        "write_acl": ",".join(policy.write_acl),
        "retention_hours": policy.retention_hours,
        "retention_bytes": policy.retention_bytes,
    }


class PartitionOffsets(NamedTuple):
    """Offsets of one partition: first kept, next readable, next to be written, high watermark."""

    partition: int
    earliest: int
    latest: int
    log_end: int
    high_watermark: int


def list_offsets(topic: str, partitions: Sequence[PartitionOffsets]) -> str:
    """The reply of LIST_OFFSETS; exactly these four fields for each."""
    shown = ",".join(
        f"P{p.partition}:earliest={p.earliest}:latest={p.latest}:leo={p.log_end}"
        f":hwm={p.high_watermark}"
        for p in partitions
    )
    return ok(topic=topic, partitions=len(partitions), offsets=shown)


# --- groups -------------------------------------------------------------------------------------


def assignment(
    generation: int, member: str, partitions: Iterable[int], *, resumed: bool = False
) -> str:
    """The reply of JOIN and SYNC; blanks between the partitions, nothing behind the bracket but
    what a resuming client asked for."""
    listed = " ".join(map(str, partitions))
    tail = " resumed=true" if resumed else ""
    return f"OK generation={generation} member={member} assignments=[{listed}]{tail}"


def parse_assignment(line: str) -> frozenset[int]:
    """The partitions that :func:`assignment` listed."""
    listed = line.partition("[")[2].partition("]")[0]
    return frozenset(map(int, listed.split()))


# --- event sourcing -----------------------------------------------------------------------------


def snapshot(version: int, payload: str) -> str:
    """The reply of READ_SNAPSHOT where there is one."""
    return f"OK snapshot={compact_json({'version': version, 'payload': payload})}"


NO_SNAPSHOT = "OK snapshot=null"


def stream_head(
    topic: str, key: str, partition: int, count: int, snapshot: tuple[int, str] | None
) -> str:
    """The first of READ_STREAM's two frames; ``count`` is of the records in the second."""
    head: dict[str, object] = {
        "status": "OK",
        "topic": topic,
        "key": key,
        "partition": partition,
        "count": count,
    }
    if snapshot is not None:
        head["snapshot"] = {"version": snapshot[0], "payload": snapshot[1]}
    return compact_json(head)


def stream_error(error: str) -> str:
    """The only frame of a READ_STREAM that failed."""
    return compact_json({"error": error, "status": "ERROR"})


class StreamRefusal(CursusError):
    """The refusal of a READ_STREAM, whose clients expect JSON whatever happens."""

    def line(self, *, classed: bool = False) -> str:
        return stream_error(str(self))


def refusal_of(word: str, error: CursusError) -> CursusError:
    """``error`` in the form that clients of command ``word`` read."""
    return StreamRefusal(error.word, error.detail) if word == "READ_STREAM" else error


def status_json(fields: Mapping[str, object]) -> str:
    """A reply that is one JSON object, status first."""
    return compact_json({"status": "OK", **fields})
