from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline_cluster.chaos.values import read_value, runs_of, value_of
from paceline_cluster.checker.events import FOREIGN

NUMBERS = st.integers(0, 10**9)


@given(NUMBERS, NUMBERS, st.integers(0, 9000))
def test_a_value_says_who_wrote_it(stream: int, counter: int, size: int) -> None:
    value = value_of(stream, counter, size)
    assert len(value) >= size
    assert read_value(value) == (stream, counter)


@given(NUMBERS, NUMBERS, st.integers(30, 200), st.data())
def test_a_changed_byte_is_noticed(
    stream: int, counter: int, size: int, data: st.DataObject
) -> None:
    value = bytearray(value_of(stream, counter, size))
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] ^= 1 << data.draw(st.integers(0, 7))
    assert read_value(bytes(value)) != (stream, counter)


@given(st.one_of(st.none(), st.binary(max_size=40)))
def test_other_bytes_are_foreign(value: bytes | None) -> None:
    stream, counter = read_value(value)
    assert stream == FOREIGN or value == value_of(stream, counter, len(value or b""))


def test_consecutive_counters_are_one_run() -> None:
    values = [value_of(3, 7, 40), value_of(3, 8, 60), b"x", None, value_of(3, 9, 0)]
    assert runs_of([*values, value_of(4, 10, 0)]) == (
        (3, 7, 2),
        (FOREIGN, 0, 2),
        (3, 9, 1),
        (4, 10, 1),
    )
