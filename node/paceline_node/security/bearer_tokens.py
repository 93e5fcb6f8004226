"""Tokens of another issuer: JWTs (RFC 7519), checked by its keys (DESIGN 5.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jwt

from paceline.errors import AuthenticationFailed
from paceline.values import dataclass
from paceline_node.bare_errors import bare
from paceline_node.security.attempts import Attempts
from paceline_node.security.key_set import ALGORITHMS, KeySet
from paceline_node.security.principals import Principal, Proof, is_client_name
from paceline_node.security.sessions import Login

_BYTES_MAX = 32 * 1024
_KNOWN_ALGORITHMS = frozenset().union(*ALGORITHMS.values())
_LIFETIME_MIN_MS = 1000
_LIFETIME_MAX_MS = 365 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Expected:
    """What a token has to say: who issued it, for one of whom, and in which claim whose it is."""

    issuer: str
    audience: Sequence[str]
    principal_claim: str
    leeway_ms: int


class BearerTokens:
    """``wall_ms``: by which tokens expire."""

    def __init__(
        self,
        keys: KeySet,
        expected: Expected,
        attempts: Attempts,
        wall_ms: Callable[[], int],
    ) -> None:
        self._keys = keys
        self._expected = expected
        self._attempts = attempts
        self._wall_ms = wall_ms

    async def login(self, text: str, source: str) -> Login:
        """Whose a token is, shown by an address that ``source`` stands for. Raises
        AuthenticationFailed."""
        refusal: AuthenticationFailed | None = None
        try:
            key_id, algorithm = _head(text)
        except AuthenticationFailed as error:
            refusal = bare(error)
        if refusal is not None:
            async with self._attempts.attempt(source):
                try:
                    raise refusal
                finally:
                    del refusal  # a cycle otherwise (``bare_errors.py``)
        # Outside: it is nobody's failure if there are no keys.
        key = await self._keys.find(key_id, algorithm)
        async with self._attempts.attempt(source):
            if key is None:
                raise AuthenticationFailed("no key of its issuer is known that signed the token")
            expected = self._expected
            try:
                claims = jwt.decode(
                    text,
                    key.public,
                    algorithms=[algorithm],
                    audience=expected.audience,
                    issuer=expected.issuer,
                    leeway=expected.leeway_ms / 1000,
                    options={"require": ["exp", "iss", "aud"]},
                )
                left_ms = int(claims["exp"]) * 1000 - self._wall_ms()
            except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
                raise AuthenticationFailed(f"the token is not good here: {error}") from None
            name = claims.get(expected.principal_claim)
            if not isinstance(name, str) or not is_client_name(name):
                raise AuthenticationFailed(
                    f"the token's claim {expected.principal_claim!r} names nobody"
                )
        # Within the leeway it has expired by this clock: time enough for what it was shown for.
        lifetime_ms = max(_LIFETIME_MIN_MS, min(left_ms, _LIFETIME_MAX_MS))
        return Login(Principal(name, Proof.JWT), lifetime_ms)


def _head(text: str) -> tuple[str | None, str]:
    """Which key is said to have signed it, and how. Raises AuthenticationFailed."""
    if len(text) > _BYTES_MAX:
        raise AuthenticationFailed("a token is shorter")
    try:
        head = jwt.get_unverified_header(text)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise AuthenticationFailed("that is no token") from None
    key_id, algorithm = head.get("kid"), head.get("alg")
    if not isinstance(algorithm, str) or algorithm not in _KNOWN_ALGORITHMS:
        raise AuthenticationFailed(f"a token signed by {str(algorithm)[:20]!r} proves nothing")
    return key_id, algorithm
