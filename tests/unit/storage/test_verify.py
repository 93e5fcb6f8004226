"""Offline verification, dumping and comparison."""

from __future__ import annotations

import pytest

from paceline_node.storage import damage, verify
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.replica_comparison import compare_replicas
from paceline_node.storage.verify import DumpedBatch, Problem, dump_segment, verify_log
from tests.unit.storage.world import IDENTITY, PATH, batch, content, new_log

SETTINGS = LogSettings(segment_bytes=900, index_interval_bytes=150, retention_ms=None)


async def written(disk: MemoryDisk, epochs: str = "112233") -> Log:
    """Four batches of two records for each digit, stopped in an orderly way."""
    log = await new_log(disk, SETTINGS)
    for epoch in epochs:
        for _ in range(4):
            log.append_leader(batch(2), int(epoch), 1_000)
    await log.close()
    return log


def problems(report: verify.LogReport) -> list[tuple[Problem, int]]:
    return [(finding.problem, finding.offset) for finding in report.findings]


async def test_a_good_log() -> None:
    disk = MemoryDisk()
    log = await written(disk)
    report = await verify_log(disk, PATH, recovery_point=48)
    assert problems(report) == []
    assert report.identity == IDENTITY
    assert (report.log_start_offset, report.log_end_offset) == (0, 48)
    assert (report.batch_count, report.record_count) == (24, 48)
    assert report.size_bytes == sum(segment.size for segment in log.segments)


async def test_a_flipped_byte_is_found_wherever_it_is() -> None:
    disk = MemoryDisk()
    log = await written(disk)
    segment = log.segments[1]
    whole = disk.content(segment.path())
    size = len(whole) // ((segment.next_offset - segment.base_offset) // 2)
    for at in range(size, 3 * size):
        disk.overwrite(segment.path(), bytes([*whole[:at], whole[at] ^ 4, *whole[at + 1 :]]))
        report = await verify_log(disk, PATH, recovery_point=48)
        expected = segment.base_offset + 2 * (at // size)
        damaged = [found for found in problems(report) if found[0] is Problem.DAMAGED]
        assert damaged == [(Problem.DAMAGED, expected)], at


async def test_bytes_that_the_disk_cannot_give() -> None:
    disk = MemoryDisk()
    log = await written(disk)
    segment = log.segments[1]
    disk.make_unreadable(segment.path(), 0, 1)
    report = await verify_log(disk, PATH, recovery_point=48)
    (found,) = (each for each in report.findings if each.problem is Problem.DAMAGED)
    assert found.offset == segment.base_offset
    assert "cannot be read (Input/output error)" in str(found)
    shown: list[DumpedBatch] = []
    assert await dump_segment(disk, segment.path(), shown.append)
    assert not shown


async def test_what_was_given_up_and_what_is_being_repaired_is_told_as_such() -> None:
    disk = MemoryDisk()
    log = await written(disk)
    first, second = log.segments[:2]
    for segment in (first, second):
        disk.make_unreadable(segment.path(), 0, 1)
    start = second.base_offset
    known = DamagedRange(start, second.next_offset, "found by a reader")
    await damage.write(
        disk, PATH, IDENTITY.owner, [DamagedRange(0, start, "before the trim"), known]
    )
    report = await verify_log(disk, PATH, recovery_point=48, log_start=start)
    found = [each for each in problems(report) if each[0] is not Problem.INDEX]
    assert found == [
        (Problem.REPAIRING, start),
        (Problem.GIVEN_UP, 0),
        (Problem.DAMAGED, start),
    ]
    assert [each.problem for each in report.findings if each.problem.is_error] == [Problem.DAMAGED]


async def test_a_cut_tail() -> None:
    disk = MemoryDisk()
    log = await written(disk)
    last = log.segments[-1]
    whole = disk.content(last.path())
    disk.overwrite(last.path(), whole[:-5])
    report = await verify_log(disk, PATH)
    assert (Problem.TORN_TAIL, 46) in problems(report)
    assert not any(found.is_error for found, _ in problems(report))
    report = await verify_log(disk, PATH, recovery_point=48)
    assert (Problem.DAMAGED, 46) in problems(report)
    disk.overwrite(last.path(), whole[: -len(whole) // 2])
    report = await verify_log(disk, PATH, recovery_point=48)
    assert any(found.is_error for found, _ in problems(report))


async def test_a_missing_segment() -> None:
    disk = MemoryDisk()
    log = await written(disk)
    first, second = log.segments[1], log.segments[2]
    disk.remove(first.path())
    report = await verify_log(disk, PATH)
    assert (Problem.MISSING, first.base_offset) in problems(report)
    assert f"up to offset {second.base_offset}" in str(report.findings[0])
    assert report.log_end_offset == 48


async def test_a_wrong_index_and_a_wrong_epoch_table() -> None:
    disk = MemoryDisk()
    log = await written(disk)
    index = bytearray(disk.content(log.segments[0].path(".index")))
    index[7] ^= 1
    disk.overwrite(log.segments[0].path(".index"), bytes(index))
    disk.overwrite(f"{PATH}/epochs.ckpt", b"nonsense")
    disk.remove(f"{PATH}/partition.metadata")
    report = await verify_log(disk, PATH)
    assert {found for found, _ in problems(report)} == {
        Problem.INDEX,
        Problem.EPOCH_TABLE,
        Problem.METADATA,
    }


async def test_dump() -> None:
    disk = MemoryDisk()
    log = await written(disk, "12")
    path = log.segments[0].path()
    seen: list[tuple[int, int, bool, int]] = []

    def visit(dumped: DumpedBatch) -> None:
        header = dumped.header
        seen.append((dumped.position, header.base_offset, dumped.checksum_holds, len(dumped.data)))

    assert await dump_segment(disk, path, visit) is None
    size = seen[0][3]
    count = disk.content(path).__len__() // size
    assert seen == [(n * size, 2 * n, True, size) for n in range(count)]
    whole = bytearray(disk.content(path))
    whole[size + 80] ^= 1
    disk.overwrite(path, bytes(whole[:-3]))
    seen.clear()
    stopped = await dump_segment(disk, path, visit)
    assert [holds for _, _, holds, _ in seen] == [True, False, *[True] * (count - 3)]
    assert stopped == f"byte {(count - 1) * size}: the batch is cut short"


@pytest.mark.parametrize(
    ("other", "differing"),
    [("112233", None), ("1122", None), ("112244", 32), ("122233", 8)],
)
async def test_compare(other: str, differing: int | None) -> None:
    one, two = MemoryDisk(), MemoryDisk()
    await written(one)
    await written(two, other)
    places = {"node 0": (one, PATH), "node 1": (two, PATH)}
    findings = await compare_replicas(places, high_watermark=48)
    if differing is None:
        assert findings == []
        return
    (finding,) = findings
    assert (finding.problem, finding.offset) == (Problem.DIVERGED, differing)
    assert "node 1" in finding.message
    assert "node 0 has" in finding.message
    assert await compare_replicas(places, high_watermark=differing) == []


async def test_compare_batches_cut_differently() -> None:
    one, two = MemoryDisk(), MemoryDisk()
    await written(one, "1")
    log = await new_log(two, SETTINGS)
    log.append_leader(batch(2) + batch(1) + batch(3) + batch(2), 1, 1_000)
    await log.close()
    findings = await compare_replicas({"a": (one, PATH), "b": (two, PATH)}, high_watermark=8)
    assert {finding.problem for finding in findings} == {Problem.DIVERGED}
    assert min(finding.offset for finding in findings) == 2


async def test_compare_logs_that_begin_later() -> None:
    one, two = MemoryDisk(), MemoryDisk()
    await written(one)
    log = await new_log(two, SETTINGS)
    source = await written(MemoryDisk())
    del source
    for epoch in "112233":
        for _ in range(4):
            log.append_leader(batch(2), int(epoch), 1_000)
    log.advance_start(log.segments[2].base_offset)
    assert len(content(log)) > 0
    await log.close()
    assert await compare_replicas({"a": (one, PATH), "b": (two, PATH)}, high_watermark=48) == []
