"""Logging in, in no protocol's words: SASL exchanges, passwords, tokens (DESIGN 5).

One :class:`Authenticator` serves all listeners of a node. What comes out is a :class:`Login`.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from paceline.errors import AuthenticationFailed
from paceline.oauthbearer import OAUTHBEARER, read_first_message, refusal
from paceline.scram import NONCE_BYTES, PLAIN, SASL_MECHANISMS, derived, salted
from paceline.tokens import is_token, read_token
from paceline.values import dataclass
from paceline.wire.native.users import ScramKey
from paceline_node.security.attempts import Attempts
from paceline_node.security.delegation import Delegations
from paceline_node.security.password_line import PasswordLine
from paceline_node.security.principals import Principal, Proof
from paceline_node.security.scram import REFUSED, Decoys, ScramServer
from paceline_node.security.sessions import Login, Sessions, TokenView, UserView

_MESSAGE_BYTES_MAX = 8192
_PASSWORD_BYTES_MAX = 4096
IN_CLEAR = frozenset({PLAIN, OAUTHBEARER})
"""Mechanisms that show the secret itself."""
MECHANISMS = (*SASL_MECHANISMS, OAUTHBEARER)
"""All that can be offered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client is told, and who it is once that is clear."""

    data: bytes
    login: Login | None = None


class Authenticator:
    """``find`` gives a user by name, None where there is none. ``run_blocking`` is what passwords
    are looked at in, and nothing else. ``mechanisms`` are those offered,
    ``session_ms`` how long a log-in holds, 0 for good. ``wall_ms``: by which tokens expire.
    ``foreign`` says whose a token is that somebody else has issued; without it there are none."""

    def __init__(
        self,
        find: Callable[[str], UserView | None],
        run_blocking: Callable[[Callable[[], bool]], Awaitable[bool]],
        attempts: Attempts,
        decoys: Decoys,
        *,
        random: Callable[[int], bytes],
        wall_ms: Callable[[], int],
        mechanisms: Sequence[str] = MECHANISMS,
        session_ms: int = 0,
        delegation_secret: bytes = b"",
        foreign: Callable[[str, str], Awaitable[Login]] | None = None,
    ) -> None:
        self._foreign = foreign
        self.delegations = Delegations(delegation_secret, wall_ms)
        self._find = find
        self.sessions = Sessions(find)
        self._run_blocking = run_blocking
        self.attempts = attempts
        self.line = PasswordLine()
        self._decoys = decoys
        self._random = random
        self._wall_ms = wall_ms
        self._mechanisms = tuple(
            each for each in mechanisms if each != OAUTHBEARER or foreign is not None
        )
        self._session_ms = session_ms

    def offered(self, *, is_encrypted: bool) -> tuple[str, ...]:
        """The mechanisms for a connection."""
        return tuple(each for each in self._mechanisms if is_encrypted or each not in IN_CLEAR)

    def begin(self, mechanism: str, source: str, *, is_encrypted: bool) -> Exchange:
        """A log-in by ``mechanism``, from an address that ``source`` stands for. Raises
        AuthenticationFailed where it is not offered."""
        if mechanism not in self.offered(is_encrypted=is_encrypted):
            why = " without TLS" if mechanism in IN_CLEAR.intersection(self._mechanisms) else ""
            raise AuthenticationFailed(f"mechanism {mechanism[:80]!r} is not offered{why}")
        if mechanism == PLAIN:
            return PlainExchange(self, source)
        if mechanism == OAUTHBEARER:
            return BearerExchange(self, source)
        server = ScramServer(mechanism, self._key_of, self._decoys, self._random(NONCE_BYTES))
        return ScramExchange(self, server, source)

    async def password(self, name: str, secret: str, source: str) -> Login:
        """Who gives a name and its password, or a token. Raises AuthenticationFailed."""
        if is_token(secret):
            login = await self.token(secret, source)
            if login.principal.name != name:
                raise AuthenticationFailed(REFUSED)
            return login
        async with self.line.turn(source), self.attempts.attempt(source):
            user = self._find(name)
            key = None if user is None else next(iter(user.keys), None)
            checked = key or self._decoys.first_key_of(name)
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

    async def header(self, text: str, source: str) -> Login:
        """Whose credentials an ``Authorization`` header is: Basic (RFC 7617), Bearer (RFC 6750).
        Raises AuthenticationFailed."""
        scheme, _, rest = text.strip().partition(" ")
        if scheme.lower() == "bearer":
            return await self.bearer(rest.strip(), source)
        if scheme.lower() != "basic":
            raise AuthenticationFailed("expected Authorization: Basic or Bearer")
        try:
            name, colon, secret = base64.b64decode(rest, validate=True).decode().partition(":")
        except ValueError:
            raise AuthenticationFailed("Basic is base64 of NAME:PASSWORD in UTF-8") from None
        if not colon or len(secret) > _PASSWORD_BYTES_MAX:
            raise AuthenticationFailed(REFUSED)
        return await self.password(name, secret, source)

    async def bearer(self, text: str, source: str) -> Login:
        """Whose a token is: one of ours, or of the issuer that the settings name. Raises
        AuthenticationFailed."""
        if self._foreign is None or is_token(text):
            return await self.token(text, source)
        login = await self._foreign(text, source)
        lifetime_ms = min(login.lifetime_ms, self._session_ms or login.lifetime_ms)
        return replace(login, lifetime_ms=lifetime_ms)

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


class BearerExchange:
    """RFC 7628: ``paceline/oauthbearer.py``."""

    def __init__(self, authenticator: Authenticator, source: str) -> None:
        self._authenticator = authenticator
        self._source = source
        self._refused = ""

    async def step(self, data: bytes) -> Answer:
        if self._refused:
            raise AuthenticationFailed(self._refused)
        name, token = read_first_message(data)
        try:
            login = await self._authenticator.bearer(token, self._source)
            if name not in ("", login.principal.name):
                raise AuthenticationFailed("nobody can act for another one")
        except AuthenticationFailed as error:
            self._refused = str(error)
            return Answer(refusal())
        return Answer(b"", login)


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
