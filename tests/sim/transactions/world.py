"""Coordinators on several nodes, partitions with leaders, producers; messages that are lost or come
twice and late; and what must never be.

The coordinator's log is ``tests/sim/groups/replicated_log.py``; a partition is its real producer
table and gate over a log that never loses anything, as replication promises, while its leadership
moves. Checked at the end, when everything decided has been told: of each transaction readers of
committed data see all acknowledged records or none, as its producer was told; and none is open.
With ``sets_back`` unclean elections take back what the coordinator's log had committed: what was
decided before the last of them may be lost, what anybody was told since must be true.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from paceline.errors import (
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    InvalidTransactionState,
    PacelineError,
    TransactionCoordinatorFenced,
)
from paceline_node.replication.transaction_gate import MarkerOrder
from paceline_node.state_machines.machine import EVERYTHING
from paceline_node.state_machines.replica import MachineReplica, Phase
from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.hanging import OpenHere
from paceline_node.transactions.limits import TransactionLimits
from tests.sim.groups.replicated_log import NodeLog, ReplicatedLog
from tests.sim.groups.world import Clock
from tests.sim.transactions.places import PARTITIONS, Place, Value
from tests.sim.transactions.producer import Producer, Written


@dataclass
class Node:
    log: NodeLog
    engine: TransactionEngine
    replica: MachineReplica


@dataclass
class Request:
    """Asked of the coordinator on ``node``; told once all it can have seen is committed."""

    node: Node
    epoch: int
    answer: object
    heard: Callable[[object], None]
    offset: int | None
    losses: int


class World:
    """One run from a seed."""

    def __init__(self, seed: int, *, breaks: str = "", sets_back: bool = False) -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.cluster = ReplicatedLog(3)
        self.breaks = breaks
        self.sets_back = sets_back
        self._may_set_back = False
        self.told_in = 0
        """After how many losses the answer was given that is heard now."""
        self.nodes = []
        for log in self.cluster.nodes:
            engine = TransactionEngine(TransactionLimits(), lambda: None)
            replica = MachineReplica(f"n{log.number}", log, engine, self.clock)
            self.nodes.append(Node(log, engine, replica))
            replica.role_changed()
        self.places = [Place(number, breaks) for number in range(PARTITIONS)]
        self.requests: list[Request] = []
        self.messages: list[Callable[[], None]] = []
        self.late: list[Callable[[], None]] = []
        self.spares = iter(range(100, 10**6))
        self.finishing: set[tuple[int, TransactionKey]] = set()
        self.written: dict[tuple[int, int], Written] = {}
        keys = [TransactionKey(Family.KAFKA, name) for name in ("a", "a", "b")]
        self.producers = [
            Producer(self, number, key, bumps=number != 2 or seed % 2 == 0)
            for number, key in enumerate(keys)
        ]
        self.completed = 0

    # --- messages ---------------------------------------------------------------------------------

    def send(self, message: Callable[[], None], *, copies_max: int = 2) -> None:
        """It arrives some time, perhaps much later, perhaps twice, perhaps never."""
        copies = min(copies_max, self.rng.choices((0, 1, 2), weights=(6, 90, 4))[0])
        for _ in range(copies):
            queue = self.late if self.rng.random() < 0.08 else self.messages
            queue.append(message)

    def ask(
        self,
        command: Callable[[TransactionEngine], object],
        heard: Callable[[object], None],
        *,
        copies_max: int = 2,
    ) -> None:
        """Ask a node that believes to coordinate; it is told, or nothing is heard."""
        leading = [node for node in self.nodes if node.replica.phase is Phase.LEADING]
        if not leading:
            return
        node = self.rng.choice(leading)
        self.send(lambda: self._arrive(node, command, heard), copies_max=copies_max)

    def epoch_of(self, engine: TransactionEngine) -> int:
        """The leadership in which the node of ``engine`` coordinates."""
        return next(node.replica.led_epoch for node in self.nodes if node.engine is engine)

    def _arrive(
        self,
        node: Node,
        command: Callable[[TransactionEngine], object],
        heard: Callable[[object], None],
    ) -> None:
        try:
            node.replica.check_leading()
        except PacelineError:
            return
        answer: object
        try:
            answer = command(node.engine)
        except PacelineError as error:
            answer = error
        request = Request(
            node,
            node.replica.led_epoch,
            answer,
            heard,
            node.replica.uncommitted(EVERYTHING),
            node.log.losses,
        )
        self.requests.append(request)

    def _tell(self) -> None:
        left = []
        for request in self.requests:
            replica = request.node.replica
            if replica.led_epoch != request.epoch:
                continue  # nobody is told
            if request.offset is None or replica.is_committed(request.offset, request.epoch):
                self.send(partial(self._hear, request))
            else:
                left.append(request)
        self.requests = left

    def _hear(self, request: Request) -> None:
        self.told_in = request.losses
        request.heard(request.answer)

    # --- ending -----------------------------------------------------------------------------------

    def finish(self, node: Node) -> None:
        """Begin to tell everybody of what ``node`` has decided."""
        epoch = node.replica.led_epoch
        for key in node.engine.endings():
            ending = node.engine.ending(key)
            offset = node.replica.uncommitted(EVERYTHING)
            if ending is None or offset is not None or (epoch, key) in self.finishing:
                continue
            self.finishing.add((epoch, key))
            left = {each.partition for each in ending.partitions}
            if not left:
                self._complete(node, epoch, key, ending.serial)
            for number in sorted(left):
                order = MarkerOrder(*ending.identity, ending.serial, ending.commits, epoch)
                self._mark(node, epoch, key, order, number, left, set_back=ending.set_back)

    def _mark(
        self,
        node: Node,
        epoch: int,
        key: TransactionKey,
        order: MarkerOrder,
        number: int,
        left: set[int],
        *,
        set_back: bool,
    ) -> None:
        place = self.places[number]
        leader_epoch = place.leader_epoch

        def again() -> None:
            if node.replica.led_epoch == epoch and number in left:
                self._mark(node, epoch, key, order, number, left, set_back=set_back)

        def arrive() -> None:
            try:
                place.end_transaction(order, leader_epoch)
            except (TransactionCoordinatorFenced, FencedLeaderEpoch):
                return
            except InvalidProducerEpoch:
                pass  # ended before
            except InvalidTransactionState:
                assert set_back, f"{order}: ended otherwise"
            self.send(done)

        def done() -> None:
            left.discard(number)
            if not left:
                self._complete(node, epoch, key, order.serial)

        self.send(arrive)
        self.messages.append(again)

    def _complete(self, node: Node, epoch: int, key: TransactionKey, serial: int) -> None:
        if node.replica.led_epoch != epoch:
            return
        try:
            node.replica.check_leading()
            node.engine.producers.complete(key, serial)
        except PacelineError:
            self.finishing.discard((epoch, key))
            return
        self.finishing.discard((epoch, key))
        self.completed += 1

    # --- running ----------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        match rng.randrange(12):
            case 0 | 1 | 2:
                rng.choice(self.producers).step()
            case 3 | 4 | 5 | 6:
                self._deliver()
            case 7 | 8:
                self.cluster.replicate(rng.randrange(3))
            case 9:
                self._move()
            case 10:
                self.clock.time += rng.choice((0.01, 0.01, 0.5))
            case 11:
                for node in self.nodes:
                    if node.replica.phase is Phase.LEADING:
                        self.finish(node)
        self._settle()

    def _move(self) -> None:
        """Leaderships change, now and then."""
        rng = self.rng
        chance = rng.random()
        if chance < 0.04:
            for number in self.cluster.elect(rng.randrange(3)):
                self.nodes[number].replica.role_changed()
        elif chance < 0.06:
            self.cluster.cut_off(rng.randrange(3))
        elif chance < (0.08 if self._may_set_back else 0.12):
            number = rng.randrange(3)
            if self.cluster.reconnect(number):
                self.nodes[number].replica.role_changed()
        elif chance < 0.16:
            rng.choice(self.places).fail_over()
        elif chance < 0.18 and self._may_set_back:
            self._set_back()

    def _set_back(self) -> None:
        """Whoever has least leads the coordinator's log."""
        least = min(self.nodes, key=lambda node: node.log.log_end_offset)
        for number in self.cluster.elect_unclean(least.log.number):
            self.nodes[number].replica.role_changed()
        if self.breaks == "set back":
            for node in self.nodes:
                node.log.losses = 0

    def _deliver(self) -> None:
        if self.late and self.rng.random() < 0.01:
            self.late.pop(self.rng.randrange(len(self.late)))()
        elif self.messages:
            self.messages.pop(self.rng.randrange(len(self.messages)))()

    def _settle(self) -> None:
        for node in self.nodes:
            while node.replica.step():
                pass
            if node.replica.phase is Phase.LEADING:
                now = self.clock.now()
                if node.engine.next_alarm() <= now:
                    node.engine.on_alarm()
        self._tell()

    def run(self, steps: int) -> None:
        """So many events; then nobody begins anything, and all comes to its end."""
        for number in range(steps):
            self._may_set_back = self.sets_back and number < steps // 2
            self.step()
        self.producers_stop()
        for number in range(3):
            if self.cluster.reconnect(number):
                self.nodes[number].replica.role_changed()
        self.messages += self.late
        self.late.clear()
        for round_ in range(400):
            for number in range(3):
                self.cluster.replicate(number)
            for _ in range(len(self.messages)):
                self._deliver()
            self.clock.time += 1.0
            self._settle()
            leader = self.nodes[self.cluster.leader]
            if leader.replica.phase is Phase.LEADING:
                if round_ % 40 == 39:
                    self.finishing.clear()
                self.finish(leader)
                is_done = not leader.engine.store.ongoing and not leader.engine.store.prepared
                if is_done and len(self.cluster.isr) == 3:
                    break
        if self.sets_back:
            self._end_hanging()
        self.check()

    def _end_hanging(self) -> None:
        """Each partition ends what its coordinator does not know any more."""
        leader = self.nodes[self.cluster.leader]
        for place in self.places:
            opened = [OpenHere(each, place.at) for each in place.table.transactions.open]
            for each, hangs in zip(opened, leader.engine.find_hanging(opened), strict=True):
                assert hangs, each
                place.abort_hanging(each.producer_id, leader.replica.led_epoch)

    def producers_stop(self) -> None:
        for producer in self.producers:
            producer.is_stopped = True

    def check(self) -> None:
        leader = self.nodes[self.cluster.leader]
        assert not leader.engine.store.ongoing, "a transaction is never ended"
        assert not leader.engine.store.prepared, "a decided transaction is never complete"
        shown: dict[tuple[int, int], set[Value]] = {}
        for place in self.places:
            assert not place.table.transactions.open, f"{place.at}: open for ever"
            visible = place.visible()
            assert len(visible) == len(set(visible)), f"{place.at}: a record is there twice"
            for value in visible:
                shown.setdefault((value.producer, value.number), set()).add(value)
        for name, written in self.written.items():
            seen = shown.get(name, set())
            is_true = not written.told or written.told_in == self.cluster.losses
            if written.began_in < self.cluster.losses and not (written.told and is_true):
                continue  # whoever elected uncleanly has given it up
            if written.told == "commit":
                assert seen >= written.acked, (
                    f"{name}: told committed, lacks {written.acked - seen}"
                )
            elif written.told == "abort" or not written.sent_commit:
                assert not seen, f"{name}: {seen} of a transaction never committed"
            else:
                assert not seen or seen >= written.acked, f"{name}: {seen} of {written.acked}"
