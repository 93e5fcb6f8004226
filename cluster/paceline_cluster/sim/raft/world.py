"""A seeded world for the quorum: one heap of events, no tasks, no real time.

Draws everything from one seed: sizes, timings, faults, workload. Messages are delayed, dropped,
duplicated and reordered; links are cut one way or both; nodes crash and lose what was not synced,
pause, come back with an empty disk (within the budget: never so many that a majority of the voters
is lost). Virtual time is in milliseconds.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from paceline.errors import InvalidRequest, NotController, Throttled
from paceline_cluster.sim.raft.checks import Checker, Violation
from paceline_cluster.sim.raft.durable import Durable, member
from paceline_cluster.sim.raft.node import Node
from paceline_cluster.sim.raft.profile import Profile
from paceline_node.controller.raft import Raft
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_membership import Surroundings, plan, without
from paceline_node.controller.raft_messages import RaftMessage
from paceline_node.controller.raft_types import (
    Config,
    Entry,
    EntryAt,
    MemberId,
    Snapshot,
)


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
        since = EntryAt(1, 1)
        bootstrap = Snapshot(*since, Config(voters), b"1 0 ", voters_since=since)
        self.checker = self.make_checker(bootstrap)
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

    def make_checker(self, bootstrap: Snapshot) -> Checker:
        """What looks on."""
        return Checker(bootstrap)

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

    def at(self, when: float, call: Callable[..., None], *arguments: object) -> None:
        self.later(when - self.now, call, *arguments)

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

    def lose_messages_of(self, sender: MemberId) -> None:
        """What it said and nobody has heard yet is lost. What was said to it is not: whoever was
        stopped meanwhile answers to the process that comes next."""
        self._heap = [
            event
            for event in self._heap
            if not any(isinstance(it, RaftMessage) and it.sender == sender for it in event[3])
        ]
        heapq.heapify(self._heap)

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
                self.on_proposed(node.core.propose(b"value %d" % self._counter))
                self.proposals += 1
        except (NotController, Throttled):
            return
        node.settle()

    def on_proposed(self, entry: Entry) -> None:
        """A hook for who writes more into the log than values."""

    def refuses(self, message: RaftMessage, log: RaftLog) -> bool:
        """Whether a driver would drop the message, by what this log tells."""
        return False

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
            if change is None:
                continue
            # A disk that was lost before its owner became a voter is one loss more than the
            # budget allows: a quorum of two would never be whole again.
            if not (change.voter_ids - node.core.config.voter_ids) & self.lost:
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
            node.resume()
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
