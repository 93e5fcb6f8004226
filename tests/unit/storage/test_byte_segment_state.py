"""Segments (the protocol's) on a log: ends, writers, positions, what the verifier says of them."""

from __future__ import annotations

import random

import pytest

from paceline.errors import OutOfOrderSequence, SegmentSealed
from paceline.wire.batch import (
    PayloadKind,
    ProducerNamespace,
    build_raw_batch,
    iter_batches,
    read_extension,
)
from paceline.wire.records import decode_records
from paceline.wire.segment.events import event_data, frame_events
from paceline_node.storage import producer_file
from paceline_node.storage.byte_positions import batch_at, batch_holding_offset, first_position
from paceline_node.storage.byte_segment_batches import (
    Run,
    expire_batch,
    run_batch,
    seal_batch,
    truncate_batch,
)
from paceline_node.storage.byte_segment_state import NO_WRITER, level_of, require_next, writer_key
from paceline_node.storage.checkpoint import read_file
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producers import ProducerTable
from paceline_node.storage.verify import Problem, verify_log
from tests.unit.storage.world import PATH, flush, new_log, reopen

SEED = ProducerNamespace.SEGMENT_SEED
A, B = b"a" * 16, b"b" * 16
FINE = LogSettings(segment_bytes=2000, index_interval_bytes=150, retention_ms=None)


def append(log: Log, writer: bytes, *events: bytes, now_ms: int = 1_000) -> None:
    state = log.producers.writer(writer_key(SEED, writer))
    start = 0 if state is None else state.end
    payload = frame_events(events)
    run = Run(SEED, writer, start, start + len(payload), len(events), payload)
    require_next(log.producers.marks, level_of(SEED, state), start)
    log.append_leader(run_batch(run, log.producers.marks, now_ms), 0, now_ms)


def level(log: Log, writer: bytes) -> int | None:
    state = log.producers.writer(writer_key(SEED, writer))
    return None if state is None else state.end


async def filled(disk: MemoryDisk, seed: int, count: int = 60) -> tuple[Log, bytes]:
    """A log of several files, and the bytes of its segment."""
    rng = random.Random(seed)
    log = await new_log(disk, FINE)
    content = bytearray()
    for _ in range(count):
        events = [rng.randbytes(rng.choice((0, 1, 30, 90))) for _ in range(rng.randint(1, 4))]
        append(log, rng.choice((A, B)), *events)
        content += frame_events(events)
        if rng.random() < 0.1:
            start = rng.randint(0, 20)
            log.append_leader(truncate_batch(start, log.producers.marks, 1_000), 0, 1_000)
    return log, bytes(content)


async def test_every_position_is_found() -> None:
    log, content = await filled(MemoryDisk(), 1)
    assert len(log.segments) > 3
    assert log.producers.marks.end_position == len(content)
    for position in range(len(content)):
        found = batch_at(log, position)
        assert found is not None
        assert found.start <= position < found.end
        located = log.locate(found.base_offset, 1, log.log_end_offset)
        assert located is not None
        assert located.read()[117:] == content[found.start : found.end]
    assert batch_at(log, len(content)) is None
    last = batch_holding_offset(log, log.log_end_offset - 1)
    assert last is not None
    assert last.next_offset == log.log_end_offset
    assert batch_holding_offset(log, log.log_end_offset) is None
    log.abandon()


async def test_retention_moves_the_start_and_keeps_ends_and_levels() -> None:
    disk = MemoryDisk()
    log, content = await filled(disk, 2)
    levels = (level(log, A), level(log, B))
    second = log.segments[1].base_offset
    log.advance_start(second)
    found = batch_holding_offset(log, second)
    assert found is not None
    assert first_position(log) == found.start > 20
    log.advance_start(log.log_end_offset)
    assert first_position(log) >= log.producers.marks.start_position
    await flush(log, disk)
    await log.close()
    log = await reopen(disk, clean=True, settings=FINE)
    assert log.producers.marks.end_position == len(content)
    assert (level(log, A), level(log, B)) == levels
    log.abandon()


@pytest.mark.parametrize("clean", [True, False])
async def test_a_restart_knows_the_same(clean: bool) -> None:
    disk = MemoryDisk()
    log, _ = await filled(disk, 3)
    log.append_leader(seal_batch(log.producers.marks, 1_000), 0, 1_000)
    table = log.producers.snapshot()
    await flush(log, disk)
    if clean:
        await log.close()
    else:
        log.abandon()
    log = await reopen(disk, clean=clean, settings=FINE)
    assert log.producers.snapshot() == table
    assert log.producers.marks.is_sealed
    log.abandon()


async def test_damaged_snapshots_are_rebuilt_by_replay() -> None:
    """A snapshot that is gone or damaged (storage/DESIGN 4.15)."""
    disk = MemoryDisk()
    log, _ = await filled(disk, 4)
    table = log.producers.snapshot()
    await flush(log, disk)
    await log.close()
    for name in disk.list(PATH):
        if name.startswith("producers-"):
            disk.remove(f"{PATH}/{name}")
            disk.create(f"{PATH}/{name}").append([b"no snapshot at all"])
    log = await reopen(disk, clean=True, settings=FINE)
    assert log.producers.snapshot() == table
    log.abandon()


async def test_truncation_takes_the_state_back() -> None:
    """Case 15: followers cut their logs; the table follows, whatever was cut."""
    for seed in range(8):
        rng = random.Random(seed)
        log = await new_log(MemoryDisk(), FINE)
        states = [(log.log_end_offset, log.producers.snapshot())]
        for number in range(40):
            choice = rng.random()
            if choice < 0.8:
                append(log, rng.choice((A, B, bytes([number]) * 16)), b"x" * 20, now_ms=number)
            elif choice < 0.9:
                log.append_leader(expire_batch(number - 9, log.producers.marks, number), 0, number)
            else:
                log.append_leader(truncate_batch(number, log.producers.marks, number), 0, number)
            states.append((log.log_end_offset, log.producers.snapshot()))
        for _ in range(3):
            end, table = states[rng.randrange(len(states))]
            log.truncate(end)
            assert log.producers.snapshot() == table
            states = [each for each in states if each[0] <= end]
        log.abandon()


async def test_expiry_forgets_old_writers_only() -> None:
    log = await new_log(settings=FINE)
    append(log, A, b"one", now_ms=100)
    append(log, B, b"two", now_ms=200)
    log.append_leader(expire_batch(200, log.producers.marks, 900), 0, 900)
    assert (level(log, A), level(log, B)) == (None, 11)
    assert log.producers.marks.end_position == 22
    log.abandon()


async def test_compare_and_set() -> None:
    log = await new_log(settings=FINE)
    append(log, A, b"one")
    with pytest.raises(OutOfOrderSequence, match="level is 11, the append begins at 0"):
        require_next(log.producers.marks, 11, 0)
    log.append_leader(seal_batch(log.producers.marks, 1), 0, 1)
    with pytest.raises(SegmentSealed):
        require_next(log.producers.marks, 11, 11)
    log.abandon()


async def test_snapshots_restore_equal_tables() -> None:
    log, _ = await filled(MemoryDisk(), 5)
    other = ProducerTable()
    producer_file.restore(other, log.producers.snapshot(), log.log_end_offset)
    assert other == log.producers
    assert other.marks == log.producers.marks
    log.abandon()


async def test_other_protocols_see_each_event_as_a_record() -> None:
    """wire/DESIGN 2.2."""
    log = await new_log(settings=FINE)
    append(log, A, b"one", b"", b"three")
    log.append_leader(seal_batch(log.producers.marks, 7), 0, 7)
    found = log.locate(0, 1 << 20, log.log_end_offset)
    assert found is not None
    data = found.read()
    batches = [at for at, _ in iter_batches(data)]
    records = [record for at in batches for record in decode_records(data, at)]
    assert [(each.offset, each.key, each.value) for each in records] == [
        (0, None, b"one"), (1, None, b""), (2, None, b"three"),
    ]  # fmt: skip
    assert read_extension(data, batches[1]).kind is PayloadKind.SEAL
    assert event_data(data[117 : batches[1]]) == [b"one", b"", b"three"]
    log.abandon()


async def test_the_verifier_finds_nothing_wrong_with_a_good_log() -> None:
    disk = MemoryDisk()
    log, _ = await filled(disk, 6)
    log.append_leader(seal_batch(log.producers.marks, 1_000), 0, 1_000)
    await flush(log, disk)
    await log.close()
    assert (await verify_log(disk, PATH)).findings == ()


@pytest.mark.parametrize(
    ("fault", "invariant"),
    [("position", "I1"), ("level", "I2"), ("size", "I2"), ("half", "I3"), ("count", "I3"),
     ("sealed", "I8")],
)  # fmt: skip
async def test_the_verifier_names_broken_invariants(fault: str, invariant: str) -> None:
    disk = MemoryDisk()
    log = await new_log(disk, FINE)
    append(log, A, b"one")
    marks = log.producers.marks
    payload = frame_events([b"two"])
    run = Run(SEED, A, 11, 22, 1, payload)
    match fault:
        case "position":
            marks = marks._replace(end_position=12)
        case "level":
            run = run._replace(start=0, end=11)
        case "size":
            run = run._replace(end=23)
        case "half":
            run = run._replace(payload=payload[:-1], end=21)
        case "count":
            run = run._replace(event_count=2)
        case "sealed":
            log.append_leader(seal_batch(marks, 1), 0, 1)
    log.append_leader(run_batch(run, marks, 1), 0, 1)
    await flush(log, disk)
    await log.close()
    findings = (await verify_log(disk, PATH)).findings
    assert [each.problem for each in findings] == [Problem.SEGMENT]
    assert invariant in findings[0].message
    assert findings[0].problem.is_error


@pytest.mark.parametrize(
    ("writer", "event", "invariants"),
    [(A, b"more", ("I5", "I5")), (B, b"one", ("I6", "I5")), (A, b"one", ())],
)
async def test_the_verifier_holds_snapshots_against_the_batches(
    writer: bytes, event: bytes, invariants: tuple[str, ...]
) -> None:
    """A snapshot of another log of as many batches is put in the place of the log's own."""
    disk, elsewhere = MemoryDisk(), MemoryDisk()
    for where, who, what in ((disk, A, b"one"), (elsewhere, writer, event)):
        log = await new_log(where, FINE)
        append(log, who, what)
        await flush(log, where)
        await log.close()
    path = f"{PATH}/{producer_file.name(1)}"
    content = await read_file(elsewhere, path)
    assert content is not None
    disk.remove(path)
    disk.create(path).append([content])
    findings = (await verify_log(disk, PATH)).findings
    assert len(findings) == len(invariants)
    for finding, invariant in zip(findings, invariants, strict=True):
        assert (finding.problem, finding.path) == (Problem.SEGMENT, path)
        assert finding.message.endswith(f"({invariant})")


def test_marks_are_no_writers() -> None:
    table = ProducerTable()
    assert table.writer(writer_key(SEED, NO_WRITER)) is None
    batch = build_raw_batch(b"x", record_count=1)
    assert not table.writers()
    assert len(batch) == 62
