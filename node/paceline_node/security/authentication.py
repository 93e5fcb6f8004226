"""Logging in, in no protocol's words: SASL exchanges, passwords, tokens (DESIGN 5).

One :class:`Authenticator` serves all listeners of a node. What comes out is a :class:`Login`.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from paceline.errors import AuthenticationFailed
from paceline.scram import NONCE_BYTES, PLAIN, SASL_MECHANISMS, SCRAM_HASHES, derived, salted
from paceline.tokens import is_token, read_token
from paceline.values import dataclass
from paceline.wire.native.users import ScramKey
from paceline_node.security.attempts import Attempts
from paceline_node.security.principals import Principal, Proof
from paceline_node.security.scram import REFUSED, Decoys, ScramServer
from paceline_node.security.sessions import Login, Sessions, TokenView, UserView

_MESSAGE_BYTES_MAX = 8192
_PASSWORD_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client is told, and who it is once that is clear."""

    data: bytes
    login: Login | None = None


class Authenticator:
    """``find`` gives a user by name, None where there is none. ``mechanisms`` are those offered,
    ``session_ms`` how long a log-in holds, 0 for good. ``wall_ms``: by which tokens expire."""

    def __init__(
        self,
        find: Callable[[str], UserView | None],
        run_blocking: Callable[[Callable[[], bool]], Awaitable[bool]],
        attempts: Attempts,
        decoys: Decoys,
        *,
        random: Callable[[int], bytes],
        wall_ms: Callable[[], int],
        mechanisms: Sequence[str] = SASL_MECHANISMS,
        session_ms: int = 0,
    ) -> None:
        self._find = find
        self.sessions = Sessions(find)
        self._run_blocking = run_blocking
        self.attempts = attempts
        self._decoys = decoys
        self._random = random
        self._wall_ms = wall_ms
        self._mechanisms = mechanisms
        self._session_ms = session_ms

    def offered(self, *, is_encrypted: bool) -> tuple[str, ...]:
        """The mechanisms for a connection."""
        return tuple(each for each in self._mechanisms if each != PLAIN or is_encrypted)

    def begin(self, mechanism: str, source: str, *, is_encrypted: bool) -> Exchange:
        """A log-in by ``mechanism``, from an address that ``source`` stands for. Raises
        AuthenticationFailed where it is not offered."""
        if mechanism not in self.offered(is_encrypted=is_encrypted):
            why = " without TLS" if mechanism == PLAIN and mechanism in self._mechanisms else ""
            raise AuthenticationFailed(f"mechanism {mechanism[:80]!r} is not offered{why}")
        if mechanism == PLAIN:
            return PlainExchange(self, source)
        server = ScramServer(mechanism, self._key_of, self._decoys, self._random(NONCE_BYTES))
        return ScramExchange(self, server, source)

    async def password(self, name: str, secret: str, source: str) -> Login:
        """Who gives a name and its password, or a token. Raises AuthenticationFailed."""
        if is_token(secret):
            login = await self.token(secret, source)
            if login.principal.name != name:
                raise AuthenticationFailed(REFUSED)
            return login
        async with self.attempts.attempt(source):
            user = self._find(name)
            key = None if user is None else next(iter(user.keys), None)
            checked = key or self._decoys.key_of(name, next(iter(SCRAM_HASHES)))
            fits = await self._run_blocking(partial(_fits, secret, checked))
            # It may have changed meanwhile, or gone.
            if key is None or not fits or key not in _keys(self._find(name)):
                raise AuthenticationFailed(REFUSED)
        return self.login(name, Proof.PASSWORD)

    async def token(self, text: str, source: str) -> Login:
        """Whose a token is. Raises AuthenticationFailed."""
        async with self.attempts.attempt(source):
            shown = read_token(text)
            user = self._find(shown.user)
            for each in () if user is None else user.tokens:
                if each.token_id == shown.token_id and hmac.compare_digest(
                    each.digest, shown.digest
                ):
                    return self._token_login(shown.user, each)
            raise AuthenticationFailed("no such token")

    def login(self, name: str, proof: Proof) -> Login:
        """What somebody gets who has proved to be ``name``."""
        return Login(Principal(name, proof), self._session_ms)

    def _token_login(self, name: str, token: TokenView) -> Login:
        login = replace(self.login(name, Proof.TOKEN), token_id=token.token_id)
        if not token.expires_ms:
            return login
        left_ms = token.expires_ms - self._wall_ms()
        if left_ms <= 0:
            raise AuthenticationFailed("the token has expired")
        return replace(login, lifetime_ms=min(left_ms, login.lifetime_ms or left_ms))

    def _key_of(self, name: str, mechanism: str) -> ScramKey | None:
        return next((key for key in _keys(self._find(name)) if key.mechanism == mechanism), None)


class Exchange(Protocol):
    """A log-in under way. Raises AuthenticationFailed, after which it is of no further use."""

    async def step(self, data: bytes) -> Answer:
        """Take the client's next message."""


class PlainExchange:
    """RFC 4616: ``[authzid] NUL name NUL password``."""

    def __init__(self, authenticator: Authenticator, source: str) -> None:
        self._authenticator = authenticator
        self._source = source

    async def step(self, data: bytes) -> Answer:
        parts = data.split(b"\0")
        if len(parts) != 3 or len(data) > _MESSAGE_BYTES_MAX:
            raise AuthenticationFailed("PLAIN is: NUL, name, NUL, password")
        try:
            authority, name, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise AuthenticationFailed("name and password are UTF-8") from None
        if authority not in ("", name):
            raise AuthenticationFailed("nobody can act for another one")
        if len(parts[2]) > _PASSWORD_BYTES_MAX:
            raise AuthenticationFailed(REFUSED)
        return Answer(b"", await self._authenticator.password(name, password, self._source))


class ScramExchange:
    """Two messages: ``scram.py``."""

    def __init__(self, authenticator: Authenticator, server: ScramServer, source: str) -> None:
        self._authenticator = authenticator
        self._server = server
        self._source = source
        self._has_begun = False

    async def step(self, data: bytes) -> Answer:
        if len(data) > _MESSAGE_BYTES_MAX:
            raise AuthenticationFailed("a SCRAM message is shorter")
        if not self._has_begun:
            self._has_begun = True
            return Answer(self._server.first(data))
        async with self._authenticator.attempts.attempt(self._source):
            proof = self._server.final(data)
        return Answer(proof, self._authenticator.login(self._server.name, Proof.PASSWORD))


def _keys(user: UserView | None) -> Sequence[ScramKey]:
    return () if user is None else user.keys


def _fits(password: str, key: ScramKey) -> bool:
    keys = derived(key.mechanism, salted(key.mechanism, password, key.salt, key.iterations))
    return hmac.compare_digest(keys.stored_key, key.stored_key)
