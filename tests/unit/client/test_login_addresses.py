"""Who a client is, as addresses and the environment say it."""

from __future__ import annotations

import pytest

from paceline.client.endpoint import Endpoint
from paceline.errors import ConfigurationError
from paceline.login import ClientLogin
from paceline.tls import ClientTls
from paceline.types import NodeId
from paceline.wire.native.data import BrokerInfo
from paceline.wire.peer.control import Address

ALICE = ClientLogin(username="alice", password_file="/run/a b")
OPTIONS = "username=alice&password_file=%2Frun%2Fa+b"


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        (f"tcp://h:1?{OPTIONS}", Endpoint("h", 1, None, None, ALICE)),
        (f"ws://h:1/native?{OPTIONS}", Endpoint("h", 1, "/native", None, ALICE)),
        (f"tls://h:1?{OPTIONS}", Endpoint("h", 1, None, ClientTls(), ALICE)),
        (
            f"wss://h:1/native?authority=f&{OPTIONS}",
            Endpoint("h", 1, "/native", ClientTls(authority="f"), ALICE),
        ),
    ],
)
def test_addresses(text: str, endpoint: Endpoint) -> None:
    assert Endpoint.parse(text) == endpoint
    assert Endpoint.parse(endpoint.url) == endpoint
    assert "alice" not in str(endpoint), "logs and error texts name no user"
    broker = BrokerInfo(NodeId(3), (Address("native", "b", 9), Address("http", "b", 9)), "", False)
    found = endpoint.for_broker(broker)
    assert found is not None
    assert found.login == ALICE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "h:1?username=alice",
            "password_file is missing, .* username: set it as PACELINE_CLIENT_PASSWORD_FILE in",
        ),
        ("tls://h:1?password_file=f", "username is missing, .* as PACELINE_CLIENT_USERNAME in"),
        ("h:1?mechanism=PLAIN", "password_file is missing, and belongs beside mechanism"),
        ("h:1?username=a&password_file=f&mechanism=GSSAPI", "'GSSAPI' is none of SCRAM-SHA-512"),
        ("h:1?username=a&password_file=f&password=x", "are of tls://"),
    ],
)
def test_bad_addresses(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Endpoint.parse(text)


def test_the_environment() -> None:
    assert ClientLogin.from_environ({}) is None
    given = {
        "PACELINE_CLIENT_USERNAME": "alice",
        "PACELINE_CLIENT_PASSWORD_FILE": "f",
        "PACELINE_CLIENT_MECHANISM": "PLAIN",
    }
    login = ClientLogin.from_environ(given)
    assert login == ClientLogin(username="alice", password_file="f", mechanism="PLAIN")
    assert login.given() == {"username": "alice", "password_file": "f", "mechanism": "PLAIN"}
