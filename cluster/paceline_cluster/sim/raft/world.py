"""A seeded world for the quorum: one heap of events, no tasks, no real time.

Draws everything from one seed: sizes, timings, faults, workload. Messages are delayed, dropped,
duplicated and reordered; links are cut one way or both; nodes crash and lose what was not synced,
pause, come back with an empty disk (within the budget: never so many that a majority of the voters
is lost). Virtual time is in milliseconds.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.errors import InvalidRequest, NotController, Throttled
from paceline_cluster.sim.raft.checks import Checker, Violation, chain
from paceline_cluster.sim.raft.durable import CLUSTER, Durable, member
from paceline_node.controller.raft import Raft
from paceline_node.controller.raft_membership import Surroundings, plan, without
from paceline_node.controller.raft_messages import RaftMessage
from paceline_node.controller.raft_types import (
    Config,
    Effects,
    MemberId,
    RaftLimits,
    RaftTiming,
    Snapshot,
)


@dataclass(slots=True)
class Profile:
    """How rough a run is; drawn per seed."""

    nodes: int = 5
    voters: int = 3
    drop: float = 0.0
    duplicate: float = 0.0
    delay_ms: float = 2.0
    slow: float = 0.01
    sync_ms: float = 1.0
    fault_every_ms: float = 400.0
    propose_every_ms: float = 25.0
    snapshot_every: int = 40
    membership: bool = True
    refusals: bool = True
    limits: RaftLimits = field(default_factory=RaftLimits)
    timing: RaftTiming = field(default_factory=lambda: RaftTiming(0.05, 1, 6))

    @classmethod
    def draw(cls, rng: random.Random) -> Profile:
        """Swarm: each run leaves some faults out and exaggerates others."""
        nodes = rng.choice((3, 3, 4, 5, 5, 6))
        return cls(
            nodes=nodes,
            voters=rng.choice([count for count in (1, 2, 3, 3, 5) if count <= nodes]),
            drop=rng.choice((0.0, 0.0, 0.02, 0.2)),
            duplicate=rng.choice((0.0, 0.0, 0.05, 0.3)),
            delay_ms=rng.choice((1.0, 5.0, 40.0)),
            slow=rng.choice((0.0, 0.01, 0.1)),
            sync_ms=rng.choice((0.2, 2.0, 30.0)),
            fault_every_ms=rng.choice((150.0, 400.0, 1000.0)),
            propose_every_ms=rng.choice((5.0, 25.0, 200.0)),
            snapshot_every=rng.choice((10, 40, 1000)),
            membership=rng.random() < 0.7,
            refusals=rng.random() < 0.7,
            limits=RaftLimits(
                append_bytes=rng.choice((64, 65536)),
                append_entries=rng.choice((1, 4, 500)),
                inflight_appends=rng.choice((1, 3, 64)),
                chunk_bytes=rng.choice((64, 200, 262144)),
                keep_entries=rng.choice((0, 5, 1000)),
                learner_lag=rng.choice((5, 1000)),
            ),
            timing=RaftTiming(0.05, rng.choice((1, 2)), rng.choice((5, 8, 20))),
        )


class Node:
    """A process with a disk, alive or not."""

    def __init__(self, world: World, number: int, disk: int, durable: Durable) -> None:
        self.world = world
        self.number = number
        self.disk = disk
        self.durable = durable
        self.life = 0
        self.alive = False
        self.paused_until = 0.0
        self.boot()

    @property
    def id(self) -> MemberId:
        return member(self.number, self.disk).id

    def boot(self) -> None:
        world = self.world
        self.life += 1
        self.alive = True
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
            limits=world.profile.limits,
        )
        self.applied = self.durable.snapshot.index
        self.digest = world.digest_of(self.durable.snapshot)
        self.snapshot_index = self.applied
        world.later(world.rng.uniform(0, 50), self.on_tick, self.life)

    # --- inputs ----------------------------------------------------------------------------------

    def on_tick(self, life: int) -> None:
        world = self.world
        if life != self.life or not self.alive:
            return
        wait = world.profile.timing.tick_s * 1000 * world.rng.uniform(0.95, 1.05)
        if world.now < self.paused_until:
            world.later(self.paused_until - world.now, self.on_tick, life)
            return
        world.later(wait, self.on_tick, life)
        sleeps = self.core.quiet_ticks() > 1 and not self.core.is_leader
        self.core.tick()
        if sleeps:
            assert self.core.take_effects() is None, "a tick slept through had something to do"
        self.settle()

    def on_message(self, message: RaftMessage, life: int) -> None:
        if not self.alive:
            return
        if self.world.now < self.paused_until:
            self.world.later(self.paused_until - self.world.now, self.on_message, message, life)
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
                if self.digest != world.checker.digests[entry.index]:
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
        if self.digest != self.world.checker.digests[snapshot.index]:
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
        self._begin_sync()

    def _maybe_snapshot(self) -> None:
        if self.applied - self.snapshot_index < self.world.profile.snapshot_every:
            return
        self.snapshot_index = self.applied
        term = self.core.log.term_at(self.applied)
        assert term is not None
        state = b"%d %d " % (self.applied, self.digest) + b"x" * 300
        snapshot = Snapshot(self.applied, term, self.core.log.config_at(self.applied), state)
        self.world.later(self.world.rng.uniform(1, 60), self.on_snapshot, snapshot, self.life)

    def on_snapshot(self, snapshot: Snapshot, life: int) -> None:
        if life != self.life or not self.alive or snapshot.index > self.core.log.last_index:
            return
        if snapshot.index <= self.durable.last_index:
            self.durable.compact(snapshot, self.world.profile.limits.keep_entries)
            self.core.compacted(snapshot)

    def crash(self) -> None:
        self.alive = False
        self.life += 1
        self.durable.crash(list(self.unsynced), self.world.rng)


class World:
    """Nodes, network, faults, workload."""

    def __init__(
        self, seed: int, *, profile: Profile | None = None, core_type: type[Raft] = Raft
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.profile = profile or Profile.draw(self.rng)
        self.core_type = core_type
        self.now = 0.0
        self.events = 0
        self.faults = 0
        self.proposals = 0
        self.reads_done = 0
        self.installs = 0
        self.config_changes = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._counter = 0
        self.cuts: set[tuple[int, int]] = set()
        voters = tuple(member(number) for number in range(self.profile.voters))
        bootstrap = Snapshot(1, 1, Config(voters), b"1 0 ")
        self.checker = Checker(bootstrap)
        self.nodes: dict[int, Node] = {}
        self.disks: dict[MemberId, Durable] = {}
        self.lost: set[MemberId] = set()
        for number in range(self.profile.nodes):
            voter = number < self.profile.voters
            self._place(number, 0, Durable(bootstrap, term=1) if voter else Durable())
        self.quiet = False
        self.unwanted: set[int] = set()
        self.later(0, self.on_workload)
        self.later(300, self.on_plan)
        self.later(self.profile.fault_every_ms, self.on_fault)

    def _place(self, number: int, disk: int, durable: Durable) -> None:
        node = Node(self, number, disk, durable)
        self.nodes[number] = node
        self.disks[node.id] = durable

    def digest_of(self, snapshot: Snapshot) -> int:
        return int(snapshot.state.split()[1]) if snapshot.state else 0

    # --- events ----------------------------------------------------------------------------------

    def later(self, wait: float, call: Callable[..., None], *arguments: object) -> None:
        self._counter += 1
        heapq.heappush(self._heap, (self.now + wait, self._counter, call, arguments))

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, call, arguments = heapq.heappop(self._heap)
            self.events += 1
            call(*arguments)
        self.now = until

    # --- network ---------------------------------------------------------------------------------

    def hold(self, node: Node, effects: Effects) -> None:
        """A hook for a mutant that does not wait for the disk."""

    def release(self, node: Node, effects: Effects) -> None:
        for message in effects.after_persist:
            self.send(message)

    def send(self, message: RaftMessage) -> None:
        rng, profile = self.rng, self.profile
        link = (int(message.sender.node), int(message.to.node))
        copies = 1
        if not self.quiet:
            if rng.random() < profile.drop:
                return
            copies += rng.random() < profile.duplicate
        for _ in range(copies):
            wait = rng.expovariate(1 / profile.delay_ms)
            if not self.quiet and rng.random() < profile.slow:
                wait += rng.uniform(50, 1500)
            self.later(wait, self.on_delivery, link, message)

    def on_delivery(self, link: tuple[int, int], message: RaftMessage) -> None:
        node = self.nodes[link[1]]
        if link not in self.cuts:
            node.on_message(message, node.life)

    # --- workload --------------------------------------------------------------------------------

    def on_workload(self) -> None:
        self.later(self.rng.expovariate(1 / self.profile.propose_every_ms), self.on_workload)
        node = self.nodes[self.rng.randrange(len(self.nodes))]
        if not node.alive or self.now < node.paused_until or not node.core.is_leader:
            return
        self._counter += 1
        try:
            if self.rng.random() < 0.05:
                node.reads[self._counter] = self.checker.last_committed
                node.core.read_index(self._counter)
            else:
                node.core.propose(b"value %d" % self._counter)
                self.proposals += 1
        except (NotController, Throttled):
            return
        node.settle()

    def leaders(self) -> list[Node]:
        return [
            node
            for node in self.nodes.values()
            if node.alive and node.core.is_leader and self.now >= node.paused_until
        ]

    def on_plan(self) -> None:
        """Leaders let nodes in that are not members, heal wiped voters, promote learners."""
        self.later(200, self.on_plan)
        for node in self.leaders():
            leadership = node.core.leadership
            assert leadership is not None
            joining = {
                other.id.node: member(other.number, other.disk)
                for other in self.nodes.values()
                if other.alive and other.number not in self.unwanted
            }
            seen = Surroundings(leadership.live(), leadership.caught_up(), joining, 5)
            change = plan(node.core.config, seen)
            if change is not None:
                self.change(node, change)

    def change(self, node: Node, config: Config) -> None:
        try:
            node.core.propose_config(config)
        except (InvalidRequest, NotController):
            return
        self.config_changes += 1
        node.settle()

    # --- faults ----------------------------------------------------------------------------------

    def on_fault(self) -> None:
        if self.quiet:
            return
        self.later(self.rng.expovariate(1 / self.profile.fault_every_ms), self.on_fault)
        self.faults += 1
        node = self.nodes[self.rng.randrange(len(self.nodes))]
        kinds: list[tuple[float, Callable[[Node], None]]] = [
            (0.30, self.crash_node),
            (0.12, self.pause_node),
            (0.25, self.cut_links),
            (0.10, self.transfer),
            (0.08, self.wipe_node),
            (0.15, self.remove_member),
        ]
        weights = [weight for weight, _ in kinds]
        self.rng.choices([act for _, act in kinds], weights)[0](node)

    def crash_node(self, node: Node) -> None:
        if self.rng.random() < 0.1:
            for other in self.nodes.values():
                self._crash(other)
        else:
            self._crash(node)

    def _crash(self, node: Node, *, wipe: bool = False) -> None:
        if not node.alive:
            return
        node.crash()
        self.later(self.rng.uniform(5, 2500), self.restart, node, wipe)
        if self.profile.refusals:
            for other in self.nodes.values():
                if other.alive and (other.number, node.number) not in self.cuts:
                    self.later(self.rng.uniform(1, 30), other.on_refused, node.number, other.life)

    def restart(self, node: Node, wipe: bool) -> None:
        if self.nodes[node.number] is not node:
            return
        if wipe:
            self._place(node.number, node.disk + 1, Durable())
        else:
            node.boot()

    def pause_node(self, node: Node) -> None:
        node.paused_until = self.now + self.rng.uniform(50, 3000)

    def cut_links(self, node: Node) -> None:
        numbers = list(self.nodes)
        side = (
            {node.number}
            if self.rng.random() < 0.5
            else set(self.rng.sample(numbers, self.rng.randint(1, len(numbers) - 1)))
        )
        inward, outward = self.rng.choice(((True, True), (True, False), (False, True)))
        cuts = {
            (a, b)
            for a in numbers
            for b in numbers
            if (a in side) != (b in side) and (outward if a in side else inward)
        }
        self.cuts |= cuts
        self.later(self.rng.uniform(100, 4000), self.uncut, cuts)

    def uncut(self, cuts: set[tuple[int, int]]) -> None:
        self.cuts -= cuts

    def transfer(self, _: Node) -> None:
        for leader in self.leaders():
            targets = sorted(leader.core.config.voter_ids - {leader.id})
            if targets:
                leader.core.transfer(self.rng.choice(targets))
                leader.settle()

    def wipe_node(self, node: Node) -> None:
        """Lose a disk, if every configuration anybody may act on keeps all its other voters."""
        if self.profile.membership:
            return  # removing a good voter and losing another disk at once is beyond the budget
        lost = node.id
        for other in self.nodes.values():
            configs = [other.core.config, other.durable.log().config]
            for config in configs:
                voters = config.voter_ids
                if voters & self.lost or (lost in voters and len(voters) < 3):
                    return
        if node.alive:
            self._crash(node, wipe=True)
            self.lost.add(lost)

    def remove_member(self, node: Node) -> None:
        if not self.profile.membership:
            return
        self.unwanted = {node.number} if self.rng.random() < 0.5 else set()
        for leader in self.leaders():
            try:
                self.change(leader, without(leader.core.config, member(node.number).node_id))
            except InvalidRequest:
                continue

    # --- the end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """Heal everything; a leader must come up, commit, and bring everybody along."""
        self.quiet = True
        self.cuts.clear()
        self.unwanted.clear()
        for node in list(self.nodes.values()):
            node.paused_until = 0.0
        self.profile.propose_every_ms = 60.0
        self.run(self.now + 4000)
        self.cuts.clear()
        before = self.checker.last_committed
        self._run_until(
            lambda: self.checker.last_committed > before, f"nothing is committed after {before}"
        )
        self._run_until(
            lambda: all(node.applied > before for node in self.nodes.values()),
            f"somebody never gets beyond {before}",
        )
        leaders = self.leaders()
        if len({leader.core.state.term for leader in leaders}) != 1:
            raise Violation(f"{len(leaders)} leaders after all was healed")

    def _run_until(self, reached: Callable[[], bool], complaint: str) -> None:
        """Two minutes of peace are enough even for one entry at a time over a slow link."""
        deadline = self.now + 120_000
        while not reached():
            if self.now > deadline:
                applied = [node.applied for node in self.nodes.values()]
                raise Violation(f"{complaint} after all was healed: {applied}")
            self.run(self.now + 1000)


def simulate(
    seed: int,
    *,
    seconds: float = 15.0,
    profile: Profile | None = None,
    core_type: type[Raft] = Raft,
) -> World:
    """One run. Raises Violation, with the seed, when an invariant breaks."""
    world = World(seed, profile=profile, core_type=core_type)
    try:
        world.run(seconds * 1000)
        world.finish()
    except AssertionError as error:
        raise Violation(f"seed {seed} at {world.now:.0f} ms: {error}; {world.profile}") from error
    return world
