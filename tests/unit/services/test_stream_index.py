"""The index of event streams against a plain model of a log."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.wire.batch import build_batch, read_header, stamp
from paceline.wire.cursus.batch import CursusRecord
from paceline.wire.mapping import record_of
from paceline.wire.records import Record
from paceline_node.services.stream_index import SnapshotPlace, StreamIndex, snapshot_batch

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
        index.add(batch, 0, read_header(batch))
    assert index.position == len(drawn)
    for key in (b"a", b"b", b"c"):
        seen = events.get(key, [])
        assert index.version(key, end=end) == len([each for each in seen if each < end])
        shown = [each for each in seen[1:] if start <= each < end]
        assert index.events(key, 2, start=start, end=end) == shown
        kept = [each for each in snapshots.get(key, [])[-2:] if start <= each.offset < end]
        newest = kept[-1] if kept else None
        assert index.snapshot(key, start=start, end=end) == newest


def test_a_stream_whose_first_events_are_gone() -> None:
    index = StreamIndex(0, 7)
    event = record_of(CursusRecord(key=b"k", payload=b"e", aggregate_version=5))
    batch = build_batch([event], timestamp_ms=1)
    stamp(batch, 0, 7, 0)
    index.add(batch, 0, read_header(batch))
    assert index.version(b"k", end=8) == 5
    assert index.events(b"k", 1, start=0, end=8) == [7]
    only = StreamIndex(0, 0)
    kept = snapshot_batch(b"k", 4, b"s", timestamp_ms=1)
    only.add(kept, 0, read_header(kept))
    assert only.version(b"k", end=1) == 4
