"""A producer of the simulated world of transactions, and what it was told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from paceline.errors import (
    ConcurrentTransactions,
    PacelineError,
)
from paceline.wire.batch import TRANSACTIONAL, build_batch, read_header
from paceline.wire.records import Record
from paceline_node.transaction_names import ProducerIdentity, TransactionKey
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.producers import Ended
from tests.sim.transactions.places import PARTITIONS, Value

if TYPE_CHECKING:
    from tests.sim.transactions.world import World

TIMEOUT_MS = 20_000


@dataclass
class Written:
    """What a producer was told of one of its transactions."""

    acked: set[Value] = field(default_factory=set)
    sent_commit: bool = False
    told: str = ""
    began_in: int = 0
    """After how many losses of the coordinator's log it began, or was told."""
    told_in: int = 0


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
        new = Written(began_in=self.world.cluster.losses)
        return self.world.written.setdefault((self.number, self.transaction), new)

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
            self.mine.told_in = self.world.told_in
            if self.is_unsure and not self.bumps:
                # Under the same identity a late write would be taken into the next transaction,
                # and a late end would end it (KIP-360, KIP-890).
                self.identity = None
            else:
                self._go_on(answer.identity)
