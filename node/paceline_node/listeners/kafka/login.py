"""Who the client of one connection is, by SASL, and for how long (DESIGN 6.5).

Before version 1 of SaslHandshake the messages of the exchange were no requests: a size of four
bytes and that many, both ways. librdkafka looks for a broker that still takes them.
"""

from __future__ import annotations

from dataclasses import replace

import trio

from paceline.errors import AuthenticationFailed, ErrorCode, RemoteProtocolError
from paceline.wire.kafka.apis import API_VERSIONS
from paceline.wire.kafka.layout import Struct
from paceline.wire.kafka.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from paceline_node.listeners.serving import Client
from paceline_node.security.authentication import Answer, Authenticator, Exchange
from paceline_node.security.principals import Proof
from paceline_node.security.sessions import Session

HANDSHAKE, AUTHENTICATE = 17, 36
LOGIN_APIS = frozenset({HANDSHAKE, AUTHENTICATE})
_BEFORE_LOGIN = LOGIN_APIS | {API_VERSIONS}
_BEFORE_LOGIN_BYTES = 256 * 1024
LOGIN_S = 30.0
"""How long a client may take that has to log in."""


class KafkaLogin:
    """Of one connection. ``client`` is who it is so far."""

    def __init__(self, authenticator: Authenticator, client: Client) -> None:
        self.client = client
        self._authenticator = authenticator
        self._due = trio.current_time() + LOGIN_S
        self.ends_at = float("inf")
        """Until when nothing else need be shown."""
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._session: Session | None = None
        self.expects_raw = False
        """Whether the next frame is a message of the exchange without a header."""
        self.refused = ""
        """Why the log-in failed; empty while it has not. The connection is to end then."""

    @property
    def is_missing(self) -> bool:
        """Whether the client may do nothing yet but log in."""
        return self.client.must_log_in and self.client.principal.proof is Proof.NONE

    @property
    def due(self) -> float:
        """When a client is given up that has to log in and has not."""
        return self._due if self.is_missing else float("inf")

    def frame_bytes(self, most: int) -> int:
        """How large its frames may be, where others may have ``most``."""
        return min(most, _BEFORE_LOGIN_BYTES) if self.is_missing else most

    def require(self, key: int) -> None:
        """Raise RemoteProtocolError where an API may not be asked for now."""
        if key in _BEFORE_LOGIN:
            return
        if self.is_missing:
            raise RemoteProtocolError(f"API {key} before the log-in that this listener wants")
        if self._exchange is not None:
            raise RemoteProtocolError(f"API {key} within a log-in")
        if trio.current_time() >= self.ends_at:
            raise RemoteProtocolError("the log-in has expired, and was not repeated")

    async def answer(self, request: Struct, version: int) -> Struct:
        """Answer one of the two requests."""
        if isinstance(request, SaslHandshakeRequest):
            return self._begin(request, version)
        assert isinstance(request, SaslAuthenticateRequest)
        if self._exchange is None:
            self.refused = "SaslAuthenticate before SaslHandshake"
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=self.refused
            )
        try:
            answer = await self._step(bytes(request.auth_bytes))
        except AuthenticationFailed as error:
            self.refused = str(error)
            return SaslAuthenticateResponse(error_code=error.code, error_message=self.refused)
        lifetime_ms = 0 if answer.login is None else answer.login.lifetime_ms
        return SaslAuthenticateResponse(
            error_code=0, auth_bytes=answer.data, session_lifetime_ms=lifetime_ms
        )

    async def raw(self, data: bytes) -> bytes:
        """Answer a message without a header, size included. Raises RemoteProtocolError where the
        log-in fails: there are no words for that."""
        try:
            answer = await self._step(data)
        except AuthenticationFailed as error:
            raise RemoteProtocolError(f"log-in failed: {error}") from None
        return len(answer.data).to_bytes(4, "big") + answer.data

    def _begin(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        client = self.client
        offered = self._authenticator.offered(is_encrypted=client.is_encrypted)
        code = ErrorCode.NONE
        is_other = self._session is not None and request.mechanism != self._mechanism
        if self._exchange is not None or is_other:
            code = ErrorCode.ILLEGAL_SASL_STATE
            self.refused = "a log-in is repeated by the same mechanism, when it is over"
        elif request.mechanism not in offered:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self.refused = f"mechanism {request.mechanism[:80]!r} is not offered here"
        else:
            self._mechanism = request.mechanism
            self._exchange = self._authenticator.begin(
                request.mechanism, client.source, is_encrypted=client.is_encrypted
            )
            self.expects_raw = version == 0
        return SaslHandshakeResponse(error_code=code, mechanisms=offered)

    async def _step(self, data: bytes) -> Answer:
        assert self._exchange is not None
        answer = await self._exchange.step(data)
        login = answer.login
        if login is None:
            return answer
        if self._session is not None and login.principal.name != self.client.principal.name:
            raise AuthenticationFailed("a connection stays with whom it was")
        sessions = self._authenticator.sessions
        before, self._session = self._session, sessions.enter(login, self.client.end)
        sessions.leave(before)
        self._exchange, self.expects_raw = None, False
        self.client = replace(self.client, principal=login.principal)
        lifetime_s = login.lifetime_ms / 1000 or float("inf")
        self.ends_at = trio.current_time() + lifetime_s
        return answer

    def close(self) -> None:
        """The connection ends."""
        self._authenticator.sessions.leave(self._session)
