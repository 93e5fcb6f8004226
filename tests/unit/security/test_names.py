"""From certificates to principals and nodes."""

from __future__ import annotations

import pytest

from paceline.errors import AuthenticationFailed, ConfigurationError
from paceline_node.security.names import (
    Certificate,
    distinguished_name,
    nodes_of,
    parse_rules,
    principal_of,
)
from paceline_node.security.principals import Principal, Proof

ALICE = {
    "subject": (
        (("countryName", "CH"),),
        (("organizationName", "Acme, Inc."),),
        (("organizationalUnitName", "Ops"), ("userId", "7")),
        (("commonName", "alice"),),
    ),
    "subjectAltName": (("DNS", "a.example"), ("URI", "spiffe://acme/alice")),
}
NAMELESS = {"subject": ((("organizationName", "Acme"),),), "subjectAltName": ()}


def named(name: str) -> Certificate:
    return {"subject": ((("commonName", name),),)}


def test_a_subject_is_written_as_kafka_writes_it() -> None:
    assert distinguished_name(ALICE) == r"CN=alice,OU=Ops+UID=7,O=Acme\, Inc.,C=CH"
    assert distinguished_name({}) == ""


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (ALICE, "alice"),
        ({**ALICE, "subject": NAMELESS["subject"]}, "spiffe://acme/alice"),
        ({"subject": (), "subjectAltName": (("IP Address", "::1"), ("DNS", "b"))}, "b"),
        (NAMELESS, "O=Acme"),
    ],
)
def test_without_rules_a_certificate_tells_its_name(certificate: Certificate, name: str) -> None:
    assert principal_of(certificate, parse_rules("DEFAULT")) == Principal(name, Proof.CERTIFICATE)
    assert principal_of(certificate, parse_rules("")).name == name


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (r"RULE:^CN=(.*?),.*$/$1@acme/", "alice@acme"),
        (r"RULE:^CN=(.*?),.*$/$1/U", "ALICE"),
        (r"RULE:^CN=(.*?),OU=(.*?)\+.*$/$2-$1/L , DEFAULT", "ops-alice"),
        (r"RULE:^CN=bob.*$/nobody/,DEFAULT", "alice"),
        (r"RULE:^CN=a/half/,RULE:.*/whole/", "whole"),
    ],
)
def test_rules_are_those_of_kafka(rules: str, name: str) -> None:
    assert principal_of(ALICE, parse_rules(rules)).name == name


def test_who_fits_no_rule_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match=r"no rule of .* fits 'CN=alice"):
        principal_of(ALICE, parse_rules("RULE:CN=bob/bob/"))


@pytest.mark.parametrize(
    "name", ["anonymous", "Anonymous", "node:3", "NODE:3", "", "a\nb", "x" * 256]
)
def test_no_client_has_a_name_that_means_somebody_else(name: str) -> None:
    with pytest.raises(AuthenticationFailed, match="no client may be called"):
        principal_of(named(name), parse_rules("DEFAULT"))


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("alice", "'alice' is neither DEFAULT nor RULE"),
        ("DEFAULT,RULE:x", "'RULE:x' is neither"),
        ("RULE:(/x/", "is no pattern"),
        ("RULE:a/$1/", "has no group 1"),
        ("RULE:a/b/X", "is neither"),
    ],
)
def test_bad_rules_are_named(rules: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_rules(rules)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("certificate", "nodes"),
    [
        (named("node-3.paceline"), {3}),
        ({"subjectAltName": (("DNS", "broker-0"), ("DNS", "Node-12.Paceline"))}, {12}),
        ({**named("node-0.paceline"), "subjectAltName": (("DNS", "node-1.paceline"),)}, {0, 1}),
        (named("node-03.paceline"), set()),
        (named("node-3.paceline.example"), set()),
        (named("a.node-3.paceline"), set()),
        (named("node-3.paceline\n"), set()),
        (named("node-³.paceline"), set()),
        ({"subjectAltName": (("URI", "node-3.paceline"), ("DNS", "*.paceline"))}, set()),
        ({}, set()),
    ],
)
def test_which_nodes_a_certificate_names(certificate: Certificate, nodes: set[int]) -> None:
    assert nodes_of(certificate) == nodes
