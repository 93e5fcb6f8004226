"""A group engine over a log in memory, on a clock that the test moves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from paceline.errors import CoordinatorNotAvailable, NotCoordinator
from paceline.types import TopicId
from paceline_node.groups.driven_state import RoundsDue
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.limits import GroupLimits
from paceline_node.state_machines.machine import Entry, Scope

_GONE = TopicId(UUID(int=1))
START_MS = 1_700_000_000_000


class Topics(dict[str, TopicId]):
    """Every topic is there until it is deleted."""

    def get(self, topic: str, default: object = None) -> TopicId | None:  # type: ignore[override]
        if topic not in self:
            self[topic] = TopicId(uuid5(NAMESPACE_OID, f"{topic} {len(self)}"))
        return None if self[topic] == _GONE else self[topic]

    def delete(self, topic: str) -> Topics:
        """What there is without ``topic``."""
        return Topics({**self, topic: _GONE})

    def create(self, topic: str) -> Topics:
        """What there is with a new topic of that name."""
        made = Topics(self)
        made[topic] = TopicId(uuid4())
        return made


class Desk:
    """``log`` is everything committed, ``largest_batch`` the bytes of the largest batch of it; with
    ``refuses`` nothing can be written. ``topics`` are not there yet, all others are."""

    def __init__(
        self,
        limits: GroupLimits | None = None,
        imports: Sequence[Entry] = (),
        due: RoundsDue | None = None,
        topics: Sequence[str] = (),
    ) -> None:
        self._due = due
        self.limits = limits or GroupLimits()
        self.log: list[Entry] = []
        self.largest_batch = 0
        self.time = 1000.0
        self.refuses = False
        self.serves = True
        self.led_epoch = 0
        self.losses = 0
        self._seed = 0
        self.partitions: dict[str, int] = {}
        self.topics = Topics(dict.fromkeys(topics, _GONE))
        self.engine = self._engine(imports)
        self.engine.lead(self, log_is_empty=True)

    def _engine(self, imports: Sequence[Entry] = ()) -> GroupEngine:
        self._seed += 1
        rng = random.Random(self._seed)
        return GroupEngine(self.limits, rng, lambda: self.topics, imports, self._due, self._count)

    def _count(self, topic: str) -> int:
        return self.partitions.get(topic, 0)

    def enlarge(self, topic: str, count: int, *, told: bool = True) -> None:
        """Give a topic that many partitions; the coordinator learns of it at once, or not by being
        told."""
        self.partitions[topic] = count
        if told:
            self.engine.topics_grew()

    # --- the journal ------------------------------------------------------------------------------

    def write(self, scope: Scope, entries: Sequence[Entry]) -> None:
        if self.refuses:
            raise CoordinatorNotAvailable("the test allows no writes")
        assert entries, "an empty batch"
        size = sum(len(each.key) + len(each.value or b"") for each in entries)
        self.largest_batch = max(self.largest_batch, size)
        self.log += entries
        for entry in entries:
            self.engine.apply(entry)

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return START_MS + int(self.time * 1000)

    # --- the world --------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass, with every alarm on its time, as long as it ``serves``."""
        end = self.time + seconds
        while self.serves and (alarm := self.engine.next_alarm()) <= end:
            assert alarm > self.time - 1e-6 or alarm <= self.time
            self.time = max(self.time, alarm)
            self.engine.on_alarm()
        self.time = end

    def delete_topic(self, topic: str, *, recreate: bool = False, told: bool = True) -> None:
        """Delete a topic, and perhaps make another one of its name; the coordinator learns of it at
        once, or not by being told."""
        self.topics = self.topics.delete(topic)
        if recreate:
            self.topics = self.topics.create(topic)
        if told:
            self.engine.topics_changed()

    def fail_over(self) -> None:
        """Another coordinator takes over: it has the log and nothing else."""
        self.engine.resign(NotCoordinator("the test elects another"))
        self.engine = self.replayed()
        self.led_epoch += 1
        self.engine.lead(self, log_is_empty=False)

    def compact(self) -> None:
        """Keep the last record of each key alone, and no tombstones."""
        last = {entry.key: at for at, entry in enumerate(self.log)}
        kept = [self.log[at] for at in sorted(last.values())]
        self.log = [entry for entry in kept if entry.value is not None]

    def replayed(self) -> GroupEngine:
        """An engine that folded the log, and does not lead."""
        engine = self._engine()
        for entry in self.log:
            engine.apply(entry)
        return engine

    def check_fold(self) -> None:
        """The state is the fold of the log, and of the log compacted."""
        state = (self.engine.store.groups, self.engine.store.offsets, self.engine.store.places)
        replayed = self.replayed().store
        assert (replayed.groups, replayed.offsets, replayed.places) == state
        compacted = self._engine()
        last = {entry.key: at for at, entry in enumerate(self.log)}
        for at in sorted(last.values()):
            compacted.apply(self.log[at])
        store = compacted.store
        assert (store.groups, store.offsets, store.places) == state
