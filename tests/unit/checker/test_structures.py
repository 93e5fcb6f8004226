"""The checker's two data structures against plain sets and dicts."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from paceline_cluster.checker.intervals import IntervalSet
from paceline_cluster.checker.ledger import ACKED, NOTHING, PAGE, READ, Ledger, Mismatch

SPANS = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda each: (each[0], sum(each)))


@given(st.lists(SPANS), SPANS)
def test_intervals_are_a_set(added: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    intervals, model = IntervalSet(), set[int]()
    for start, end in added:
        intervals.add(start, end)
        model |= set(range(start, end))
    assert {n for start, end in intervals for n in range(start, end)} == model
    assert len(intervals) == len(model)
    bounds = [bound for interval in intervals for bound in interval]
    assert bounds == sorted(set(bounds)), "disjoint, not adjacent, sorted"
    start, end = asked
    within = {n for low, high in intervals.common(start, end) for n in range(low, high)}
    outside = {n for low, high in intervals.missing(start, end) for n in range(low, high)}
    assert within == model & set(range(start, end))
    assert outside == set(range(start, end)) - model
    assert all((n in intervals) == (n in model) for n in range(75))


RUNS = st.tuples(
    st.sampled_from([0, 5, PAGE - 3, 3 * PAGE - 1]),
    st.lists(st.integers(1, 4), min_size=1, max_size=8),
    st.sampled_from([ACKED, READ]),
)


@given(st.lists(RUNS, max_size=8), RUNS)
def test_ledger_remembers_the_first(
    told: list[tuple[int, list[int], int]], asked: tuple[int, list[int], int]
) -> None:
    ledger = Ledger()
    model: dict[int, tuple[int, int]] = {}
    for base, codes, flag in told:
        expected = []
        for step, code in enumerate(codes):
            known, flags = model.get(base + step, (code, 0))
            if known != code:
                expected.append(Mismatch(base + step, known, code, flags))
            model[base + step] = (known, flags | flag)
        assert ledger.tell(base, array("q", codes), flag) == expected
    base, codes, _ = asked
    assert ledger.compare(base, array("q", codes)) == [
        Mismatch(base + step, model[base + step][0], code, model[base + step][1])
        for step, code in enumerate(codes)
        if base + step in model and model[base + step][0] != code
    ]
    for start, end in ((0, None), (3, PAGE - 1), (PAGE, 3 * PAGE)):
        assert list(ledger.known(start, end)) == [
            Mismatch(offset, known, NOTHING, flags)
            for offset, (known, flags) in sorted(model.items())
            if start <= offset and (end is None or offset < end)
        ]
