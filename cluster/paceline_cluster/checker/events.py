"""What may stand in a history, one frozen class an event.

The order of the events is the order in which the one harness that writes the history saw them: an
invocation stands before anything of the request can have happened, an outcome after its answer
came. ``t`` is seconds since the history began, for the report only. Ends are exclusive.

A *stream* is what one producer writes under one key: the counters 0, 1, 2 ... in this order, all to
one partition. Streams are numbered by the harness. A producer whose write ended with its outcome
unknown goes on under a new stream, because the old write may still arrive.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from paceline.values import dataclass

HIDDEN = -1
"""Stream number in a run: offsets that hold nothing for readers (control, compacted batches)."""
FOREIGN = -2
"""Stream number in a run: records that are no counter of any stream."""

Run = tuple[int, int, int]
"""(stream, first counter, count): consecutive counters at consecutive offsets."""


@dataclass(frozen=True, slots=True)
class Begin:
    """First event. ``facts``: whatever identifies the run (seed, scenario, versions)."""

    t: float
    version: int
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream is opened, before its first write. ``acks`` is ``all``, ``leader`` or ``none``;
    ``ordered`` says that its producer promises order (idempotent, or one write in flight)."""

    t: float
    stream: int
    producer: str
    key: str
    at: str
    acks: str
    idempotent: bool
    ordered: bool


@dataclass(frozen=True, slots=True)
class Invoke:
    """Counters ``first .. first + count`` of a stream are about to be written."""

    t: float
    stream: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Ok:
    """Some of the invoked counters were acknowledged, at ``base`` and the offsets after it (-1 when
    no offset was told), by the leader of ``epoch``."""

    t: float
    stream: int
    first: int
    count: int
    base: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Some of the invoked counters were refused, and are promised not to be stored."""

    t: float
    stream: int
    first: int
    count: int
    error: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows whether these counters are or will be stored. Without any outcome until the
    end, counters are of unknown outcome as well."""

    t: float
    stream: int
    first: int
    count: int
    error: str


@dataclass(frozen=True, slots=True)
class Together:
    """These counters were written in one transaction, whatever its outcome: in the end all of them
    are visible, or none. ``runs`` are (stream, first counter, count)."""

    t: float
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Seek:
    """A reader begins, or goes on, at ``offset`` of a partition; what it read before does not
    bind it any more (a new assignment, a rebalance, a reset)."""

    t: float
    reader: str
    at: str
    offset: int


@dataclass(frozen=True, slots=True)
class Read:
    """A reader was given the records from ``base`` on, stored by the leader of ``epoch`` (-1 when
    it was not told)."""

    t: float
    reader: str
    at: str
    base: int
    epoch: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Final:
    """Everything is healed and drained; a partition holds ``start .. end``, and FinalRead events
    tell all of it, in order."""

    t: float
    at: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FinalRead:
    """A part of what a partition holds in the end; as Read."""

    t: float
    at: str
    base: int
    epoch: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """A member is about to commit an offset for its group. ``generation`` -1: it names none."""

    t: float
    op: int
    group: str
    at: str
    offset: int
    generation: int = -1


@dataclass(frozen=True, slots=True)
class CommitOk:
    t: float
    op: int


@dataclass(frozen=True, slots=True)
class CommitFail:
    """The commit was refused, and is promised not to hold."""

    t: float
    op: int
    error: str


@dataclass(frozen=True, slots=True)
class CommitUnknown:
    t: float
    op: int
    error: str


@dataclass(frozen=True, slots=True)
class AskOffset:
    """Somebody is about to ask for a group's committed offset."""

    t: float
    op: int
    group: str
    at: str


@dataclass(frozen=True, slots=True)
class OffsetTold:
    """The answer: ``offset`` is -1 when the group has committed none."""

    t: float
    op: int
    offset: int


@dataclass(frozen=True, slots=True)
class Join:
    """A member is about to join its group, or to ask for its state."""

    t: float
    op: int
    group: str
    member: str


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer: the group is in this generation."""

    t: float
    op: int
    generation: int


@dataclass(frozen=True, slots=True)
class Worked:
    """A program of a working group is done with the records from ``first`` to before ``end``. What
    such a group commits is not said otherwise: it commits by itself, too."""

    t: float
    group: str
    at: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A commit of a working group's program returned: the group is at ``offset`` or further."""

    t: float
    group: str
    at: str
    offset: int


@dataclass(frozen=True, slots=True)
class AskKept:
    """Somebody is about to ask for a working group's committed offset."""

    t: float
    op: int
    group: str
    at: str


@dataclass(frozen=True, slots=True)
class KeptTold:
    """The answer: ``offset`` is -1 when the group has committed none."""

    t: float
    op: int
    offset: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault begins. ``moves`` names the partitions that it certainly takes their leader from:
    the proof that it fell inside the writing is asked for those."""

    t: float
    fault: int
    kind: str
    target: str
    nodes: tuple[int, ...]
    moves: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Healed:
    """A fault was taken back."""

    t: float
    fault: int


WriteEvent = Stream | Invoke | Ok | Fail | Unknown | Together
ReadEvent = Seek | Read | Final | FinalRead
GroupEvent = Commit | CommitOk | CommitFail | CommitUnknown | AskOffset | OffsetTold | Join | Joined
WorkEvent = Worked | Kept | AskKept | KeptTold
FaultEvent = Fault | Healed
Event = Begin | WriteEvent | ReadEvent | GroupEvent | WorkEvent | FaultEvent


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of an event class, in order."""
    return tuple(field.name for field in dataclasses.fields(kind))
