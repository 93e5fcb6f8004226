"""A quorum of one voter grows to three, and then the disk of the first one goes back to some time
around that; all restart, are stopped or live on behind a cut, and come back in any order.

The copy may not know that anybody else votes. Then nobody can keep its owner from leading by
itself, in a world of its own; but those who know better must go on without it, and it must notice
(controller/RAFT 2.10).
"""

from __future__ import annotations

import random
from dataclasses import replace

from paceline_cluster.sim.raft.aged import OldDiskWorld, aged_profile, judge
from paceline_cluster.sim.raft.checks import Checker, Observed, Violation
from paceline_cluster.sim.raft.durable import Durable
from paceline_cluster.sim.raft.node import Node
from paceline_cluster.sim.raft.profile import Profile
from paceline_node.controller.raft import Raft
from paceline_node.controller.raft_types import Entry, MemberId, Snapshot

_GROWING_MS = (200.0, 2500.0)
"""When the copy is taken: growing takes about a second."""
TWO_VOTE = 0.5
"""How often the copy is taken as soon as two vote, and the second one soon goes away."""
JOINS_LATE = 0.5
"""How often the third one joins only behind that."""
_LOOK_MS = 5.0
_SOON_MS = 300.0
_LATEST_MS = 8000.0
"""Where the first one starts again and again, nobody is let in for long."""


class GrownChecker(Checker):
    """Keeps two histories apart: the one that a majority had committed before the disk went back,
    and whatever is led without all of it."""

    def __init__(self, bootstrap: Snapshot, world: GrownWorld) -> None:
        super().__init__(bootstrap)
        self._world = world
        self.config = bootstrap.config
        self.voters_since = bootstrap.index
        """As of the newest committed entry."""
        self.false_terms: set[int] = set()
        self.false: dict[tuple[int, int], Entry] = {}
        self.is_lost = False
        """Whether voters of whom no more was to be expected went on without what is committed."""

    def on_leader(self, core: Raft) -> None:
        known = self.leaders.setdefault(core.state.term, core.state.me)
        if known != core.state.me:
            raise Violation(f"two leaders in term {core.state.term}: {known} and {core.state.me}")
        if core.state.term < self.committed_in:
            return  # its votes were long under way
        if self._world.is_aged and self.lacks(core):
            is_new = core.state.term not in self.false_terms and not self.is_lost
            if is_new and len(core.config.voters) > 1 and len(self.config.voters) == 3:
                judge(self._world, core, self.committed[self.last_committed])
                self.is_lost = True
            self.false_terms.add(core.state.term)
        else:
            super().on_leader(core)

    def lacks(self, core: Raft) -> bool:
        """Whether this log is without something that was committed."""
        last = self.last_committed
        if last not in self.committed:
            return False
        if last <= core.log.base_index:
            return (core.log.base_index, core.log.base_term) in self.false
        return core.log.term_at(last) != self.committed[last].term

    def on_committed(
        self, observed: Observed, entries: list[Entry], disks: dict[MemberId, Durable]
    ) -> None:
        core = observed.core
        for entry in entries:
            is_true = self.committed.get(entry.index) == entry
            if not is_true and {entry.term, core.state.term} & self.false_terms:
                self._note_false(core, entry)
                continue
            super().on_committed(observed, [entry], disks)
            if self.lacks(core):
                continue  # it is of both histories, and what follows here is not committed
            self.config = core.log.config_at(self.last_committed)
            self.voters_since = core.log.voters_since(self.last_committed).at

    def _note_false(self, core: Raft, entry: Entry) -> None:
        at = entry.index, entry.term
        if self.false.setdefault(at, entry) != entry:
            raise Violation(f"{core.state.me} commits {entry}, committed is {self.false[at]}")
        self.note_digest(core, entry)

    def on_read(self, index: int, committed_before: int) -> None:
        """In another world other things are read."""
        if not self.false_terms:
            super().on_read(index, committed_before)


class GrownWorld(OldDiskWorld):
    """Node 0 votes alone and lets the others in."""

    checker: GrownChecker

    def draw_profile(self, rng: random.Random) -> Profile:
        return replace(aged_profile(rng), voters=1)

    def draw_victim(self, rng: random.Random) -> int:
        return 0

    def draw_copied(self, rng: random.Random) -> float:
        return rng.uniform(*_GROWING_MS)

    def begin(self, rng: random.Random) -> None:
        if rng.random() < TWO_VOTE:
            if rng.random() < JOINS_LATE:
                self.unwanted.add(2)
            self._await_two(rng)
        else:
            super().begin(rng)

    def _await_two(self, rng: random.Random) -> None:
        """A leader lets in one at a time. The second may know nothing of the third."""
        others = [voter.node_id for voter in self.checker.config.voters if voter.node_id != 0]
        if not others and self.now < _LATEST_MS:
            self.later(_LOOK_MS, self._await_two, rng)
            return
        self.away = others[0] if others else self.away
        copied = self.now + rng.uniform(0, _SOON_MS)
        self.at(copied, self.unwanted.clear)
        self.unfold(rng, copied, copied + rng.uniform(0, _SOON_MS))

    def make_checker(self, bootstrap: Snapshot) -> Checker:
        return GrownChecker(bootstrap, self)

    def finish(self) -> None:
        """Where a majority of the voters had kept their disks, they go on with all that was
        committed; otherwise who knew of what is lost still has it."""
        self.run(self.now + 10_000)
        checker = self.checker
        if not checker.false_terms:
            super().finish()
            return
        before = checker.last_committed
        self.run(self.now + 10_000)
        if len(checker.config.voters) == 3 and not checker.is_lost:
            if checker.last_committed <= before:
                raise Violation(f"nothing is committed after {before}: {self._states()}")
            leaders = self.leaders()
            if len(leaders) != 1 or checker.lacks(leaders[0].core):
                raise Violation(f"not one leader: {self._states()}")
        is_alone = len(checker.config.voters) > 1 and leads_alone(self.nodes[self.victim])
        for number, known in self.known.items():
            if number != self.victim and known >= checker.voters_since and is_alone:
                raise Violation(f"{number} knows of other voters than {self.victim} does")
            durable = self.nodes[number].durable
            for index in range(2, known + 1):
                entry = checker.committed.get(index)
                if entry and number != self.victim and not durable.has(index, entry.term):
                    raise Violation(f"{number} was overwritten: {entry}")

    def _states(self) -> str:
        return "; ".join(
            f"{node.number} {node.core.state.role.value} of term {node.core.state.term}, apart: "
            f"{node.core.state.apart}, {len(node.core.config.voters)} voters"
            for node in self.nodes.values()
        )


def leads_alone(node: Node) -> bool:
    """Whether it believes that nobody else votes, and leads."""
    return node.core.is_leader and len(node.core.config.voters) == 1


def simulate_grown(seed: int, *, core_type: type[Raft] = Raft) -> GrownWorld:
    """One run. Raises Violation, with the seed, when an invariant breaks."""
    world = GrownWorld(seed, core_type=core_type)
    world.live()
    return world
