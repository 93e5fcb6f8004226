"""SASL OAUTHBEARER (RFC 7628): its messages, without I/O. What a token says is the node's business
(``paceline_node/security/bearer_tokens.py``).

    n,[a=NAME],  0x01  auth=Bearer TOKEN  0x01  [key=value  0x01]...  0x01

A server that refuses the token answers with JSON, the client says 0x01 to that, and only then does
the log-in fail.
"""

from __future__ import annotations

import json
import re

from paceline.errors import AuthenticationFailed
from paceline.scram import message_text, unescaped

OAUTHBEARER = "OAUTHBEARER"
MESSAGE_BYTES_MAX = 32 * 1024
"""Larger than tokens get whose issuer names all of somebody's groups."""
DISMISSED = b"\x01"
"""What a client says to a refusal."""
_SEPARATOR = "\x01"
_AUTHORITY = re.compile(r"n,(?:a=([^,]*))?,")
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


def first_message(token: str) -> bytes:
    """What a client says."""
    return f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{_SEPARATOR}".encode()


def read_first_message(data: bytes) -> tuple[str, str]:
    """As whom a client wants to act, empty for whom its token names, and the token. Extensions
    (KIP-342) say nothing here. Raises AuthenticationFailed."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise AuthenticationFailed("a message of OAUTHBEARER is shorter")
    header, *pairs = message_text(data).split(_SEPARATOR)
    authority = _AUTHORITY.fullmatch(header)
    if authority is None or len(pairs) < 3 or pairs[-2:] != ["", ""]:
        raise AuthenticationFailed("OAUTHBEARER is: n,, and auth=Bearer TOKEN between 0x01")
    tokens = [value for name, _, value in (each.partition("=") for each in pairs) if name == "auth"]
    found = _BEARER.fullmatch(tokens[0]) if len(tokens) == 1 else None
    if found is None:
        raise AuthenticationFailed("OAUTHBEARER has one auth=Bearer TOKEN")
    return unescaped(authority[1] or ""), found[1]


def refusal() -> bytes:
    """The server's answer to a token that it does not take."""
    return json.dumps({"status": "invalid_token"}).encode()
