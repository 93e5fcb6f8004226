"""Who the client of one connection of the Pravega dialect is, by delegation tokens (DESIGN 8.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import trio

from paceline.errors import AuthenticationFailed
from paceline.wire.segment import pravega_messages as w
from paceline_node.listeners.serving import Client
from paceline_node.security.authentication import Authenticator
from paceline_node.security.delegation import DelegationExpired
from paceline_node.security.principals import Proof
from paceline_node.security.sessions import Session

BEFORE_LOGIN_BYTES = 64 * 1024
LOGIN_S = 30.0
"""How long a client may take that has to log in."""
_CHECK_FAILED, _EXPIRED = 0, 1


class SegmentLogin:
    """Of one connection; every request but appends shows a token, most the same one. ``client`` is
    who it is so far."""

    def __init__(
        self, authenticator: Authenticator, is_closed: Callable[[], bool], client: Client
    ) -> None:
        self.client = client
        self._authenticator = authenticator
        self._is_closed = is_closed
        self._session: Session | None = None
        self._shown = ""
        self._ends_at = trio.current_time() + LOGIN_S if self.is_missing else float("inf")

    @property
    def is_missing(self) -> bool:
        """Whether the client may do nothing yet but log in."""
        return self.client.must_log_in and self.client.principal.proof is Proof.NONE

    @property
    def left_s(self) -> float:
        """For how long the connection may go on without another token."""
        return self._ends_at - trio.current_time()

    def refusal(self, request_id: int, token: str) -> w.AuthTokenCheckFailed | None:
        """Take the token of a request; the answer of one that is not to be carried out."""
        try:
            self._take(token)
        except DelegationExpired as error:
            return w.AuthTokenCheckFailed(request_id, str(error), _EXPIRED)
        except AuthenticationFailed as error:
            return w.AuthTokenCheckFailed(request_id, str(error), _CHECK_FAILED)
        return None

    def _take(self, token: str) -> None:
        if token and token != self._shown and (self.client.must_log_in or self._is_closed()):
            client = self.client
            if not (client.is_encrypted or client.is_loopback):
                raise AuthenticationFailed("others would see the token: it needs TLS")
            login = self._authenticator.delegations.read(token)
            if self._session is not None and login.principal.name != client.principal.name:
                raise AuthenticationFailed("a connection stays with whom it was")
            before = self._session
            self._session = self._authenticator.sessions.enter(login, client.end)
            self._authenticator.sessions.leave(before)
            self._shown = token
            self._ends_at = trio.current_time() + login.lifetime_ms / 1000
            self.client = replace(client, principal=login.principal)
        if self.is_missing:
            raise AuthenticationFailed("this listener wants a delegation token of the controller")

    def close(self) -> None:
        """The connection ends."""
        self._authenticator.sessions.leave(self._session)
