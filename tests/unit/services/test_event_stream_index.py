"""The index of event streams against a plain model of a log."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.wire.batch import build_batch, read_header, stamp
from paceline.wire.cursus.batch import CursusRecord
from paceline.wire.cursus_record_mapping import record_of
from paceline.wire.records import Record
from paceline_node.services.event_streams.event_stream_index import (
    SnapshotPlace,
    StreamIndex,
    snapshot_batch,
)

keys = st.sampled_from([b"a", b"b", b"c"])
steps = st.lists(st.tuples(keys, st.sampled_from(["event", "snapshot", "foreign"])), max_size=40)


@given(steps, st.integers(0, 40), st.integers(0, 40))
@settings(deadline=None)
def test_the_index_is_the_fold_of_the_log(
    drawn: list[tuple[bytes, str]], start: int, end: int
) -> None:
    index = StreamIndex(3, 0)
    events: dict[bytes, list[int]] = {}
    snapshots: dict[bytes, list[SnapshotPlace]] = {}
    for offset, (key, what) in enumerate(drawn):
        seen = events.setdefault(key, [])
        if what == "event":
            seen.append(offset)
            event = record_of(CursusRecord(key=key, payload=b"e", aggregate_version=len(seen)))
            batch = build_batch([event], timestamp_ms=1)
        elif what == "snapshot" and seen:
            snapshots.setdefault(key, []).append(SnapshotPlace(len(seen), offset))
            batch = snapshot_batch(key, len(seen), b"s", timestamp_ms=1)
        else:
            batch = build_batch([Record(key=key, value=b"no event")], timestamp_ms=1)
        stamp(batch, 0, offset, 3)
        index.add(batch, 0, read_header(batch), committed=0)
    assert index.position == len(drawn)
    for key in (b"a", b"b", b"c"):
        seen = events.get(key, [])
        assert index.version(key, end=end) == len([each for each in seen if each < end])
        shown = [each for each in seen[1:] if start <= each < end]
        assert index.events(key, 2, start=start, end=end) == shown
        kept = [each for each in snapshots.get(key, []) if start <= each.offset < end]
        newest = kept[-1] if kept else None
        assert index.snapshot(key, start=start, end=end) == newest


def test_a_stream_whose_first_events_are_gone() -> None:
    index = StreamIndex(0, 7)
    event = record_of(CursusRecord(key=b"k", payload=b"e", aggregate_version=5))
    batch = build_batch([event], timestamp_ms=1)
    stamp(batch, 0, 7, 0)
    index.add(batch, 0, read_header(batch), committed=0)
    assert index.version(b"k", end=8) == 5
    assert index.events(b"k", 1, start=0, end=8) == [7]
    only = StreamIndex(0, 0)
    kept = snapshot_batch(b"k", 4, b"s", timestamp_ms=1)
    only.add(kept, 0, read_header(kept), committed=0)
    assert only.version(b"k", end=1) == 4


def add_event(index: StreamIndex, version: int, offset: int) -> None:
    event = record_of(CursusRecord(key=b"k", payload=b"e", aggregate_version=version))
    batch = build_batch([event], timestamp_ms=1)
    stamp(batch, 0, offset, 0)
    index.add(batch, 0, read_header(batch), committed=0)


def add_snapshot(index: StreamIndex, version: int, offset: int, *, committed: int) -> None:
    batch = snapshot_batch(b"k", version, b"s", timestamp_ms=1)
    stamp(batch, 0, offset, 0)
    index.add(batch, 0, read_header(batch), committed=committed)


def test_versions_keep_their_offsets_behind_a_snapshot_of_an_older_one() -> None:
    """Of events 1 to 3, a snapshot that shows 2, and event 4 the first three are gone: event 4 was
    given for 3, and 4 was to be written once more."""
    index = StreamIndex(0, 3)
    add_snapshot(index, 2, 3, committed=0)
    add_event(index, 4, 4)
    assert index.version(b"k", end=5) == 4
    assert index.events(b"k", 4, start=3, end=5) == [4]
    assert index.events(b"k", 5, start=3, end=5) == []
    add_event(index, 4, 5)  # written past this service: the version was there already
    assert index.version(b"k", end=6) == 4


def test_saves_under_way_do_not_hide_the_committed_snapshot() -> None:
    """Two were remembered: with two under way the committed one was no more to be found."""
    index = StreamIndex(0, 0)
    for offset in range(3):
        add_event(index, offset + 1, offset)
    for offset in range(3, 8):
        add_snapshot(index, 1, offset, committed=4)
    assert index.snapshot(b"k", start=0, end=4) == SnapshotPlace(1, 3)
    add_snapshot(index, 2, 8, committed=8)
    assert index.snapshot(b"k", start=0, end=8) == SnapshotPlace(1, 7)
    assert index.snapshot(b"k", start=0, end=9) == SnapshotPlace(2, 8)
