"""Who makes the calls of one connection, by their ``authorization`` metadata (DESIGN 8.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import trio

from paceline.errors import AuthenticationFailed
from paceline.values import dataclass
from paceline_node.listeners.serving import Client
from paceline_node.security.authentication import Authenticator
from paceline_node.security.principals import Principal, Proof
from paceline_node.security.sessions import Session

_SHOWN_MAX = 8
"""Of credentials at a time, of one connection: clients have one."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """What was found good, and until when."""

    session: Session
    ends_at: float


class PravegaLogin:
    """Of one connection. ``is_closed``: whether names have to be proved. Each call shows the same
    credentials; they are looked at once."""

    def __init__(
        self, authenticator: Authenticator, is_closed: Callable[[], bool], client: Client
    ) -> None:
        self._client = client
        self._authenticator = authenticator
        self._is_closed = is_closed
        self._lock = trio.Lock()
        self._shown: dict[str, _Shown] = {}

    async def caller(self, authorization: str) -> Principal:
        """Who makes a call. Raises AuthenticationFailed."""
        client = self._client
        if authorization and (client.must_log_in or self._is_closed()):
            shown = await self._checked(authorization)
            return replace(client, principal=shown.session.login.principal).principal
        if client.must_log_in and client.principal.proof is Proof.NONE:
            raise AuthenticationFailed("this listener wants authorization: Basic or Bearer")
        return client.principal

    def delegation(self, authorization: str) -> str:
        """What the client may show to segment listeners; empty for who has not logged in."""
        shown = self._shown.get(authorization)
        if shown is None:
            return ""
        left_s = shown.ends_at - trio.current_time()
        return self._authenticator.delegations.make(shown.session.login, left_s)

    async def _checked(self, authorization: str) -> _Shown:
        client = self._client
        if not (client.is_encrypted or client.is_loopback):
            raise AuthenticationFailed("others would see the credentials: it needs TLS")
        async with self._lock:
            shown = self._shown.get(authorization)
            if shown is not None and trio.current_time() < shown.ends_at:
                return shown
            login = await self._authenticator.header(authorization, client.source)
            session = self._authenticator.sessions.enter(login, client.end)
            ends_at = trio.current_time() + (login.lifetime_ms / 1000 or float("inf"))
            self._forget(authorization)
            if len(self._shown) >= _SHOWN_MAX:
                self._forget(next(iter(self._shown)))
            made = self._shown[authorization] = _Shown(session, ends_at)
            return made

    def _forget(self, authorization: str) -> None:
        former = self._shown.pop(authorization, None)
        if former is not None:
            self._authenticator.sessions.leave(former.session)

    def close(self) -> None:
        """The connection ends."""
        for each in list(self._shown):
            self._forget(each)
