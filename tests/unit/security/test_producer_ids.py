"""Producer ids that are sealed (security/DESIGN 6)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_node.security.producer_ids import NUMBERS_MAX, SEALED, ProducerIds

IDS = ProducerIds(b"secret")
NUMBERS = st.integers(0, NUMBERS_MAX - 1)


@given(NUMBERS, st.text(max_size=20))
def test_an_id_is_of_whom_it_was_made_for(number: int, name: str) -> None:
    sealed = IDS.sealed(number, name)
    assert SEALED <= sealed < 2 * SEALED, "a number of 63 bits, which clients keep as one of 64"
    assert IDS.is_of(sealed, name)
    assert ProducerIds(b"secret").is_of(sealed, name), "on every node"


@given(NUMBERS, NUMBERS)
def test_no_two_are_the_same(one: int, other: int) -> None:
    assert (IDS.sealed(one, "alice") == IDS.sealed(other, "alice")) == (one == other)


def test_neighbours_tell_nothing_and_are_nobody_elses() -> None:
    made = [IDS.sealed(number, "alice") for number in range(1000)]
    assert len(set(made)) == len(made)
    near = sum(abs(one - other) < 1 << 50 for one, other in pairwise(made))
    assert near < 10
    for stranger in IDS, ProducerIds(b"another"):
        name = "alice" if stranger is not IDS else "bob"
        assert not any(stranger.is_of(each, name) for each in made)
    assert not any(IDS.is_of(each + step, "alice") for each in made for step in (1, -1, 2))


def test_those_of_an_open_cluster_are_anybodys() -> None:
    assert IDS.is_of(17, "alice")
    assert IDS.is_of(SEALED - 1, "bob")
    with pytest.raises(AssertionError):
        IDS.sealed(NUMBERS_MAX, "alice")
