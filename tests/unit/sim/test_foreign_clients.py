"""What foreign clients of the simulation make of a broker's answers."""

from __future__ import annotations

import pytest

from paceline import errors
from paceline.errors import ControllerUnavailable, NotController, Outcome, PacelineError
from paceline_cluster.sim.foreign_clients.kafka import is_commit_open, raise_for
from paceline_node.listeners.kafka.coordinator_errors import CoordinatorApi, coordinator_code

_NOT_FOR_COMMITS = (NotController, ControllerUnavailable)
UNKNOWN = [
    found
    for found in vars(errors).values()
    if isinstance(found, type)
    and issubclass(found, PacelineError)
    and found.outcome is Outcome.UNKNOWN
    and "code" in vars(found)
    and found not in _NOT_FOR_COMMITS
]
"""What may have happened, or not; no controller is asked for a commit."""


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: error.__name__)
def test_a_commit_is_open_in_kafkas_numbers_too(error: type[PacelineError]) -> None:
    code = coordinator_code(error.code, CoordinatorApi.OFFSET_COMMIT)
    with pytest.raises(PacelineError) as told:
        raise_for(code, "OFFSET_COMMIT")
    assert is_commit_open(told.value)
