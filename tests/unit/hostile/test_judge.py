"""What the judge of attacks refuses, and that there is something to say on every port."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from tests.hostile.judge import Bounds, Latency, Round, refusals
from tests.hostile.speech import SPEECHES, Speech

QUIET = Round(
    attack="kafka/slow",
    seconds=10.0,
    latency={"native": Latency.of([0.01, 0.02])},
    resident_mib=100.0,
    grown_mib=40.0,
    left_mib=60.0,
    charged_mib=1.0,
    clients_ended=3,
    leaderships_lost=1,
    longest_step_ms=4.0,
    longest_step="x",
)
BOUNDS = Bounds(grown_mib=500, left_mib=600)


def test_latency_of_requests() -> None:
    assert Latency.of([]) == Latency(0, 0, 0, 0)
    assert Latency.of([0.001] * 98 + [0.5, 2.0]) == Latency(100, 1.0, 500.0, 2000.0)


def test_what_is_allowed() -> None:
    assert list(refusals(QUIET, BOUNDS)) == []


@pytest.mark.parametrize(
    ("change", "bounds", "said"),
    [
        ({"nodes_ended": ["node 2"]}, BOUNDS, "a node ended"),
        ({"failures": ["native produce"]}, BOUNDS, "well-behaved request failed"),
        ({"grown_mib": 501.0}, BOUNDS, "took 501 MiB"),
        ({"left_mib": 601.0}, BOUNDS, "left by others with 601 MiB"),
        ({"latency": {"kafka": Latency.of([])}}, BOUNDS, "no kafka request"),
        ({"attacker": "Traceback"}, BOUNDS, "the attacker itself"),
        ({}, Bounds(500, 600, p99_ms=10), "p99 of native"),
        ({}, Bounds(500, 600, steady=True), "leadership moved 1 times"),
    ],
)
def test_what_is_refused(change: dict[str, object], bounds: Bounds, said: str) -> None:
    [text] = refusals(dataclasses.replace(QUIET, **change), bounds)  # type: ignore[arg-type]
    assert said in text


@pytest.mark.parametrize("speech", SPEECHES, ids=lambda speech: speech.name)
def test_every_protocol_has_something_to_say(speech: Speech) -> None:
    for talk in (speech.cheap, speech.costly):
        said = list(itertools.islice(talk(random.Random(1)), 5))
        assert len(said) == 5
        assert all(said)
    assert speech.begun()
    assert speech.lies
