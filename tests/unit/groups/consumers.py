"""Consumers that a coordinator drives, and its worker, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.errors import PacelineError
from paceline.wire.coordinator.messages import (
    PingRequest,
    Position,
    PositionsResponse,
    Question,
    RegisterRequest,
    StartRequest,
    StopRequest,
    TopicCount,
)
from paceline_node.groups.driven_groups import Registered, coordinator_key
from paceline_node.groups.driven_rounds import Beginning
from paceline_node.groups.driven_state import Plan, RoundsDue
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import GroupKey
from paceline_node.loop_turns import SLICE_UNITS
from tests.unit.groups.desk import Desk

GROUP = "g"
KEY = coordinator_key(GROUP)
At = tuple[str, int]


@dataclass(eq=False)
class Fake:
    """A consumer, and its connection: ``asked`` is what it has not answered."""

    crew: Crew
    name: str
    version: int = 1
    asked: Question | None = None
    ended: bool = False
    questions: list[Question] = field(default_factory=list)
    owned: dict[At, int] = field(default_factory=dict)
    generation: int = -1
    hidden: frozenset[str] = frozenset()
    told: Registered | None = None
    charged: int = 0
    """Of how many partitions the coordinator keeps the position."""
    heard_at: float = 0.0
    """When it was asked something, or registered."""

    # --- the coordinator's side -------------------------------------------------------------------

    def ask(self, question: Question) -> None:
        assert not self.ended, "asked after its end"
        assert self.asked is None, f"two requests at a time: {self.asked}, {question}"
        self.asked = question
        self.heard_at = self.crew.desk.time
        self.questions.append(question)

    def end(self) -> None:
        self.ended = True

    def may_read(self, topic: str) -> bool:
        return topic not in self.hidden

    def owns(self, partitions: int) -> None:
        self.charged = partitions

    # --- the consumer's side ----------------------------------------------------------------------

    def positions(self) -> tuple[Position, ...]:
        return tuple(
            Position(topic=topic, partition=number, offset=offset)
            for (topic, number), offset in sorted(self.owned.items())
        )

    def answer(self, error: int = 0) -> None:
        """Do what was asked, and say so."""
        asked, self.asked = self.asked, None
        assert asked is not None
        body = None
        if isinstance(asked, StartRequest):
            if not error:
                self.generation = asked.generation
                self.owned = {
                    (each.topic, each.partition): each.offset for each in asked.partitions
                }
                assert self.charged == len(self.owned)
        else:
            body = PositionsResponse(generation=self.generation, positions=self.positions())
            if isinstance(asked, StopRequest):
                self.owned = {}
        self.crew.engine.coordinator.answered(KEY, self.name, self, error, body)

    def close(self) -> None:
        self.owned = {}
        self.asked = None
        self.crew.engine.coordinator.closed(KEY, self.name, self)


class Crew:
    """A desk, topics, a worker, and the ends of partitions (start and high watermark)."""

    def __init__(self, **topics: int) -> None:
        self.due = RoundsDue()
        self.desk = Desk(due=self.due)
        self.topics: dict[str, tuple[int, ...]] = {
            name: tuple(range(count)) for name, count in topics.items()
        }
        self.lists: dict[str, frozenset[str]] = {}
        self.ends: dict[At, tuple[int, int]] = {}
        self.unreachable: set[At] = set()

    @property
    def engine(self) -> GroupEngine:
        return self.desk.engine

    def register(
        self,
        name: str,
        *topics: str,
        version: int = 1,
        streams: int = 1,
        smallest: bool = True,
        auto_commit: bool = True,
        interval_ms: int = 3000,
        retries: int = 3,
        pattern_kind: int = 0,
        generation: int = -1,
        hidden: frozenset[str] = frozenset(),
        group: str = GROUP,
    ) -> Fake:
        fake = Fake(self, name, version, hidden=hidden)
        request = RegisterRequest(
            group_id=group,
            consumer_id=name,
            auto_commit=int(auto_commit),
            auto_offset_rest="smallest" if smallest else "largest",
            heartbeat_interval_ms=interval_ms,
            max_heartbeat_retries=retries,
            topic_count=tuple(TopicCount(topic=topic, streams=streams) for topic in topics),
            pattern_kind=pattern_kind,
            generation=generation,
        )
        fake.told = self.engine.coordinator.register(request, version, "client", fake)
        fake.generation = generation
        fake.heard_at = self.desk.time
        return fake

    # --- the worker -------------------------------------------------------------------------------

    def work(self) -> None:
        """Carry out what workers are wanted for."""
        while (key := self.due.take()) is not None:
            try:
                plan = self.plan(key)
                if plan is None:
                    continue
                beginnings = self.beginnings(plan)
                self.engine.coordinator.settle(key, plan, beginnings)
                self.engine.coordinator.start(key, plan, beginnings)
            except PacelineError:
                continue

    def plan(self, key: GroupKey = KEY) -> Plan | None:
        """What a worker finds out, and stores."""
        reading = self.engine.coordinator.look(key, self.topics, self.lists)
        if reading is None:
            return None
        while not reading.go_on(SLICE_UNITS)[1]:
            pass
        return self.engine.coordinator.assign(key, reading)

    def beginnings(self, plan: Plan) -> dict[At, Beginning]:
        found = {}
        for at, from_smallest in plan.from_smallest().items():
            start, end = self.ends.get(at, (0, 1000))
            committed = plan.committed.get(at)
            if at in self.unreachable:
                unknown = -2 if from_smallest else -1
                found[at] = Beginning(unknown if committed is None else committed)
            elif committed is not None and start <= committed <= end:
                found[at] = Beginning(committed, 1, 7)
            elif from_smallest:
                found[at] = Beginning(start, 1, 7)
            else:
                found[at] = Beginning(end, 1, 7, is_new=True)
        return found

    def settle(self, *consumers: Fake, rounds: int = 20) -> None:
        """Everybody answers until nothing happens at once."""
        for _ in range(rounds):
            self.work()
            asked = [each for each in consumers if each.asked is not None and not each.ended]
            if not asked:
                return
            for each in asked:
                each.answer()
        raise AssertionError("never quiet")

    def pass_time(self, seconds: float, *consumers: Fake, step: float = 0.1) -> None:
        """Time passes; ``consumers`` answer whatever they are asked, at once."""
        end = self.desk.time + seconds
        while self.desk.time < end - 1e-9:
            self.desk.advance(min(step, end - self.desk.time))
            self.settle(*consumers)

    # --- looking ----------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return self.engine.coordinator.state(KEY)

    @property
    def generation(self) -> int:
        group = self.engine.store.groups.get(KEY)
        return 0 if group is None else group.generation

    def committed(self, topic: str, number: int) -> int | None:
        found = self.engine.offsets.fetch(KEY, topic, number)
        return None if found is None else found.offset

    def topics_changed(self, **topics: int) -> None:
        self.topics = {name: tuple(range(count)) for name, count in topics.items()}
        self.engine.coordinator.topics_changed()

    def list_topics(self, *topics: str) -> None:
        """An operator says what consumers of the group read that name none."""
        self.lists = {KEY.group: frozenset(topics)} if topics else {}
        self.engine.coordinator.topics_changed()


def pings(fake: Fake) -> list[PingRequest]:
    return [each for each in fake.questions if isinstance(each, PingRequest)]


def stops(fake: Fake) -> list[StopRequest]:
    return [each for each in fake.questions if isinstance(each, StopRequest)]


def starts(fake: Fake) -> list[StartRequest]:
    return [each for each in fake.questions if isinstance(each, StartRequest)]


def stable(*names: str, **topics: int) -> tuple[Crew, list[Fake]]:
    """A group of these consumers, which has settled."""
    crew = Crew(**(topics or {"t": 4}))
    fakes = [crew.register(name, *crew.topics) for name in names]
    crew.pass_time(1.0, *fakes)
    assert crew.state == "Stable"
    return crew, fakes
