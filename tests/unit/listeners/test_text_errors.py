"""Every broker error has a reply in V1 and Cursus, and an unknown outcome is told as one: a client
that takes it for a refusal writes twice."""

from __future__ import annotations

import pytest

from paceline.errors import ErrorCode, Outcome, error_for
from paceline.wire.cursus.errors import CursusError
from paceline.wire.v1.errors import V1Code, V1Error
from paceline_node.listeners.cursus.errors import as_cursus
from paceline_node.listeners.v1.errors import as_v1

ERRORS = [error_for(code, "why") for code in ErrorCode if code is not ErrorCode.NONE]
NOBODY = {ErrorCode.CONTROLLER_UNAVAILABLE, ErrorCode.NOT_CONTROLLER}
"""Nobody took an administrative request; each may be sent again."""
SWITCHES = ("timed out", "connection closed", "connection reset", "broken pipe", "eof")
"""At these words in a reply V1's SDKs go to another node."""


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: each.code.name)
def test_v1_has_a_reply_and_tells_unknown_outcomes_as_such(error: Exception) -> None:
    told = as_v1(error)  # type: ignore[arg-type]
    assert told.reason in set(V1Code)
    assert not any(each in told.message.lower() for each in SWITCHES)
    if error.outcome is Outcome.UNKNOWN and error.code not in NOBODY:  # type: ignore[attr-defined]
        assert told.reason in (V1Code.REPLICATION_TIMEOUT, V1Code.INTERNAL)
    elif told.reason is V1Code.REPLICATION_TIMEOUT:
        raise AssertionError("it has certainly not happened, and is told as unknown")


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "NOT_LEADER", "partition leader unavailable on this"),
        (ErrorCode.STORAGE_ERROR, "INTERNAL", "why"),
        (ErrorCode.STORAGE_FULL, "INTERNAL", "why"),
        (ErrorCode.REQUEST_TIMED_OUT, "REPLICATION_TIMEOUT", "outcome unknown"),
        (ErrorCode.NOT_ENOUGH_REPLICAS, "UNAVAILABLE", "why"),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "REPLICATION_TIMEOUT", "outcome unknown"),
        (ErrorCode.CONTROLLER_UNAVAILABLE, "UNAVAILABLE", "no controller answered"),
        (ErrorCode.ILLEGAL_GENERATION, "GENERATION_MISMATCH", "stale generation"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "GENERATION_MISMATCH", "unknown member"),
        (ErrorCode.PARTITION_NOT_OWNED, "GENERATION_MISMATCH", "partition not assigned"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "GENERATION_MISMATCH", "group not found"),
        (ErrorCode.AUTHORIZATION_FAILED, "NOT_AUTHORIZED", "why"),
        (ErrorCode.POLICY_VIOLATION, "BAD_REQUEST", "why"),
        (ErrorCode.NOT_A_REPLICA, "BAD_REQUEST", "not a replica"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "REPLICATION_TIMEOUT", "outcome unknown"),
    ],
    ids=lambda each: each.name if isinstance(each, ErrorCode) else "",
)
def test_what_v1_says(code: ErrorCode, reason: str, message: str) -> None:
    told = as_v1(error_for(code, "why"))
    assert str(told.reason) == reason
    assert told.message.startswith(message)


def test_a_reply_that_is_one_already_stays_as_it_is() -> None:
    ours = V1Error(V1Code.BAD_REQUEST, "mine")
    assert as_v1(ours) is ours
    theirs = CursusError("mine", "a=b")
    assert as_cursus(theirs, "PUBLISH") is theirs


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: each.code.name)
def test_cursus_has_a_word_and_tells_unknown_outcomes_as_such(error: Exception) -> None:
    told = as_cursus(error, "PUBLISH", "t")  # type: ignore[arg-type]
    assert told.line().startswith("ERROR: ")
    assert "\n" not in told.line()
    is_unknown = error.outcome is Outcome.UNKNOWN and error.code not in NOBODY  # type: ignore[attr-defined]
    assert (told.word == "request_timed_out") is is_unknown


@pytest.mark.parametrize(
    ("word", "refusal"),
    [
        ("PUBLISH", "NOT_AUTHORIZED_FOR_TOPIC operation=write topic=t"),
        ("TXN_PUBLISH", "NOT_AUTHORIZED_FOR_TOPIC operation=write topic=t"),
        ("CONSUME", "NOT_AUTHORIZED_FOR_TOPIC operation=read topic=t"),
        ("READ_SNAPSHOT", "NOT_AUTHORIZED_FOR_TOPIC operation=read topic=t"),
        ("CREATE", "NOT_AUTHORIZED_FOR_OPERATION command=CREATE permission=admin"),
        ("METADATA", "NOT_AUTHORIZED_FOR_OPERATION command=METADATA permission=topic.read"),
        ("END_TXN", "NOT_AUTHORIZED_FOR_OPERATION command=END_TXN permission=transaction"),
        ("JOIN_GROUP", "NOT_AUTHORIZED_FOR_OPERATION command=JOIN_GROUP permission=group"),
    ],
)
def test_cursus_names_the_right_that_is_missing(word: str, refusal: str) -> None:
    told = as_cursus(error_for(ErrorCode.AUTHORIZATION_FAILED, "why"), word, "t")
    assert f"{told.word} {told.detail}" == refusal
