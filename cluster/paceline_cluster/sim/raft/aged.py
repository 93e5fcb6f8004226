"""One member's disk as it was some time ago; all others restart, are stopped for a while, or live
on behind a cut, and come back in any order. A leader may hand over as it goes away, and who is back
may start once more.

Nobody can tell such a disk from within (controller/RAFT 2.6), so what was committed may be lost:
where whoever has it stays away for longer than the others are patient. Never otherwise, and never
without a word when it comes back (controller/RAFT 2.7).
"""

from __future__ import annotations

import logging
import random
from copy import deepcopy

import structlog

from paceline_cluster.sim.raft.checks import Checker, Violation
from paceline_cluster.sim.raft.durable import Durable
from paceline_cluster.sim.raft.node import Node
from paceline_cluster.sim.raft.notes import Notes
from paceline_cluster.sim.raft.profile import Profile
from paceline_cluster.sim.raft.world import World
from paceline_node.controller.raft import Raft
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_messages import RaftMessage
from paceline_node.controller.raft_types import (
    UNKNOWN_START,
    Entry,
    MemberId,
    RaftLimits,
    RaftTiming,
    Snapshot,
)
from paceline_node.controller.voter_starts import OldCopies

ELECTION_TICKS = 6
PATIENCE_TICKS = 4 * ELECTION_TICKS
TICK_MS = 50.0
WAYS = {"dies": 0.4, "is cut off": 0.35, "is stopped": 0.25}
"""How nodes go away, and how often. Who is stopped, or cut off, may lead all the while in its own
mind."""
HANDS_OVER = 0.3
AGAIN = 0.3
"""How often who has come back starts once more."""
SHORTLY = 0.4
"""How often all come back within a moment."""
_SHORTLY_MS = 150.0
NOTED = 0.5
"""How often the log tells how much each voter holds."""
_SILENT = structlog.wrap_logger(
    structlog.ReturnLogger(), wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
)
BROKEN_LINK = 0.3
"""How often the victim does not hear one of the others when all come back."""
DEPOSED = 0.3
"""How often the leader is stopped, and deposed without knowing it."""
_HEARD_MS = 3 * ELECTION_TICKS * TICK_MS
"""After so long a process that runs has been asked, or has asked the others."""


def aged_profile(rng: random.Random) -> Profile:
    """Three voters that stay; how rough their lives are is drawn."""
    return Profile(
        nodes=3,
        voters=3,
        delay_ms=rng.choice((1.0, 5.0)),
        sync_ms=rng.choice((0.2, 2.0, 10.0)),
        fault_every_ms=rng.choice((400.0, 1500.0)),
        propose_every_ms=rng.choice((25.0, 100.0)),
        snapshot_every=rng.choice((5, 40, 1000)),
        membership=False,
        limits=RaftLimits(keep_entries=rng.choice((0, 5, 1000)), append_entries=4),
        timing=RaftTiming(TICK_MS / 1000, 1, ELECTION_TICKS, PATIENCE_TICKS),
    )


class AgedChecker(Checker):
    """Knows which losses no rule can prevent."""

    def __init__(self, bootstrap: Snapshot, world: AgedWorld) -> None:
        super().__init__(bootstrap)
        self._world = world
        self.lost: dict[int, Entry] = {}

    def on_leader(self, core: Raft) -> None:
        if not self._world.is_aged:
            super().on_leader(core)
            return
        if core.state.term < self.committed_in:
            return  # its votes were long under way; it leads nobody, and may commit nothing
        if self._lacks(core, self.last_committed):
            judge(self._world, core, self.committed[self.last_committed])
            self._fork(core)
        super().on_leader(core)

    def holds(self, disks: dict[MemberId, Durable], member: MemberId, entry: Entry) -> bool:
        """Also who held it, and had said so, before its disk went back."""
        before = self._world.before
        held = before is not None and before[0] == member and before[1].has(entry.index, entry.term)
        return held or super().holds(disks, member, entry)

    def _lacks(self, core: Raft, index: int) -> bool:
        if index not in self.committed or index <= core.log.base_index:
            return False
        return core.log.term_at(index) != self.committed[index].term

    def _fork(self, core: Raft) -> None:
        while self._lacks(core, self.last_committed):
            entry = self.committed.pop(self.last_committed)
            self.lost.setdefault(self.last_committed, entry)
            del self.digests[entry.index, entry.term]
            self.last_committed -= 1
        last = self.committed.get(self.last_committed)
        self.committed_in = 0 if last is None else last.term


def judge(world: OldDiskWorld, core: Raft, entry: Entry) -> None:
    """Raise Violation if this leader without the committed ``entry`` could have been avoided."""
    _judge_notes(world, core)
    if world.now < world.back_at[world.victim] + (PATIENCE_TICKS - 1) * TICK_MS:
        raise Violation(f"{core.state.me} lost what is committed without any patience")
    for node in world.nodes.values():
        has = node.durable.has(entry.index, entry.term)
        is_here = node.alive and node.number in world.back_at
        if has and is_here and world.now > world.back_at[node.number] + _HEARD_MS:
            raise Violation(f"{core.state.me} leads though {node.id} has {entry}")


def _judge_notes(world: OldDiskWorld, core: Raft) -> None:
    """None may be elected with an older copy of whose owner's log who elects, or is elected, knows
    more."""
    victim = world.nodes[world.victim]
    for node in world.nodes.values():
        state = node.core.state
        elects = (state.term, state.vote) == (core.state.term, core.state.me)
        if node is victim or world.notes is None or not elects:
            continue
        noted = world.notes.durable_offset(node.core.log, victim.id)
        entry = world.checker.committed.get(noted)
        if entry is not None and not victim.durable.has(noted, entry.term):
            raise Violation(f"{core.state.me} leads though {node.id} has a note of {victim.id}")


class OldDiskWorld(World):
    """An ordinary life, a copy of one disk, another node going away, the end of all, and a start
    with that copy. Whoever goes away dies, or lives on and hears nobody."""

    def __init__(self, seed: int, *, core_type: type[Raft] = Raft) -> None:
        self.is_aged = False
        self.before: tuple[MemberId, Durable] | None = None
        """Who had which disk."""
        rng = random.Random(seed)
        super().__init__(seed, profile=self.draw_profile(rng), core_type=core_type)
        self.victim = self.draw_victim(rng)
        self.away = (self.victim + rng.randint(1, 2)) % 3
        self._dead: set[int] = set()
        self._apart: set[int] = set()
        self._broken: set[tuple[int, int]] = set()
        """A link that stays cut for some time when all come back."""
        self._copy: Durable | None = None
        self.known: dict[int, int] = {}
        self.back_at: dict[int, float] = {}
        """Since when each can be heard again, after one disk went back."""
        self._backs: list[float] = []
        self._ways: list[str] = []
        # Half of the lives go without, or what the core does of itself would not be seen.
        self.notes = Notes() if random.Random(f"notes {seed}").random() < NOTED else None
        self._copies = None if self.notes is None else OldCopies(self.notes, _SILENT)
        self.begin(rng)

    def begin(self, rng: random.Random) -> None:
        """Draw what happens, and when."""
        copied = self.draw_copied(rng)
        self.unfold(rng, copied, copied + rng.uniform(-500, 1500))

    def unfold(self, rng: random.Random, copied: float, away: float) -> None:
        """Draw the rest, around the moments when the disk is copied and another node goes away."""
        down = max(copied, away) + rng.uniform(200, 3000)
        longest = _SHORTLY_MS if rng.random() < SHORTLY else 3 * PATIENCE_TICKS * TICK_MS
        self._backs = [down + rng.uniform(0, longest) for _ in "abc"]
        self._ways = rng.choices(list(WAYS), list(WAYS.values()), k=3)
        self._ways[self.victim] = "dies"
        if rng.random() < HANDS_OVER:
            self.at(away - rng.uniform(0, 4 * self.profile.delay_ms), self._hand_over)
        self.at(copied, self._take_copy)
        if rng.random() < DEPOSED:
            self.at(away, self._stop_the_leader, down)
        else:
            self.at(away, self._leave, self.away)
        self.at(down, self._age)
        for number, back in enumerate(self._backs):
            if rng.random() < AGAIN:
                again = back + rng.uniform(0, 2 * PATIENCE_TICKS * TICK_MS)
                self.at(again, self._start_again, number)

    def draw_profile(self, rng: random.Random) -> Profile:
        """Who is there."""
        return aged_profile(rng)

    def draw_victim(self, rng: random.Random) -> int:
        """Whose disk goes back."""
        return rng.randrange(3)

    def draw_copied(self, rng: random.Random) -> float:
        """When it is copied, in ms."""
        return rng.uniform(2000, 5000)

    def live(self) -> None:
        """All of it. Raises Violation, with the seed, when an invariant breaks."""
        try:
            self.run(25_000)
            self.finish()
        except (AssertionError, KeyError) as error:
            raise Violation(f"seed {self.seed} at {self.now:.0f} ms: {error!r}") from error

    def on_proposed(self, entry: Entry) -> None:
        if self.notes is not None and not self.is_aged:
            self.notes.take(entry, self.disks, self.now)

    def refuses(self, message: RaftMessage, log: RaftLog) -> bool:
        if self._copies is None:
            return False
        return self._copies.have_sent(message, UNKNOWN_START, log)

    def wipe_node(self, node: Node) -> None:
        """One bad disk at a time."""

    def _take_copy(self) -> None:
        self._copy = deepcopy(self.nodes[self.victim].durable)

    def _stop_the_leader(self, down: float) -> None:
        """It goes on when the victim does, at once or nearly; the third comes later."""
        leader = next((node.number for node in self.leaders()), self.away)
        if leader != self.victim:
            self.away = leader
        third = 3 - self.victim - self.away
        self._ways[self.away] = "is stopped"
        self._backs[self.victim] = down + self.rng.uniform(0, _SHORTLY_MS)
        self._backs[self.away] = down + self.rng.uniform(0, _SHORTLY_MS)
        self._backs[third] = down + self.rng.uniform(2, 3 * PATIENCE_TICKS) * TICK_MS
        self._leave(self.away)

    def _hand_over(self) -> None:
        self.transfer(self.nodes[self.away])

    def _leave(self, number: int) -> None:
        """Die, do nothing any more, or hear nobody."""
        node = self.nodes[number]
        way = self._ways[number]
        if way == "dies":
            self._dead.add(number)
            if node.alive:
                node.crash()
        elif way == "is stopped":
            node.paused_until = self._backs[number]
        else:
            self._apart.add(number)
            self._cut_off()

    def _break_link(self) -> None:
        """The victim does not hear one of the others, who both hear each other."""
        other = self.rng.choice([number for number in self.nodes if number != self.victim])
        self._broken = {(self.victim, other), (other, self.victim)}
        self.later(self.rng.uniform(1, 3) * PATIENCE_TICKS * TICK_MS, self._mend_link)

    def _mend_link(self) -> None:
        self.cuts -= self._broken
        self._broken = set()
        self._cut_off()

    def _cut_off(self) -> None:
        self.cuts |= self._broken
        for number in self._apart:
            for other in self.nodes:
                if other != number:
                    self.cuts |= {(number, other), (other, number)}

    def uncut(self, cuts: set[tuple[int, int]]) -> None:
        super().uncut(cuts)
        self._cut_off()

    def restart(self, node: Node, wipe: bool) -> None:
        if node.number not in self._dead and not node.alive:
            super().restart(node, wipe)

    def _age(self) -> None:
        """The end of all. What the victim had said last is lost with it: nobody was to know that it
        was said on a disk that would be forgotten."""
        self.quiet = True
        self.cuts.clear()
        for node in self.nodes.values():
            node.resume()
            self._leave(node.number)
            self.known[node.number] = node.durable.known_commit
        victim = self.nodes[self.victim]
        self.lose_messages_of(victim.id)
        assert self._copy is not None
        self.before = victim.id, victim.durable
        victim.durable = self.disks[victim.id] = self._copy
        self.known[self.victim] = self._copy.known_commit
        self.is_aged = True
        if self.rng.random() < BROKEN_LINK:
            self._break_link()
        self._cut_off()
        for node, back in zip(self.nodes.values(), self._backs, strict=True):
            self.later(back - self.now, self._come_back, node)

    def _start_again(self, number: int) -> None:
        node = self.nodes[number]
        if node.alive and number in self.back_at:
            node.crash()
            self._come_back(node)

    def _come_back(self, node: Node) -> None:
        self.back_at[node.number] = self.now
        if node.number in self._apart:
            self._apart.remove(node.number)
            self.cuts.clear()
            self._cut_off()
        if node.alive:
            return
        node.boot()
        node.core.campaign()
        node.settle()


class AgedWorld(OldDiskWorld):
    """Three voters, as ever."""

    checker: AgedChecker

    def make_checker(self, bootstrap: Snapshot) -> Checker:
        return AgedChecker(bootstrap, self)

    def finish(self) -> None:
        """Who knew of what is lost stands apart and has it; all others go on together."""
        lost = self.checker.lost
        if not lost:
            super().finish()
            return
        self.run(self.now + 5000)
        first = min(lost)
        apart = {number for number, known in self.known.items() if known >= first}
        for number, node in self.nodes.items():
            if (node.core.state.apart is not None) != (number in apart):
                raise Violation(f"{node.id}: apart is {node.core.state.apart}, lost is {first}")
            if number not in apart:
                continue
            for index in range(first, self.known[number] + 1):
                if not node.durable.has(index, lost[index].term):
                    raise Violation(f"{node.id} was overwritten: {lost[index]}")
        before = self.checker.last_committed
        self.run(self.now + 10_000)
        if self.checker.last_committed <= before:
            raise Violation(f"nothing is committed after {before}")


def simulate_aged(seed: int, *, core_type: type[Raft] = Raft) -> AgedWorld:
    """One run. Raises Violation, with the seed, when an invariant breaks."""
    world = AgedWorld(seed, core_type=core_type)
    world.live()
    return world
