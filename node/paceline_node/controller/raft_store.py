"""The metadata log on disk: entries, hard state, snapshots; what is torn is cut, what is corrupt
stops the member.

One directory (``metadata/``), kept twice (``raft_copies.py``), holds

* ``hardstate``: term, vote and the newest segment, a checkpoint file replaced as a whole;
* ``<20-digit index>.snapshot``: the newest two snapshots (format in ``raft_snapshot.py``);
* ``<20-digit number>.raft``: log segments in order (format in ``raft_log_segment.py``). An entry
  whose index exists already replaces it and everything behind it, so the files are only ever
  appended to.

Order on disk: hard state before the entries of its term; a segment before the hard state that names
it, before the segment's entries; a received snapshot before the entries behind it. So a directory
whose hard state names a segment that is not there has lost entries; one that lacks what
``metadata.mark`` (``raft_mark.py``) names, too. Formatting writes the first hard state: a directory
without one is damaged, never new. A member that has forgotten its votes and entries must not vote
as if it had none.
Rules: RAFT 1 and 5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from uuid import UUID

import trio

from paceline.errors import (
    CorruptMessage,
    ErrorCode,
    InconsistentClusterId,
    PacelineError,
    RemoteProtocolError,
)
from paceline.values import dataclass
from paceline_node.bare_errors import bare
from paceline_node.controller.raft_copies import SNAPSHOT_SUFFIX, TwoCopies, copy_of, mend
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_hard_state import (
    HARD_STATE,
    Kept,
    decode_hard_state,
    encode_hard_state,
)
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_log_segment import (
    HEADER_BYTES,
    SEGMENT_SUFFIX,
    Replay,
    encode_entry,
    encode_header,
    segment_name,
)
from paceline_node.controller.raft_mark import Promised, PromiseMark, mark_of
from paceline_node.controller.raft_snapshot import (
    decode_snapshot,
    encode_snapshot,
    snapshot_cluster_id,
)
from paceline_node.controller.raft_types import (
    EMPTY_SNAPSHOT,
    Config,
    Entry,
    EntryAt,
    HardState,
    Member,
    Snapshot,
)
from paceline_node.env import Disk, File
from paceline_node.storage import checkpoint
from paceline_node.storage.rewrite_after_failed_sync import rewrite

LOST_SUFFIX = ".lost"
KEEP_ENTRIES = 1000
BOOTSTRAP_INDEX = 1
BOOTSTRAP_TERM = 1


class MetadataCorrupt(PacelineError):
    """This member can no longer tell what it voted for and acknowledged. It must not take part;
    replace its disk: remove the voter, format the directory, let it join again."""

    code = ErrorCode.STORAGE_ERROR


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening found. ``truncated_bytes`` were a torn tail that nobody was told about;
    ``bad_snapshots`` are names of files that did not hold in either copy: an older one and the log
    behind it say the same, and they are removed; ``mended`` are the paths of those that
    were lost, bad or old in one of the two copies."""

    hard_state: HardState
    log: RaftLog
    truncated_bytes: int
    bad_snapshots: tuple[str, ...]
    mended: tuple[str, ...] = ()


class RaftStore:
    """Durable state of one member. All methods raise OSError when the disk fails; then the store
    must not be used any more (a failed sync may have dropped what it was to keep). Only when it is
    merely full (:func:`~paceline_node.env.is_full`) may the same call be made again."""

    def __init__(
        self, disk: Disk, path: str, cluster_id: UUID, recovery: Recovery, mark: PromiseMark
    ) -> None:
        self.recovery = recovery
        self._mark = mark
        self.sync_count = 0
        self._disk = disk
        self._path = path
        self.cluster_id = cluster_id
        self._lock = trio.Lock()
        self._active: File | None = None
        self._number = 0
        self._hard_state = recovery.hard_state
        self._synced = 0
        self._last = (recovery.log.last_index, recovery.log.last_term)
        self.durable_index = -1
        """The end of the log that is durable; committed or not."""
        self.known_commit = -1 if mark.found is None else mark.found.committed
        """How far the log is known to be committed and durable; it may be further."""
        self._highest: dict[int, int] = {}
        self._snapshots: list[int] = []

    @classmethod
    async def open(
        cls,
        disk: Disk,
        path: str,
        cluster_id: UUID,
        *,
        disk_failed: bool = False,
        reached: int = -1,
    ) -> RaftStore:
        """Recover the directory (created when missing) and make all that was read durable. The log
        of this member is known to have ``reached`` that index, and it was committed.

        With ``disk_failed`` a sync failed under the process before, so syncing what was read would
        prove nothing: it is written anew first (``storage/rewrite_after_failed_sync.py``). Raises
        MetadataCorrupt, InconsistentClusterId, OSError.
        """
        mark = await PromiseMark.open(disk, path)
        try:
            return await cls._open(
                disk, path, cluster_id, mark, disk_failed=disk_failed, reached=reached
            )
        except BaseException:
            mark.close()
            raise

    @classmethod
    async def _open(
        cls,
        disk: Disk,
        path: str,
        cluster_id: UUID,
        mark: PromiseMark,
        *,
        disk_failed: bool,
        reached: int,
    ) -> RaftStore:
        is_first = not disk.exists(copy_of(path))
        try:
            mended = await mend(disk, path)
        except CorruptMessage as error:
            raise MetadataCorrupt(str(error)) from None
        if is_first:
            mended = ()  # by a version that kept no copy: nothing was wrong
        disk = TwoCopies(disk, path)
        replay = await _replay(disk, path)
        snapshots, bad = await _read_snapshots(disk, path, cluster_id)
        kept = await _read_hard_state(disk, path)
        log = _join(path, replay, snapshots, bad)
        if kept is None:
            if log.last_index != BOOTSTRAP_INDEX or not is_first:
                raise MetadataCorrupt(
                    f"{path}/{HARD_STATE} is missing, and its copy: nobody knows for whom this "
                    "member voted and what it acknowledged"
                )
            kept = Kept(HardState(log.last_term), 0)
        if max(replay.numbers, default=0) < kept.segment:
            raise MetadataCorrupt(
                f"{path}/{segment_name(kept.segment)} is missing, and its copy: this member "
                "acknowledged more than is there"
            )
        hard_state = kept.state
        forgotten = await _forgotten(disk, path, mark.found, hard_state, replay)
        if forgotten is not None:
            raise MetadataCorrupt(
                f"{path} and its copy are older than what this member promised, by "
                f"{mark_of(path)}: {forgotten}"
            )
        recovery = Recovery(hard_state, log, replay.truncated, bad, mended)
        if log.last_index < reached:
            raise MetadataCorrupt(
                f"{path}, its copy and {mark_of(path)} are older than this node's incarnation: the "
                f"log had reached {reached}, and ends at {log.last_index}"
            )
        store = cls(disk, path, cluster_id, recovery, mark)
        await store._begin(replay, snapshots, disk_failed=disk_failed)
        return store

    async def _begin(
        self, replay: Replay, snapshots: Sequence[Snapshot], *, disk_failed: bool
    ) -> None:
        """What a killed process left in the page cache is not durable yet: sync it all."""
        for number in replay.numbers:
            file = await self._disk.open(f"{self._path}/{segment_name(number)}")
            try:
                if disk_failed:
                    await rewrite(file)
                await self._disk.sync([file])
            finally:
                file.close()
        await self._disk.fsync_dir(self._path)
        self._number = max(replay.numbers, default=0)
        self._highest = dict(replay.highest)
        self._snapshots = sorted(snapshot.index for snapshot in snapshots)
        # A new segment each start: its header says where the log stands, so a log that the
        # snapshot made void is left behind at the same time. And the hard state anew: it, too, may
        # have been read from the page cache alone.
        await self._roll()
        for name in self.recovery.bad_snapshots:
            self._disk.remove(f"{self._path}/{name}")
        self.durable_index = self._last[0]
        self._promised()

    @property
    def noted_syncs(self) -> int:
        """How many syncs of the logs' files were noted here (storage/DESIGN 6.2)."""
        return self._mark.syncs

    def note_syncs(self, syncs: int) -> None:
        """Note that so many are durable; never fails, for it may be lower than it could be."""
        self._mark.note_syncs(syncs)

    def close(self) -> None:
        self._mark.close()
        self._close_active()

    def _close_active(self) -> None:
        if self._active is not None:
            self._active.close()
            self._active = None

    # --- writing ---------------------------------------------------------------------------------

    async def write(self, batches: Sequence[Effects]) -> None:
        """Make the hard states, snapshots and entries of these effects durable, in order, sharing
        one sync of the log.

        Not cancel-safe: after a cancellation the store must be closed.
        """
        async with self._lock:
            hard_states = [batch.hard_state for batch in batches if batch.hard_state is not None]
            if hard_states:
                await self._write_hard_state(hard_states[-1])
            entries: list[Entry] = []
            for batch in batches:
                if batch.snapshot is not None:
                    entries.clear()
                    await self._install(batch.snapshot)
                entries.extend(batch.entries)
            if entries:
                await self._append(entries)
            self._promised()

    def committed(self, index: int) -> None:
        """The log is committed and durable up to there: noted, and made durable with a sync that
        happens anyway."""
        if index > self.known_commit:
            self.known_commit = index
            self._promised()

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Store a snapshot of our own and drop what lies far enough behind it.

        The previous snapshot and the log from it on stay, in case this one rots.
        """
        if self._snapshots and snapshot.index <= self._snapshots[-1]:
            return
        await self._write_snapshot(snapshot)
        async with self._lock:
            if snapshot.index > self._last[0]:
                return  # the entries it stands for are still being written: drop nothing
            await self._roll()
            self._promised()
            self._drop_old()

    # --- pieces ----------------------------------------------------------------------------------

    def _promised(self) -> None:
        """All that was written is durable, and may be told."""
        promised = Promised(self._hard_state, self._number, self._synced, self.known_commit)
        self._mark.write(promised)

    async def _write_hard_state(self, state: HardState) -> None:
        path = f"{self._path}/{HARD_STATE}"
        await checkpoint.replace(self._disk, path, encode_hard_state(Kept(state, self._number)))
        self._hard_state = state

    async def _write_snapshot(self, snapshot: Snapshot) -> None:
        name = f"{self._path}/{snapshot.index:020d}{SNAPSHOT_SUFFIX}"
        await checkpoint.replace(self._disk, name, encode_snapshot(snapshot, self.cluster_id))
        self._snapshots = sorted({*self._snapshots, snapshot.index})

    async def _install(self, snapshot: Snapshot) -> None:
        """A snapshot from the leader replaces the log."""
        await self._write_snapshot(snapshot)
        self._last = (snapshot.index, snapshot.term)
        self.durable_index = snapshot.index
        await self._roll()
        for number in [number for number in self._highest if number != self._number]:
            self._remove_segment(number)
        self._drop_old()

    async def _append(self, entries: Sequence[Entry]) -> None:
        assert self._active is not None
        self._active.append([encode_entry(entry, self._synced) for entry in entries])
        # Only now: on a full disk nothing was written, and a segment begun before the next try must
        # not say that it stands behind entries that are nowhere.
        self._last = (entries[-1].index, entries[-1].term)
        highest = max(entry.index for entry in entries)
        self._highest[self._number] = max(self._highest[self._number], highest)
        size = self._active.size()
        self.sync_count += 1
        await self._disk.sync([self._active, *self._mark.to_ride()])
        self._synced = size
        self.durable_index = entries[-1].index

    async def _roll(self) -> None:
        """Begin a new segment; everything before it is synced."""
        number = self._number + 1
        path = f"{self._path}/{segment_name(number)}"
        active = self._disk.create(path)
        failure: OSError | None = None
        try:
            active.append([encode_header(*self._last)])
            await self._disk.sync([active])
            await self._disk.fsync_dir(self._path)
        except OSError as error:
            failure = bare(error)
        if failure is not None:  # perhaps a full disk: a file without its header must not stay
            active.close()
            self._disk.remove(path)
            await self._disk.fsync_dir(self._path)  # nor come back beside another of its number
            try:
                raise failure
            finally:
                del failure
        self._close_active()
        self._active = active
        self._number = number
        self._synced = HEADER_BYTES
        self._highest[self._number] = 0
        await self._write_hard_state(self._hard_state)

    def _drop_old(self) -> None:
        """Keep two snapshots, and every segment that holds an entry the older one may need."""
        for index in self._snapshots[:-2]:
            self._disk.remove(f"{self._path}/{index:020d}{SNAPSHOT_SUFFIX}")
        self._snapshots = self._snapshots[-2:]
        needed = min(self._snapshots[0], self._snapshots[-1] - KEEP_ENTRIES)
        for number in sorted(self._highest):
            if number == self._number or self._highest[number] > needed:
                return
            self._remove_segment(number)

    def _remove_segment(self, number: int) -> None:
        self._disk.remove(f"{self._path}/{segment_name(number)}")
        del self._highest[number]


async def write_bootstrap(
    disk: Disk, path: str, *, cluster_id: UUID, voters: Sequence[Member], state: bytes
) -> None:
    """Format an initial voter's quorum directory: the same snapshot at index 1 on each of them.

    Raises FileExistsError when the directory holds anything: a node never forgets a quorum.
    """
    both = await _format(disk, path, HardState(BOOTSTRAP_TERM))
    ordered = tuple(sorted(voters, key=lambda voter: voter.id))
    since = EntryAt(BOOTSTRAP_INDEX, BOOTSTRAP_TERM)
    snapshot = Snapshot(*since, Config(ordered), state, voters_since=since)
    name = f"{path}/{BOOTSTRAP_INDEX:020d}{SNAPSHOT_SUFFIX}"
    await checkpoint.replace(both, name, encode_snapshot(snapshot, cluster_id))


async def write_newcomer(disk: Disk, path: str) -> None:
    """Format the quorum directory of a node that is a member of nothing yet, and has promised
    nothing; again, if an earlier call was cut short. Raises FileExistsError when it holds more."""
    if is_newcomer(disk, path):
        for directory in (path, copy_of(path)):
            disk.remove_tree(directory)
    await _format(disk, path, HardState(0))


def is_newcomer(disk: Disk, path: str) -> bool:
    """Whether the quorum directory holds no more than :func:`write_newcomer` wrote."""
    names = {*disk.list(path), *disk.list(copy_of(path))}
    return names <= {HARD_STATE, HARD_STATE + checkpoint.TEMPORARY}


async def set_aside(disk: Disk, path: str) -> None:
    """Put a quorum directory whose promises nobody knows where it is in nobody's way, and begin as
    a newcomer. Only for a node that has a new identity by now: under the old one it would vote as
    if it never had."""
    for directory in (path, copy_of(path)):
        disk.remove_tree(directory + LOST_SUFFIX)
        if disk.exists(directory):
            disk.rename(directory, directory + LOST_SUFFIX)
    disk.remove(mark_of(path))
    await disk.fsync_dir(checkpoint.parent(path))
    await write_newcomer(disk, path)


async def _format(disk: Disk, path: str, first: HardState) -> Disk:
    if disk.list(path) or disk.list(copy_of(path)):
        raise FileExistsError(f"{path} is not empty")
    both = TwoCopies(disk, path)
    disk.remove(mark_of(path))
    both.mkdir(path)
    await disk.fsync_dir(checkpoint.parent(path))
    await checkpoint.replace(both, f"{path}/{HARD_STATE}", encode_hard_state(Kept(first, 0)))
    return both


async def _read_all(disk: Disk, path: str) -> bytes:
    file = await disk.open(path)
    with contextlib.closing(file):
        return await file.read(file.size(), 0)


async def _replay(disk: Disk, path: str) -> Replay:
    """Read every segment; cut the torn tail of the last one off."""
    replay = Replay()
    names = [name for name in disk.list(path) if name.endswith(SEGMENT_SUFFIX)]
    for name in names:
        whole = f"{path}/{name}"
        data = await _read_all(disk, whole)
        number = int(name.removesuffix(SEGMENT_SUFFIX))
        try:
            keep = replay.add(number, data, is_last=name == names[-1])
        except CorruptMessage as error:
            raise MetadataCorrupt(f"{whole}: {error}") from None
        if keep == 0:
            disk.remove(whole)
        elif keep < len(data):
            file = await disk.open(whole)
            with contextlib.closing(file):
                file.truncate(keep)
                await disk.sync([file])
    return replay


async def _forgotten(
    disk: Disk, path: str, promised: Promised | None, state: HardState, replay: Replay
) -> str | None:
    """What of ``promised`` is in neither copy, whose files were mended and cut by now."""
    if promised is None:
        return None
    size = 0
    if promised.segment in replay.numbers:
        file = await disk.open(f"{path}/{segment_name(promised.segment)}")
        with contextlib.closing(file):
            size = file.size()
    return promised.forgotten(state, max(replay.numbers, default=0), size)


async def _read_snapshots(
    disk: Disk, path: str, cluster_id: UUID
) -> tuple[list[Snapshot], tuple[str, ...]]:
    """All snapshots that hold, oldest first, and the names of those that do not."""
    good: list[Snapshot] = []
    bad: list[str] = []
    for name in disk.list(path):
        if not name.endswith(SNAPSHOT_SUFFIX):
            continue
        data = await _read_all(disk, f"{path}/{name}")
        try:
            found = snapshot_cluster_id(data)
            snapshot = decode_snapshot(data, found)
        except RemoteProtocolError:
            bad.append(name)
            continue
        if found != cluster_id:
            raise InconsistentClusterId(
                f"{path}/{name} belongs to cluster {found}, not {cluster_id}"
            )
        good.append(snapshot)
    return good, tuple(bad)


async def _read_hard_state(disk: Disk, path: str) -> Kept | None:
    name = f"{path}/{HARD_STATE}"
    if not disk.exists(name):
        return None
    try:
        return decode_hard_state(await _read_all(disk, name))
    except CorruptMessage as error:
        raise MetadataCorrupt(f"{name}: {error}") from None


def _join(path: str, replay: Replay, snapshots: Sequence[Snapshot], bad: Sequence[str]) -> RaftLog:
    """Fit the log to the newest snapshot that holds."""
    snapshot = snapshots[-1] if snapshots else EMPTY_SNAPSHOT
    if not snapshots and (bad or replay.last_index > 0):
        raise MetadataCorrupt(f"{path}: no snapshot can be read ({', '.join(bad) or 'none'})")
    if snapshot.index < replay.base[0]:
        raise MetadataCorrupt(
            f"{path}: the newest readable snapshot is {snapshot.index}, the log begins behind "
            f"{replay.base[0]}; damaged: {', '.join(bad) or 'none'}"
        )
    if replay.term_at(snapshot.index) != snapshot.term:
        # Power was lost between storing a received snapshot and the log's new beginning.
        return RaftLog(snapshot, base=None)
    base = max(replay.base[0], snapshot.index - KEEP_ENTRIES)
    term = replay.term_at(base)
    assert term is not None
    return RaftLog(snapshot, replay.entries[base - replay.base[0] :], base=(base, term))
