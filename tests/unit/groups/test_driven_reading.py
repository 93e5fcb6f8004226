"""What large groups driven by their coordinator want is found out, and stored, bit by bit."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from paceline.assignors.stream_range import Dealer
from paceline_node.groups import driven_rounds
from paceline_node.groups.topic_pattern import TopicPattern
from paceline_node.loop_turns import SLICE_UNITS
from tests.unit.groups.consumers import KEY, Crew, stable, starts

CONSUMERS = st.sampled_from(["a", "b", "a-1", "a-", "zz", "a-10"])
COUNTS = st.integers(0, 15) | st.sampled_from([101, 1000])


def dealt(partitions: Sequence[int], streams: dict[str, int]) -> Iterator[tuple[object, ...]]:
    """As Kafka 0.8 does it: all streams by name, in order."""
    named = sorted(
        (f"{name}-{n}", name, n) for name, count in streams.items() for n in range(count)
    )
    share, more = divmod(len(partitions), len(named) or 1)
    start = 0
    for at, (_, name, number) in enumerate(named):
        end = start + share + (at < more)
        if end > start:
            yield name, number, partitions[start:end]
        start = end


@given(st.lists(st.tuples(st.integers(0, 120), st.dictionaries(CONSUMERS, COUNTS)), max_size=4))
def test_streams_get_what_they_would_get_if_all_were_named(
    topics: list[tuple[int, dict[str, int]]],
) -> None:
    dealer = Dealer()
    for count, streams in topics:
        partitions = list(range(count))
        assert list(dealer.deal(partitions, streams)) == list(dealt(partitions, streams))


def test_a_pattern_that_knows_too_many_sets_says_what_it_costs() -> None:
    slow, quick = TopicPattern("(a|b)*a" + "(a|b)" * 30), TopicPattern("[ab]*")
    name = "".join(random.Random(1).choices("ab", k=240))
    for _ in range(3):
        costs = sum(slow.matching(name)), sum(quick.matching(name))
    assert costs[0] > 240
    assert costs[1] == 0


def test_no_slice_of_a_large_round_is_more_than_two() -> None:
    crew = Crew(wide=3000, **{f"topic{n}": 1 for n in range(300)})
    fakes = [crew.register(f"c{n}", ".*", pattern_kind=1, streams=1000) for n in range(200)]
    crew.desk.advance(3.5)
    reading = crew.engine.coordinator.look(KEY, crew.topics)
    assert reading is not None
    slices = [0]
    is_done = False
    while not is_done:
        spent, is_done = reading.go_on(SLICE_UNITS)
        slices.append(spent)
    assert max(slices) <= 2 * SLICE_UNITS
    assert len(slices) > 10
    plan = crew.engine.coordinator.assign(KEY, reading)
    assert plan is not None
    crew.engine.coordinator.start(KEY, plan, crew.beginnings(plan))
    crew.settle(*fakes)
    owned = sorted(at for fake in fakes for at in fake.owned)
    assert owned == sorted((name, n) for name, numbers in crew.topics.items() for n in numbers)
    crew.desk.check_fold()


def begun(crew: Crew) -> object:
    """A worker has begun to find out, and goes on to other groups."""
    crew.desk.advance(3.5)
    key = crew.due.take()
    assert key == KEY
    reading = crew.engine.coordinator.look(key, crew.topics)
    assert reading is not None
    reading.go_on(1)
    return reading


def finish(crew: Crew, reading: object) -> None:
    reading.go_on(10**9)  # type: ignore[attr-defined]
    plan = crew.engine.coordinator.assign(KEY, reading)  # type: ignore[arg-type]
    if plan is not None:
        crew.engine.coordinator.start(KEY, plan, crew.beginnings(plan))


def test_who_comes_while_a_round_is_found_out_has_the_next_one() -> None:
    crew = Crew(t=4)
    a = crew.register("a", "t")
    reading = begun(crew)
    b = crew.register("b", "t")
    finish(crew, reading)
    a.answer()  # a ping, behind which its start waits
    assert len(starts(a)) == 1
    assert len(a.owned) == 0
    crew.pass_time(2.0, a, b)
    assert {len(a.owned), len(b.owned)} == {2}
    assert crew.generation == 2


def test_who_goes_while_a_round_is_found_out_is_no_member() -> None:
    crew = Crew(t=4)
    a, b = crew.register("a", "t"), crew.register("b", "t")
    reading = begun(crew)
    b.close()
    finish(crew, reading)
    members = crew.engine.store.groups[KEY].members
    assert [each.member_id for each in members] == ["a"]
    crew.pass_time(2.0, a)
    assert len(a.owned) == 4


def test_a_round_that_nobody_is_left_of_begins_anew() -> None:
    crew = Crew(t=4)
    a = crew.register("a", "t")
    reading = begun(crew)
    a.close()
    b = crew.register("b", "t")
    finish(crew, reading)
    crew.pass_time(2.0, b)
    assert len(b.owned) == 4


def test_topics_that_come_while_a_round_is_found_out_are_looked_at_then() -> None:
    crew = Crew(t=1)
    a = crew.register("a", "t|u", pattern_kind=1)
    reading = begun(crew)
    crew.topics_changed(t=1, u=2)
    finish(crew, reading)
    crew.pass_time(2.0, a)
    assert sorted(a.owned) == [("t", 0), ("u", 0), ("u", 1)]


def test_a_worker_that_is_lost_while_it_looks_is_followed_by_another() -> None:
    crew = Crew(t=1)
    a = crew.register("a", "t|u", pattern_kind=1)
    crew.pass_time(1.0, a)
    crew.topics_changed(t=1, u=2)
    assert crew.due.take() == KEY
    assert crew.engine.coordinator.look(KEY, crew.topics) is not None
    crew.pass_time(driven_rounds.COMMIT_S + 2.0, a)
    assert sorted(a.owned) == [("t", 0), ("u", 0), ("u", 1)]


def test_a_long_round_lasts_as_long_as_it_takes() -> None:
    crew = Crew(t=1)
    a = crew.register("a", "t")
    reading = begun(crew)
    for _ in range(5):
        crew.desk.advance(driven_rounds.COMMIT_S)
        assert crew.due.take() == KEY, "nobody would follow a worker that is lost"
        if a.asked is not None:
            a.answer()
    finish(crew, reading)
    assert crew.generation == 1
    assert len(starts(a)) == 1


def test_what_came_before_another_round_is_void() -> None:
    crew, (a,) = stable("a")
    crew.topics_changed(t=5)
    crew.due.take()
    reading = crew.engine.coordinator.look(KEY, crew.topics)
    assert reading is not None
    b = crew.register("b", "t")
    assert reading.is_void
    finish(crew, reading)
    crew.pass_time(2.0, a, b)
    assert {len(a.owned), len(b.owned)} == {2, 3}


def test_what_a_group_wanted_before_its_channels_closed_is_void() -> None:
    """Its members may still be reading, and are waited for."""
    crew, (a,) = stable("a")
    b = crew.register("b", "t")
    crew.pass_time(0.5, a, b)
    crew.topics_changed(t=5)
    crew.pass_time(1.0, a, b)
    crew.topics_changed(t=6)
    crew.due.take()
    reading = crew.engine.coordinator.look(KEY, crew.topics)
    crew.engine.coordinator.leaderless()
    before = crew.generation
    finish(crew, reading)
    assert crew.state == "PreparingRebalance"
    crew.desk.advance(5.0)
    crew.work()
    assert crew.generation == before


def test_many_positions_are_stored_bit_by_bit() -> None:
    crew = Crew(t=1000)
    a = crew.register("a", "t")
    crew.pass_time(1.0, a)
    for at in a.owned:
        a.owned[at] = 7
    before = len(crew.desk.log)
    sizes = []
    while crew.committed("t", 999) != 7:
        crew.desk.time = max(crew.desk.time, crew.engine.next_alarm())
        crew.engine.on_alarm()
        if a.asked is not None:
            a.answer()
        sizes.append(len(crew.desk.log) - before)
        before = len(crew.desk.log)
    assert sum(sizes) == 1000
    assert max(sizes) == 100


def test_offsets_of_what_a_pattern_reads_are_in_use() -> None:
    crew = Crew(t=1, u=1)
    a = crew.register("a", "t", pattern_kind=1)
    assert crew.engine.coordinator.reads(KEY, "t")
    crew.pass_time(1.0, a)
    assert crew.engine.coordinator.reads(KEY, "t")
    assert not crew.engine.coordinator.reads(KEY, "u")
