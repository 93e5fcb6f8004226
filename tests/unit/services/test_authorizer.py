"""A topic's own rules, which hold whatever protocol it is used by."""

from __future__ import annotations

import pytest

from paceline.errors import AuthorizationFailed
from paceline.types import NodeId
from paceline_node.security.principals import (
    ANONYMOUS,
    AllowAll,
    Operation,
    Principal,
    Proof,
    Resource,
    ResourceKind,
    node_principal,
)
from paceline_node.services.authorization.authorizer import Authorizer

ANN, BOB = Principal("ann", Proof.NONE), Principal("bob", Proof.NONE)
CONFIGS = {
    "open": {"access.policy": "open"},
    "sealed": {"access.policy": "deny_write"},
    "dark": {"access.policy": "deny_read"},
    "listed": {"access.policy": "acl", "access.readers": "*", "access.writers": "ann,carl"},
    "unlisted": {"access.policy": "acl"},
}
ALLOWED = [
    ("open", ANONYMOUS, True, True),
    ("plain", ANONYMOUS, True, True),
    ("sealed", ANN, True, False),
    ("dark", ANN, False, True),
    ("listed", ANN, True, True),
    ("listed", BOB, True, False),
    ("listed", ANONYMOUS, False, False),
    ("unlisted", ANN, False, False),
    ("sealed", node_principal(NodeId(1)), True, True),
]


@pytest.mark.parametrize(("topic", "principal", "reads", "writes"), ALLOWED)
def test_rules(topic: str, principal: Principal, reads: bool, writes: bool) -> None:
    access = Authorizer(AllowAll(), lambda name: CONFIGS.get(name, {}))
    resource = Resource(ResourceKind.TOPIC, topic)
    for operation, allowed in ((Operation.CONSUME, reads), (Operation.PRODUCE, writes)):
        assert access.allows(principal, operation, resource) is allowed
        if allowed:
            access.topic(principal, operation, topic)
        else:
            with pytest.raises(AuthorizationFailed, match=f"{principal} may not"):
                access.topic(principal, operation, topic)
    access.topic(principal, Operation.DESCRIBE, topic)
