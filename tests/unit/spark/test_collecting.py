"""The garbage collector while a task carries records."""

from __future__ import annotations

import gc

import pytest

from paceline.spark import collecting


@pytest.mark.parametrize("young", [700, 0, collecting.YOUNG * 2])
def test_it_is_as_before_afterwards(young: int) -> None:
    """Who has switched it off, or wants it more rarely still, is left alone."""
    found = gc.get_threshold()
    before = (young, *found[1:])
    inside: list[tuple[int, int, int]] = []

    def fail() -> None:
        with collecting.rarely():
            inside.append(gc.get_threshold())
            raise KeyError

    gc.set_threshold(*before)
    try:
        with pytest.raises(KeyError):
            fail()
        after = gc.get_threshold()
    finally:
        gc.set_threshold(*found)
    assert inside == [((collecting.YOUNG if young == 700 else young), *found[1:])]
    assert after == before
