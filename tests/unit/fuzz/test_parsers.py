"""Every parser under a few hundred broken inputs (``scripts/fuzz`` gives it millions), and the
fuzzer under parsers that are wrong."""

from __future__ import annotations

import random

import pytest

from paceline.errors import CorruptMessage
from tests.fuzz.engine import MIB, Target, fuzz, input_of
from tests.fuzz.targets import TARGETS

INPUTS = 100


@pytest.mark.parametrize("name", TARGETS)
def test_broken_bytes_are_read_or_refused(name: str) -> None:
    tally = fuzz(TARGETS[name], iter(range(INPUTS)))
    assert tally.finding is None, str(tally.finding)
    assert tally.given == INPUTS
    assert tally.taken > 0, "not even a valid input was taken"


def _wrong(name: str) -> Target:
    def feed(given: bytes, rng: random.Random) -> None:
        if given == b"valid":
            return
        if name == "unhandled":
            raise IndexError("out of range")
        if name == "greedy":
            bytearray(64 * MIB)
        raise CorruptMessage("no")

    return Target(name, lambda rng: b"valid", feed)


@pytest.mark.parametrize(("name", "said"), [("unhandled", "IndexError"), ("greedy", "allocated")])
def test_a_wrong_parser_is_found_and_the_input_can_be_given_again(name: str, said: str) -> None:
    target = _wrong(name)
    if name == "greedy":
        target = Target(name, lambda rng: b"other", target.feed)
    finding = fuzz(target, iter(range(1000))).finding
    assert finding is not None
    assert said in finding.what
    assert input_of(target, finding.number) == finding.data


def test_a_parser_that_refuses_is_right() -> None:
    assert fuzz(_wrong("strict"), iter(range(500))).finding is None
