"""Who the client of one native session is, and for how long (DESIGN 9.1)."""

from __future__ import annotations

from dataclasses import replace

import trio

from paceline.errors import AuthenticationFailed, InvalidRequest
from paceline.wire.native.users import Authenticate, Authenticated
from paceline_node.listeners.serving import Client
from paceline_node.security.authentication import Authenticator, Exchange
from paceline_node.security.principals import Proof
from paceline_node.security.sessions import Session

LOGIN_S = 30.0
"""How long a client may take that has to log in."""


class NativeLogin:
    """Of one session. ``client`` is who it is so far."""

    def __init__(self, authenticator: Authenticator, client: Client) -> None:
        self.client = client
        self._authenticator = authenticator
        self._exchange: Exchange | None = None
        self._session: Session | None = None
        self._ends_at = float("inf")

    @property
    def is_missing(self) -> bool:
        """Whether the client may do nothing yet but log in."""
        return self.client.must_log_in and self.client.principal.proof is Proof.NONE

    @property
    def is_over(self) -> bool:
        """Whether it should have logged in again."""
        return trio.current_time() >= self._ends_at

    def offered(self) -> tuple[str, ...]:
        """What to tell a client that has to log in."""
        if not self.is_missing:
            return ()
        return self._authenticator.offered(is_encrypted=self.client.is_encrypted)

    async def step(self, request: Authenticate) -> Authenticated:
        """Take the client's next message. Raises AuthenticationFailed, after which the session is
        to end, and InvalidRequest."""
        client = self.client
        if request.mechanism:
            self._exchange = self._authenticator.begin(
                request.mechanism, client.source, is_encrypted=client.is_encrypted
            )
        if self._exchange is None:
            raise InvalidRequest("a log-in begins with its mechanism")
        answer = await self._exchange.step(request.data)
        login = answer.login
        if login is None:
            return Authenticated(answer.data, False)
        self._exchange = None
        if self._session is not None and login.principal.name != client.principal.name:
            raise AuthenticationFailed("a connection stays with whom it was")
        sessions = self._authenticator.sessions
        before, self._session = self._session, sessions.enter(login, client.end)
        sessions.leave(before)
        self.client = replace(client, principal=login.principal)
        self._ends_at = trio.current_time() + (login.lifetime_ms / 1000 or float("inf"))
        return Authenticated(answer.data, True, login.lifetime_ms)

    def close(self) -> None:
        """The connection ends."""
        self._authenticator.sessions.leave(self._session)
