"""Who clients are by their address, as settings say it."""

from __future__ import annotations

import pytest

from paceline_node.security.principals import is_client_name
from paceline_node.settings.address_rules import AddressRule, name_by_address
from paceline_node.settings.loader import InvalidSettings, load

TEXTS = ("10.0.0.0/8=sensors", "10.1.2.3=never reached", "::1=here", "fd00::/8=a=b")


def test_the_first_that_fits() -> None:
    rules = tuple(map(AddressRule.parse, TEXTS))
    found = {
        host: name_by_address(rules, host)
        for host in ("10.1.2.3", "11.0.0.1", "::1", "fd00::7", "127.0.0.1", "memory", "gone")
    }
    assert {host: name for host, name in found.items() if name} == {
        "10.1.2.3": "sensors",
        "::1": "here",
        "fd00::7": "a=b",
    }
    assert tuple(AddressRule.parse(str(rule)) for rule in rules) == rules


@pytest.mark.parametrize(
    "name", ["", "anonymous", "ANONYMOUS", "node:3", "Node:x", "a\nb", "a" * 256]
)
def test_names_that_nobody_can_have(name: str) -> None:
    assert not is_client_name(name)
    with pytest.raises(ValueError, match="not anonymous, and not node: in front"):
        AddressRule.parse(f"10.0.0.1={name}")


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1/8=a", "sensors=10.0.0.1", "10.0.0=a", "=a"])
def test_what_is_no_rule(text: str) -> None:
    if "=" not in text:
        text += "="
    with pytest.raises(ValueError, match="expected"):
        AddressRule.parse(text)


def test_the_setting_is_refused_with_its_name() -> None:
    with pytest.raises(InvalidSettings, match=r"v1\.principals.*expected ADDRESS=NAME"):
        load(flags=["v1.principals=10.0.0.1/8=sensors"], environ={})
    settings = load(flags=["v1.principals=10.0.0.0/8=sensors, ::1=here"], environ={})
    assert [str(each) for each in settings.v1.principals] == ["10.0.0.0/8=sensors", "::1/128=here"]
