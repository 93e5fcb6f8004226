"""SCRAM (RFC 5802, RFC 7677): what both sides derive from a password, and the client's part.

The server keeps a :class:`ScramKey`, from which nobody can log in and no password can be read. The
server's part: ``paceline_node/security/scram.py``. Text is taken as it is typed, in UTF-8, as all
Kafka clients do: no SASLprep.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence

from paceline.errors import AuthenticationFailed
from paceline.values import dataclass

SCRAM_HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The mechanisms, and the hash of each, as ``hashlib`` calls it."""
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
"""As in Kafka. PLAIN costs the server so many."""
PLAIN = "PLAIN"
"""SASL's other mechanism: name and password as they are (RFC 4616)."""
SASL_MECHANISMS: Sequence[str] = (*sorted(SCRAM_HASHES, reverse=True), PLAIN)
"""All there are, the strongest first."""
SALT_BYTES = 32
NONCE_BYTES = 24
_GS2 = "n,,"
_PART = re.compile(r"([a-z])=(.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DerivedKeys:
    """What a server needs to check a password, and to prove that it knew it."""

    stored_key: bytes
    server_key: bytes


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The password, made slow to guess. Takes a while: not for an event loop."""
    return hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, iterations)


def derived(mechanism: str, salted_password: bytes) -> DerivedKeys:
    """The two keys that a server keeps."""
    name = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return DerivedKeys(
        hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name)
    )


def escaped(name: str) -> str:
    """A user's name as it stands in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(text: str) -> str:
    """Inverse of :func:`escaped`. Raises AuthenticationFailed."""
    if re.search(r"=(?!2C|3D)", text):
        raise AuthenticationFailed("the user's name is not escaped as SCRAM wants it")
    return text.replace("=2C", ",").replace("=3D", "=")


def parts_of(text: str, letters: str) -> list[str]:
    """The values of a message's parts, which have to be ``letters`` in that order; what follows
    them are extensions. Raises AuthenticationFailed."""
    found = [_PART.match(part) for part in text.split(",")]
    names = "".join("?" if part is None else part[1] for part in found)
    if not names.startswith(letters) or "?" in names:
        raise AuthenticationFailed(f"a SCRAM message has the parts {names!r}, not {letters!r}")
    return [part[2] for part in found if part is not None][: len(letters)]


def decoded(text: str) -> bytes:
    """Bytes of their base64. Raises AuthenticationFailed."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("a SCRAM message has bytes that are no base64") from None


def encoded(data: bytes) -> str:
    """Inverse of :func:`decoded`."""
    return base64.b64encode(data).decode()


def message_text(data: bytes) -> str:
    """A message as text. Raises AuthenticationFailed."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("a SCRAM message is no UTF-8") from None


class ScramClient:
    """One log-in: :meth:`first`, :meth:`final`, :meth:`finish`. ``nonce``: fresh random bytes."""

    def __init__(self, mechanism: str, name: str, password: str, nonce: bytes) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = encoded(nonce)
        self._bare = f"n={escaped(name)},r={self._nonce}"
        self._server_proof = b""

    def first(self) -> bytes:
        """What to say first."""
        return f"{_GS2}{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        """What to say to the server's first answer. Derives keys, which takes a while: not for an
        event loop. Raises AuthenticationFailed, also where the server asks for less work than is
        safe, or for more than is sound."""
        server_first = message_text(answer)
        nonce, salt, count = parts_of(server_first, "rsi")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the server answers another log-in")
        if not count.isdecimal() or not MIN_ITERATIONS <= int(count[:9]) <= 64 * MAX_ITERATIONS:
            raise AuthenticationFailed(f"the server wants {count[:20]} iterations")
        name = SCRAM_HASHES[self._mechanism]
        salted_password = salted(self._mechanism, self._password, decoded(salt), int(count))
        without_proof = f"c={encoded(_GS2.encode())},r={nonce}"
        signed = f"{self._bare},{server_first},{without_proof}".encode()
        keys = derived(self._mechanism, salted_password)
        client_key = hmac.digest(salted_password, b"Client Key", name)
        proof = xor(client_key, hmac.digest(keys.stored_key, signed, name))
        self._server_proof = hmac.digest(keys.server_key, signed, name)
        return f"{without_proof},p={encoded(proof)}".encode()

    def finish(self, answer: bytes) -> None:
        """Check that the server knew the password. Raises AuthenticationFailed."""
        text = message_text(answer)
        if text.startswith("e="):
            raise AuthenticationFailed(f"the server refused: {text[2:80]}")
        (proof,) = parts_of(text, "v")
        if not self._server_proof or not hmac.compare_digest(decoded(proof), self._server_proof):
            raise AuthenticationFailed("the server does not know the password either")


def xor(left: bytes, right: bytes) -> bytes:
    """Of equal length."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
