from __future__ import annotations

import pytest

from paceline.errors import AuthorizationFailed
from paceline.types import NodeId
from paceline_node.security.origins import BrowserCheck
from paceline_node.security.principals import (
    ANONYMOUS,
    CLUSTER,
    AllowAll,
    Operation,
    Resource,
    ResourceKind,
    node_principal,
    refuse,
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
        assert operation.kinds
        for kind in operation.kinds:
            AllowAll().authorize(ANONYMOUS, operation, Resource(kind, "x"))
            AllowAll().authorize(node_principal(NodeId(1)), operation, Resource(kind, "x"))


def test_asking_for_what_makes_no_sense_is_a_bug() -> None:
    with pytest.raises(AssertionError, match=r"anonymous.*PRODUCE.*group g"):
        AllowAll().authorize(ANONYMOUS, Operation.PRODUCE, Resource(ResourceKind.GROUP, "g"))
    with pytest.raises(AssertionError):
        AllowAll().authorize(ANONYMOUS, Operation.CONSUME, CLUSTER)


def test_a_refusal_names_who_what_and_whereof() -> None:
    with pytest.raises(AuthorizationFailed, match=r"^anonymous may not produce topic orders$"):
        refuse(ANONYMOUS, Operation.PRODUCE, Resource(ResourceKind.TOPIC, "orders"))
    with pytest.raises(AuthorizationFailed, match=r"^node:3 may not administer cluster$"):
        refuse(node_principal(NodeId(3)), Operation.ADMINISTER, CLUSTER)
