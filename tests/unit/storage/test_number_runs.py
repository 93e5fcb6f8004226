"""Numbers of records as runs are what they are one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline_node.sequence_numbers import Number, NumberRuns

NUMBERS = st.lists(
    st.none()
    | st.builds(
        lambda producer, epoch, sequence: Number(producer.encode(), producer, epoch, sequence),
        st.sampled_from("ab"),
        st.integers(0, 1),
        st.integers(1, 6),
    ),
    max_size=30,
)


def runs_of(numbers: list[Number | None]) -> NumberRuns:
    runs = NumberRuns()
    for number in numbers:
        if number is None:
            runs.add_nobody()
        else:
            runs.add(*number)
    return runs


@given(NUMBERS, st.integers(0, 30), st.integers(0, 30))
def test_they_are_a_sequence_of_what_was_added(
    numbers: list[Number | None], start: int, stop: int
) -> None:
    runs = runs_of(numbers)
    assert list(runs) == numbers
    assert [runs[at] for at in range(len(runs))] == numbers
    part = runs[start:stop]
    assert list(part) == numbers[start:stop]
    assert [part[at] for at in range(-len(part), 0)] == numbers[start:stop]


def test_consecutive_numbers_of_one_producer_are_one_run() -> None:
    numbers = [Number(b"k", "p", 3, sequence) for sequence in range(5, 105)]
    runs = runs_of([*numbers, None, None, Number(b"k", "p", 3, 105), Number(b"k", "p", 4, 106)])
    assert runs.run_count == 4
    assert runs[:100].run_count == runs[7:9].run_count == 1
