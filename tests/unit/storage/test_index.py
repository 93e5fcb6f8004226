"""Indexes against a full scan, and their bytes."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import CorruptMessage
from paceline_node.storage.index import OffsetIndex, TimeIndex
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.storage.world import batch, flush, new_log, reopen

entries = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 500)), min_size=1, max_size=30).map(
    lambda gaps: [
        (sum(g[0] for g in gaps[:n]), sum(g[1] for g in gaps[:n])) for n in range(1, len(gaps))
    ]
)


@given(entries, st.integers(0, 2_000), st.integers(0, 20_000))
def test_offset_index_finds_floors(
    pairs: list[tuple[int, int]], offset: int, position: int
) -> None:
    index = OffsetIndex(100)
    for relative, at in pairs:
        index.add(100 + relative, at)
    by_offset = [(100, 0), *((100 + o, p) for o, p in pairs if 100 + o <= offset)]
    assert index.floor(offset) == (by_offset[-1] if offset >= 100 else (100, 0))
    by_position = [(100, 0), *((100 + o, p) for o, p in pairs if p <= position)]
    assert index.floor_position(position) == by_position[-1]
    copy = OffsetIndex.from_bytes(100, index.to_bytes(), 1 << 30)
    assert list(copy.entries()) == list(index.entries())
    copy.truncate(position)
    assert list(copy.entries()) == [(p, 100 + o) for o, p in pairs if p < position]


def test_the_bytes() -> None:
    offsets = OffsetIndex(1_000)
    offsets.add(1_016, 4_096)
    offsets.add(1_300, 70_000)
    assert offsets.to_bytes().hex() == "00000010000010000000012c00011170"
    times = TimeIndex(1_000)
    times.add(1_700_000_000_000, 1_016)
    assert times.to_bytes().hex() == "0000018bcfe5680000000010"


@pytest.mark.parametrize("data", [b"1234567", bytes(16), bytes(8) + b"\xff" * 8, b"\xff" * 8])
def test_bad_offset_indexes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptMessage):
        OffsetIndex.from_bytes(0, data, 1_000)


@pytest.mark.parametrize("data", [b"12345678901", bytes(24)])
def test_bad_time_indexes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptMessage):
        TimeIndex.from_bytes(0, data)


def test_time_index_keeps_only_what_rises() -> None:
    times = TimeIndex(0)
    for timestamp, offset in ((5, 3), (5, 8), (4, 9), (7, 12)):
        times.add(timestamp, offset)
    assert len(times) == 2
    assert times.last == (7, 12)
    assert [times.last_below(ts) for ts in (4, 5, 6, 7, 8)] == [0, 0, 3, 3, 12]
    times.truncate(12)
    assert times.last == (5, 3)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3)), min_size=1, max_size=40),
    st.sampled_from(["open", "clean stop", "kill"]),
)
def test_timestamps_against_a_full_scan(drawn: list[tuple[int, int]], restart: str) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        limits = LogSettings(
            segment_bytes=900, index_interval_bytes=100, retention_ms=None, checkpoint_bytes=200
        )
        log = await new_log(disk, limits)
        records: list[int] = []
        for timestamp, count in drawn:
            log.append_leader(batch(count, timestamp=timestamp), 1, 1_000)
            records += [timestamp] * count
            await flush(log, disk)
            mark = await log.checkpoint()
        if restart == "kill":
            disk.kill()
            log = await reopen(disk, mark=mark, settings=limits)
        if restart == "clean stop":
            await log.close()
            log = await reopen(disk, mark=len(records), clean=True, settings=limits)
            assert log.recovery.scanned_bytes == 0
        start = len(records) // 3
        log.advance_start(start)
        for timestamp in range(32):
            expected = next(
                (
                    (offset, at)
                    for offset, at in enumerate(records)
                    if at >= timestamp and offset >= start
                ),
                None,
            )
            assert log.offset_for_timestamp(timestamp) == expected
        log.abandon()

    trio.run(run)


async def test_an_index_that_points_astray_is_built_anew() -> None:
    disk = MemoryDisk()
    limits = LogSettings(segment_bytes=1 << 20, index_interval_bytes=150, retention_ms=None)
    log = await new_log(disk, limits)
    for _ in range(40):
        log.append_leader(batch(), 1, 1_000)
    await log.close()
    path = log.segments[0].path(".index")
    index = bytearray(disk.content(path))
    index[7] += 1  # the first entry's position
    disk.overwrite(path, bytes(index))
    log = await reopen(disk, mark=40, clean=True, settings=limits)
    for offset in range(40):
        found = log.locate(offset, 1, 40)
        assert found is not None
        assert found.base_offset == offset
    log.abandon()
