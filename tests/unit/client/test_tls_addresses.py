"""What a client is told of TLS: in addresses, in the environment, in settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.client import Endpoint
from paceline.client.endpoint import parse_bootstrap
from paceline.client.tls_connection import dial_for
from paceline.client.transport import dial_tcp
from paceline.errors import ConfigurationError
from paceline.tls import VARIABLES, ClientTls
from paceline.types import NodeId
from paceline.wire.native.data import BrokerInfo
from paceline.wire.peer.control import Address
from tests.authority import Authority

FILES = ClientTls(authority="/a b/ca,1.pem", certificate="/c.pem", key="/k&.pem", server_name="n")


def test_addresses_inside_tls() -> None:
    plain = Endpoint.parse("tls://h:1")
    assert (plain.port, plain.path, plain.tls) == (1, None, ClientTls())
    assert Endpoint.parse("tls://h").port == 7400
    browser = Endpoint.parse("wss://h")
    assert (browser.port, browser.path, browser.tls) == (443, "/native", ClientTls())
    named = Endpoint("h", 1, None, FILES)
    assert Endpoint.parse(named.url) == named
    assert "," not in named.url  # a list of addresses is cut at commas
    assert str(named) == "tls://h:1"
    assert str(Endpoint.parse("wss://h:1/x")) == "wss://h:1/x"
    assert Endpoint.parse("h:1").url == "h:1"


def test_brokers_found_later_are_reached_alike() -> None:
    broker = BrokerInfo(NodeId(3), (Address("native", "b", 9),), "", False)
    assert Endpoint("h", 1, None, FILES).for_broker(broker) == Endpoint("b", 9, None, FILES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tls://h:1?autority=x", "'autority' is not one of authority"),
        (
            "tls://h:1?certificate=x",
            "key is missing, and belongs beside certificate: set it as PACELINE_CLIENT_TLS_KEY in",
        ),
        ("tls://h:1?key=x", "TLS: certificate is missing, and belongs beside key"),
        ("h:1?authority=x", "options other than those of a log-in are of tls://"),
        ("ssl://h:1", "expected tcp, tls, ws or wss"),
        ("tls://h:1/path", "expected host:port"),
    ],
)
def test_bad_addresses(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Endpoint.parse(text)
    assert said in str(refused.value)


def test_tls_and_none_are_not_mixed() -> None:
    with pytest.raises(ConfigurationError, match="mix TLS and none"):
        parse_bootstrap("tls://a:1,b:1")


def test_the_environment_says_it_too() -> None:
    assert ClientTls.from_environ({}) is None
    assert ClientTls.from_environ({"PACELINE_TLS__KEY": "x"}) is None  # a node's
    given = {name: getattr(FILES, field) for field, name in VARIABLES.items()}
    assert ClientTls.from_environ(given) == FILES


def test_who_is_told_nothing_does_not_encrypt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    assert dial_for(Endpoint("h", 1), None, dial_tcp) is dial_tcp
    assert dial_for(Endpoint.parse("tls://h"), None, dial_tcp) is not dial_tcp
    monkeypatch.setenv("PACELINE_CLIENT_TLS_AUTHORITY", Authority(tmp_path).path)
    assert dial_for(Endpoint("h", 1), None, dial_tcp) is not dial_tcp


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, other = authority.issue("x"), authority.issue("x")
    for tls, said in (
        (ClientTls(authority="/nowhere"), "authority /nowhere: .*No such file"),
        (ClientTls(certificate="/nowhere", key=pair.key), "certificate /nowhere"),
        (ClientTls(certificate=pair.certificate, key=other.key), "(?i)mismatch"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            dial_for(Endpoint("h", 1), tls, dial_tcp)
