"""Judges writes and reads: what was acknowledged is there, once, in order, and nothing else.

Memory: nine bytes for every offset that anybody was told of (``ledger.py``), and per stream the
intervals of its counters; a stream without failures is one interval. Pure.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import field

from paceline.values import dataclass
from paceline_cluster.checker import events
from paceline_cluster.checker.events import Run
from paceline_cluster.checker.findings import Findings, Kind
from paceline_cluster.checker.intervals import IntervalSet
from paceline_cluster.checker.ledger import (
    ACKED,
    FOREIGN_CODE,
    HIDDEN_CODE,
    NOTHING,
    READ,
    Ledger,
    Mismatch,
    code_of,
    record_of,
)

_REMEMBERED = 10_000
"""Of so many acknowledged records that are not where they should be, the offset is remembered."""


@dataclass(slots=True)
class _Pending:
    """An invocation without outcome for ``left`` of its counters; ``bound`` is where what was
    acknowledged in the partition ended when it was made."""

    first: int
    end: int
    bound: int
    left: int


@dataclass(slots=True)
class _Stream:
    info: events.Stream
    invoked: IntervalSet = field(default_factory=IntervalSet)
    acked: IntervalSet = field(default_factory=IntervalSet)
    refused: IntervalSet = field(default_factory=IntervalSet)
    given_up: IntervalSet = field(default_factory=IntervalSet)
    stored: IntervalSet = field(default_factory=IntervalSet)
    expired: IntervalSet = field(default_factory=IntervalSet)
    next_stored: int = 0
    pending: list[_Pending] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.info.producer}/{self.info.key}"

    def bound_of(self, first: int, count: int) -> int:
        """Where the acknowledged part ended when these counters were invoked; they are resolved."""
        for place, pending in enumerate(self.pending):
            if pending.first <= first < pending.end:
                pending.left -= count
                if pending.left <= 0:
                    del self.pending[place]
                return pending.bound
        return 0


@dataclass(slots=True)
class _Partition:
    name: str
    ledger: Ledger = field(default_factory=Ledger)
    acked_end: int = 0
    start: int = 0
    end: int | None = None
    position: int = 0
    last_epoch: int = -1
    epochs: set[int] = field(default_factory=set)


class RecordsJudge:
    """Takes the write and read events in order; :meth:`finish` once, after the last."""

    def __init__(self, findings: Findings, counts: Counter[str]) -> None:
        self._findings = findings
        self._counts = counts
        self._streams: dict[int, _Stream] = {}
        self._partitions: dict[str, _Partition] = {}
        self._positions: dict[tuple[str, str], int] = {}
        self._told_at: dict[int, int] = {}
        self._transactions: list[tuple[Run, ...]] = []

    def epochs(self, at: str) -> set[int] | None:
        """Leader epochs of the batches that a partition holds in the end; None when it was not
        read from its very beginning, or no epochs were told."""
        partition = self._partitions.get(at)
        if partition is None or partition.end is None or partition.start or -1 in partition.epochs:
            return None
        return partition.epochs

    def partition_of(self, stream: int) -> str | None:
        """The partition that a stream is written to; None when it was never opened."""
        found = self._streams.get(stream)
        return None if found is None else found.info.at

    # --- writes -----------------------------------------------------------------------------------

    def opened(self, event: events.Stream) -> None:
        if event.stream in self._streams or event.stream < 0:
            self._bad(f"stream {event.stream} is opened again")
            return
        self._streams[event.stream] = _Stream(event)
        self._partition(event.at)
        self._counts["streams"] += 1

    def invoked(self, event: events.Invoke) -> None:
        stream = self._streams.get(event.stream)
        end = event.first + event.count
        if stream is None or stream.invoked.common(event.first, end):
            self._bad(f"stream {event.stream}: {event.first}..{end} invoked twice or before it was")
            return
        stream.invoked.add(event.first, end)
        bound = self._partition(stream.info.at).acked_end
        stream.pending.append(_Pending(event.first, end, bound, event.count))
        self._counts["written"] += event.count

    def acknowledged(self, event: events.Ok) -> None:
        stream = self._resolved(event.stream, event.first, event.count)
        if stream is None:
            return
        bound = stream.bound_of(event.first, event.count)
        stream.acked.add(event.first, event.first + event.count)
        self._counts["acknowledged" if stream.info.acks == "all" else "acknowledged_weakly"] += (
            event.count
        )
        if event.base < -1:
            self._bad(f"stream {event.stream}: acknowledged at offset {event.base}")
        if event.base < 0 or stream.info.acks != "all":
            return  # a leader that has been replaced may say anything of a weak write
        partition = self._partition(stream.info.at)
        if event.base < bound:
            self._findings.add(
                Kind.REAL_TIME_ORDER,
                f"{partition.name}: {stream.name} {_span(event.first, event.count)} at offset "
                f"{event.base}, although everything before {bound} was acknowledged before it "
                "was sent",
            )
        codes = _codes(event.stream, event.first, event.count)
        partition.acked_end = max(partition.acked_end, event.base + event.count)
        self._inconsistent(
            partition, partition.ledger.tell(event.base, codes, ACKED), "acknowledged"
        )

    def refused(self, event: events.Fail) -> None:
        stream = self._resolved(event.stream, event.first, event.count)
        if stream is not None:
            stream.bound_of(event.first, event.count)
            stream.refused.add(event.first, event.first + event.count)
            self._counts["refused"] += event.count

    def given_up(self, event: events.Unknown) -> None:
        stream = self._resolved(event.stream, event.first, event.count)
        if stream is not None:
            stream.bound_of(event.first, event.count)
            stream.given_up.add(event.first, event.first + event.count)

    def together(self, event: events.Together) -> None:
        self._transactions.append(event.runs)
        self._counts["transactions"] += 1

    def _resolved(self, number: int, first: int, count: int) -> _Stream | None:
        """The stream of an outcome, if the outcome fits what was invoked."""
        stream = self._streams.get(number)
        end = first + count
        if stream is None or stream.invoked.missing(first, end):
            self._bad(f"stream {number}: an outcome of {first}..{end}, which were never invoked")
            return None
        if any(done.common(first, end) for done in (stream.acked, stream.refused, stream.given_up)):
            self._bad(f"stream {number}: a second outcome of some of {first}..{end}")
            return None
        return stream

    # --- reads ------------------------------------------------------------------------------------

    def sought(self, event: events.Seek) -> None:
        self._positions[event.reader, event.at] = event.offset

    def read(self, event: events.Read) -> None:
        partition = self._partition(event.at)
        place = (event.reader, event.at)
        self._in_line(f"{event.at}: {event.reader}", self._positions.get(place), event.base)
        codes = self._understood(partition, event.base, event.runs)
        self._positions[place] = event.base + len(codes)
        self._counts["read"] += len(codes)
        found = partition.ledger.tell(event.base, codes, READ)
        self._inconsistent(partition, found, f"read by {event.reader}")

    def _in_line(self, who: str, position: int | None, base: int) -> None:
        if position is None or position == base:
            return
        if base > position:
            text = f"{who} was at offset {position} and was given {base}"
            self._findings.add(Kind.GAP, text, base - position)
        else:
            text = f"{who} was at offset {position} and was given {base} again"
            self._findings.add(Kind.WENT_BACK, text)

    def _understood(self, partition: _Partition, base: int, runs: Iterable[Run]) -> array[int]:
        """The codes of what was read; notes what nobody had written by now."""
        codes = array("q")
        for number, first, count in runs:
            where = f"{partition.name} offset {base + len(codes)}"
            if number < 0:
                hidden = number == events.HIDDEN
                codes.extend(array("q", (HIDDEN_CODE if hidden else FOREIGN_CODE,)) * count)
                if not hidden:
                    text = f"{where}: {count} records that are nobody's"
                    self._findings.add(Kind.NEVER_WRITTEN, text, count)
                continue
            codes.extend(_codes(number, first, count))
            stream = self._streams.get(number)
            if stream is None or stream.info.at != partition.name:
                text = f"{where}: records of stream {number}, which does not write there"
                self._findings.add(Kind.NEVER_WRITTEN, text, count)
                continue
            for start, end in stream.invoked.missing(first, first + count):
                text = f"{where}: {stream.name} {_span(start, end - start)}, not written by then"
                self._findings.add(Kind.NEVER_WRITTEN, text, end - start)
        return codes

    def _inconsistent(self, partition: _Partition, found: list[Mismatch], how: str) -> None:
        for each in found:
            self._findings.add(
                Kind.INCONSISTENT,
                f"{partition.name} offset {each.offset}: {how} as {self._record(each.found)}, "
                f"{_told(each.flags)} as {self._record(each.known)} before",
            )

    # --- the end ----------------------------------------------------------------------------------

    def final(self, event: events.Final) -> None:
        partition = self._partition(event.at)
        if partition.end is not None:
            self._bad(f"{event.at} is read finally for a second time")
            return
        partition.start = partition.position = event.start
        partition.end = event.end
        for each in partition.ledger.known(0, event.start):
            if each.known > NOTHING:
                number, counter = record_of(each.known)
                self._streams[number].expired.add(counter, counter + 1)

    def final_read(self, event: events.FinalRead) -> None:
        partition = self._partition(event.at)
        if partition.end is None:
            self._bad(f"{event.at}: a final read before the extent of the partition is told")
            return
        self._in_line(f"{event.at}: the last reading", partition.position, event.base)
        self._missing(partition, partition.position, event.base)
        codes = self._understood(partition, event.base, event.runs)
        for each in partition.ledger.compare(event.base, codes):
            self._changed(partition, each)
        self._store(partition, event.runs)
        partition.position = event.base + len(codes)
        self._epoch(partition, event)
        self._counts["stored"] += len(codes)

    def _epoch(self, partition: _Partition, event: events.FinalRead) -> None:
        partition.epochs.add(event.epoch)
        if event.epoch < partition.last_epoch:
            self._findings.add(
                Kind.EPOCH_WENT_BACK,
                f"{partition.name} offset {event.base}: leader epoch {event.epoch} after "
                f"{partition.last_epoch}",
            )
        partition.last_epoch = max(partition.last_epoch, event.epoch)

    def _store(self, partition: _Partition, runs: Iterable[Run]) -> None:
        for number, first, count in runs:
            stream = self._streams.get(number)
            if stream is None:
                continue
            end = first + count
            self._duplicates(partition, stream, first, end)
            for start, stop in stream.stored.missing(first, end):
                if start < stream.next_stored and stream.info.ordered:
                    self._findings.add(
                        Kind.REORDERED,
                        f"{partition.name}: {stream.name} {_span(start, stop - start)} stands "
                        f"after {stream.next_stored - 1}",
                        stop - start,
                    )
                stream.next_stored = max(stream.next_stored, stop)
            stream.stored.add(first, end)

    def _duplicates(self, partition: _Partition, stream: _Stream, first: int, end: int) -> None:
        for start, stop in stream.stored.common(first, end):
            if stream.info.idempotent:
                text = f"{partition.name}: {stream.name} {_span(start, stop - start)}"
                self._findings.add(Kind.DUPLICATE, text, stop - start)
            else:
                self._counts["duplicates_allowed"] += stop - start

    def _missing(self, partition: _Partition, start: int, end: int | None) -> None:
        for each in partition.ledger.known(start, end):
            self._changed(partition, each)

    def _changed(self, partition: _Partition, each: Mismatch) -> None:
        """In the end an offset does not hold what somebody was told of it."""
        if each.flags & READ:
            self._findings.add(
                Kind.UNCOMMITTED_READ,
                f"{partition.name} offset {each.offset}: read as {self._record(each.known)}, "
                f"holds {self._record(each.found)} in the end",
            )
        if each.flags & ACKED and each.known > NOTHING and len(self._told_at) < _REMEMBERED:
            self._told_at.setdefault(each.known, each.offset)

    def finish(self) -> None:
        """Judge what only the whole can tell."""
        for name in sorted(self._partitions):
            self._finish_partition(self._partitions[name])
        for number in sorted(self._streams):
            self._finish_stream(number, self._streams[number])
        for runs in self._transactions:
            self._finish_transaction(runs)
        self._misplaced()

    def _finish_transaction(self, runs: tuple[Run, ...]) -> None:
        """All of it is stored, or none; what was removed from a start counts as stored."""
        lacking: list[str] = []
        written = 0
        for number, first, count in runs:
            stream = self._streams.get(number)
            if stream is None or self._partition(stream.info.at).end is None:
                return
            written += count
            for start, end in stream.stored.missing(first, first + count):
                for low, high in stream.expired.missing(start, end):
                    lacking.append(f"{stream.info.at}: {stream.name} {_span(low, high - low)}")
                    written -= high - low
        if lacking and written:
            text = f"{written} records of it are visible, but not {', '.join(lacking[:3])}"
            self._findings.add(Kind.TORN, text)

    def _finish_partition(self, partition: _Partition) -> None:
        if partition.end is None:
            return
        if partition.position != partition.end:
            self._findings.add(
                Kind.GAP,
                f"{partition.name}: the last reading ended at {partition.position}, the partition "
                f"at {partition.end}",
                abs(partition.end - partition.position),
            )
        self._missing(partition, partition.position, None)

    def _finish_stream(self, number: int, stream: _Stream) -> None:
        outcomes = (stream.acked, stream.refused)
        self._counts["unknown"] += len(stream.invoked) - sum(map(len, outcomes))
        if self._partition(stream.info.at).end is None:
            return
        for start, end in stream.refused:
            for low, high in stream.stored.common(start, end):
                text = f"{stream.info.at}: {stream.name} {_span(low, high - low)}"
                self._findings.add(Kind.REFUSED_STORED, text, high - low)
        for start, end in stream.acked:
            for low, high in stream.stored.missing(start, end):
                for first, last in stream.expired.missing(low, high):
                    self._lost(number, stream, first, last)

    def _lost(self, number: int, stream: _Stream, first: int, end: int) -> None:
        if stream.info.acks != "all":
            self._counts["weakly_acknowledged_lost"] += end - first
            return
        offset = self._told_at.get(code_of(number, first))
        told = "" if offset is None else f" (told offset {offset})"
        text = f"{stream.info.at}: {stream.name} {_span(first, end - first)}{told}"
        self._findings.add(Kind.LOST, text, end - first)

    def _misplaced(self) -> None:
        for code, offset in self._told_at.items():
            number, counter = record_of(code)
            stream = self._streams[number]
            if counter in stream.stored:
                self._findings.add(
                    Kind.MISPLACED,
                    f"{stream.info.at}: {self._record(code)} was acknowledged at offset {offset} "
                    "and stands elsewhere",
                )

    # --- inside -----------------------------------------------------------------------------------

    def unread(self) -> list[str]:
        """Partitions with acknowledged writes that nobody read in the end."""
        return sorted(
            {
                stream.info.at
                for stream in self._streams.values()
                if len(stream.acked) and self._partition(stream.info.at).end is None
            }
        )

    def _partition(self, name: str) -> _Partition:
        found = self._partitions.get(name)
        if found is None:
            found = self._partitions[name] = _Partition(name)
        return found

    def _record(self, code: int) -> str:
        if code == NOTHING:
            return "nothing"
        if code < 0:
            return "a hidden record" if code == HIDDEN_CODE else "a record of nobody"
        number, counter = record_of(code)
        stream = self._streams.get(number)
        return f"{stream.name if stream else f'stream {number}'} {counter}"

    def _bad(self, text: str) -> None:
        self._findings.add(Kind.BAD_HISTORY, text)


def _codes(stream: int, first: int, count: int) -> array[int]:
    code = code_of(stream, first)
    return array("q", range(code, code + count))


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}..{first + count - 1}"


def _told(flags: int) -> str:
    return "acknowledged" if flags & ACKED else "read"
