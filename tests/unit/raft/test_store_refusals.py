"""What the metadata log does with bytes that no member wrote, or not in this order."""

from __future__ import annotations

import random
import struct

import msgpack
import pytest

from paceline.wire.checksum import crc32c
from paceline_cluster.sim.raft.durable import CLUSTER
from paceline_node.controller.raft_log_segment import (
    HEADER_BYTES,
    encode_header,
    segment_name,
)
from paceline_node.controller.raft_store import KEEP_ENTRIES, MetadataCorrupt, RaftStore
from paceline_node.controller.raft_types import HardState
from paceline_node.storage import checkpoint
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.raft.test_store import (
    PATH,
    batch,
    entries,
    entry,
    fresh,
    overwrite,
    remove,
    reopen,
    rot,
    segments,
    snapshot,
    with_snapshots,
)


async def with_segment(content: bytes) -> MemoryDisk:
    """A log of the entries 2 and 3, and behind it one more segment of these bytes."""
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), entry(3), hard_state=HardState(2))])
    number = len(segments(disk)) + 1
    store.close()
    disk.create(f"{PATH}/{segment_name(number)}").close()
    disk.overwrite(f"{PATH}/{segment_name(number)}", content)
    return disk


@pytest.mark.parametrize("size", range(HEADER_BYTES))
async def test_a_torn_header_at_the_end_is_a_segment_that_was_never_begun(size: int) -> None:
    disk = await with_segment(encode_header(3, 2)[:size])
    before = segments(disk)
    store = await reopen(disk)
    assert entries(store) == [entry(2), entry(3)]
    assert store.recovery.truncated_bytes == size
    await store.write([batch(entry(4))])
    assert entries(await reopen(disk)) == [entry(2), entry(3), entry(4)]
    assert len(segments(disk)) == len(before) + 1


async def test_a_torn_header_before_another_segment_is_damage() -> None:
    disk = await with_segment(encode_header(3, 2)[:-1])
    last = segments(disk)[-1]
    following = f"{PATH}/{segment_name(len(segments(disk)) + 1)}"
    disk.create(following).close()
    disk.overwrite(following, encode_header(3, 2))
    with pytest.raises(MetadataCorrupt, match=f"{last}: the header does not hold"):
        await reopen(disk)


async def test_a_segment_of_another_version_is_named() -> None:
    head = struct.pack(">4sHHQQ", b"PLRL", 2, 0, 3, 2)
    disk = await with_segment(head + struct.pack(">I", crc32c(head)))
    with pytest.raises(MetadataCorrupt, match="segment version 2, expected 1"):
        await reopen(disk)


def frame(index: int, kind: int) -> bytes:
    body = struct.pack(">QQQB", 0, index, 2, kind) + b"data"
    return struct.pack(">II", len(body), crc32c(body)) + body


async def test_an_entry_of_an_unknown_kind_does_not_hold() -> None:
    disk = await with_segment(encode_header(3, 2) + frame(4, 0) + frame(5, 99))
    store = await reopen(disk)
    assert [each.index for each in entries(store)] == [2, 3, 4]
    assert store.recovery.truncated_bytes == len(frame(5, 99))


async def test_entries_that_leave_one_out_are_damage() -> None:
    disk = await with_segment(encode_header(3, 2) + frame(5, 0))
    with pytest.raises(MetadataCorrupt, match=f"entry 5 at byte {HEADER_BYTES} follows 3"):
        await reopen(disk)


async def test_entries_that_replaced_some_of_a_segment_that_is_gone() -> None:
    """A new leader replaced entries; later both were in a snapshot, and the older of the two
    segments went."""
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(*[entry(i) for i in range(2, 11)], hard_state=HardState(2))])
    oldest = segments(disk)[0]
    store = await reopen(disk)
    newer = [entry(i, 3) for i in range(6, 3 * KEEP_ENTRIES)]
    await store.write([batch(*newer, hard_state=HardState(3))])
    for index in (2 * KEEP_ENTRIES, 2 * KEEP_ENTRIES + 5):
        await store.save_snapshot(snapshot(index, term=3))
    assert oldest not in segments(disk)
    again = await reopen(disk)
    kept = entries(again)
    assert kept == newer[-len(kept) :]
    assert len(kept) >= KEEP_ENTRIES
    assert again.recovery.log.last_index == newer[-1].index


async def test_a_snapshot_no_newer_than_the_last_changes_nothing() -> None:
    disk = MemoryDisk()
    store = await with_snapshots(disk)
    before = disk.list(PATH)
    await store.save_snapshot(snapshot(3, state=b"an older one"))
    assert disk.list(PATH) == before


async def test_a_snapshot_ahead_of_the_stored_log_drops_none_of_it() -> None:
    """The others have committed entries that are still on the way to this member's disk."""
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), entry(3), hard_state=HardState(2))])
    before = segments(disk)
    await store.save_snapshot(snapshot(5))
    assert segments(disk) == before
    await store.write([batch(entry(4), entry(5), entry(6))])
    again = await reopen(disk)
    assert again.recovery.log.snapshot.index == 5
    assert entries(again) == [entry(index) for index in range(2, 7)]


@pytest.mark.parametrize(
    "state",
    [
        msgpack.packb([-1, None]),
        msgpack.packb([True, None]),
        msgpack.packb([2, 7]),
        msgpack.packb([2, [7, b"too short"]]),
        msgpack.packb([2, ["7", bytes(16)]]),
        msgpack.packb([2]),
        b"\xc1",
    ],
)
async def test_a_vote_that_nobody_can_have_given_stops_the_member(state: bytes) -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), hard_state=HardState(2))])
    store.close()
    content = checkpoint.encode(checkpoint.Kind.RAFT_STATE, state)
    overwrite(disk, f"{PATH}/hardstate", content)
    with pytest.raises(MetadataCorrupt, match="hardstate"):
        await reopen(disk)


async def test_a_log_that_begins_behind_every_readable_snapshot_stops_the_member() -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    (first,) = [name for name in disk.list(PATH) if name.endswith(".snapshot")]
    oldest = disk.content(f"{PATH}/{first}")
    store.close()
    disk = MemoryDisk()
    (await with_snapshots(disk)).close()
    for name in disk.list(PATH):
        if name.endswith(".snapshot"):
            rot(disk, f"{PATH}/{name}", random.Random(1))
    disk.create(f"{PATH}/{first}").close()
    disk.overwrite(f"{PATH}/{first}", oldest)
    disk.kill()
    with pytest.raises(MetadataCorrupt, match="newest readable snapshot is 1, the log begins"):
        await RaftStore.open(disk, PATH, CLUSTER)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_member_without_its_newest_segments_has_lost_what_it_acknowledged(
    count: int,
) -> None:
    """In both copies: the directory was lost, and then a file of its copy."""
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), hard_state=HardState(2))])
    store.close()
    again = await reopen(disk)
    await again.write([batch(entry(3))])
    again.close()
    for name in segments(disk)[-count:]:
        remove(disk, name)
    with pytest.raises(MetadataCorrupt, match="is missing, and its copy"):
        await reopen(disk)


async def test_a_hard_state_of_an_earlier_version_names_no_segment() -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), hard_state=HardState(2))])
    store.close()
    content = checkpoint.encode(checkpoint.Kind.RAFT_STATE, msgpack.packb([2, None]))
    overwrite(disk, f"{PATH}/hardstate", content)
    again = await reopen(disk)
    assert again.recovery.hard_state == HardState(2)
    assert entries(again) == [entry(2)]
    again.close()
