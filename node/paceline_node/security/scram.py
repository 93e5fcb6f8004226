"""The server's side of SCRAM, without I/O (RFC 5802, 7677). The client's: ``paceline/scram.py``.

An unknown user is answered as a known one, with a salt that stays the same, and refused at the end:
nobody finds out by logging in who there is.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from paceline.errors import AuthenticationFailed
from paceline.scram import (
    MAX_ITERATIONS,
    SALT_BYTES,
    SCRAM_HASHES,
    decoded,
    encoded,
    message_text,
    parts_of,
    unescaped,
    xor,
)
from paceline.wire.native.users import ScramKey

KeyOf = Callable[[str, str], ScramKey | None]
"""Of a user, for a mechanism; None where there is none."""
REFUSED = "wrong user or password"
"""All that a client is told: not which of the two."""


class Decoys:
    """Keys of users that there are not. ``secret`` is the same on all nodes: else the salts of two
    nodes would tell."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def key_of(self, name: str, mechanism: str) -> ScramKey:
        """One that fits no password."""
        size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
        salt = self._bytes("salt", name, mechanism)[:SALT_BYTES]
        key = self._bytes("key", name, mechanism)[:size]
        return ScramKey(mechanism, salt, MAX_ITERATIONS, key, key)

    def _bytes(self, what: str, name: str, mechanism: str) -> bytes:
        return hmac.digest(self._secret, f"{what}\0{mechanism}\0{name}".encode(), "sha512")


class ScramServer:
    """One log-in: :meth:`first`, then :meth:`final`. ``nonce``: fresh random bytes."""

    def __init__(self, mechanism: str, key_of: KeyOf, decoys: Decoys, nonce: bytes) -> None:
        self._mechanism = mechanism
        self._key_of = key_of
        self._decoys = decoys
        self._fresh = encoded(nonce)
        self._key: ScramKey | None = None
        self._is_known = False
        self._header = ""
        self._nonce = ""
        self._so_far = ""
        self.name = ""

    def first(self, message: bytes) -> bytes:
        """Answer the client's first message. Raises AuthenticationFailed."""
        text = message_text(message)
        flag, _, rest = text.partition(",")
        authority, comma, bare = rest.partition(",")
        if flag not in ("n", "y") or not comma:
            raise AuthenticationFailed("SCRAM without channel binding begins with n,, or y,,")
        name, nonce = parts_of(bare, "nr")
        self.name = unescaped(name)
        if authority and authority != f"a={name}":
            raise AuthenticationFailed("nobody can act for another one")
        if not nonce or not nonce.isascii() or not nonce.isprintable():
            raise AuthenticationFailed("a SCRAM nonce is printable text")
        key = self._key_of(self.name, self._mechanism)
        self._is_known = key is not None
        self._key = key = key or self._decoys.key_of(self.name, self._mechanism)
        self._header = f"{flag},{authority},"
        self._nonce = nonce + self._fresh
        answer = f"r={self._nonce},s={encoded(key.salt)},i={key.iterations}"
        self._so_far = f"{bare},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """Check the client's proof, and give ours. Raises AuthenticationFailed."""
        key = self._key
        assert key is not None, "first() comes before final()"
        text = message_text(message)
        without_proof, comma, proof_part = text.rpartition(",p=")
        binding, nonce = parts_of(without_proof if comma else text, "cr")
        if not comma or decoded(binding) != self._header.encode() or nonce != self._nonce:
            raise AuthenticationFailed(REFUSED)
        name = SCRAM_HASHES[self._mechanism]
        signed = f"{self._so_far},{without_proof}".encode()
        signature = hmac.digest(key.stored_key, signed, name)
        proof = decoded(proof_part)
        if len(proof) != len(signature):
            raise AuthenticationFailed(REFUSED)
        stored = hashlib.new(name, xor(proof, signature)).digest()
        if not hmac.compare_digest(stored, key.stored_key) or not self._is_known:
            raise AuthenticationFailed(REFUSED)
        return f"v={encoded(hmac.digest(key.server_key, signed, name))}".encode()
