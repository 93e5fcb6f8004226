"""What is to be done about a refusal: told of each by who asks, what for, and of what."""

from __future__ import annotations

import pytest

from paceline.errors import AuthenticationFailed, AuthorizationFailed
from paceline_cluster.cli.acls import acl
from paceline_cluster.cli.delivery_counts import Tally
from paceline_cluster.cli.failures import failure_of
from paceline_cluster.cli.produce import ending
from paceline_cluster.errors import LOG_IN
from paceline_cluster.refused import what_to_do
from paceline_node.security.principals import (
    CLUSTER,
    Forbidden,
    Operation,
    Principal,
    Proof,
    Resource,
    ResourceKind,
)

ALICE = Principal("alice", Proof.PASSWORD)
TWO = Resource(ResourceKind.TOPIC, "two")
GROUP = Resource(ResourceKind.GROUP, "g")
ANY = Resource(ResourceKind.TRANSACTION)
PAY = Resource(ResourceKind.TRANSACTION, "pay")


@pytest.mark.parametrize(
    ("operation", "resource", "right"),
    [
        (Operation.PRODUCE, TWO, "--operation write --topic two"),
        (Operation.CONSUME, TWO, "--operation read --topic two"),
        (Operation.DESCRIBE, TWO, "--operation read --topic two ('--operation write' to write;"),
        (Operation.MOVE_LEADER, TWO, "--operation alter --topic two"),
        (Operation.JOIN_GROUP, GROUP, "--operation read --group g"),
        (Operation.DESCRIBE, PAY, "--operation write --transactional-id pay ('--operation des"),
        (Operation.DESCRIBE, ANY, "--operation describe --transactional-id '*';"),
        (Operation.DESCRIBE, CLUSTER, "--operation describe --cluster"),
        (Operation.ADMINISTER, CLUSTER, "--operation alter --cluster"),
        (Operation.IDENTIFY_PRODUCER, CLUSTER, "--operation write --topic NAME"),
    ],
)
def test_who_is_known_is_told_the_right_that_is_missing(
    operation: Operation, resource: Resource, right: str
) -> None:
    for prefix in ("", "two/0: "):
        refusal = f"{prefix}{Forbidden(ALICE, operation, resource)}"
        failure = failure_of(AuthorizationFailed(refusal))
        assert f"paceline acl create --principal alice {right}" in failure.hint
        assert LOG_IN not in failure.hint


def test_every_refusal_ends_in_a_command_that_there_is() -> None:
    options = {name for each in acl.commands["create"].params for name in each.opts}
    for operation in Operation:
        for kind in operation.kinds:
            hint = what_to_do(str(Forbidden(ALICE, operation, Resource(kind, "it's"))))
            _, _, command = hint.partition("paceline acl create ")
            words = command.partition(";")[0].partition(" (")[0]
            assert words.startswith("--principal alice --operation "), hint
            assert {word for word in words.split() if word.startswith("--")} <= options


def test_who_is_nobody_is_told_to_log_in() -> None:
    refused = AuthorizationFailed(str(Forbidden(Principal("anonymous", Proof.NONE), *_of(TWO))))
    assert failure_of(refused).hint == f"{LOG_IN}, as somebody who may"


def test_names_are_quoted_for_the_shell() -> None:
    told = what_to_do(str(Forbidden(Principal("CN=ann b", Proof.CERTIFICATE), *_of(TWO))))
    assert "--principal 'CN=ann b' --operation write" in told
    told = what_to_do("the owner of ann.pem may not describe topic two")
    assert "--principal NAME --operation read --topic two" in told


def test_a_wrong_password_is_not_to_be_said_again() -> None:
    hint = failure_of(AuthenticationFailed("h:1: alice: wrong user or password")).hint
    assert "PACELINE_CLIENT_PASSWORD_FILE" in hint
    assert "paceline user password" in hint


def test_lines_for_a_topic_name_the_right_to_write_that_topic() -> None:
    """Where the producer is refused its id, before any topic was named."""
    tally = Tally(None, lambda _done: None)
    tally.error = AuthorizationFailed(str(Forbidden(ALICE, Operation.IDENTIFY_PRODUCER, CLUSTER)))
    tally.failed = tally.first_failed_line = 1
    told = ending("orders", tally)
    assert told is not None
    assert "alice may not get a producer id: it takes the right to write a topic" in told.message
    assert "--operation write --topic orders" in told.hint


def test_who_writes_to_a_topic_that_he_may_not_see_needs_the_right_to_write() -> None:
    told = what_to_do("alice may not describe topic orders", written="orders")
    assert "--operation write --topic orders; " in told


def _of(resource: Resource) -> tuple[Operation, Resource]:
    return Operation.PRODUCE, resource
