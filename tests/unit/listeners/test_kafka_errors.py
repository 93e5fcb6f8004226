"""Every error of ours has a number that Kafka clients know."""

from __future__ import annotations

import kio.schema.errors
import pytest

from paceline.errors import ErrorCode
from paceline_node.listeners.kafka.errors import OURS, OURS_ALONE, kafka_code

KAFKAS = {code.value for code in kio.schema.errors.ErrorCode}


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_the_mapping_is_total(code: ErrorCode) -> None:
    assert kafka_code(code) in KAFKAS


def test_only_what_is_ours_alone_is_mapped() -> None:
    assert {code for code in ErrorCode if code >= OURS_ALONE} == OURS.keys()


def test_an_unknown_outcome_is_told_as_one() -> None:
    assert kafka_code(ErrorCode.LEADER_CHANGED_AFTER_APPEND) == 7
    assert kafka_code(ErrorCode.CONNECTION_LOST) == 7
