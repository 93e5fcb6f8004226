"""Keeps ``groups.json`` and ``offsets.json`` true, and takes over those of an older broker.

Shown is what this node's replicas of ``__groups`` know to be committed of family ``v1`` (DESIGN
3.6): all of it in a cluster of up to three nodes, a part in a larger one. A change is in the files
within :data:`PAUSE_S`; heartbeats alone within :data:`HEARTBEAT_PAUSE_S`.

Files that lie here before this node has ever seen ``__groups`` are another broker's. Each partition
takes over what belongs to it, in its first records, if its first leader is this node; nothing is
written over before every partition here has begun, and then the found files are kept aside. Until
then they have names by which a node that starts again knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import structlog
import trio

from paceline.errors import CorruptMessage
from paceline.values import dataclass
from paceline_node.env import Disk, Env, is_full
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import Family, GroupKey, TopicAndNumber, partition_of
from paceline_node.groups.records import Group, Offset
from paceline_node.groups.v1_files import (
    GROUPS_FILE,
    OFFSETS_FILE,
    BadFile,
    entries_of,
    parse_groups,
    parse_offsets,
    render_groups,
    render_offsets,
)
from paceline_node.state_machines.machine import Entry
from paceline_node.state_machines.replica import MachineReplica, Phase
from paceline_node.state_machines.topic import StateTopic
from paceline_node.storage import checkpoint

PAUSE_S = 1.0
HEARTBEAT_PAUSE_S = 5.0
_NAMES_SHOWN = 20
IMPORTING = ".importing"
"""Behind the name of a file that was found, until all that belongs here is taken over."""
SET_ASIDE = ".imported"
"""Behind the name of a file that was found and is about to be written over."""
UNREADABLE = ".unreadable"
"""As well, if nobody can read it."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What an older broker left here, as records by group."""

    entries: Sequence[tuple[GroupKey, Entry]] = ()

    def of_partition(self, number: int, count: int) -> list[Entry]:
        """The records that belong into one of the ``count`` partitions of ``__groups``."""
        return [entry for key, entry in self.entries if partition_of(key, count) == number]


def is_importing(disk: Disk) -> bool:
    """Whether files were found and not all of them was taken over yet. Raises OSError."""
    return any(disk.exists(name + IMPORTING) for name in (GROUPS_FILE, OFFSETS_FILE))


async def find_files(disk: Disk, now_ms: int) -> FoundFiles:
    """Read both files, and have :func:`is_importing` tell of them; a missing one is empty. Raises
    BadFile, OSError."""
    try:
        groups = await _read(disk, GROUPS_FILE)
        offsets = await _read(disk, OFFSETS_FILE)
    except CorruptMessage as error:
        raise BadFile(str(error)) from error
    found = FoundFiles(
        entries_of(
            [] if groups is None else parse_groups(groups),
            [] if offsets is None else parse_offsets(offsets, now_ms=now_ms),
        )
    )
    if found.entries:
        await _rename(disk, "", IMPORTING)
    return found


async def _read(disk: Disk, name: str) -> bytes | None:
    found = await checkpoint.read_file(disk, name + IMPORTING)
    return await checkpoint.read_file(disk, name) if found is None else found


async def keep_unreadable(disk: Disk) -> None:
    """Give both files other names: they are about to be written anew. Raises OSError."""
    await _rename(disk, "", UNREADABLE)
    await _rename(disk, IMPORTING, UNREADABLE)


async def _rename(disk: Disk, old: str, new: str) -> None:
    for name in (GROUPS_FILE, OFFSETS_FILE):
        if disk.exists(name + old):
            disk.rename(name + old, name + new)
    await disk.fsync_dir("")


@dataclass(frozen=True, slots=True)
class _View:
    """State of one moment; true once every partition has committed what it is made of."""

    groups: dict[str, Group]
    offsets: dict[str, dict[TopicAndNumber, Offset]]
    heard: dict[tuple[str, str], int]
    waiting: tuple[tuple[MachineReplica, int], ...]


class GroupFiles:
    """Writes the files of one node. ``assigned``: the partitions of ``__groups`` that the metadata
    give it, whether their logs are there yet or not; ``partition_count``: how many there are."""

    def __init__(
        self,
        env: Env,
        machines: StateTopic[GroupEngine],
        found: FoundFiles,
        assigned: Callable[[], Collection[int]],
        partition_count: Callable[[], int],
    ) -> None:
        self._env = env
        self._machines = machines
        self._assigned = assigned
        self._partition_count = partition_count
        self._found: FoundFiles | None = found
        self._shown = -1
        self._shown_beats = -1
        self._shown_at = float("-inf")
        self._log = structlog.get_logger(component="groups")

    async def run(self) -> None:
        """Write until cancelled. Raises OSError when the disk fails."""
        while True:
            await trio.sleep(PAUSE_S)
            if not self._has_begun:
                continue
            if self._found is not None:
                await self._settle(self._found)
                self._found = None
            changes, beats = self._counts()
            rested = self._env.now() >= self._shown_at + HEARTBEAT_PAUSE_S
            if changes == self._shown and (beats == self._shown_beats or not rested):
                continue
            view = self._view()
            if await self._is_true(view) and await self._write(view):
                self._shown, self._shown_beats = changes, beats
                self._shown_at = self._env.now()

    @property
    def _has_begun(self) -> bool:
        """Whether every partition that is to be here has its first record: before, files that were
        found may be needed yet."""
        begun = {
            number
            for number, _, engine in self._machines.machines()
            if engine.store.begun is not None
        }
        assigned = self._assigned()
        return bool(assigned) and begun.issuperset(assigned)

    async def _settle(self, found: FoundFiles) -> None:
        """Say what became of files that were found, and keep them under another name."""
        if not found.entries:
            return
        count = self._partition_count()
        begun = [(number, engine.store.begun) for number, _, engine in self._machines.machines()]
        here = {number for number, marker in begun if marker is not None and marker.imported}
        taken = {key.group for key, _ in found.entries if partition_of(key, count) in here}
        left = {key.group for key, _ in found.entries} - taken
        await _rename(self._env.disk, IMPORTING, SET_ASIDE)
        self._log.info("took over groups from files", groups=len(taken), kept_as=SET_ASIDE)
        if left:
            self._log.warning(
                "groups in the files were not taken over: another node leads their partitions; "
                "start the first node alone with these files, then add the others",
                groups=sorted(left)[:_NAMES_SHOWN],
                count=len(left),
            )

    def _counts(self) -> tuple[int, int]:
        hosted = [engine for _, _, engine in self._machines.machines()]
        changes = sum(engine.store.changes[Family.V1] for engine in hosted)
        return changes, sum(engine.sessions.beats for engine in hosted)

    def _view(self) -> _View:
        view = _View({}, {}, {}, ())
        waiting = []
        for _, replica, engine in self._machines.machines():
            waiting.append((replica, replica.applied))
            for key, group in engine.store.groups.items():
                if key.family is Family.V1:
                    view.groups[key.group] = group
                    self._add_heard(view, engine, key, group)
            for key, offsets in engine.store.offsets.items():
                if key.family is Family.V1:
                    view.offsets[key.group] = dict(offsets)
        return _View(view.groups, view.offsets, view.heard, tuple(waiting))

    def _add_heard(self, view: _View, engine: GroupEngine, key: GroupKey, group: Group) -> None:
        for member in group.members:
            heard_ms = engine.sessions.heard_ms(key, member.member_id)
            if heard_ms is not None:
                view.heard[key.group, member.member_id] = heard_ms

    async def _is_true(self, view: _View) -> bool:
        """Wait until all of it is committed; False when a leader fell before."""
        for replica, applied in view.waiting:
            if replica.phase is not Phase.LEADING:
                continue  # a follower folds what is committed only
            woken = trio.Event()
            token = replica.when_committed(applied - 1, woken.set)
            epoch = replica.led_epoch
            try:
                await woken.wait()
            finally:
                replica.unwatch(token)
            if not replica.is_committed(applied - 1, epoch):
                return False
        return True

    async def _write(self, view: _View) -> bool:
        """Replace both files; False when the disk has no room for them now."""
        host, disk = self._env.host, self._env.disk
        groups = await host.run_blocking(partial(render_groups, view.groups, view.heard))
        offsets = await host.run_blocking(partial(render_offsets, view.offsets))
        try:
            await checkpoint.replace(disk, GROUPS_FILE, groups)
            await checkpoint.replace(disk, OFFSETS_FILE, offsets)
        except OSError as error:
            if not is_full(error):
                raise
            self._log.warning("no room for the groups' files")
            return False
        return True
