"""Records what clients did and were told, for the checker (``paceline_cluster.checker``).

A value is ``<stream>.<counter>`` and padding, so every record that is read names its write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from paceline.errors import Outcome, PacelineError
from paceline.types import Acks
from paceline_cluster.checker import events
from paceline_cluster.checker.checker import Checker
from paceline_cluster.checker.events import FOREIGN, HIDDEN, Run

_ACKS = {Acks.ALL: "all", Acks.LEADER: "leader", Acks.NONE: "none"}
_LAST = "the last reading"


def at(topic: str, partition: int) -> str:
    """A partition's name in histories."""
    return f"{topic}/{partition}"


def is_open(error: PacelineError) -> bool:
    """Whether what was asked for may have been done, as the error itself says."""
    return error.outcome is Outcome.UNKNOWN


class Stream:
    """What one producer writes to one partition, until an outcome is unknown."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.next_counter = 0


class Recorder:
    """Feeds a checker; ``now`` is virtual time. Partitions of the topic ``hides`` hold offsets that
    readers are not shown (markers, and what was aborted): passing over those is no gap."""

    def __init__(self, now: Callable[[], float], hides: str = "") -> None:
        self._now = now
        self._hides = f"{hides}/"
        self._next: dict[tuple[str, str], int] = {}
        self._last_epoch: dict[str, int] = {}
        self.checker = Checker()
        self.events: list[events.Event] = []
        self._streams = 0
        self._faults = 0
        self._ops = 0
        self.acknowledged = 0
        self.unknown = 0
        self.refused = 0
        self.read = 0
        self._names: set[int] = set()
        self.named_twice: list[int] = []
        """Producer ids that were given out more than once."""

    @property
    def t(self) -> float:
        """Virtual time."""
        return self._now()

    def say(self, event: events.Event) -> None:
        """Append an event."""
        self.events.append(event)
        self.checker.feed(event)

    def named(self, producer_id: int) -> None:
        """A producer that is new has got its id."""
        if producer_id in self._names:
            self.named_twice.append(producer_id)
        self._names.add(producer_id)

    def next_op(self) -> int:
        """A number for a question to a group."""
        self._ops += 1
        return self._ops

    # --- writes -----------------------------------------------------------------------------------

    def open(self, producer: str, where: str, acks: Acks, *, idempotent: bool) -> Stream:
        stream = Stream(self._streams)
        self._streams += 1
        self.say(
            events.Stream(
                self._now(),
                stream.number,
                producer,
                where,
                where,
                _ACKS[acks],
                idempotent,
                ordered=True,
            )
        )
        return stream

    def invoke(self, stream: Stream, count: int, padding: int) -> tuple[int, list[bytes]]:
        """``count`` records are about to be written: their first counter, and their values."""
        first = stream.next_counter
        stream.next_counter += count
        self.say(events.Invoke(self._now(), stream.number, first, count))
        pad = b" " * padding
        return first, [b"%d.%d%s" % (stream.number, first + n, pad) for n in range(count)]

    def ok(self, stream: Stream, counter: int, offset: int, epoch: int) -> None:
        self.acknowledged += 1
        self.say(events.Ok(self._now(), stream.number, counter, 1, offset, epoch))

    def fail(self, stream: Stream, counter: int, error: str) -> None:
        self.refused += 1
        self.say(events.Fail(self._now(), stream.number, counter, 1, error))

    def unknown_outcome(self, stream: Stream, counter: int, error: str) -> None:
        self.unknown += 1
        self.say(events.Unknown(self._now(), stream.number, counter, 1, error))

    # --- reads ------------------------------------------------------------------------------------

    def seek(self, reader: str, where: str, offset: int) -> None:
        self._next[reader, where] = offset
        self.say(events.Seek(self._now(), reader, where, offset))

    def given(
        self, reader: str, where: str, base: int, epoch: int, values: Iterable[bytes | None]
    ) -> None:
        runs = runs_of(values)
        self.read += sum(count for _, _, count in runs)
        start, runs = self._filled(reader, where, base, runs)
        self.say(events.Read(self._now(), reader, where, start, epoch, runs))

    def final(self, where: str, start: int, end: int) -> None:
        self._next[_LAST, where] = start
        self.say(events.Final(self._now(), where, start, end))

    def final_read(self, where: str, base: int, epoch: int, values: Iterable[bytes | None]) -> None:
        self._last_epoch[where] = epoch
        start, runs = self._filled(_LAST, where, base, runs_of(values))
        self.say(events.FinalRead(self._now(), where, start, epoch, runs))

    def final_end(self, where: str, end: int) -> None:
        """All of a partition has been told; what is left of it is not shown to readers."""
        if where.startswith(self._hides) and self._next.get((_LAST, where), end) < end:
            start, runs = self._filled(_LAST, where, end, ())
            epoch = self._last_epoch.get(where, 0)
            self.say(events.FinalRead(self._now(), where, start, epoch, runs))

    def _filled(
        self, reader: str, where: str, base: int, runs: tuple[Run, ...]
    ) -> tuple[int, tuple[Run, ...]]:
        """The runs with what was not shown before them, as far as the topic may hide anything."""
        expected = self._next.get((reader, where), base)
        self._next[reader, where] = base + sum(count for _, _, count in runs)
        if expected < base and where.startswith(self._hides):
            return expected, ((HIDDEN, 0, base - expected), *runs)
        return base, runs

    # --- groups -----------------------------------------------------------------------------------

    @contextmanager
    def committing(
        self,
        group: str,
        where: str,
        offset: int,
        generation: int,
        *,
        is_open: Callable[[PacelineError], bool] = is_open,
    ) -> Iterator[None]:
        """A commit is sent in the block: it is done when that ends, and open or refused, as
        ``is_open`` says, when a PacelineError ends it. What is cancelled has no outcome."""
        op = self.next_op()
        self.say(events.Commit(self._now(), op, group, where, offset, generation))
        try:
            yield
        except PacelineError as error:
            ended = events.CommitUnknown if is_open(error) else events.CommitFail
            self.say(ended(self._now(), op, repr(error)))
            raise
        self.say(events.CommitOk(self._now(), op))

    # --- faults -----------------------------------------------------------------------------------

    def fault(self, kind: str, target: str, nodes: Iterable[int]) -> None:
        self.say(events.Fault(self._now(), self._faults, kind, target, tuple(nodes)))
        self._faults += 1


def runs_of(values: Iterable[bytes | None]) -> tuple[Run, ...]:
    """Consecutive counters of one stream as one run."""
    runs: list[Run] = []
    for value in values:
        stream, counter = _parse(value)
        if runs and stream != FOREIGN:
            last, first, count = runs[-1]
            if last == stream and first + count == counter:
                runs[-1] = (last, first, count + 1)
                continue
        runs.append((stream, counter, 1))
    return tuple(runs)


def _parse(value: bytes | None) -> tuple[int, int]:
    stream, _, counter = (value or b"").strip().partition(b".")
    if stream.isdigit() and counter.isdigit():
        return int(stream), int(counter)
    return FOREIGN, 0
