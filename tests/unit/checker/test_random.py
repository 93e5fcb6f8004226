"""Random correct histories pass; each of them is found out after any single corruption."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline_cluster.checker import Kind, Outcome, events, judge
from paceline_cluster.checker.events import Event
from tests.unit.checker.story import AT, Story, batches

SEEDS = st.integers(0, 2**32 - 1)
PARTITIONS = (AT, "orders/1")


@dataclass
class _Flight:
    """Counters invoked; ``base`` once they are stored."""

    stream: int
    first: int
    count: int
    base: int | None = None


@dataclass
class World:
    """A cluster that keeps its promises: many producers, readers and members at once."""

    rng: random.Random
    story: Story = field(default_factory=Story)
    flights: list[_Flight] = field(default_factory=list)
    closed: set[int] = field(default_factory=set)
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    committed: int = -1
    generation: int = 0

    def run(self, steps: int) -> World:
        for acks, idempotent in (("all", True), ("all", True), ("leader", False)):
            for at in PARTITIONS:
                self.story.stream(at, acks=acks, idempotent=idempotent)
        rules = [self.invoke, self.invoke, self.store, self.answer, self.read, self.group]
        for _ in range(steps):
            self.rng.choice(rules)()
        self.kill()
        for _ in range(steps):
            self.rng.choice(rules)()
        # Every kind of thing that a corruption looks for has happened at least once.
        for stream in self.open_streams():
            self.story.write(stream, 3)
        for at in PARTITIONS:
            self.story.write(self.story.stream(at), 2)
        refused = self.story.stream()
        self.story.fail(refused, self.story.invoke(refused))
        self.generation += 1
        self.join()
        self.commit()
        self.commit()
        self.ask()
        self.join()
        for at in PARTITIONS:
            self.story.read("last", 0, len(self.story.logs[at]), at)
        return self

    def open_streams(self) -> list[int]:
        busy = {flight.stream for flight in self.flights}
        return [n for n in range(len(self.story.streams)) if n not in self.closed | busy]

    def invoke(self) -> None:
        streams = [n for n in range(len(self.story.streams)) if n not in self.closed]
        if streams:
            stream, count = self.rng.choice(streams), self.rng.randint(1, 5)
            self.flights.append(_Flight(stream, self.story.invoke(stream, count), count))

    def store(self) -> None:
        """The oldest flight of a stream is stored: producers keep their order."""
        waiting: dict[int, _Flight] = {}
        for flight in self.flights:
            if flight.base is None:
                waiting.setdefault(flight.stream, flight)
        if waiting:
            flight = self.rng.choice(list(waiting.values()))
            flight.base = self.story.append(flight.stream, flight.first, flight.count)

    def answer(self) -> None:
        if not self.flights:
            return
        flight = self.rng.choice(self.flights)
        if flight.base is not None and self.rng.random() < 0.8:
            self.flights.remove(flight)
            self.story.ok(flight.stream, flight.first, flight.count, flight.base)
        elif flight.base is None and flight.stream not in self.closed and self.rng.random() < 0.3:
            # Its producer goes on under another stream; what it had on the way may be stored.
            self.closed.add(flight.stream)
            info = self.story.streams[flight.stream]
            for lost in [each for each in self.flights if each.stream == flight.stream]:
                self.flights.remove(lost)
                if lost.base is None and self.rng.random() < 0.5:
                    self.story.fail(lost.stream, lost.first, lost.count)
                else:
                    self.story.unknown(lost.stream, lost.first, lost.count)
            self.story.stream(info.at, acks=info.acks, idempotent=info.idempotent)

    def read(self) -> None:
        reader, at = self.rng.choice("ab"), self.rng.choice(PARTITIONS)
        position = self.positions.get((reader, at), 0)
        if self.rng.random() < 0.1 and position:
            position = self.rng.randrange(position)
            self.story.say(events.Seek(self.story.t, reader, at, position))
        end = min(len(self.story.logs[at]), position + self.rng.randint(0, 9))
        self.story.read(reader, position, end, at)
        self.positions[reader, at] = end

    def kill(self) -> None:
        for at in PARTITIONS:
            self.story.write(self.story.stream(at))
        self.story.fault(*PARTITIONS)
        for at in PARTITIONS:
            self.story.epochs[at] += 1
            self.story.write(self.story.stream(at))

    def group(self) -> None:
        self.rng.choice([self.commit, self.ask, self.join])()

    def commit(self) -> None:
        op = self.story.op()
        self.committed += 1
        self.story.say(
            events.Commit(self.story.t, op, "g", AT, self.committed, self.generation),
            events.CommitOk(self.story.t, op),
        )

    def ask(self) -> None:
        op = self.story.op()
        told = events.OffsetTold(self.story.t, op, self.committed)
        self.story.say(events.AskOffset(self.story.t, op, "g", AT), told)

    def join(self) -> None:
        op = self.story.op()
        self.generation += self.rng.randint(0, 1)
        joined = events.Joined(self.story.t, op, self.generation)
        self.story.say(events.Join(self.story.t, op, "g", "m"), joined)


def _world(seed: int) -> World:
    return World(random.Random(seed)).run(60)


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_a_correct_history_is_valid(seed: int) -> None:
    verdict = judge(_world(seed).story.finish())
    assert verdict.outcome is Outcome.VALID, "\n".join(verdict.lines())


# --- corruptions of what the partitions hold ------------------------------------------------------

LogCorruption = Callable[[World, str], None]


def _acked(world: World, at: str) -> list[int]:
    """Offsets of records acknowledged with acks=all."""
    acked = {
        (event.stream, event.first + step)
        for event in world.story.told
        if isinstance(event, events.Ok) and world.story.streams[event.stream].acks == "all"
        for step in range(event.count)
    }
    log = world.story.logs[at]
    return [offset for offset, (record, _) in enumerate(log) if record in acked]


def _lose(world: World, at: str) -> None:
    del world.story.logs[at][world.rng.choice(_acked(world, at))]


def _blank(world: World, at: str) -> None:
    offset = world.rng.choice(_acked(world, at))
    world.story.logs[at][offset] = ((events.HIDDEN, 0), world.story.logs[at][offset][1])


def _repeat(world: World, at: str) -> None:
    log = world.story.logs[at]
    idempotent = [record for record, _ in log if world.story.streams[record[0]].idempotent]
    log.append((world.rng.choice(idempotent), world.story.epochs[at]))


def _swap(world: World, at: str) -> None:
    log = world.story.logs[at]
    pairs = [n for n in range(len(log) - 1) if log[n][0][0] == log[n + 1][0][0]]
    place = world.rng.choice(pairs)
    (first, epoch), (second, other) = log[place : place + 2]
    log[place : place + 2] = [(second, epoch), (first, other)]


def _invent(world: World, at: str) -> None:
    world.story.logs[at].append(((0 if at == AT else 1, 10_000), world.story.epochs[at]))


def _store_refused(world: World, at: str) -> None:
    refused = len(world.story.streams) - 1
    assert world.story.at(refused) == AT
    world.story.logs[AT].append(((refused, 0), world.story.epochs[AT]))


def _old_epoch(world: World, at: str) -> None:
    record, _ = world.story.logs[at][-1]
    world.story.logs[at][-1] = (record, 0)


def _cut_what_was_read(world: World, at: str) -> None:
    world.story.logs[at].pop()


@pytest.mark.parametrize(
    ("corrupt", "kind"),
    [
        (_lose, Kind.LOST),
        (_blank, Kind.LOST),
        (_repeat, Kind.DUPLICATE),
        (_swap, Kind.REORDERED),
        (_invent, Kind.NEVER_WRITTEN),
        (_store_refused, Kind.REFUSED_STORED),
        (_old_epoch, Kind.EPOCH_WENT_BACK),
        (_cut_what_was_read, Kind.UNCOMMITTED_READ),
    ],
)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_a_corrupt_log_is_found(corrupt: LogCorruption, kind: Kind, seed: int) -> None:
    world = _world(seed)
    corrupt(world, world.rng.choice(PARTITIONS))
    verdict = judge(world.story.finish())
    assert verdict.finding_counts[kind], "\n".join(verdict.lines())


# --- corruptions of what was told -----------------------------------------------------------------

EventCorruption = Callable[[Event, random.Random], Event]


def _ack_elsewhere(event: Event, rng: random.Random) -> Event:
    assert isinstance(event, events.Ok)
    wrong = event.base - 1 if rng.random() < 0.5 and event.base else event.base + rng.randint(1, 50)
    return replace(event, base=wrong)


def _skip(event: Event, _rng: random.Random) -> Event:
    assert isinstance(event, events.Read)
    return replace(event, base=event.base + 1)


def _again(event: Event, _rng: random.Random) -> Event:
    assert isinstance(event, events.Read)
    return replace(event, base=event.base - 1)


def _other_content(event: Event, rng: random.Random) -> Event:
    assert isinstance(event, events.Read)
    runs = list(event.runs)
    place = rng.randrange(len(runs))
    stream, first, count = runs[place]
    runs[place] = (stream, first + 10_000, count)
    return replace(event, runs=tuple(runs))


def _old_offset(event: Event, _rng: random.Random) -> Event:
    assert isinstance(event, events.OffsetTold)
    return replace(event, offset=event.offset - 1)


def _new_offset(event: Event, _rng: random.Random) -> Event:
    assert isinstance(event, events.OffsetTold)
    return replace(event, offset=event.offset + 1_000)


def _old_generation(event: Event, _rng: random.Random) -> Event:
    assert isinstance(event, events.Joined)
    return replace(event, generation=-1)


def _generation_before(event: Event, _rng: random.Random) -> Event:
    assert isinstance(event, events.Commit)
    return replace(event, generation=0)


@pytest.mark.parametrize(
    ("corrupt", "of", "allowed"),
    [
        (_ack_elsewhere, events.Ok, {Kind.MISPLACED, Kind.INCONSISTENT, Kind.LOST}),
        (_skip, events.Read, {Kind.GAP}),
        (_again, events.Read, {Kind.WENT_BACK}),
        (_other_content, events.Read, {Kind.NEVER_WRITTEN}),
        (_old_offset, events.OffsetTold, {Kind.STALE_OFFSET}),
        (_new_offset, events.OffsetTold, {Kind.OFFSET_FROM_NOWHERE}),
        (_old_generation, events.Joined, {Kind.GENERATION_WENT_BACK}),
        (_generation_before, events.Commit, {Kind.ZOMBIE_COMMIT}),
    ],
)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_a_corrupt_answer_is_found(
    corrupt: EventCorruption, of: type[Event], allowed: set[Kind], seed: int
) -> None:
    world = _world(seed)
    told = world.story.finish()
    # The last of its kind: by then there is something to contradict.
    places = [n for n, event in enumerate(told) if isinstance(event, of) and _counts(event, world)]
    place = places[-1]
    told[place] = corrupt(told[place], world.rng)
    verdict = judge(told)
    found = {kind for kind, count in verdict.finding_counts.items() if count}
    assert found & allowed, "\n".join(verdict.lines())


def _counts(event: Event, world: World) -> bool:
    """Whether a corruption of this event must be found."""
    if isinstance(event, events.Ok):
        return world.story.streams[event.stream].acks == "all"
    if isinstance(event, events.Commit):
        return event.generation > 0
    return True


def test_batches_of_a_log_cover_it() -> None:
    world = _world(0)
    log = world.story.logs[AT]
    parts = batches(log, 0, len(log))
    assert sum(count for _, _, runs in parts for _, _, count in runs) == len(log)
    assert len({epoch for _, epoch, _ in parts}) == 2
