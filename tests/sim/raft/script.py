"""A hand-driven quorum for scripted scenarios: nothing moves unless the script says so.

Messages lie on one wire until delivered; writes are durable at once unless ``hold`` names the node.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from copy import deepcopy

from paceline_cluster.sim.raft.durable import CLUSTER, Durable, member
from paceline_node.controller.raft import Raft
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_messages import RaftMessage, VoteKind, decode, encode
from paceline_node.controller.raft_types import (
    Config,
    Entry,
    EntryAt,
    EntryKind,
    MemberId,
    RaftLimits,
    RaftTiming,
    ReadReady,
    Role,
    RoleInfo,
    Snapshot,
)

E = 10
TIMING = RaftTiming(0.05, 1, E)
LIMITS = RaftLimits(append_entries=4, inflight_appends=3, chunk_bytes=16, keep_entries=5)


class ScriptNode:
    """One member: its core, its disk, what it was told to apply."""

    def __init__(self, script: Script, number: int, disk: int, durable: Durable) -> None:
        self.script = script
        self.number = number
        self.disk = disk
        self.durable = durable
        self.lives = 0
        self.boot()

    def boot(self) -> None:
        """Start from what the disk holds."""
        self.lives += 1
        self.pending: list[Effects] = []
        self.applied: list[Entry] = []
        self.installed: list[Snapshot] = []
        self.roles: list[RoleInfo] = []
        self.reads: list[ReadReady] = []
        self.core = Raft(
            member(self.number, self.disk).id,
            CLUSTER,
            self.durable.log(),
            self.durable.hard_state,
            timing=self.script.timing,
            rng=random.Random(self.number * 1000 + self.lives),
            wall_ms=lambda: 0,
            limits=LIMITS,
            known_commit=self.durable.known_commit,
        )

    @property
    def role(self) -> Role:
        return self.core.state.role

    @property
    def term(self) -> int:
        return self.core.state.term

    @property
    def commit(self) -> int:
        return self.core.state.commit

    @property
    def leader(self) -> int | None:
        leader = self.core.state.leader
        return None if leader is None else leader.node

    def terms(self) -> list[int]:
        """Terms of the log's entries, in order."""
        log = self.core.log
        return [entry.term for entry in log.slice(log.base_index + 1, log.last_index + 1)]

    def values(self) -> list[bytes]:
        """Data of the applied record entries."""
        return [entry.data for entry in self.applied if entry.kind is EntryKind.RECORDS]


class Script:
    """The stage."""

    def __init__(
        self, voters: int, *, learners: Iterable[int] = (), timing: RaftTiming = TIMING
    ) -> None:
        self.timing = timing
        config = Config(
            tuple(member(number) for number in range(voters)),
            tuple(member(number) for number in learners),
        )
        self.bootstrap = Snapshot(1, 1, config, b"bootstrap", voters_since=EntryAt(1, 1))
        self.nodes: dict[int, ScriptNode] = {}
        self.wire: list[RaftMessage] = []
        self.cuts: set[tuple[int, int]] = set()
        self.hold: set[int] = set()
        self.down: set[int] = set()
        for number in range(voters):
            self.nodes[number] = ScriptNode(self, number, 0, Durable(self.bootstrap, term=1))
        for number in learners:
            self.nodes[number] = ScriptNode(self, number, 0, Durable())

    def __getitem__(self, number: int) -> ScriptNode:
        return self.nodes[number]

    # --- acting ----------------------------------------------------------------------------------

    def do(self, number: int, act: Callable[[Raft], object]) -> None:
        """Let a node's core do something, then carry out its effects."""
        act(self.nodes[number].core)
        self.settle(number)

    def settle(self, number: int) -> None:
        node = self.nodes[number]
        while (effects := node.core.take_effects()) is not None:
            self.wire.extend(effects.now)
            if effects.snapshot is not None:
                node.installed.append(effects.snapshot)
            node.applied.extend(effects.committed)
            node.reads.extend(effects.reads)
            if effects.role is not None:
                node.roles.append(effects.role)
            node.pending.append(effects)
            if number not in self.hold:
                self.persist(number)
        node.durable.known_commit = max(node.durable.known_commit, node.core.durable_commit)

    def persist(self, number: int, count: int | None = None) -> None:
        """Finish the oldest ``count`` writes of a node (all by default)."""
        node = self.nodes[number]
        batches = node.pending if count is None else node.pending[:count]
        node.pending = node.pending[len(batches) :]
        for effects in batches:
            node.durable.write(effects)
            self.wire.extend(effects.after_persist)
            if effects.sequence:
                node.core.persisted(effects.sequence)
        if batches:
            self.settle(number)

    def deliver(
        self, wanted: Callable[[RaftMessage], bool] | None = None, *, rounds: int = 200
    ) -> None:
        """Deliver what lies on the wire, and what that causes, until it is quiet. Messages that
        ``wanted`` refuses stay; those over a cut link or to a dead node are lost."""
        for _ in range(rounds):
            ready = [m for m in self.wire if wanted is None or wanted(m)]
            if not ready:
                return
            self.wire = [m for m in self.wire if not (wanted is None or wanted(m))]
            for message in ready:
                self.hand_over(message)
        raise AssertionError(f"still talking after {rounds} rounds")

    def hand_over(self, message: RaftMessage) -> None:
        """Deliver one message now, through its bytes."""
        link = (message.sender.node, message.to.node)
        if link in self.cuts or message.to.node in self.down:
            return
        copy = decode(encode(message, CLUSTER), CLUSTER)
        self.do(message.to.node, lambda core: core.step(copy))

    def tick(self, number: int, count: int = 1) -> None:
        for _ in range(count):
            self.do(number, lambda core: core.tick())

    def tick_all(self, count: int = 1) -> None:
        """Time passes for all, and what is said is heard."""
        for _ in range(count):
            for number in sorted(self.nodes):
                if number not in self.down:
                    self.tick(number)
            self.deliver()

    def elect(self, number: int, *, kind: VoteKind = VoteKind.PRE) -> None:
        """Make a node leader by the regular way; the others have lost patience."""
        for other in self.nodes.values():
            if other.number != number and not other.core.is_leader:
                other.core.state.leader = None
        self.do(number, lambda core: core.campaign(kind))
        self.deliver()
        assert self.nodes[number].role is Role.LEADER, f"node {number} was not elected"

    def propose(self, number: int, *values: bytes) -> None:
        for value in values:
            self.do(number, lambda core, value=value: core.propose(value))

    # --- trouble ---------------------------------------------------------------------------------

    def cut(self, number: int, others: Iterable[int] | None = None) -> None:
        """Cut all links between a node and the others, both ways."""
        for other in self.nodes if others is None else others:
            if other != number:
                self.cuts |= {(number, other), (other, number)}

    def heal(self) -> None:
        self.cuts.clear()

    def crash(self, number: int, *, lose_wire: bool = True) -> None:
        """Power cut: everything that was not durable is gone. The node stays down."""
        node = self.nodes[number]
        node.pending.clear()
        self.down.add(number)
        if lose_wire:
            self.wire = [m for m in self.wire if m.sender.node != number]

    def restart(self, number: int) -> None:
        self.down.discard(number)
        self.nodes[number].boot()

    def copy_of(self, number: int) -> Durable:
        """What a node's disk holds now."""
        return deepcopy(self.nodes[number].durable)

    def age(self, number: int, copy: Durable) -> None:
        """Back on its disk as it was some time ago."""
        self.nodes[number].durable = copy
        self.restart(number)

    def wipe(self, number: int) -> None:
        """Back with an empty disk and a new identity."""
        node = self.nodes[number]
        self.nodes[number] = ScriptNode(self, number, node.disk + 1, Durable())
        self.down.discard(number)

    def add_empty(self, number: int) -> None:
        """A node that knows nothing yet."""
        self.nodes[number] = ScriptNode(self, number, 0, Durable())

    def compact(self, number: int) -> None:
        """A node stores a snapshot of all it has applied."""
        node = self.nodes[number]
        index = node.commit
        snapshot = node.core.log.snapshot_at(index, b"state at %d " % index * 3)
        node.durable.compact(snapshot, LIMITS.keep_entries)
        node.core.compacted(snapshot)

    def id(self, number: int) -> MemberId:
        return self.nodes[number].core.state.me
