"""Quotas as the controller keeps them: settings of the cluster."""

from __future__ import annotations

import pytest

from paceline.errors import InvalidRequest, PolicyViolation
from paceline.wire.native.quotas import AlterQuotas, QuotaChange, QuotaLimit, QuotaOf
from paceline_node.security.quotas import quotas_in
from paceline_node.settings.counts import QUOTAS
from tests.unit.controller.bench import Bench

USER, ADDRESS = QuotaOf.USER, QuotaOf.ADDRESS
PRODUCE, FETCH = QuotaLimit.PRODUCE, QuotaLimit.FETCH


def known(bench: Bench) -> list[tuple[QuotaOf, str | None, QuotaLimit, float]]:
    return [(each.of, each.name, each.limit, each.rate) for each in quotas_in(bench.image.configs)]


def started() -> Bench:
    bench = Bench()
    bench.start(1)
    return bench


def test_they_are_set_changed_and_taken_away() -> None:
    bench = started()
    ann = QuotaChange(USER, "ann", PRODUCE, 1000)
    bench.ask(AlterQuotas((ann, QuotaChange(USER, None, PRODUCE, 0.5))))
    bench.ask(AlterQuotas((QuotaChange(ADDRESS, "::FFFF:10.0.0.1", FETCH, 7),)))
    assert known(bench) == [
        (USER, "ann", PRODUCE, 1000.0),
        (USER, None, PRODUCE, 0.5),
        (ADDRESS, "10.0.0.1", FETCH, 7.0),
    ]
    before = bench.image.configs
    bench.ask(AlterQuotas((ann,)))
    assert bench.image.configs is before
    bench.ask(AlterQuotas((QuotaChange(USER, "ann", PRODUCE), QuotaChange(USER, None, FETCH))))
    assert len(known(bench)) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        QuotaChange(USER, "ann", PRODUCE, 0),
        QuotaChange(USER, "ann", PRODUCE, -1),
        QuotaChange(USER, "ann", PRODUCE, float("nan")),
        QuotaChange(USER, "ann", PRODUCE, float("inf")),
        QuotaChange(USER, "ann", PRODUCE, 1e16),
        QuotaChange(USER, "", PRODUCE, 1),
        QuotaChange(USER, "a" * 256, PRODUCE, 1),
        QuotaChange(USER, "node:1", PRODUCE, 1),
        QuotaChange(ADDRESS, "broker-0", PRODUCE, 1),
        QuotaChange(ADDRESS, "10.0.0.0/8", PRODUCE, 1),
    ],
)
def test_what_makes_no_sense_changes_nothing(wrong: QuotaChange) -> None:
    bench = started()
    with pytest.raises(InvalidRequest):
        bench.ask(AlterQuotas((QuotaChange(USER, "bob", PRODUCE, 1), wrong)))
    assert not known(bench)


def test_there_are_only_so_many() -> None:
    bench = started()
    with pytest.raises(InvalidRequest):
        bench.ask(AlterQuotas((QuotaChange(USER, "u", PRODUCE, 1),) * 1001))
    for start in range(0, QUOTAS.bound, 1000):
        names = (f"u{number}" for number in range(start, start + 1000))
        bench.ask(AlterQuotas(tuple(QuotaChange(USER, name, PRODUCE, 1) for name in names)))
    with pytest.raises(PolicyViolation, match="10000 at most"):
        bench.ask(AlterQuotas((QuotaChange(USER, "one more", PRODUCE, 1),)))
    bench.ask(AlterQuotas((QuotaChange(USER, "u1", PRODUCE, 2), QuotaChange(USER, "u2", PRODUCE))))
    bench.ask(AlterQuotas((QuotaChange(USER, "one more", PRODUCE, 1),)))
