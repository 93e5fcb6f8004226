"""Targets: what is read from disks."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Any
from uuid import UUID

import msgpack
import trio

from paceline.errors import PacelineError
from paceline.types import LeaderEpoch, NodeId, TopicId
from paceline.wire.batch_header import seal
from paceline_node.controller import metadata_records, raft_messages
from paceline_node.controller.image import Image
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_log_segment import Replay, encode_entry, encode_header
from paceline_node.controller.raft_snapshot import decode_snapshot, encode_snapshot
from paceline_node.controller.raft_store import RaftStore, write_bootstrap
from paceline_node.controller.raft_types import (
    Config,
    Entry,
    EntryAt,
    EntryKind,
    HardState,
    Member,
    MemberId,
    Snapshot,
)
from paceline_node.env import Disk
from paceline_node.groups import records as group_records
from paceline_node.groups import v1_files as group_files
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.state_machines.machine import Entry as LogEntry
from paceline_node.storage import (
    checkpoint,
    compaction_file,
    damage,
    epoch_file,
    incarnation,
    layout,
    partition_file,
)
from paceline_node.storage.checkpoint import Kind
from paceline_node.storage.epochs import EpochStart
from paceline_node.storage.file_owner import Owner
from paceline_node.storage.index import OffsetIndex, TimeIndex
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.verify import verify_log
from tests.fuzz.engine import Target
from tests.fuzz.samples import sample, subclasses
from tests.unit.storage import world

CLUSTER = UUID(int=3)
_MEMBERS = tuple(Member(NodeId(n), UUID(int=n + 1), "127.0.0.1", 7000 + n) for n in range(3))


# --- checkpoint files -----------------------------------------------------------------------------


def _on_disk(path: str, content: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    if "/" in path:
        disk.mkdir(path.rpartition("/")[0])
    file = disk.create(path)
    file.append([content])
    file.close()
    return disk


def _checkpoint(
    name: str,
    kind: Kind,
    path: str,
    payload: Callable[[random.Random], Any],
    read: Callable[[Disk], Awaitable[object]],
) -> Target:
    """A checkpoint file whose checksum holds, around a payload that may not."""

    def make(rng: random.Random) -> bytes:
        packed: bytes = msgpack.packb(payload(rng))
        return packed

    def feed(given: bytes, rng: random.Random) -> None:
        trio.run(read, _on_disk(path, checkpoint.encode(kind, given)))

    return Target(name, make, feed)


def _feed_checkpoint(given: bytes, rng: random.Random) -> None:
    checkpoint.decode(Kind.OFFSETS, given)


async def _read_offsets(disk: Disk) -> object:
    return await layout.read_offsets(disk, layout.Offsets.RECOVERY)


async def _in_directory(read: Callable[[Disk, str], Awaitable[object]], disk: Disk) -> object:
    return await read(disk, "d")


_UNNAMED = Owner(TopicId(UUID(int=1)), 0, is_always_named=False)
"""Whose the files are that name nobody."""


def _beside_log(read: Callable[[Disk, str], Awaitable[object]]) -> Callable[[Disk], Awaitable[Any]]:
    async def read_it(disk: Disk) -> object:
        return await read(disk, "d")

    return read_it


def _meta(rng: random.Random) -> bytes:
    async def written() -> bytes:
        disk = MemoryDisk()
        meta = layout.DirectoryMeta(CLUSTER, NodeId(1), UUID(int=rng.getrandbits(128)))
        await layout.format_directory(disk, meta)
        return disk.content(layout.META)

    return trio.run(written)


def _feed_meta(given: bytes, rng: random.Random) -> None:
    trio.run(layout.read_meta, _on_disk(layout.META, given))


CHECKPOINTS = (
    _checkpoint(
        "incarnation",
        Kind.INCARNATION,
        incarnation.NAME,
        lambda rng: [rng.randrange(9), rng.randrange(99), "boot", True, False, 0],
        incarnation.read,
    ),
    _checkpoint(
        "epochs",
        Kind.EPOCHS,
        f"d/{epoch_file.NAME}",
        lambda rng: [list(EpochStart(LeaderEpoch(n), n * 10)) for n in range(rng.randrange(5))],
        _beside_log(epoch_file.read),
    ),
    _checkpoint(
        "offsets",
        Kind.OFFSETS,
        layout.Offsets.RECOVERY.value,
        lambda rng: [[UUID(int=n).bytes, n, n * 7] for n in range(rng.randrange(5))],
        _read_offsets,
    ),
    _checkpoint(
        "partition-metadata",
        Kind.PARTITION,
        f"d/{partition_file.NAME}",
        lambda rng: [UUID(int=rng.getrandbits(128)).bytes, "orders", 3],
        _beside_log(partition_file.read_identity),
    ),
    _checkpoint(
        "damage",
        Kind.DAMAGE,
        f"d/{damage.NAME}",
        lambda rng: [[n, n + 5, "reason"] for n in range(rng.randrange(1, 4))],
        _beside_log(damage.read),
    ),
    _checkpoint(
        "compaction",
        Kind.COMPACTION,
        f"d/{compaction_file.NAME}",
        lambda rng: [rng.randrange(99), -1, rng.choice((None, [[[0, 100], [9, 70]], 120, 7]))],
        _beside_log(partial(compaction_file.read, owner=_UNNAMED)),
    ),
    Target(
        "checkpoint",
        lambda rng: checkpoint.encode(Kind.OFFSETS, rng.randbytes(rng.randrange(60))),
        _feed_checkpoint,
    ),
    Target("directory-meta", _meta, _feed_meta),
)


# --- a partition's log ----------------------------------------------------------------------------


@cache
def _log_files() -> dict[str, bytes]:
    """The files of a small, sound log."""

    async def written() -> dict[str, bytes]:
        disk = MemoryDisk()
        log = await world.new_log(disk)
        for number in range(12):
            log.append_leader(
                world.batch(3, value=b"v%d" % number, producer=(7, 0, number * 3)),
                LeaderEpoch(1 + number // 6),
                1_000 + number,
            )
            await world.flush(log, disk)
        await log.checkpoint()
        await log.close()
        return {name: disk.content(f"{world.PATH}/{name}") for name in disk.list(world.PATH)}

    return trio.run(written)


def _log_names(ending: str) -> list[str]:
    return sorted(name for name in _log_files() if name.endswith(ending))


def _log_file(ending: str) -> Callable[[random.Random], bytes]:
    """The choice of the file, and its content."""

    def make(rng: random.Random) -> bytes:
        names = _log_names(ending)
        number = rng.randrange(len(names))
        return bytes((number,)) + _log_files()[names[number]]

    return make


def _feed_log(ending: str, given: bytes, rng: random.Random) -> None:
    """Verify and recover the log with this file in place of its own, then read all of it."""
    names = _log_names(ending)
    if not given:
        return
    replaced = names[given[0] % len(names)]
    content = bytearray(given[1:])
    if ending == ".log" and rng.random() < 0.5 and len(content) >= 61:
        seal(content)
    files = {**_log_files(), replaced: bytes(content)}

    async def look() -> None:
        disk = MemoryDisk()
        disk.mkdir(world.PATH)
        for name, data in files.items():
            file = disk.create(f"{world.PATH}/{name}")
            file.append([data])
            file.close()
        await verify_log(disk, world.PATH)
        log = await world.reopen(disk, mark=rng.choice((0, 20)), clean=rng.random() < 0.3)
        try:
            world.content(log)
        finally:
            await log.close()

    trio.run(look)


def _feed_index(given: bytes, rng: random.Random) -> None:
    try:
        index = OffsetIndex.from_bytes(100, given, 1 << 20)
    except PacelineError:
        pass
    else:
        assert index.to_bytes() == given
        index.floor(150)
    times = TimeIndex.from_bytes(100, given)
    assert times.to_bytes() == given


def _index(rng: random.Random) -> bytes:
    offsets, times = OffsetIndex(100), TimeIndex(100)
    for number in range(rng.randrange(1, 9)):
        offsets.add(100 + number * 10, number * 300)
        times.add(1_000 + number, 100 + number * 10)
    return rng.choice((offsets, times)).to_bytes()


LOGS = (
    Target("log-segment", _log_file(".log"), lambda given, rng: _feed_log(".log", given, rng)),
    Target("log-index", _log_file(".index"), lambda given, rng: _feed_log(".index", given, rng)),
    Target("producers", _log_file(".snap"), lambda given, rng: _feed_log(".snap", given, rng)),
    Target("index", _index, _feed_index),
)


# --- the metadata log -----------------------------------------------------------------------------

_RECORDS = [each for each in subclasses(metadata_records) if hasattr(each, "TYPE")]


def _record(rng: random.Random) -> bytes:
    return metadata_records.encode_record(sample(rng.choice(_RECORDS), rng))  # type: ignore[arg-type]


def _feed_record(given: bytes, rng: random.Random) -> None:
    record = metadata_records.decode_record(given)
    assert metadata_records.decode_record(metadata_records.encode_record(record)) == record


def _entries(rng: random.Random) -> list[Entry]:
    config = Config(_MEMBERS).to_bytes()
    packed: bytes = msgpack.packb([_record(rng) for _ in range(rng.randrange(3))])
    made = [Entry(2 + n, 1 + n // 4, EntryKind.RECORDS, packed) for n in range(rng.randrange(1, 6))]
    return [*made, Entry(2 + len(made), 3, EntryKind.CONFIG, config)]


def _raft_segment(rng: random.Random) -> bytes:
    return encode_header(1, 1) + b"".join(encode_entry(entry, 28) for entry in _entries(rng))


def _feed_raft_segment(given: bytes, rng: random.Random) -> None:
    Replay((1, 1)).add(1, given, is_last=rng.random() < 0.5)


@cache
def _raft_files() -> dict[str, bytes]:
    async def written() -> dict[str, bytes]:
        disk = MemoryDisk()
        state = Image.bootstrap(CLUSTER).to_snapshot()
        await write_bootstrap(disk, "m", cluster_id=CLUSTER, voters=_MEMBERS, state=state)
        store = await RaftStore.open(disk, "m", CLUSTER)
        entries = _entries(random.Random(1))
        vote = HardState(3, MemberId(NodeId(0), UUID(int=1).bytes))
        await store.write([Effects(hard_state=vote, entries=entries, sequence=1)])
        store.close()
        return {name: disk.content(f"m/{name}") for name in disk.list("m")}

    return trio.run(written)


def _raft_store(rng: random.Random) -> bytes:
    """The choice of a file of the metadata directory, and its content."""
    names = sorted(_raft_files())
    number = rng.randrange(len(names))
    return bytes((number,)) + _raft_files()[names[number]]


def _feed_raft_store(given: bytes, rng: random.Random) -> None:
    if not given:
        return
    names = sorted(_raft_files())
    files = {**_raft_files(), names[given[0] % len(names)]: given[1:]}

    async def look() -> None:
        disk = MemoryDisk()
        disk.mkdir("m")
        for name, data in files.items():
            file = disk.create(f"m/{name}")
            file.append([data])
            file.close()
        store = await RaftStore.open(disk, "m", CLUSTER)
        store.close()

    trio.run(look)


def _hard_state(rng: random.Random) -> Any:
    return [rng.randrange(9), rng.choice((None, [1, UUID(int=2).bytes])), rng.randrange(2)]


async def _open_with_hard_state(disk: Disk) -> object:
    for name, data in _raft_files().items():
        if name != "hardstate":
            file = disk.create(f"m/{name}")
            file.append([data])
            file.close()
    store = await RaftStore.open(disk, "m", CLUSTER)
    store.close()
    return store


def _image(rng: random.Random) -> Image:
    image = Image.bootstrap(CLUSTER)
    for number in range(rng.randrange(4)):
        image = image.apply(image.offset + 1, [_plain_record(number)])
    return image


def _plain_record(number: int) -> metadata_records.AnyRecord:
    topic = TopicId(UUID(int=50 + number))
    return metadata_records.Topic(topic, f"t{number}", {"min.insync.replicas": "2"})


def _snapshot(rng: random.Random) -> bytes:
    state = _image(rng).to_snapshot()
    return encode_snapshot(Snapshot(5, 2, Config(_MEMBERS), state), CLUSTER)


def _feed_snapshot(given: bytes, rng: random.Random) -> None:
    decode_snapshot(given, CLUSTER)


def _feed_image(given: bytes, rng: random.Random) -> None:
    Image.from_snapshot(given).to_snapshot()


def _raft_message(rng: random.Random) -> bytes:
    me, other = MemberId(NodeId(0), UUID(int=1).bytes), MemberId(NodeId(1), UUID(int=2).bytes)
    said = (
        raft_messages.VoteRequest(
            me, other, 3, raft_messages.VoteKind.REAL, 5, 2, EntryAt(3, 2), True, 7
        ),
        raft_messages.Append(me, other, 3, 1, 1, 1, 7, 9, EntryAt(3, 2), tuple(_entries(rng))),
        raft_messages.AppendResponse(me, other, 3, True, 5, 0, 0, 7, 9, raft_messages.Grant.WAITS),
        raft_messages.SnapshotChunk(me, other, 3, 5, 2, EntryAt(3, 2), 100, 7, 0, b"x" * 50),
        raft_messages.SnapshotResponse(me, other, 3, 5, 50),
        raft_messages.TimeoutNow(me, other, 3),
    )
    return raft_messages.encode(rng.choice(said), CLUSTER)


def _feed_raft_message(given: bytes, rng: random.Random) -> None:
    message = raft_messages.decode(given, CLUSTER)
    assert raft_messages.decode(raft_messages.encode(message, CLUSTER), CLUSTER) == message


METADATA = (
    Target("metadata-record", _record, _feed_record),
    Target("raft-log", _raft_segment, _feed_raft_segment),
    Target("raft-store", _raft_store, _feed_raft_store),
    _checkpoint("raft-state", Kind.RAFT_STATE, "m/hardstate", _hard_state, _open_with_hard_state),
    Target("raft-message", _raft_message, _feed_raft_message),
    Target("snapshot", _snapshot, _feed_snapshot),
    Target("image", lambda rng: _image(rng).to_snapshot(), _feed_image),
)


# --- groups ---------------------------------------------------------------------------------------

_KEY = GroupKey(Family.V1, "team", "orders")


def _group_record(rng: random.Random) -> bytes:
    """Key and value behind each other, with the key's length in front."""
    entry = rng.choice(
        (
            group_records.offset_entry(_KEY, "orders", 3, group_records.Offset(7)),
            group_records.offset_entry(_KEY, "orders", 3, None),
            group_records.marker_entry(group_records.Begun(0, 1)),
            group_records.group_entry(_KEY, sample(group_records.Group, rng)),  # type: ignore[arg-type]
            group_records.seat_entry(_KEY, "a", sample(group_records.Seat, rng)),  # type: ignore[arg-type]
        )
    )
    return bytes((len(entry.key),)) + entry.key + (entry.value or b"")


def _feed_group_record(given: bytes, rng: random.Random) -> None:
    if given:
        key, value = given[1 : 1 + given[0]], given[1 + given[0] :]
        group_records.decode(LogEntry(key, value or None))


_GROUPS = (
    b'{"team":{"generation":3,"members":[{"consumer_id":"a","last_heartbeat_unix_ms":5}],'
    b'"member_order":["a"],"assignments":{"a":[0,1]},"topic":"orders"}}\n'
)
_OFFSETS = b'{"team":{"orders":{"0":12,"1":7}}}\n'


def _feed_group_files(given: bytes, rng: random.Random) -> None:
    with contextlib.suppress(PacelineError):
        group_files.parse_groups(given)
    group_files.parse_offsets(given, now_ms=5)


GROUPS = (
    Target("group-record", _group_record, _feed_group_record),
    Target("group-files", lambda rng: rng.choice((_GROUPS, _OFFSETS)), _feed_group_files),
)
TARGETS = (*CHECKPOINTS, *LOGS, *METADATA, *GROUPS)
