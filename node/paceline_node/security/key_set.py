"""The public keys by which tokens of others are checked (JWKS, RFC 7517), from a file or a URL
(DESIGN 5.6). They are read in a thread and kept; the loop never waits for who publishes them.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import jwt
import structlog
import trio
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from paceline.errors import AuthenticationFailed
from paceline.values import dataclass

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey
ALGORITHMS: Mapping[str, frozenset[str]] = {
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "P-256": frozenset({"ES256"}),
    "P-384": frozenset({"ES384"}),
    "P-521": frozenset({"ES512"}),
    "Ed25519": frozenset({"EdDSA"}),
}
"""By kind of key, or by curve. All are asymmetric: what a node knows signs no token."""
_PARTS = frozenset({"kty", "crv", "n", "e", "x", "y"})
"""Of a key: those that everybody may know."""
_RSA_BITS_MIN = 2048
_KEYS_MAX = 100
_PAUSE_S = 10.0
"""Between two reads, whatever clients ask for."""
_KEPT_S = 24 * 3600.0
"""How long keys are good that could not be read again."""


@dataclass(frozen=True, slots=True)
class TokenKey:
    """``algorithms``: those that it may have signed by."""

    key_id: str
    algorithms: frozenset[str]
    public: PublicKey


Keys = tuple[TokenKey, ...]


class KeySet:
    """``read`` gets the text, blocking; it raises OSError. They are read again once they are older
    than ``refresh_s``, and where one is asked for that is not there."""

    def __init__(
        self,
        read: Callable[[], bytes],
        run_blocking: Callable[[Callable[[], Keys]], Awaitable[Keys]],
        now: Callable[[], float],
        *,
        refresh_s: float,
    ) -> None:
        self._read = read
        self._run_blocking = run_blocking
        self._now = now
        self._refresh_s = refresh_s
        self._lock = trio.Lock()
        self._keys: Keys = ()
        self._read_at = self._tried_at = -float("inf")
        self._log = structlog.get_logger(component="oauth")

    async def find(self, key_id: str | None, algorithm: str) -> TokenKey | None:
        """The key of a token's head; without an id, the only one that may sign so. Raises
        AuthenticationFailed where no keys are known at all."""
        is_first = not self._keys
        if self._now() - self._read_at > self._refresh_s and (is_first or not self._lock.locked()):
            await self._refresh()
        found = self._known(key_id, algorithm)
        if found is None:
            await self._refresh()
            found = self._known(key_id, algorithm)
        if self._now() - self._read_at > _KEPT_S:
            self._keys = ()
            raise AuthenticationFailed("the keys of tokens cannot be read now")
        return found

    def _known(self, key_id: str | None, algorithm: str) -> TokenKey | None:
        fitting = [
            each
            for each in self._keys
            if algorithm in each.algorithms and key_id in (None, each.key_id)
        ]
        return fitting[0] if len(fitting) == 1 else None

    async def _refresh(self) -> None:
        """Read them, unless that was tried a moment ago; who comes meanwhile waits for it."""
        async with self._lock:
            if self._now() - self._tried_at < _PAUSE_S:
                return
            self._tried_at = self._now()
            try:
                keys = await self._run_blocking(lambda: read_keys(self._read()))
            except (OSError, http.client.HTTPException, BadKeys) as error:
                self._log.warning("keys of tokens not read", reason=str(error))
                return
            self._keys, self._read_at = keys, self._now()


class BadKeys(Exception):
    """What was read is no set of keys."""


def read_keys(data: bytes) -> Keys:
    """The keys of a JWKS that may sign tokens. Raises BadKeys where there are none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadKeys(f"no JSON: {error}") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or len(listed) > _KEYS_MAX:
        raise BadKeys(f"a JWKS has a list 'keys' of at most {_KEYS_MAX}")
    keys = tuple(key for each in listed if isinstance(each, dict) for key in _key_of(each))
    if not keys:
        raise BadKeys("no key there may check a token: RSA of 2048 bits, P-256 to P-521, Ed25519")
    return keys


def _key_of(said: Mapping[str, Any]) -> Iterator[TokenKey]:
    """The key, where it is one of those that are used here. Others may stand beside them."""
    is_curve = said.get("kty") in ("EC", "OKP")
    algorithms = ALGORITHMS.get(str(said.get("crv") if is_curve else said.get("kty")))
    if algorithms is None or said.get("use", "sig") != "sig":
        return
    if said.get("alg") is not None:
        algorithms &= {str(said["alg"])}
    if not algorithms:
        return
    public = {name: value for name, value in said.items() if name in _PARTS}
    try:
        key = jwt.PyJWK(public, next(iter(algorithms))).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return
    if isinstance(key, RSAPublicKey) and key.key_size < _RSA_BITS_MIN:
        return
    if isinstance(key, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey):
        yield TokenKey(str(said.get("kid", "")), algorithms, key)
