from __future__ import annotations

import pytest

from paceline.types import NodeId
from paceline_node.security.origins import BrowserCheck
from paceline_node.security.principals import (
    ANONYMOUS,
    APPLIES_TO,
    CLUSTER,
    Operation,
    Resource,
    ResourceKind,
    authorize,
    node_principal,
)

CHECK = BrowserCheck(hosts=["broker-0", "Console.Example"], origins=["https://ops.example:8443/"])


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("LOCALHOST:7480", True),
        ("127.0.0.1:7480", True),
        ("[::1]:7480", True),
        ("10.1.2.3", True),
        ("broker-0:7480", True),
        ("console.example", True),
        ("evil.example", False),
        ("evil.example:7480", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
        ("broker-0:port", False),
        ("broker-0/x", False),
        ("user@broker-0", False),
        ("[::1", False),
        ("broker-0:7480 evil", False),
    ],
)
def test_hosts(host: str, allowed: bool) -> None:
    assert CHECK.allows_host(host) is allowed


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("http://broker-0:7480", True),
        ("https://broker-0:7480", True),
        ("HTTP://BROKER-0:7480", True),
        ("https://ops.example:8443", True),
        ("http://broker-0", False),
        ("http://evil.example", False),
        ("http://broker-0:7480.evil.example", False),
        ("null", False),
        ("", False),
    ],
)
def test_origins(origin: str | None, allowed: bool) -> None:
    assert CHECK.allows_origin(origin, host="broker-0:7480") is allowed


def test_every_operation_that_makes_sense_is_allowed() -> None:
    for operation in Operation:
        for kind in APPLIES_TO[operation]:
            authorize(ANONYMOUS, operation, Resource(kind, "x"))
            authorize(node_principal(NodeId(1)), operation, Resource(kind, "x"))


def test_asking_for_what_makes_no_sense_is_a_bug() -> None:
    with pytest.raises(AssertionError, match=r"anonymous.*PRODUCE.*group g"):
        authorize(ANONYMOUS, Operation.PRODUCE, Resource(ResourceKind.GROUP, "g"))
    with pytest.raises(AssertionError):
        authorize(ANONYMOUS, Operation.CONSUME, CLUSTER)
