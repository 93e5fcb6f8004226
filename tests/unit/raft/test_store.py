"""The durable metadata log: every torn tail is cut, every damage stops the member."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from paceline.errors import InconsistentClusterId
from paceline_cluster.sim.raft.durable import CLUSTER, member, member_id
from paceline_node.controller.raft_copies import copy_of
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_log_segment import encode_entry, encode_header
from paceline_node.controller.raft_store import (
    KEEP_ENTRIES,
    MetadataCorrupt,
    RaftStore,
    write_bootstrap,
    write_newcomer,
)
from paceline_node.controller.raft_types import (
    Config,
    Entry,
    EntryKind,
    HardState,
    Snapshot,
)
from paceline_node.env import is_full
from paceline_node.storage.memory_disk import MemoryDisk

PATH = "metadata"
COPY = "metadata.copy"
VOTERS = (member(0), member(1), member(2))
HEADER_7_3 = "504c524c00010000000000000000000700000000000000032de253a8"
FRAME_8_3 = "0000001aeb968673000000000000001c000000000000000800000000000000030078"


def batch(*entries: Entry, hard_state: HardState | None = None) -> Effects:
    return Effects(entries=list(entries), hard_state=hard_state, sequence=1)


def entry(index: int, term: int = 2, data: bytes = b"data") -> Entry:
    return Entry(index, term, EntryKind.RECORDS, data)


async def fresh(disk: MemoryDisk) -> RaftStore:
    await write_bootstrap(disk, PATH, cluster_id=CLUSTER, voters=VOTERS, state=b"first")
    return await RaftStore.open(disk, PATH, CLUSTER)


async def reopen(disk: MemoryDisk) -> RaftStore:
    disk.kill()
    return await RaftStore.open(disk, PATH, CLUSTER)


def entries(store: RaftStore) -> list[Entry]:
    log = store.recovery.log
    return log.slice(log.base_index + 1, log.last_index + 1)


def segments(disk: MemoryDisk) -> list[str]:
    return [f"{PATH}/{name}" for name in disk.list(PATH) if name.endswith(".raft")]


def overwrite(disk: MemoryDisk, name: str, content: bytes) -> None:
    """Give a file other content, in both copies."""
    disk.overwrite(name, content)
    disk.overwrite(name.replace(PATH, COPY), content)


def remove(disk: MemoryDisk, name: str) -> None:
    """Remove a file, in both copies."""
    disk.remove(name)
    disk.remove(name.replace(PATH, COPY))


def rot(disk: MemoryDisk, name: str, rng: random.Random) -> None:
    """Damage a file in the same place of both copies."""
    disk.rot(name, rng)
    overwrite(disk, name, disk.content(name))


async def test_bootstrap() -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    log = store.recovery.log
    assert (log.snapshot.index, log.snapshot.term, log.snapshot.state) == (1, 1, b"first")
    assert log.config == Config(VOTERS)
    assert store.recovery.hard_state == HardState(1)
    with pytest.raises(FileExistsError):
        await write_bootstrap(disk, PATH, cluster_id=CLUSTER, voters=VOTERS, state=b"again")


async def test_a_newcomer_is_a_member_of_nothing() -> None:
    disk = MemoryDisk()
    for _ in range(2):  # the first time may have been cut short
        await write_newcomer(disk, PATH)
    store = await RaftStore.open(disk, PATH, CLUSTER)
    assert store.recovery.log.last_index == 0
    assert store.recovery.log.config == Config()


async def test_other_cluster() -> None:
    disk = MemoryDisk()
    (await fresh(disk)).close()
    disk.kill()
    with pytest.raises(InconsistentClusterId, match="belongs to cluster"):
        await RaftStore.open(disk, PATH, UUID(int=99))


async def test_round_trip() -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    state = HardState(2, member_id(1))
    await store.write([batch(entry(2), entry(3), hard_state=state), batch(entry(4))])
    disk.power_cut(random.Random(1))
    again = await reopen(disk)
    assert again.recovery.hard_state == state
    assert entries(again) == [entry(2), entry(3), entry(4)]
    assert again.recovery.truncated_bytes == 0


async def test_later_entries_replace_earlier_ones() -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), entry(3), entry(4), hard_state=HardState(2))])
    await store.write([batch(entry(3, 3), hard_state=HardState(3))])
    store = await reopen(disk)
    assert entries(store) == [entry(2), entry(3, 3)]
    await store.write([batch(entry(3, 4), entry(4, 4), hard_state=HardState(4))])
    store = await reopen(disk)
    assert entries(store) == [entry(2), entry(3, 4), entry(4, 4)]


async def test_one_sync_for_many_batches() -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    before = store.sync_count
    await store.write([batch(entry(index)) for index in range(2, 50)])
    assert store.sync_count == before + 1


async def test_power_cuts_keep_what_was_written() -> None:
    """Whatever the cut leaves of the write under way, everything confirmed before is there."""
    for seed in range(40):
        rng = random.Random(seed)
        disk = MemoryDisk()
        store = await fresh(disk)
        await store.write([batch(hard_state=HardState(2))])
        written = []
        for _ in range(5):
            for index in range(rng.randint(1, 6)):
                del index
                written.append(entry(len(written) + 2, data=rng.randbytes(rng.randint(0, 3000))))
                await store.write([batch(written[-1])])
            lost = [entry(len(written) + 2 + i, data=b"x" * 2000) for i in range(3)]
            active = store._active
            assert active is not None
            active.append([encode_entry(item, active.size()) for item in lost])
            disk.power_cut(rng)
            store = await RaftStore.open(disk, PATH, CLUSTER)
            found = entries(store)
            assert found[: len(written)] == written
            assert [item.data for item in found[len(written) :]] == [b"x" * 2000] * (
                len(found) - len(written)
            )
            written = found


async def test_tail_cut_at_every_byte() -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), entry(3), hard_state=HardState(2))])
    name = segments(disk)[-1]
    confirmed = len(disk.content(name))
    await store.write([batch(entry(4))])
    content = disk.content(name)
    state = disk.content(f"{PATH}/hardstate")
    store.close()
    for size in range(confirmed, len(content)):
        overwrite(disk, name, content[:size])
        overwrite(disk, f"{PATH}/hardstate", state)
        disk.remove("metadata.mark")  # it had not been told
        replayed = await reopen(disk)
        assert entries(replayed) == [entry(2), entry(3)]
        assert replayed.recovery.truncated_bytes == size - confirmed
        replayed.close()
        for extra in segments(disk)[segments(disk).index(name) + 1 :]:
            remove(disk, extra)


async def test_damage_before_a_confirmed_write_stops_the_member() -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), hard_state=HardState(2))])
    await store.write([batch(entry(3))])
    await store.write([batch(entry(4))])
    name = segments(disk)[-1]
    content = disk.content(name)
    third = content.index(encode_entry(entry(3), 0)[24:]) - 24
    for position in range(third):
        damaged = bytearray(content)
        damaged[position] ^= 0x40
        overwrite(disk, name, bytes(damaged))
        disk.kill()
        with pytest.raises(MetadataCorrupt, match="does not hold"):
            await RaftStore.open(disk, PATH, CLUSTER)
        assert disk.content(name) == damaged


async def test_damage_in_an_older_segment_stops_the_member() -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), hard_state=HardState(2))])
    store = await reopen(disk)
    await store.write([batch(entry(3))])
    name = segments(disk)[-2]
    overwrite(disk, name, disk.content(name)[:-1])
    disk.kill()
    with pytest.raises(MetadataCorrupt, match="does not hold"):
        await RaftStore.open(disk, PATH, CLUSTER)


@pytest.mark.parametrize("action", ["remove", "damage"])
async def test_lost_hard_state_stops_the_member(action: str) -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), hard_state=HardState(2, member_id(1)))])
    store.close()
    name = f"{PATH}/hardstate"
    if action == "remove":
        remove(disk, name)
    else:
        rot(disk, name, random.Random(3))
    disk.kill()
    with pytest.raises(MetadataCorrupt, match="hardstate"):
        await RaftStore.open(disk, PATH, CLUSTER)


def snapshot(index: int, term: int = 2, state: bytes = b"state") -> Snapshot:
    return Snapshot(index, term, Config(VOTERS), state)


async def with_snapshots(disk: MemoryDisk) -> RaftStore:
    """Entries 2 to 3 x KEEP, snapshots in the middle and near the end."""
    store = await fresh(disk)
    await store.write([batch(hard_state=HardState(2))])
    for first in range(2, 3 * KEEP_ENTRIES, KEEP_ENTRIES):
        await store.write([batch(*[entry(i) for i in range(first, first + KEEP_ENTRIES)])])
        await store.save_snapshot(snapshot(first + KEEP_ENTRIES - 10))
    return store


async def test_snapshots_bound_the_log() -> None:
    disk = MemoryDisk()
    store = await with_snapshots(disk)
    names = [name for name in disk.list(PATH) if name.endswith(".snapshot")]
    assert len(names) == 2
    assert len(segments(disk)) <= 3
    again = await reopen(disk)
    log = again.recovery.log
    assert log.snapshot.index == 3 * KEEP_ENTRIES - 8
    assert log.base_index == log.snapshot.index - KEEP_ENTRIES
    assert log.last_index == 3 * KEEP_ENTRIES + 1
    store.close()


async def test_bad_newest_snapshot_falls_back_to_the_previous_one() -> None:
    disk = MemoryDisk()
    (await with_snapshots(disk)).close()
    names = [name for name in disk.list(PATH) if name.endswith(".snapshot")]
    rot(disk, f"{PATH}/{names[-1]}", random.Random(1))
    again = await reopen(disk)
    assert again.recovery.bad_snapshots == (names[-1],)
    assert again.recovery.log.snapshot.index == int(names[0].removesuffix(".snapshot"))
    assert again.recovery.log.last_index == 3 * KEEP_ENTRIES + 1
    again.close()
    # What nobody reads again lies around in neither directory, and is told of once.
    assert not any(names[-1] in disk.list(each) for each in (PATH, copy_of(PATH)))
    once_more = await reopen(disk)
    assert once_more.recovery.bad_snapshots == ()
    assert once_more.recovery.log.last_index == 3 * KEEP_ENTRIES + 1
    once_more.close()


async def test_no_readable_snapshot_is_never_taken_for_a_new_member() -> None:
    disk = MemoryDisk()
    (await with_snapshots(disk)).close()
    for name in disk.list(PATH):
        if name.endswith(".snapshot"):
            rot(disk, f"{PATH}/{name}", random.Random(1))
    disk.kill()
    with pytest.raises(MetadataCorrupt, match="no snapshot can be read"):
        await RaftStore.open(disk, PATH, CLUSTER)


async def test_installed_snapshot_replaces_the_log() -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), entry(3), hard_state=HardState(2))])
    installed = Effects(snapshot=snapshot(50, 5), hard_state=HardState(6), sequence=2)
    await store.write([installed, batch(entry(51, 6))])
    disk.power_cut(random.Random(2))
    again = await reopen(disk)
    assert again.recovery.log.snapshot == snapshot(50, 5)
    assert entries(again) == [entry(51, 6)]
    assert again.recovery.hard_state == HardState(6)


async def test_power_cut_between_snapshot_and_new_log() -> None:
    """The received snapshot is stored, the log's new beginning is not: the snapshot wins."""
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), entry(3), hard_state=HardState(6))])
    await store._write_snapshot(snapshot(50, 5))
    again = await reopen(disk)
    assert again.recovery.log.last_index == 50
    await again.write([batch(entry(51, 6))])
    third = await reopen(disk)
    assert entries(third) == [entry(51, 6)]


async def test_failed_sync_is_reported() -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    disk.fail_next("sync", path=".raft")
    with pytest.raises(OSError, match="error"):
        await store.write([batch(entry(2))])


@pytest.mark.parametrize("victim", [".raft", "hardstate"])
@pytest.mark.parametrize("seed", range(8))
async def test_what_a_failed_sync_left_in_the_cache_is_written_anew(victim: str, seed: int) -> None:
    """What the next process reads, it votes and acknowledges by."""
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), hard_state=HardState(2))])
    disk.fail_next("sync", path=victim)
    with pytest.raises(OSError, match="error"):
        await store.write([batch(entry(3, 3), entry(4, 3), hard_state=HardState(3))])
    disk.kill()
    again = await RaftStore.open(disk, PATH, CLUSTER, disk_failed=True)
    promised = (entries(again), again.recovery.hard_state)
    disk.power_cut(random.Random(seed))
    last = await RaftStore.open(disk, PATH, CLUSTER)
    assert (entries(last), last.recovery.hard_state) == promised


@pytest.mark.parametrize("room", range(0, 600, 20))
async def test_writing_again_once_there_is_room(room: int) -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), hard_state=HardState(2))])
    installed = Effects(snapshot=snapshot(50, 5), hard_state=HardState(6), sequence=2)
    disk.capacity_bytes = disk.total_bytes() - disk.free_bytes() + room
    for _ in range(2):
        with pytest.raises(OSError, match="space") as refused:
            await store.write([installed, batch(entry(51, 6, bytes(600)))])
        assert is_full(refused.value)
    disk.capacity_bytes = None
    await store.write([installed, batch(entry(51, 6, bytes(600)))])
    disk.power_cut(random.Random(room))
    again = await reopen(disk)
    assert entries(again) == [entry(51, 6, bytes(600))]
    assert again.recovery.hard_state == HardState(6)
    assert again.recovery.log.snapshot == snapshot(50, 5)


async def test_a_segment_begun_before_there_is_room_again_hides_nothing() -> None:
    """A snapshot of our own begins a new segment while a write of entries waits for room."""
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), entry(3), hard_state=HardState(2))])
    more = batch(entry(4), entry(5, data=b"x" * 4000))
    disk.capacity_bytes = disk.total_bytes() - disk.free_bytes() + 2000
    with pytest.raises(OSError, match="No space"):
        await store.write([more])
    await store.save_snapshot(Snapshot(3, 2, Config(VOTERS), b"state"))
    disk.capacity_bytes = None
    await store.write([more])
    assert entries(await reopen(disk)) == [
        entry(2),
        entry(3),
        entry(4),
        entry(5, data=b"x" * 4000),
    ]


async def test_leftover_temporary_files_are_removed() -> None:
    disk = MemoryDisk()
    (await fresh(disk)).close()
    disk.create(f"{PATH}/00000000000000000007.snapshot.tmp").close()
    await reopen(disk)
    assert not disk.exists(f"{PATH}/00000000000000000007.snapshot.tmp")


def test_header_and_frame_bytes() -> None:
    """Golden bytes: other versions of this program read them."""
    assert encode_header(7, 3).hex() == HEADER_7_3
    assert encode_entry(Entry(8, 3, EntryKind.NOOP, b"x"), 28).hex() == FRAME_8_3
