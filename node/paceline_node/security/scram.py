"""The server's side of SCRAM, without I/O (RFC 5802, 7677). The client's: ``paceline/scram.py``.

An unknown user is answered as a known one, with a salt that stays the same, of a size and with
iterations that users' keys have, and refused at the end: nobody finds out by logging in who there
is.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

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


class HasKeys(Protocol):
    """A user, as far as it concerns this."""

    @property
    def keys(self) -> Sequence[ScramKey]: ...


KeyOf = Callable[[str, str], ScramKey | None]
"""Of a user, for a mechanism; None where there is none."""
REFUSED = "wrong user or password"
"""All that a client is told: not which of the two."""


class _Shape(NamedTuple):
    """What a client sees of a key that it has not proved to know. Salts of Kafka's tools are text,
    of numbers whose first digit is seldom any: ``first`` is that."""

    mechanism: str
    iterations: int
    salt_bytes: int
    first: bytes


_Look = tuple[_Shape, ...]
"""Of all keys of a user."""
_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"
_LOOKS_MAX = 64
_BLOCK_BYTES = 64
_FRACTION_BYTES = 6


class Decoys:
    """Keys of users that there are not. ``secret`` is the same on all nodes: else the salts of two
    nodes would tell. They look as those of ``users`` do, the more often the more of them look so;
    and what a name looks like stays, but for few names, while users come and go."""

    def __init__(self, secret: bytes, users: Callable[[], Mapping[str, HasKeys]] = dict) -> None:
        self._secret = secret
        self._users = users
        self._seen: Mapping[str, HasKeys] | None = None
        self._looks: list[tuple[_Look, int]] = []

    def key_of(self, name: str, mechanism: str) -> ScramKey:
        """One that fits no password."""
        shapes = [each for each in self._look(name, mechanism) or () if each.mechanism == mechanism]
        return self._key(name, shapes[0] if shapes else _usual(mechanism))

    def first_key_of(self, name: str) -> ScramKey:
        """As :meth:`key_of`, of the mechanism that its password is looked at by."""
        look = self._look(name, None)
        return self._key(name, look[0] if look else _usual(next(iter(SCRAM_HASHES))))

    def _key(self, name: str, shape: _Shape) -> ScramKey:
        mechanism = shape.mechanism
        size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
        blocks = range(-(-shape.salt_bytes // _BLOCK_BYTES))
        salt = b"".join(self._bytes(f"salt{at or ''}", name, mechanism) for at in blocks)
        salt = salt[: shape.salt_bytes]
        if shape.first:
            digits = bytes(_DIGITS[each % len(_DIGITS)] for each in salt)
            salt = shape.first + digits[len(shape.first) :]
        key = self._bytes("key", name, mechanism)[:size]
        return ScramKey(mechanism, salt, shape.iterations, key, key)

    def _look(self, name: str, mechanism: str | None) -> _Look | None:
        """Weighted rendezvous hashing: only names change whose look nobody has any more, or that
        another one wins."""
        users = self._users()
        if users is not self._seen:
            self._seen, self._looks = users, _looks_of(users.values())
        found = [
            each
            for each in self._looks
            if mechanism is None or any(shape.mechanism == mechanism for shape in each[0])
        ]
        return max(found, key=lambda each: self._score(name, *each))[0] if found else None

    def _score(self, name: str, look: _Look, count: int) -> float:
        drawn = self._bytes(f"look\0{look}", name, "")[:_FRACTION_BYTES]
        fraction = (int.from_bytes(drawn, "big") + 0.5) / 256**_FRACTION_BYTES
        return -count / math.log(fraction)

    def _bytes(self, what: str, name: str, mechanism: str) -> bytes:
        return hmac.digest(self._secret, f"{what}\0{mechanism}\0{name}".encode(), "sha512")


def _usual(mechanism: str) -> _Shape:
    return _Shape(mechanism, MAX_ITERATIONS, SALT_BYTES, b"")


def _looks_of(users: Iterable[HasKeys]) -> list[tuple[_Look, int]]:
    """How many users look how."""
    counts = Counter(tuple(map(_shape_of, user.keys)) for user in users if user.keys)
    return counts.most_common(_LOOKS_MAX)


def _shape_of(key: ScramKey) -> _Shape:
    is_text = not key.salt.translate(None, _DIGITS)
    return _Shape(key.mechanism, key.iterations, len(key.salt), key.salt[:1] if is_text else b"")


class ScramServer:
    """One log-in: :meth:`first`, then :meth:`final`. ``nonce``: fresh random bytes."""

    def __init__(self, mechanism: str, key_of: KeyOf, decoys: Decoys, nonce: bytes) -> None:
        self._mechanism = mechanism
        self._key_of = key_of
        self._decoys = decoys
        self._fresh = encoded(nonce)
        self._key: ScramKey | None = None
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
        # A decoy is nobody's key, and the user's may have changed since the first message.
        is_current = self._key_of(self.name, self._mechanism) == key
        if not hmac.compare_digest(stored, key.stored_key) or not is_current:
            raise AuthenticationFailed(REFUSED)
        return f"v={encoded(hmac.digest(key.server_key, signed, name))}".encode()
