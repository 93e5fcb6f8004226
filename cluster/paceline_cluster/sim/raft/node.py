"""A simulated member of the quorum: a disk, and at most one process that drives the Raft core."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from paceline_cluster.sim.raft.checks import Checker, Violation, chain
from paceline_cluster.sim.raft.durable import CLUSTER, Durable, member
from paceline_cluster.sim.raft.profile import Profile
from paceline_node.controller.raft import Raft
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_messages import RaftMessage
from paceline_node.controller.raft_types import MemberId, Snapshot

EPOCH_MS = 1_700_000_000_000
"""When a world begins, by the clocks on its walls."""


class NodeWorld(Protocol):
    """What a node knows of its world: time and chance, the network, watchers, what is counted."""

    rng: random.Random
    profile: Profile
    core_type: type[Raft]
    now: float
    checker: Checker
    disks: dict[MemberId, Durable]
    reads_done: int
    installs: int

    @property
    def nodes(self) -> Mapping[int, Node]:
        """All of them by number, this one too."""

    def digest_of(self, snapshot: Snapshot) -> int:
        """The state that a snapshot holds, as a number."""

    def later(self, wait: float, call: Callable[..., None], *arguments: object) -> None:
        """Call in ``wait`` virtual ms."""

    def send(self, message: RaftMessage) -> None:
        """Give a message to the network."""

    def refuses(self, message: RaftMessage, log: RaftLog) -> bool:
        """Whether a driver would drop the message, by what this log tells."""

    def hold(self, node: Node, effects: Effects) -> None:
        """The node has effects that it has not stored yet."""

    def release(self, node: Node, effects: Effects) -> None:
        """The node has stored them."""


class Node:
    """A process with a disk, alive or not."""

    def __init__(self, world: NodeWorld, number: int, disk: int, durable: Durable) -> None:
        self.world = world
        self.number = number
        self.disk = disk
        self.durable = durable
        self.life = 0
        self.alive = False
        self.paused_until = 0.0
        self._clock = 0
        self.boot()

    @property
    def id(self) -> MemberId:
        return member(self.number, self.disk).id

    def boot(self) -> None:
        world = self.world
        self.life += 1
        self.alive = True
        self.booted_at = world.now
        self.unsynced: deque[Effects] = deque()
        self.syncing = False
        self.leading = False
        self.reads: dict[int, int] = {}
        self.core = world.core_type(
            self.id,
            CLUSTER,
            self.durable.log(),
            self.durable.hard_state,
            timing=world.profile.timing,
            rng=random.Random(world.rng.getrandbits(64)),
            wall_ms=lambda: EPOCH_MS + int(world.now),
            limits=world.profile.limits,
            known_commit=self.durable.known_commit,
        )
        self.applied = self.durable.snapshot.index
        self.digest = world.digest_of(self.durable.snapshot)
        self.snapshot_index = self.applied
        world.later(world.rng.uniform(0, 50), self.on_tick, self.life, self._clock)

    # --- inputs ----------------------------------------------------------------------------------

    def on_tick(self, life: int, clock: int) -> None:
        world = self.world
        if life != self.life or not self.alive or clock != self._clock:
            return
        wait = world.profile.timing.tick_s * 1000 * world.rng.uniform(0.95, 1.05)
        if world.now < self.paused_until:
            world.later(self.paused_until - world.now, self.on_tick, life, clock)
            return
        world.later(wait, self.on_tick, life, clock)
        sleeps = self.core.quiet_ticks() > 1 and not self.core.is_leader
        self.core.tick()
        if sleeps:
            assert self.core.take_effects() is None, "a tick slept through had something to do"
        self.settle()

    def resume(self) -> None:
        """A pause ends before its time."""
        self.paused_until = 0.0
        self._clock += 1
        self.world.later(0, self.on_tick, self.life, self._clock)

    def on_message(self, message: RaftMessage, life: int) -> None:
        if not self.alive:
            return
        if self.world.now < self.paused_until:
            self.world.later(self.paused_until - self.world.now, self.on_message, message, life)
            return
        if self.world.refuses(message, self.core.log):
            return
        self.core.step(message)
        self.settle()

    def on_refused(self, number: int, life: int) -> None:
        """The network driver found that a process is gone."""
        if self.alive and life == self.life and not self.world.nodes[number].alive:
            self.core.peer_refused(member(number).node_id)
            self.settle()

    # --- effects ---------------------------------------------------------------------------------

    def settle(self) -> None:
        world = self.world
        while (effects := self.core.take_effects()) is not None:
            for message in effects.now:
                world.send(message)
            if effects.snapshot is not None:
                self._install(effects.snapshot)
            world.checker.on_written(self.core, effects.entries)
            world.checker.on_committed(self, effects.committed, world.disks)
            for entry in effects.committed:
                if entry.index != self.applied + 1:
                    raise Violation(f"{self.id} applies {entry.index} after {self.applied}")
                self.applied = entry.index
                self.digest = chain(self.digest, entry)
                if self.digest != world.checker.digests[entry.index, entry.term]:
                    raise Violation(f"{self.id} has another state at {entry.index}")
            for read in effects.reads:
                before = self.reads.pop(read.context)
                if read.index >= 0:
                    world.checker.on_read(read.index, before)
                    world.reads_done += 1
            self.unsynced.append(effects)
            world.hold(self, effects)
            self._begin_sync()
        if self.core.is_leader and not self.leading:
            world.checker.on_leader(self.core)
        self.leading = self.core.is_leader
        self._maybe_snapshot()

    def _install(self, snapshot: Snapshot) -> None:
        self.applied = snapshot.index
        self.snapshot_index = snapshot.index
        self.digest = self.world.digest_of(snapshot)
        if self.digest != self.world.checker.digests[snapshot.index, snapshot.term]:
            raise Violation(f"{self.id} installs another state at {snapshot.index}")
        self.world.installs += 1

    def _begin_sync(self) -> None:
        if not self.syncing and self.unsynced:
            self.syncing = True
            world = self.world
            wait = world.rng.expovariate(1 / world.profile.sync_ms)
            world.later(wait, self.on_synced, len(self.unsynced), self.life)

    def on_synced(self, count: int, life: int) -> None:
        if life != self.life or not self.alive:
            return
        self.syncing = False
        sequence = 0
        for _ in range(count):
            effects = self.unsynced.popleft()
            self.durable.write(effects)
            sequence = max(sequence, effects.sequence)
            self.world.release(self, effects)
        if sequence:
            self.core.persisted(sequence)
            self.settle()
        self.durable.known_commit = max(self.durable.known_commit, self.core.durable_commit)
        self._begin_sync()

    def _maybe_snapshot(self) -> None:
        if self.applied - self.snapshot_index < self.world.profile.snapshot_every:
            return
        self.snapshot_index = self.applied
        state = b"%d %d " % (self.applied, self.digest) + b"x" * 300
        snapshot = self.core.log.snapshot_at(self.applied, state)
        self.world.later(self.world.rng.uniform(1, 60), self.on_snapshot, snapshot, self.life)

    def on_snapshot(self, snapshot: Snapshot, life: int) -> None:
        if life != self.life or not self.alive:
            return
        self.durable.compact(snapshot, self.world.profile.limits.keep_entries)
        self.core.compacted(snapshot)

    def crash(self) -> None:
        self.alive = False
        self.life += 1
        self.durable.crash(list(self.unsynced), self.world.rng)
