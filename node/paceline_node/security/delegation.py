"""Delegation tokens: what Pravega's clients get from the controller once they have logged in there,
and show to segment listeners, which their credentials never reach (DESIGN 5.7).

A JWT, as they look into it for ``exp``; signed by a key that all nodes derive from the cluster's
secret, and read by nodes only, so its algorithm is not a matter of what a token says.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable

from paceline.errors import AuthenticationFailed
from paceline_node.security.principals import Principal, Proof
from paceline_node.security.sessions import Login

LIFETIME_S = 20 * 60
_HEAD = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"} ' + b"  ").decode().rstrip("=")
_AUDIENCE = "segmentstore"


class DelegationExpired(AuthenticationFailed):
    """A token that was good: its client asks the controller for another one."""


class Delegations:
    """Of one cluster. ``wall_ms``: by which tokens expire."""

    def __init__(self, secret: bytes, wall_ms: Callable[[], int]) -> None:
        self._key = hmac.digest(secret, b"delegation tokens", "sha256")
        self._wall_ms = wall_ms

    def make(self, login: Login, left_s: float) -> str:
        """A token for who has logged in so, which is good for ``left_s`` more."""
        now_s = self._wall_ms() // 1000
        claims = {
            "sub": login.principal.name.encode().hex(),
            "aud": _AUDIENCE,
            "iat": now_s,
            "exp": now_s + int(min(left_s, LIFETIME_S)),
            "proof": login.principal.proof.value,
            "token": login.token_id,
        }
        body = json.dumps(claims).encode()
        # Without padding: published clients decode it as base64 that has to have it.
        signed = f"{_HEAD}.{_encoded(body + b' ' * (-len(body) % 3))}"
        return f"{signed}.{self._seal(signed)}"

    def read(self, text: str) -> Login:
        """Who has logged in, and for how long that holds. Raises AuthenticationFailed,
        DelegationExpired."""
        signed, _, seal = text.rpartition(".")
        if not signed or not hmac.compare_digest(seal.encode(), self._seal(signed).encode()):
            raise AuthenticationFailed("that is no delegation token of this cluster")
        claims = json.loads(base64.urlsafe_b64decode(signed.partition(".")[2]))
        left_ms = claims["exp"] * 1000 - self._wall_ms()
        if left_ms <= 0:
            raise DelegationExpired("the delegation token has expired")
        name = bytes.fromhex(claims["sub"]).decode()
        return Login(Principal(name, Proof(claims["proof"])), left_ms, claims["token"])

    def _seal(self, signed: str) -> str:
        return _encoded(hmac.digest(self._key, signed.encode(), "sha256")).rstrip("=")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
