"""Arithmetic of the benchmark's figures."""

import pytest

from paceline_cluster.bench.figures import Aim, Figure, latency, percentile, rate, table


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100), (0.001, 1)]
)
def test_percentiles_are_nearest_rank(fraction: float, expected: int) -> None:
    assert percentile(range(100, 0, -1), fraction) == expected
    assert percentile([7], fraction) == 7


def test_aims() -> None:
    assert Aim(120, at_least=True).met(120)
    assert not Aim(120, at_least=True).met(119.9)
    assert Aim(1, at_least=False).met(0.9)
    assert not Aim(1, at_least=False).met(1.1)


def test_rate_and_latency() -> None:
    found = rate("x", 250_000_000, 500, 2.0)
    assert (found.value, found.details["records_per_s"]) == (125.0, 250)
    single = latency("y", [0.001, 0.002, 0.003], 0.006, Aim(2, at_least=False))
    assert single.value == 2.0
    assert single.details["writes_per_s"] == 500
    assert single.to_json()["met"] is True


def test_table_shows_whether_the_aim_is_met() -> None:
    shown = table([Figure("a", 3, "s", Aim(2, at_least=False)), Figure("b", 1, "MB/s")])
    assert [row[3] for row in shown.rows] == ["not met", ""]
