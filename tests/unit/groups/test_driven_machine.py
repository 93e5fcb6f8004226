"""Random lives of consumers that a coordinator drives, and of their coordinator.

At any moment: no partition is told to two who may both still be reading; a consumer may go on
reading what it was told until it has answered a Stop, its channel is closed, or, cut off, until it
has fenced itself. Committed offsets never go back. The state is the fold of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline.errors import PacelineError
from paceline_node.groups.driven_dialogue import Dialogue
from paceline_node.groups.driven_groups import DrivenGroups
from paceline_node.groups.driven_rounds import Rounds
from paceline_node.groups.driven_state import Consumer, DrivenGroup, State
from paceline_node.groups.records import Group
from tests.unit.broken_rules import assert_found
from tests.unit.groups.consumers import At, Crew, Fake

NAMES = "abcd"
FENCE_S = 4.0  # of the consumers here: every second, 3 retries


class Consumers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.crew = Crew(t=3, u=2)
        self.connected: dict[str, Fake] = {}
        self.cut_off: dict[Fake, float] = {}
        """They hear nothing and do not know it; until when they go on reading."""
        self.before: dict[At, int] = {}
        self.everybody: list[Fake] = []

    def live(self) -> list[Fake]:
        return [each for each in self.connected.values() if not each.ended]

    # --- consumers --------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), smallest=st.booleans(), as_before=st.booleans())
    def register(self, name: str, smallest: bool, as_before: bool) -> None:
        before = self.connected.get(name)
        generation = before.generation if before is not None and as_before else -1
        try:
            made = self.crew.register(
                name, "t", "u", smallest=smallest, interval_ms=1000, generation=generation
            )
        except PacelineError:
            return  # another one of that name, which is refused, changes nothing for this one
        if before is not None:
            before.owned = {}  # who registers anew has stopped
            self.cut_off.pop(before, None)
        self.connected[name] = made
        self.everybody.append(made)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        self._chosen(data).close()

    @precondition(lambda self: self.live())
    @rule(data=st.data(), fails=st.sampled_from([0, 0, 0, 1]))
    def answer(self, data: st.DataObject, fails: int) -> None:
        consumer = self._chosen(data)
        if consumer.asked is not None and consumer not in self.cut_off:
            consumer.answer(error=fails)
            if fails:
                consumer.owned = {}

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        """The connection goes silent; the consumer reads on until its fence."""
        consumer = self._chosen(data)
        self.cut_off.setdefault(consumer, consumer.heard_at + FENCE_S)

    @precondition(lambda self: self.live())
    @rule(data=st.data(), count=st.integers(1, 9))
    def read(self, data: st.DataObject, count: int) -> None:
        consumer = self._chosen(data)
        for at in consumer.owned:
            consumer.owned[at] = min(consumer.owned[at] + count, 1000)

    def _chosen(self, data: st.DataObject) -> Fake:
        return data.draw(st.sampled_from(self.live()))

    # --- the coordinator --------------------------------------------------------------------------

    @rule(steps=st.integers(1, 20))
    def pass_time(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        self.crew.desk.advance(0.1)
        self.check_ownership()

    @rule(steps=st.integers(5, 60))
    def calm(self, steps: int) -> None:
        """Whoever can be reached answers, those included that come back."""
        for name in NAMES[:2]:
            if name not in self.connected or self.connected[name].ended:
                self.register(name, smallest=True, as_before=True)
        for _ in range(steps):
            self._step()
            self._settle()

    def _settle(self) -> None:
        """As :meth:`Crew.settle`, with a look after every single answer."""
        self.crew.work()
        while asked := [each for each in self.live() if each.asked and each not in self.cut_off]:
            for each in asked:
                if each.asked is not None and not each.ended:
                    each.answer()
                    self.check_ownership()
            self.crew.work()

    @rule()
    def work(self) -> None:
        self.crew.work()

    @rule(refuses=st.booleans())
    def writes(self, refuses: bool) -> None:
        self.crew.desk.refuses = refuses

    @rule(t=st.integers(1, 4))
    def grow(self, t: int) -> None:
        self.crew.topics_changed(t=max(t, len(self.crew.topics["t"])), u=2)

    @rule()
    def fail_over(self) -> None:
        self.crew.desk.fail_over()

    @rule(name=st.sampled_from(NAMES[2:]))
    def fail_over_beside_a_cut(self, name: str) -> None:
        """The next coordinator has never heard of one who still reads."""
        if name not in self.connected or self.connected[name].ended:
            self.register(name, smallest=True, as_before=False)
        self.calm(steps=40)
        consumer = self.connected.get(name)
        if consumer is not None and not consumer.ended:
            self.cut_off.setdefault(consumer, consumer.heard_at + FENCE_S)
            self.fail_over()
            self.calm(steps=30)

    # --- what always holds ------------------------------------------------------------------------

    def readers(self) -> dict[At, list[str]]:
        """Who may be reading each partition."""
        now = self.crew.desk.time
        found: dict[At, list[str]] = {}
        for consumer in self.everybody:
            cut_until = self.cut_off.get(consumer)
            reads = not consumer.ended if cut_until is None else now < cut_until
            if not reads:
                consumer.owned = {}
            for at in consumer.owned:
                found.setdefault(at, []).append(consumer.name)
        return found

    @invariant()
    def check_ownership(self) -> None:
        for at, names in self.readers().items():
            assert len(names) == 1, f"{at} is read by {names}"

    @invariant()
    def offsets_never_go_back(self) -> None:
        for topic in ("t", "u"):
            for number in range(4):
                offset = self.crew.committed(topic, number) or 0
                assert offset >= self.before.get((topic, number), 0)
                self.before[topic, number] = offset

    @invariant()
    def the_state_is_the_fold_of_the_log(self) -> None:
        self.crew.desk.check_fold()

    def teardown(self) -> None:
        """Left alone, everybody gets something, and every partition somebody."""
        crew = self.crew
        crew.desk.refuses = False
        everybody = [each for each in self.live() if each not in self.cut_off]
        crew.pass_time(40.0, *everybody, step=0.5)
        reading = [each for each in everybody if not each.ended]
        assert crew.state == ("Stable" if reading else "Empty")
        if reading:
            owned = sorted(at for each in reading for at in each.owned)
            assert owned == sorted(
                (topic, at) for topic, all_ in crew.topics.items() for at in all_
            )


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


Patch = AbstractContextManager[object]


def nobody_is_stopped() -> Patch:
    def mutant(self: Dialogue, driven: DrivenGroup, consumer: Consumer) -> None:
        consumer.owned.clear()

    return mock.patch.object(Dialogue, "stop", mutant)


def stops_are_not_waited_for() -> Patch:
    honest = Rounds.go_on

    def mutant(self: Rounds, driven: DrivenGroup) -> None:
        if driven.state is State.STOPPING:
            self._await_worker(driven)
        else:
            honest(self, driven)

    return mock.patch.object(Rounds, "go_on", mutant)


def the_next_coordinator_waits_for_nobody() -> Patch:
    honest = DrivenGroups._await_members

    def mutant(self: DrivenGroups, driven: DrivenGroup, group: Group) -> None:
        honest(self, driven, group)
        driven.awaited.clear()
        driven.timer = self._context.now()

    return mock.patch.object(DrivenGroups, "_await_members", mutant)


@pytest.mark.parametrize(
    "broken",
    [nobody_is_stopped, stops_are_not_waited_for, the_next_coordinator_waits_for_nobody],
)
def test_the_machine_finds_a_broken_rule(broken: Callable[[], Patch]) -> None:
    assert_found(Consumers, broken())
