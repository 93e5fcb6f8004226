"""What compaction keeps of a log: the last value of each key (DESIGN 9). Pure.

Two passes over the log. The first notes the newest offset of each key in the *dirty* part, which is
what no compaction has seen yet. The second goes over everything from the log start and drops each
record whose key occurs again later. When the dirty part has more keys than the map may hold, the
first pass stops there and the rest is a further round's.

Never dropped: records without a key, what lies behind an extension that is not records, batches
whose records nobody can decode (clients' bytes are stored as they come; nor any tombstone behind
one), and the header of each producer's last batches, from which a replica that fetches the log anew
learns its sequences (``producers.WINDOW``).

Only what is decided is looked at, below the last stable offset. Records of aborted transactions go,
and supersede nothing; committed ones are as any others. A marker stays as long as a batch of its
transaction did before this round, and while it is the last that the log says of its producer. Then
it gets a delete horizon: whoever has read those batches has so long to read on to the marker.

A tombstone that is the last value of its key stays until its batch's *delete horizon*, which the
first compaction that keeps it sets: whoever read an older value of the key just before has the time
``delete.retention.ms`` to read on to the tombstone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import NamedTuple, Protocol

from paceline.errors import CorruptMessage, UnsupportedCompression
from paceline.types import NO_EPOCH
from paceline.values import dataclass
from paceline.wire.batch_header import (
    DELETE_HORIZON,
    LENGTH_OVERHEAD,
    BatchHeader,
    verify,
)
from paceline.wire.compacted_batch import (
    RecordSpan,
    bare,
    has_records,
    is_bare,
    join,
    open_payload,
    record_spans,
    thin,
)
from paceline.wire.end_marker import is_end_marker
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.key_map import KeyMap
from paceline_node.storage.producer_state import WINDOW, ProducerKey, key_of
from paceline_node.storage.transaction_index import AbortedRanges

_LENGTH_END = 12


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """When a log is compacted, and what stays (topic configuration of the same names)."""

    min_cleanable_ratio: float = 0.5
    min_lag_ms: int = 0
    max_lag_ms: int | None = None
    delete_retention_ms: int = 24 * 3600 * 1000


class SegmentLike(Protocol):
    """What the decision looks at."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def created_ms(self) -> int: ...


class Cleanable(NamedTuple):
    """What a compaction would look at: everything up to ``end``, of which the part from
    ``dirty_from`` on is dirty. ``is_due`` says whether to do it now."""

    dirty_from: int
    end: int
    dirty_ratio: float
    is_due: bool


def judge(
    segments: Sequence[SegmentLike],
    rules: CompactionRules,
    *,
    cleaned_offset: int,
    horizon_ms: int,
    stable_offset: int,
    now_ms: int,
) -> Cleanable:
    """What may be compacted, and whether it is worth it.

    The last segment is active and never touched; neither is one that reaches above
    ``stable_offset``, nor one with a record younger than ``min_lag_ms``, nor any behind such a one.
    ``horizon_ms``: when the next tombstone may go; -1: none waits.
    """
    count = 0
    for segment in segments[:-1]:
        young = segment.max_timestamp > now_ms - rules.min_lag_ms and rules.min_lag_ms > 0
        if segment.next_offset > stable_offset or young:
            break
        count += 1
    start = segments[0].base_offset
    cleaned = max(cleaned_offset, start)
    if count == 0:
        return Cleanable(cleaned, start, 0.0, is_due=False)
    end = segments[count - 1].next_offset
    dirty = [each for each in segments[:count] if each.next_offset > cleaned]
    total = sum(each.size for each in segments[:count])
    ratio = sum(each.size for each in dirty) / total if total else 0.0
    overdue = (
        rules.max_lag_ms is not None
        and bool(dirty)
        and now_ms - dirty[0].created_ms > rules.max_lag_ms
    )
    due = bool(dirty) and (ratio >= rules.min_cleanable_ratio or overdue)
    return Cleanable(cleaned, end, ratio, is_due=due or 0 <= horizon_ms <= now_ms)


def whole_batches(data: bytes) -> int:
    """How many bytes from the start are whole batches, by their lengths alone."""
    position = 0
    while position + _LENGTH_END <= len(data):
        length = int.from_bytes(data[position + 8 : position + _LENGTH_END], "big")
        end = position + length + LENGTH_OVERHEAD
        if end > len(data):
            break
        position = end
    return position


@dataclass(slots=True)
class FirstPass:
    """The newest offset of each key from ``start`` on; feed it the dirty part in order."""

    start: int
    keys: KeyMap
    aborted: AbortedRanges = field(default_factory=AbortedRanges)
    end: int = field(init=False)
    """All keys below it are in the map."""
    is_full: bool = False
    _recent: dict[ProducerKey, deque[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.end = self.start

    def feed(self, data: bytes) -> None:
        """Note whole batches; stops for good when the map is full. Raises CorruptMessage."""
        for position, header in _verified(data):
            if header.next_offset <= self.end or self.is_full:
                continue
            if not self.keys.has_room(header.record_count):
                self.is_full = True
                return
            producer = key_of(header)
            if producer is not None:
                self._recent.setdefault(producer, deque(maxlen=WINDOW)).append(header.base_offset)
            if not self.aborted.contains(header):
                _, spans = _open(header, data, position)
                for span in spans:
                    if span.key is not None:
                        self.keys.note(span.key, span.offset)
            self.end = header.next_offset

    def needs_header(self, header: BatchHeader) -> bool:
        """Whether the producer fields of a batch are still needed to rebuild producer state."""
        producer = key_of(header)
        if producer is None:
            return False
        recent = self._recent.get(producer, ())
        if header.base_offset >= self.start:
            return header.base_offset in recent
        return len(recent) < WINDOW


def _never(_header: BatchHeader) -> bool:
    return False


class SecondPass:
    """What stays of the log, fed to it in order from the log start.

    ``next_horizon_ms``: when the first tombstone or marker that it kept may go; -1: it kept none.
    ``set_horizon_ms``: the one that it gave; -1: none. Below ``removed_to`` it has removed
    tombstones or markers, of batches with the horizons ``expired``.
    ``is_superseded``: whether the log says more of a marker's producer behind it; ``still_open``:
    producers whose transactions the state at the log's start says to be open. The output goes to
    one file after the other: :meth:`begin`, :meth:`feed` ..., :meth:`finish`.
    """

    def __init__(
        self,
        first: FirstPass,
        rules: CompactionRules,
        now_ms: int,
        *,
        is_superseded: Callable[[BatchHeader], bool] = _never,
        still_open: Iterable[int] = (),
    ) -> None:
        self._first = first
        self._is_superseded = is_superseded
        self._rules = rules
        self._now_ms = now_ms
        self._empty: BatchHeader | None = None  # placeholders joined so far, not given out yet
        self._empty_count = 0
        self._seen_opaque = False
        self._with_batches = set(still_open)  # producers, since their last marker
        self.next_horizon_ms = -1
        self.set_horizon_ms = -1
        self.removed_to = 0
        self.expired: set[int] = set()
        self.has_changed = False
        """Whether the file differs from what was fed since :meth:`begin`."""
        self.dropped_count = 0
        self.opaque_count = 0
        """Batches kept because there is nothing in them that this code understands."""

    def begin(self) -> None:
        """The next output file begins."""
        assert self._empty is None, "the last file was not finished"
        self.has_changed = False

    def feed(self, data: bytes) -> list[bytes | bytearray | memoryview]:
        """What to write for whole batches. Raises CorruptMessage."""
        out: list[bytes | bytearray | memoryview] = []
        view = memoryview(data)
        same_from = same_to = 0  # batches in a row that stay as they are
        for position, header in _verified(data):
            new = self._one(header, data, position)
            if new is None:
                if self._empty is not None:
                    out.append(self.finish())
                if same_to != position:
                    out.append(view[same_from:same_to])
                    same_from = position
                same_to = position + header.size_bytes
                continue
            if same_from != same_to:
                out.append(view[same_from:same_to])
            same_from = same_to = position + header.size_bytes
            if isinstance(new, BatchHeader):
                out += self._join(new)
            else:
                if self._empty is not None:
                    out.append(self.finish())
                out.append(new)
        if same_from != same_to:
            out.append(view[same_from:same_to])
        return [each for each in out if each]

    def finish(self) -> bytearray:
        """The placeholder at the end, if there is one, otherwise nothing."""
        if self._empty is None:
            return bytearray()
        if self._empty_count > 1:
            self.has_changed = True
        made = bare(self._empty)
        self._empty = None
        return made

    def _join(self, header: BatchHeader) -> Iterator[bytearray]:
        joined = None if self._empty is None else join(self._empty, header)
        if joined is None:
            if self._empty is not None:
                yield self.finish()
            self._empty, self._empty_count = header, 1
        else:
            self._empty = joined
            self._empty_count += 1

    def _one(
        self, header: BatchHeader, data: bytes, position: int
    ) -> BatchHeader | bytearray | None:
        """None: the batch stays as it is. A header: only its offsets stay, and may be joined."""
        if header.next_offset > self._first.end:
            return None
        if header.is_control:
            return self._marker(header, data, position)
        if header.is_transactional:
            self._with_batches.add(header.producer_id)
        if header.record_count == 0:
            return self._reduced(header)
        if self._first.aborted.contains(header):
            self.has_changed = True
            self.dropped_count += header.record_count
            must_stay = self._must_stay(header)
            return thin(header, data, position, b"", ()) if must_stay else header
        body, spans = _open(header, data, position)
        if not spans:
            self.opaque_count += 1
            # An older value in it may outlive a tombstone, so from here on tombstones stay.
            self._seen_opaque = self._seen_opaque or has_records(header, data, position)
            return None
        kept = list(self._kept(header, spans))
        horizon = self._horizon(header, kept)
        if len(kept) == len(spans) and horizon is None:
            return None
        self.has_changed = True
        self.dropped_count += len(spans) - len(kept)
        if kept or self._must_stay(header):
            return thin(header, data, position, body, kept, horizon_ms=horizon)
        return header

    def _marker(
        self, header: BatchHeader, data: bytes, position: int
    ) -> BatchHeader | bytearray | None:
        had_batches = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        if had_batches or not (is_end_marker(header) and self._is_superseded(header)):
            return None
        known = self._has_horizon(header)
        if known and header.base_timestamp <= self._now_ms:
            self.has_changed = True
            self._remove(header)
            return header
        horizon = self._later(header)
        if known:
            return None
        self.has_changed = True
        body = open_payload(header, data, position)
        return thin(header, data, position, body, record_spans(header, body), horizon_ms=horizon)

    def _reduced(self, header: BatchHeader) -> BatchHeader | None:
        """An empty batch: bare already, or kept so far for its producer's sake."""
        if is_bare(header):
            return header
        if self._must_stay(header) or header.is_control:
            return None
        self.has_changed = True
        return header

    def _must_stay(self, header: BatchHeader) -> bool:
        return header.is_extended or self._first.needs_header(header)

    def _kept(self, header: BatchHeader, spans: Iterable[RecordSpan]) -> Iterator[RecordSpan]:
        expired = (
            self._has_horizon(header)
            and header.base_timestamp <= self._now_ms
            and not self._seen_opaque
        )
        for span in spans:
            if span.key is None:
                yield span
                continue
            if self._first.keys.newest(span.key) > span.offset:
                continue
            if span.is_tombstone and expired:
                self._remove(header)
                continue
            yield span

    def _remove(self, header: BatchHeader) -> None:
        """Something goes whose time has come, and which a replica that is away may have missed."""
        self.removed_to = max(self.removed_to, header.next_offset)
        self.expired.add(header.base_timestamp)

    def _has_horizon(self, header: BatchHeader) -> bool:
        """Whether this log's own compaction has set the batch's horizon. One set by a leader from
        which the batch was fetched tells nothing of what was readable here."""
        return bool(header.attributes & DELETE_HORIZON) and header.base_offset < self._first.start

    def _horizon(self, header: BatchHeader, kept: Sequence[RecordSpan]) -> int | None:
        """The horizon to set; None when there is one already, or no need."""
        if not any(span.is_tombstone for span in kept):
            return None
        horizon = self._later(header)
        return None if self._has_horizon(header) else horizon

    def _later(self, header: BatchHeader) -> int:
        """The batch's horizon, which it has or is to get; a compaction is due then."""
        horizon = header.base_timestamp
        if not self._has_horizon(header):
            horizon = self._now_ms + self._rules.delete_retention_ms
            self.set_horizon_ms = horizon
        if self.next_horizon_ms < 0 or horizon < self.next_horizon_ms:
            self.next_horizon_ms = horizon
        return horizon


class Noting(Protocol):
    """The segment that a new file makes."""

    size: int
    next_offset: int

    def note(self, header: BatchHeader, base_offset: int, position: int, interval: int) -> None: ...


class Check:
    """Reads a new file back: checksums, offsets in a row, leader epochs as the log's table says."""

    def __init__(self, segment: Noting, epochs: EpochCache, *, index_interval: int) -> None:
        self._segment = segment
        self._epochs = epochs
        self._interval = index_interval

    def feed(self, data: bytes) -> None:
        """Note whole batches in the segment. Raises CorruptMessage."""
        segment = self._segment
        start = segment.size
        for position, header in _verified(data):
            # The table says nothing of what lies below the log start.
            known = self._epochs.epoch_at(header.last_offset)
            fits = known in (NO_EPOCH, header.leader_epoch)
            if header.base_offset != segment.next_offset or not fits:
                raise CorruptMessage(
                    f"compacted batch of offsets {header.base_offset}..{header.last_offset} epoch "
                    f"{header.leader_epoch}, expected offset {segment.next_offset} epoch {known}"
                )
            segment.note(header, header.base_offset, start + position, self._interval)


def _open(header: BatchHeader, data: bytes, position: int) -> tuple[bytes, Sequence[RecordSpan]]:
    """A batch's uncompressed payload and the records in it; nothing where it is something else."""
    if not has_records(header, data, position):
        return b"", ()
    try:
        body = open_payload(header, data, position)
        return body, record_spans(header, body)
    except (CorruptMessage, UnsupportedCompression):
        return b"", ()


def _verified(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    position = 0
    while position < len(data):
        header = verify(data, position)
        yield position, header
        position += header.size_bytes
