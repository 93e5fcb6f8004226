"""One bad copy of the metadata directory, or of any file in it, is mended by the other."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable

import pytest

from paceline_node.controller.raft_copies import better
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_log_segment import encode_entry, encode_header, merged
from paceline_node.controller.raft_mark import mark_of
from paceline_node.controller.raft_store import (
    MetadataCorrupt,
    RaftStore,
    is_newcomer,
    set_aside,
)
from paceline_node.controller.raft_types import Entry, HardState
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.raft.test_store import (
    CLUSTER,
    COPY,
    PATH,
    batch,
    entries,
    entry,
    fresh,
    member_id,
    snapshot,
    with_snapshots,
)

DIRECTORIES = (PATH, COPY)
MARK = mark_of(PATH)


def tree(disk: MemoryDisk) -> dict[str, bytes]:
    """All files of both copies, and the mark."""
    names = [f"{path}/{name}" for path in DIRECTORIES for name in disk.list(path)]
    return {name: disk.content(name) for name in (*names, MARK) if disk.exists(name)}


def put(disk: MemoryDisk, name: str, content: bytes | None) -> None:
    """Make a file as it was, or as if it had not been."""
    disk.remove(name)
    if content is not None:
        file = disk.create(name)
        file.append([content])
        file.close()


async def lived(disk: MemoryDisk) -> list[dict[str, bytes]]:
    """A member's life with all that a directory can hold; what it looked like now and then."""
    states = []
    store = await with_snapshots(disk)
    last = store.recovery.log.last_index
    states.append(tree(disk))
    for life in range(3):
        store.close()
        disk.kill()
        store = await RaftStore.open(disk, PATH, CLUSTER)
        last = store.recovery.log.last_index
        for number in range(4):
            term = 3 + life
            state = HardState(term, member_id(number % 3)) if number == 2 else HardState(term)
            changed = None if number in (1, 3) else state
            await store.write([batch(entry(last + number, term), hard_state=changed)])
            states.append(tree(disk))
    store.close()
    return states


async def promises(disk: MemoryDisk) -> tuple[HardState, list[Entry], int]:
    """What a member that starts here believes to have promised."""
    disk.kill()
    store = await RaftStore.open(disk, PATH, CLUSTER)
    store.close()
    recovery = store.recovery
    return recovery.hard_state, entries(store), recovery.log.snapshot.index


async def each_fault(
    do: Callable[[MemoryDisk, str, bytes, list[dict[str, bytes]]], list[bytes | None]],
) -> int:
    """Play every state that ``do`` names for every file of one copy; how many there were."""
    disk = MemoryDisk()
    states = await lived(disk)
    promised = await promises(disk)
    whole = tree(disk)
    played = 0
    for name, content in whole.items():
        for fault in do(disk, name, content, states):
            for other, good in whole.items():
                put(disk, other, good)
            for extra in set(tree(disk)) - set(whole):
                disk.remove(extra)
            put(disk, name, fault)
            assert await promises(disk) == promised, name
            played += 1
    return played


async def test_a_lost_file() -> None:
    assert await each_fault(lambda disk, name, content, states: [None]) > 10


async def test_a_rotten_or_torn_file() -> None:
    rng = random.Random(7)

    def spoiled(
        disk: MemoryDisk, name: str, content: bytes, states: list[dict[str, bytes]]
    ) -> list[bytes | None]:
        found: list[bytes | None] = [b"", bytes(len(content))]
        size = len(content)
        places = {0, size // 2, size - 1, *(rng.randrange(size) for _ in range(1))}
        for place in places:
            changed = bytearray(content)
            changed[place] ^= 1 << rng.randrange(8)
            found += [bytes(changed), content[:place]]
        return found

    assert await each_fault(spoiled) > 70


async def test_a_file_as_it_was_some_time_ago() -> None:
    def aged(
        disk: MemoryDisk, name: str, content: bytes, states: list[dict[str, bytes]]
    ) -> list[bytes | None]:
        # One file is mostly the same in two states that follow each other.
        return list(dict.fromkeys(state[name] for state in states if name in state))

    assert await each_fault(aged) > 30


@pytest.mark.parametrize("directory", DIRECTORIES)
async def test_a_whole_directory_is_gone_or_as_it_was(directory: str) -> None:
    disk = MemoryDisk()
    states = await lived(disk)
    promised = await promises(disk)
    for state in ({}, *states):
        disk.remove_tree(directory)
        disk.mkdir(directory)
        for name, content in state.items():
            if name.startswith(f"{directory}/"):
                put(disk, name, content)
        assert await promises(disk) == promised
    disk.remove_tree(directory)
    assert await promises(disk) == promised


def _go_back(disk: MemoryDisk, state: dict[str, bytes]) -> None:
    """Both copies are as they were; the mark is not."""
    for name in tree(disk):
        if name != MARK:
            disk.remove(name)
    for name, content in state.items():
        if name != MARK:
            put(disk, name, content)


async def test_both_copies_as_they_were_some_time_ago() -> None:
    """The member led with what was left, and committed metadata was gone."""
    disk = MemoryDisk()
    states = await lived(disk)
    whole = tree(disk)
    for state in states[:-1]:
        _go_back(disk, state)
        for _ in range(2):
            with pytest.raises(MetadataCorrupt, match="older than what this member promised"):
                await promises(disk)
    _go_back(disk, whole)
    _, found, _ = await promises(disk)
    assert found != []


async def test_the_mark_is_as_old_as_both_copies() -> None:
    """The node's incarnation says how far the log had reached."""
    disk = MemoryDisk()
    states = await lived(disk)
    _, found, _ = await promises(disk)
    for name in tree(disk):
        disk.remove(name)
    for name, content in states[0].items():
        put(disk, name, content)
    with pytest.raises(MetadataCorrupt, match="older than this node's incarnation"):
        await RaftStore.open(disk, PATH, CLUSTER, reached=found[-1].index)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (batch(hard_state=HardState(3)), "was in term 3"),
        (batch(hard_state=HardState(2, member_id(1))), "voted in term 2"),
        (batch(entry(3)), "bytes of segment"),
        (Effects(snapshot=snapshot(50, 2), sequence=1), "wrote segment"),
    ],
)
async def test_anything_promised_since_is_missed(change: Effects, told: str) -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), hard_state=HardState(2))])
    state = tree(disk)
    await store.write([change])
    store.close()
    _go_back(disk, state)
    with pytest.raises(MetadataCorrupt, match=told):
        await promises(disk)
    disk.remove(MARK)  # as of the version before
    assert (await promises(disk))[0] == HardState(2)


async def test_a_file_that_cannot_be_read() -> None:
    disk = MemoryDisk()
    await lived(disk)
    promised = await promises(disk)
    for name in tree(disk):
        disk.fail_next("open", code=errno.EIO, path=name)
        assert await promises(disk) == promised


@pytest.mark.parametrize("directory", DIRECTORIES)
async def test_a_directory_that_cannot_be_listed(directory: str) -> None:
    disk = MemoryDisk()
    await lived(disk)
    promised = await promises(disk)
    for _ in range(2):  # the second time another is set aside already
        disk.fail_next("list", code=errno.EIO, path=directory)
        assert await promises(disk) == promised
        assert not disk.will_fail("list")


async def test_what_was_mended_is_told_and_equal_again() -> None:
    disk = MemoryDisk()
    await lived(disk)
    disk.remove(f"{PATH}/hardstate")
    disk.kill()
    store = await RaftStore.open(disk, PATH, CLUSTER)
    assert store.recovery.mended == (f"{PATH}/hardstate",)
    for name in disk.list(PATH):
        assert disk.content(f"{PATH}/{name}") == disk.content(f"{COPY}/{name}")


@pytest.mark.parametrize("seed", range(30))
async def test_a_power_cut_and_then_one_copy_lost(seed: int) -> None:
    """What was confirmed is in both, whatever the cut left of the write under way."""
    rng = random.Random(seed)
    disk = MemoryDisk()
    store = await fresh(disk)
    for number in range(2, 12):
        await store.write([batch(entry(number, data=rng.randbytes(900)), hard_state=HardState(2))])
    await store.write([batch(hard_state=HardState(3, member_id(1)))])
    assert store._active is not None
    store._active.append([encode_entry(entry(12, data=rng.randbytes(2500)), 30)])
    disk.power_cut(rng)
    disk.remove_tree(rng.choice(DIRECTORIES))
    hard_state, found, _ = await promises(disk)
    assert hard_state == HardState(3, member_id(1))
    assert [item.index for item in found][:10] == list(range(2, 12))


@pytest.mark.parametrize("room", range(0, 2400, 60))
async def test_a_full_disk_leaves_both_equal(room: int) -> None:
    disk = MemoryDisk()
    store = await fresh(disk)
    await store.write([batch(entry(2), hard_state=HardState(2))])
    disk.capacity_bytes = disk.total_bytes() - disk.free_bytes() + room
    installed = Effects(snapshot=snapshot(50, 5), hard_state=HardState(6), sequence=2)
    for _ in range(2):
        with contextlib.suppress(OSError):
            await store.write([installed, batch(entry(51, 6, bytes(600)))])
    disk.capacity_bytes = None
    await store.write([installed, batch(entry(51, 6, bytes(600)))])
    disk.remove_tree(DIRECTORIES[room % 120 // 60])
    hard_state, found, _ = await promises(disk)
    assert (hard_state, found[-1]) == (HardState(6), entry(51, 6, bytes(600)))


async def test_nobody_knows() -> None:
    """Both directories gone, or both hard states: never a member that has promised nothing."""
    disk = MemoryDisk()
    await lived(disk)
    for name in ("hardstate",):
        for path in DIRECTORIES:
            disk.remove(f"{path}/{name}")
    for _ in range(2):
        with pytest.raises(MetadataCorrupt, match="nobody knows"):
            await promises(disk)
    for path in DIRECTORIES:
        disk.remove_tree(path)
    for _ in range(2):
        with pytest.raises(MetadataCorrupt, match="nobody knows"):
            await promises(disk)


async def test_what_is_set_aside_is_no_promise_of_the_newcomer() -> None:
    disk = MemoryDisk()
    await lived(disk)
    for _ in range(2):
        await set_aside(disk, PATH)
        assert is_newcomer(disk, PATH)
    assert await promises(disk) == (HardState(0), [], 0)


async def test_a_directory_of_one_copy_gets_its_second() -> None:
    """As it was before there were two."""
    disk = MemoryDisk()
    await lived(disk)
    promised = await promises(disk)
    disk.remove_tree(COPY)
    assert await promises(disk) == promised
    disk.remove_tree(PATH)
    assert await promises(disk) == promised


def test_both_rotten_in_different_places() -> None:
    data = encode_header(1, 1) + b"".join(encode_entry(entry(n), 28) for n in range(2, 30))
    rng = random.Random(3)
    for _ in range(50):
        places = sorted(rng.sample(range(len(data)), 2))
        if places[1] - places[0] < 100:
            continue
        spoiled = []
        for place in places:
            changed = bytearray(data)
            changed[place] ^= 0x10
            spoiled.append(bytes(changed))
        assert merged(*spoiled) == merged(*reversed(spoiled)) == data


def test_neither_holds() -> None:
    assert better("hardstate", b"rubbish", b"rotten") == b"rubbish"
    assert better("1.raft", b"x", b"longer") == b"longer"
    assert better("1.snapshot", None, b"rotten") == b"rotten"
    assert better("unknown", b"a", b"b") == b"a"


async def test_each_copy_gives_the_sectors_that_the_other_cannot() -> None:
    disk = MemoryDisk()
    name = await _with_a_long_segment(disk)
    disk.make_unreadable(f"{PATH}/{name}", 1024, 1536)
    disk.make_unreadable(f"{COPY}/{name}", 2048, 2560)
    store = await RaftStore.open(disk, PATH, CLUSTER)
    assert entries(store)[-1].index == 30
    store.close()


@pytest.mark.parametrize("other", ["unreadable", "gone"])
async def test_an_end_that_no_copy_can_show_is_no_torn_write(other: str) -> None:
    disk = MemoryDisk()
    name = await _with_a_long_segment(disk)
    size = len(disk.content(f"{PATH}/{name}"))
    disk.make_unreadable(f"{PATH}/{name}", size // 512 * 512, size)
    if other == "gone":
        disk.remove(f"{COPY}/{name}")
    else:
        disk.make_unreadable(f"{COPY}/{name}", size // 512 * 512 - 512, size)
    with pytest.raises(MetadataCorrupt, match="cannot be read"):
        await RaftStore.open(disk, PATH, CLUSTER)


async def _with_a_long_segment(disk: MemoryDisk) -> str:
    """A member with entries up to 30 in one segment of several sectors, its newest."""
    store = await fresh(disk)
    await store.write([batch(entry(2), hard_state=HardState(2))])
    for index in range(3, 31):
        await store.write([batch(entry(index, data=bytes(100)))])
    store.close()
    disk.kill()
    return max(name for name in disk.list(PATH) if name.endswith(".raft"))
