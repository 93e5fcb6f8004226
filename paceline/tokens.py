"""Tokens of users: what programs show that can only send one text, as in an HTTP header.

    plt_NAME.ID.SECRET      the user's name in base64, 16 hexadecimal digits, 32 random bytes

The cluster keeps the SHA-256 of the secret. That is enough: nobody guesses 32 random bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import NamedTuple

from paceline.errors import AuthenticationFailed

_SECRET_BYTES = 32
_ID_BYTES = 8
RANDOM_BYTES = _ID_BYTES + _SECRET_BYTES
_TOKEN = re.compile(r"plt_([A-Za-z0-9_-]{1,1400})\.([0-9a-f]{16})\.([A-Za-z0-9_-]{43})\Z")


class Token(NamedTuple):
    """Whose, which, and what its secret's SHA-256 is."""

    user: str
    token_id: str
    digest: bytes


def make_token(user: str, random: bytes) -> tuple[str, Token]:
    """A new token of ``random``, which are ``RANDOM_BYTES`` of a source that nobody can guess."""
    token_id, secret = random[:_ID_BYTES].hex(), _base64(random[_ID_BYTES:])
    text = f"plt_{_base64(user.encode())}.{token_id}.{secret}"
    return text, read_token(text)


def is_token(text: str) -> bool:
    """Whether it has the form of one."""
    return _TOKEN.match(text) is not None


def read_token(text: str) -> Token:
    """What a token says. Raises AuthenticationFailed, without repeating it."""
    found = _TOKEN.match(text)
    if found is None:
        raise AuthenticationFailed("that is no token")
    name, token_id, secret = found.groups()
    try:
        user = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("that is no token") from None
    return Token(user, token_id, hashlib.sha256(secret.encode()).digest())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
