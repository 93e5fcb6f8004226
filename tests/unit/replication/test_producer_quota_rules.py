"""The quota of producers, rule by rule: each taken away is noticed, by the machine of its clients
or by the test that holds it (``test_producer_quota.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from paceline.errors import PacelineError
from paceline_node.replication import producer_quota
from paceline_node.replication.producer_quota import (
    COORDINATOR,
    ProducerLimits,
    ProducerQuota,
    ProducerShares,
)
from paceline_node.storage.producer_state import ProducerKey
from tests.unit.broken_rules import assert_found
from tests.unit.replication import test_producer_quota as held
from tests.unit.replication.test_producer_quota import LIMITS, Leader, QuotaMachine

Patch = Callable[[], AbstractContextManager[object]]

_admit = ProducerQuota.admit
_greediest = ProducerQuota._greediest


def _set(target: object, name: str, value: object) -> Patch:
    return lambda: mock.patch.object(target, name, value)


def _asks_everybody(self: ProducerQuota, keys: Any, client: str) -> None:
    """Producers that the log knows have to have room, too."""
    found = list(keys)
    self._make_room(len(found), client)
    _admit(self, found, client)


def _smallest_first(self: ProducerQuota) -> list[tuple[int, str | None]]:
    own = sum(map(len, self._of.values()))
    return [(own, client) for _, client in reversed(_greediest(self)) if client is not None]


def _as_any_other(self: ProducerQuota, key: ProducerKey) -> None:
    self.admit([key], COORDINATOR)


def _refuses_all(self: ProducerQuota, keys: Any, client: str | None) -> None:
    _admit(self, keys, client or COORDINATOR)


def _newest_first(self: ProducerQuota, client: str | None, *, patient: bool) -> Iterator[Any]:
    yield from reversed(list(_idle_of(self, client, patient=patient)))


_idle_of = ProducerQuota._idle_of


@pytest.mark.parametrize(
    "away",
    [
        _set(ProducerQuota, "admit", lambda *_: None),
        _set(ProducerLimits, "share", property(lambda self: self.per_partition)),
        _set(ProducerShares, "count", lambda *_: 0),
        _set(producer_quota, "may_go", lambda *_: True),
        _set(producer_quota, "_needed_s", lambda *_, **__: 0.0),
        _set(ProducerQuota, "admit", _asks_everybody),
        _set(ProducerQuota, "_greediest", _smallest_first),
        _set(ProducerQuota, "admit", _refuses_all),
    ],
    ids=[
        "nobody is asked",
        "one client may have all",
        "what a client has elsewhere does not count",
        "who has a transaction open goes",
        "nobody is idle for too short a time",
        "who is known is asked",
        "whoever has least gives way",
        "what is decided is refused like anybody",
    ],
)
def test_the_machine_finds_a_broken_rule(away: Patch) -> None:
    assert_found(QuotaMachine, away())


def _leader() -> tuple[Leader, list[float]]:
    clock = [1000.0]
    return Leader(ProducerShares(LIMITS), clock), clock


def _connected() -> None:
    held.test_writers_of_segments_stay_as_long_as_they_are_connected([1000.0])


@pytest.mark.parametrize(
    ("test", "away"),
    [
        (
            lambda: held.test_markers_are_never_refused(*_leader()),
            _set(ProducerQuota, "admit_marker", _as_any_other),
        ),
        (
            lambda: held.test_what_is_open_or_not_committed_is_kept(*_leader()),
            _set(ProducerQuota, "_may_go", lambda self, key, state: producer_quota.may_go(state)),
        ),
        (
            _connected,
            _set(ProducerQuota, "_may_go", lambda self, key, state: producer_quota.may_go(state)),
        ),
        (
            lambda: held.test_a_client_loses_its_own_least_recently_used_one(*_leader()),
            _set(ProducerQuota, "_idle_of", _newest_first),
        ),
        (
            lambda: held.test_a_new_leader_counts_those_that_write_again(*_leader()),
            _set(ProducerQuota, "_sampled", lambda *_, **__: iter(())),
        ),
    ],
    ids=[
        "markers are refused like anybody",
        "what is not committed goes",
        "connected writers go",
        "the most recently used one goes first",
        "those that nobody knows of stay",
    ],
)
def test_its_absence_is_noticed(test: Callable[[], None], away: Patch) -> None:
    test()
    with away(), pytest.raises((AssertionError, PacelineError, pytest.fail.Exception)):
        test()
