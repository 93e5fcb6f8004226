"""Coordinators that drive consumers fall, come back, are deposed unawares: from seeds.

Checked whenever a consumer is told something: generations of Starts never fall, no two consumers
are started with one partition in one generation, and committed offsets that anyone was told never
fall.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

from paceline.errors import PacelineError
from paceline.wire.coordinator.messages import (
    Position,
    PositionsResponse,
    Question,
    RegisterRequest,
    StartRequest,
    StopRequest,
    TopicCount,
)
from paceline_node.groups.driven_groups import coordinator_key
from paceline_node.groups.driven_rounds import Beginning
from paceline_node.groups.driven_state import Plan, RoundsDue
from paceline_node.groups.engine import GroupEngine
from paceline_node.loop_turns import SLICE_UNITS
from paceline_node.state_machines.replica import Phase
from tests.sim.groups.test_failover import is_found_out
from tests.sim.groups.world import PARTITIONS, EveryTopic, Node, Request, World

SEEDS = int(os.environ.get("PACELINE_SIM_SEEDS", "20"))
STEPS = 800
KEY = coordinator_key("d")
TOPICS = {"t": tuple(range(PARTITIONS))}


class Consumer:
    """One registration of a consumer, on one node."""

    def __init__(self, world: DrivenWorld, name: str, node: Node, generation: int) -> None:
        self.world = world
        self.name = name
        self.node = node
        self.generation = generation
        self.asked: Question | None = None
        self.ended = False
        self.owned: dict[int, int] = {}

    def ask(self, question: Question) -> None:
        self.asked = question
        if isinstance(question, StartRequest):
            self.world.started += 1
            self.world.hear_generation(KEY, question.generation)
            for each in question.partitions:
                self.world.hear_partition(KEY, question.generation, each.partition, self.name)

    def end(self) -> None:
        self.ended = True

    def may_read(self, topic: str) -> bool:
        return topic in TOPICS

    def owns(self, partitions: int) -> None:
        assert partitions <= len(TOPICS) * PARTITIONS

    def answer(self) -> None:
        asked, self.asked = self.asked, None
        body = None
        if isinstance(asked, StartRequest):
            self.generation = asked.generation
            self.owned = {each.partition: each.offset for each in asked.partitions}
        else:
            body = PositionsResponse(
                generation=self.generation,
                positions=tuple(
                    Position(topic="t", partition=at, offset=offset)
                    for at, offset in sorted(self.owned.items())
                ),
            )
            if isinstance(asked, StopRequest):
                self.owned = {}
        if self.node.replica.phase is Phase.LEADING:
            self.node.engine.coordinator.answered(KEY, self.name, self, 0, body)


class DrivenWorld(World):
    def __init__(self, seed: int, *, holds_back: bool = True) -> None:
        self.dues: list[RoundsDue] = []
        self.consumers: dict[str, Consumer] = {}
        self.started = 0
        self.offsets: dict[int, int] = {}
        super().__init__(seed, holds_back=holds_back)

    def _engine(self) -> GroupEngine:
        self.dues.append(RoundsDue())
        rng = random.Random(self.rng.getrandbits(64))
        return GroupEngine(self.limits, rng, EveryTopic, due=self.dues[-1])

    def on(
        self,
        node: Node,
        operation: Callable[[GroupEngine], object],
        heard: Callable[[object], None],
    ) -> None:
        """As a request to that node, whose answer is held back until it is committed."""
        try:
            node.replica.check_leading()
        except PacelineError:
            return
        epoch = node.replica.led_epoch
        answer: object
        try:
            answer = operation(node.engine)
        except PacelineError as error:
            answer = error
        self.requests.append(Request(node, KEY, epoch, answer, heard))
        self.deliver()

    # --- events -----------------------------------------------------------------------------------

    def register(self) -> None:
        name = self.rng.choice("abc")
        before = self.consumers.get(name)
        leading = [node for node in self.nodes if node.log.is_leader]
        if before is not None and not before.ended:
            return
        made = Consumer(
            self, name, self.rng.choice(leading), -1 if before is None else before.generation
        )
        request = RegisterRequest(
            group_id="d",
            consumer_id=name,
            auto_commit=1,
            auto_offset_rest="smallest",
            heartbeat_interval_ms=1000,
            topic_count=(TopicCount(topic="t", streams=1),),
            generation=made.generation,
        )
        self.consumers[name] = made

        def heard(answer: object) -> None:
            if isinstance(answer, PacelineError):
                made.ended = True

        self.on(
            made.node,
            lambda engine: engine.coordinator.register(request, 1, "c", made),
            heard,
        )

    def answer(self) -> None:
        asked = [each for each in self.consumers.values() if each.asked and not each.ended]
        if asked:
            self.rng.choice(asked).answer()

    def read(self) -> None:
        for consumer in self.consumers.values():
            for at in consumer.owned:
                consumer.owned[at] += self.rng.randrange(3)

    def close(self) -> None:
        if self.consumers:
            consumer = self.consumers[self.rng.choice(sorted(self.consumers))]
            consumer.ended, consumer.owned, consumer.asked = True, {}, None
            if consumer.node.replica.phase is Phase.LEADING:
                consumer.node.engine.coordinator.closed(KEY, consumer.name, consumer)

    def work(self) -> None:
        for node, due in zip(self.nodes, self.dues, strict=False):
            if node.replica.phase is Phase.LEADING and due.take() is not None:
                self._round(node)

    def _round(self, node: Node) -> None:
        def planned(plan: object) -> None:
            if isinstance(plan, Plan):
                begin = {at: Beginning(plan.committed.get(at, 0)) for at in plan.from_smallest()}
                self.on(
                    node, lambda engine: engine.coordinator.start(KEY, plan, begin), lambda _: None
                )

        def assign(engine: GroupEngine) -> Plan | None:
            reading = engine.coordinator.look(KEY, TOPICS)
            if reading is None:
                return None
            while not reading.go_on(SLICE_UNITS)[1]:
                pass
            return engine.coordinator.assign(KEY, reading)

        self.on(node, assign, planned)

    def look(self) -> None:
        leading = [node for node in self.nodes if node.log.is_leader]
        at = self.rng.randrange(PARTITIONS)

        def heard(answer: object) -> None:
            if isinstance(answer, int):
                assert answer >= self.offsets.get(at, 0), f"{at} fell to {answer}"
                self.offsets[at] = answer

        def fetch(engine: GroupEngine) -> int:
            found = engine.offsets.fetch(KEY, "t", at)
            return 0 if found is None else found.offset

        self.on(self.rng.choice(leading), fetch, heard)

    def run(self, steps: int) -> None:
        events = [
            (self.replicate, 60),
            (self.fold, 40),
            (self.answer, 40),
            (self.work, 20),
            (self.read, 10),
            (self.register, 10),
            (self.look, 6),
            (self.wait, 8),
            (self.close, 1),
            (self.elect, 1),
            (self.reconnect, 3),
        ]
        actions = [action for action, _ in events]
        weights = [weight for _, weight in events]
        for _ in range(steps):
            self.rng.choices(actions, weights)[0]()
        self.heal()
        self.compare()


def test_starts_that_leave_before_their_generation_is_committed_are_found_out() -> None:
    assert is_found_out(lambda seed: DrivenWorld(seed, holds_back=False))


def test_whatever_happens_no_partition_has_two_and_no_offset_falls() -> None:
    started = elections = committed = 0
    for seed in range(SEEDS):
        world = DrivenWorld(seed)
        try:
            world.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        started += world.started
        elections += world.cluster.epoch
        committed += sum(world.offsets.values())
    # The runs did something.
    assert started > SEEDS * 3
    assert elections > SEEDS * 2
    assert committed > 0
