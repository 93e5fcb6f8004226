"""From certificates to names: the principal of a client, the number of a node (DESIGN 2, 3).

``Certificate`` is what ``SSLObject.getpeercert()`` gives: only such as an authority of ours signed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline.errors import AuthenticationFailed, ConfigurationError
from paceline.types import NodeId
from paceline.values import dataclass
from paceline_node.security.principals import Principal, Proof, is_client_name

Certificate = Mapping[str, Any]

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|\Z)"
)
_GROUP = re.compile(r"\$(\d)")
_NODE = re.compile(r"node-(0|[1-9][0-9]{0,9})\.paceline\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rule:
    """``pattern`` None is DEFAULT. ``case``: L lower, U upper, empty as it is."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


def parse_rules(text: str) -> tuple[Rule, ...]:
    """As Kafka's ``ssl.principal.mapping.rules``: ``RULE:pattern/replacement/[LU]`` and DEFAULT,
    separated by commas. Raises ConfigurationError."""
    rules: list[Rule] = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise ConfigurationError(
                f"tls.principal_rules: {text[position:]!r} is neither DEFAULT nor "
                "RULE:PATTERN/REPLACEMENT/ with L, U or nothing behind it"
            )
        rules.append(_rule(found))
        position = found.end()
    return tuple(rules) or (Rule(None),)


def _rule(found: re.Match[str]) -> Rule:
    if found["default"]:
        return Rule(None)
    try:
        pattern = re.compile(found["pattern"])
        replacement = _GROUP.sub(r"\\g<\1>", found["replacement"])
        for number in re.findall(r"\\g<(\d)>", replacement):
            if int(number) > pattern.groups:
                raise ConfigurationError(
                    f"tls.principal_rules: {found['pattern']!r} has no group {number}"
                )
    except re.error as error:
        raise ConfigurationError(
            f"tls.principal_rules: {found['pattern']!r} is no pattern: {error}"
        ) from None
    return Rule(pattern, replacement, found["case"])


def principal_of(certificate: Certificate, rules: Sequence[Rule]) -> Principal:
    """Whom a client's certificate names, by the first rule that fits the whole of its subject.
    Raises AuthenticationFailed where none does, or the name is one that no client may have."""
    subject = distinguished_name(certificate)
    name = _name(certificate, subject, rules)
    if name is None:
        raise AuthenticationFailed(f"no rule of tls.principal_rules fits {subject!r}")
    if not is_client_name(name):
        raise AuthenticationFailed(f"{subject!r}: no client may be called {name[:80]!r}")
    return Principal(name, Proof.CERTIFICATE)


def _name(certificate: Certificate, subject: str, rules: Sequence[Rule]) -> str | None:
    for rule in rules:
        if rule.pattern is None:
            return default_name(certificate)
        found = rule.pattern.fullmatch(subject)
        if found is not None:
            name = found.expand(rule.replacement)
            return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)
    return None


def default_name(certificate: Certificate) -> str:
    """The subject's common name; without one the first URI among the alternative names, then the
    first DNS name, then the whole subject."""
    names = [
        *_subject(certificate, "commonName"),
        *_alternatives(certificate, "URI"),
        *_alternatives(certificate, "DNS"),
    ]
    return names[0] if names else distinguished_name(certificate)


def nodes_of(certificate: Certificate) -> frozenset[NodeId]:
    """The nodes that a certificate names: DNS names, or common names, ``node-N.paceline``."""
    names = (*_alternatives(certificate, "DNS"), *_subject(certificate, "commonName"))
    found = (_NODE.match(name) for name in names)
    return frozenset(NodeId(int(each[1])) for each in found if each is not None)


def distinguished_name(certificate: Certificate) -> str:
    """The subject as RFC 2253 writes it, the most particular part first: ``CN=a,OU=b,O=c``."""
    parts = []
    for relative in reversed(certificate.get("subject", ())):
        parts.append(
            "+".join(f"{_SHORT.get(key, key)}={_escaped(value)}" for key, value in relative)
        )
    return ",".join(parts)


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text.startswith((" ", "#")):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(text) > 1 else text


def _subject(certificate: Certificate, wanted: str) -> Iterator[str]:
    for relative in certificate.get("subject", ()):
        for key, value in relative:
            if key == wanted:
                yield value


def _alternatives(certificate: Certificate, wanted: str) -> Iterator[str]:
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == wanted:
            yield value
