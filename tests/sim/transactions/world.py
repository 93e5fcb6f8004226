"""Coordinators on several nodes, partitions with leaders, producers; messages that are lost or come
twice and late; and what must never be.

The coordinator's log is ``tests/sim/groups/replicated_log.py``; a partition is its real producer
table and gate over a log that never loses anything, as replication promises, while its leadership
moves. Checked at the end, when everything decided has been told: of each transaction readers of
committed data see all acknowledged records or none, as its producer was told; and none is open.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from paceline.errors import (
    ConcurrentTransactions,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    PacelineError,
    TransactionCoordinatorFenced,
)
from paceline.wire.batch import TRANSACTIONAL, build_batch, read_header
from paceline.wire.records import Record
from paceline_node.coordination.machine import EVERYTHING
from paceline_node.coordination.replica import MachineReplica, Phase
from paceline_node.replication.transactions import MarkerOrder
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.keys import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.limits import TransactionLimits
from paceline_node.transactions.producers import Ended
from tests.sim.groups.replicated_log import NodeLog, ReplicatedLog
from tests.sim.groups.world import Clock
from tests.sim.transactions.places import Place, Value

PARTITIONS = 3
TIMEOUT_MS = 20_000


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


@dataclass
class Written:
    """What a producer was told of one of its transactions."""

    acked: set[Value] = field(default_factory=set)
    sent_commit: bool = False
    told: str = ""


class World:
    """One run from a seed."""

    def __init__(self, seed: int, *, breaks: str = "") -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.cluster = ReplicatedLog(3)
        self.breaks = breaks
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
            node, node.replica.led_epoch, answer, heard, node.replica.uncommitted(EVERYTHING)
        )
        self.requests.append(request)

    def _tell(self) -> None:
        left = []
        for request in self.requests:
            replica = request.node.replica
            if replica.led_epoch != request.epoch:
                continue  # nobody is told
            if request.offset is None or replica.is_committed(request.offset, request.epoch):
                self.send(partial(request.heard, request.answer))
            else:
                left.append(request)
        self.requests = left

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
                self._mark(node, epoch, key, order, number, left)

    def _mark(
        self,
        node: Node,
        epoch: int,
        key: TransactionKey,
        order: MarkerOrder,
        number: int,
        left: set[int],
    ) -> None:
        place = self.places[number]
        leader_epoch = place.leader_epoch

        def again() -> None:
            if node.replica.led_epoch == epoch and number in left:
                self._mark(node, epoch, key, order, number, left)

        def arrive() -> None:
            try:
                place.end_transaction(order, leader_epoch)
            except (TransactionCoordinatorFenced, FencedLeaderEpoch):
                return
            except InvalidProducerEpoch:
                pass  # ended before
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
        elif chance < 0.12:
            number = rng.randrange(3)
            if self.cluster.reconnect(number):
                self.nodes[number].replica.role_changed()
        elif chance < 0.16:
            rng.choice(self.places).fail_over()

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
        for _ in range(steps):
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
                if not leader.engine.store.ongoing and not leader.engine.store.prepared:
                    break
        self.check()

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
            if written.told == "commit":
                assert seen >= written.acked, (
                    f"{name}: told committed, lacks {written.acked - seen}"
                )
            elif written.told == "abort" or not written.sent_commit:
                assert not seen, f"{name}: {seen} of a transaction never committed"
            else:
                assert not seen or seen >= written.acked, f"{name}: {seen} of {written.acked}"


class Producer:
    """Inits, writes, ends, one thing at a time; what is not answered is asked again."""

    def __init__(self, world: World, number: int, key: TransactionKey, *, bumps: bool) -> None:
        self.world = world
        self.number = number
        self.key = key
        self.bumps = bumps
        self.identity: ProducerIdentity | None = None
        self.transaction = 0
        self.sequences: dict[int, int] = {}
        self.added: set[int] = set()
        self.left: list[int] = []
        self.waits = 0
        self.turn = 0
        self.tries = 0
        self.commits = False
        self.ends = 0
        self.is_unsure = False
        """Whether something that was given up, or asked again, may come late."""
        self.is_stopped = False

    @property
    def mine(self) -> Written:
        return self.world.written.setdefault((self.number, self.transaction), Written())

    def step(self) -> None:
        """The next thing, unless an answer may still come."""
        if self.is_stopped:
            return
        self.waits -= 1
        if self.waits > 0:
            return
        self.waits = 12
        self.turn += 1
        if self.identity is None:
            self._init()
        elif self.left:
            if self.tries > 1 and self.world.rng.random() < 0.5:
                self.left, self.commits = [], False
                self.is_unsure = True
                self._end()
                return
            self.tries += 1
            self._write(self.left[0])
        else:
            self._end()

    def _answers(self) -> Callable[[Callable[[object], None]], Callable[[object], None]]:
        """Only the newest question's first answer counts."""
        turn = self.turn

        def guard(heard: Callable[[object], None]) -> Callable[[object], None]:
            def once(answer: object) -> None:
                if self.turn == turn and not self.is_stopped:
                    self.turn += 1
                    self.waits = 0
                    heard(answer)

            return once

        return guard

    def _init(self) -> None:
        spare = next(self.world.spares)
        command = lambda engine: engine.producers.init(self.key, TIMEOUT_MS, spare=spare)  # noqa: E731
        self.world.ask(command, self._answers()(self._inited))

    def _inited(self, answer: object) -> None:
        if isinstance(answer, ProducerIdentity):
            self._go_on(answer)

    def _go_on(self, identity: ProducerIdentity) -> None:
        rng = self.world.rng
        if identity != self.identity:
            self.sequences = {}
        self.identity = identity
        self.transaction += 1
        self.added = set()
        self.left = [rng.randrange(PARTITIONS) for _ in range(rng.randrange(1, 5))]
        self.tries = 0
        self.ends = 0
        self.is_unsure = False
        self.commits = rng.random() < 0.7

    def _give_up(self, error: PacelineError) -> None:
        """Whatever the refusal, a new identity leads on; a pause does for one that passes."""
        if not isinstance(error, ConcurrentTransactions):
            self.identity = None

    def _write(self, number: int) -> None:
        identity = self.identity
        assert identity is not None
        world, place = self.world, self.world.places[number]
        value = Value(self.number, self.transaction, len(self.left))
        sequence = self.sequences.get(number, 0)
        batch = build_batch(
            [Record(-1, 1, None, b"%d %d %d" % value)],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            flags=TRANSACTIONAL,
        )
        heard = self._answers()(partial(self._wrote, number, value))

        def append(ticket: object) -> None:
            try:
                place.produce(batch, ticket)
            except PacelineError as error:
                refusal = error
                world.send(lambda: heard(refusal))
            else:
                world.send(lambda: heard(None))

        def arrive() -> None:
            header = read_header(batch)
            if place.gate.is_open(place.table, header) or world.breaks == "verification":
                append(None)
                return
            ticket = place.gate.ticket(*identity)

            def verified(answer: object) -> None:
                if isinstance(answer, PacelineError):
                    world.send(lambda: heard(answer))
                    return
                assert isinstance(answer, int)
                ticket.confirm(answer)
                append(ticket)

            world.ask(verify, verified)

        def verify(engine: TransactionEngine) -> object:
            if self.bumps:
                engine.producers.add_partitions(self.key, identity, [place.at])
            engine.producers.verify(self.key, identity, place.at)
            return world.epoch_of(engine)

        if not self.bumps and number not in self.added:
            world.ask(
                lambda engine: engine.producers.add_partitions(self.key, identity, [place.at]),
                self._answers()(partial(self._added, number)),
            )
            return
        world.send(arrive)

    def _added(self, number: int, answer: object) -> None:
        if isinstance(answer, PacelineError):
            self._give_up(answer)
        else:
            self.added.add(number)

    def _wrote(self, number: int, value: Value, answer: object) -> None:
        if isinstance(answer, PacelineError):
            self._give_up(answer)
            return
        self.mine.acked.add(value)
        self.sequences[number] = self.sequences.get(number, 0) + 1
        self.left.pop(0)
        self.tries = 0

    def _end(self) -> None:
        identity, commits = self.identity, self.commits
        assert identity is not None
        self.mine.sent_commit |= commits
        self.is_unsure |= self.ends > 0
        self.ends += 1
        self.world.ask(
            lambda engine: engine.producers.end(
                self.key, identity, commits=commits, bumps=self.bumps, spare=5
            ),
            self._answers()(self._ended),
            copies_max=2 if self.bumps else 1,
        )

    def _ended(self, answer: object) -> None:
        if isinstance(answer, PacelineError):
            self._give_up(answer)
        elif isinstance(answer, Ended):
            self.mine.told = "commit" if self.commits else "abort"
            if self.is_unsure and not self.bumps:
                # Under the same identity a late write would be taken into the next transaction,
                # and a late end would end it (KIP-360, KIP-890).
                self.identity = None
            else:
                self._go_on(answer.identity)
