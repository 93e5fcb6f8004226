"""Who the client of one Cursus connection is (DESIGN 5.11).

The protocol has one way to say it: a name and one text, on AUTH or on any other command. What is
shown on every command is looked at once.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import trio

from paceline.errors import AuthenticationFailed
from paceline.types import Compression
from paceline.wire.cursus.batch import MAGIC
from paceline.wire.cursus.compression import codec_of
from paceline.wire.cursus.errors import CursusError, quoted
from paceline.wire.cursus.requests import Credentials
from paceline_node.listeners.serving import Client
from paceline_node.security.attempts import TOO_MANY
from paceline_node.security.authentication import Authenticator
from paceline_node.security.principals import Principal, Proof
from paceline_node.security.scram import REFUSED
from paceline_node.security.sessions import Login, Session

FREE = frozenset({"PROTOCOL_INFO", "NEGOTIATE", "AUTH", "HELP", "EXIT"})
"""What is answered to who has yet to say who he is, on a listener that wants that."""
LOGIN_S = 30.0
"""How long a client may take that has to log in."""
BEFORE_LOGIN_BYTES = 256 * 1024
"""Of a frame: a command may carry credentials with its message."""
_LONGEST_S = 3.0
"""Clients give up after 5 s: who would be made to wait for longer is refused."""
_TOKEN_CHARACTERS = 4096


class CursusLogin:
    """Of one connection. ``is_closed``: whether names have to be proved. ``client`` is who it is
    so far."""

    def __init__(
        self, authenticator: Authenticator, is_closed: Callable[[], bool], client: Client
    ) -> None:
        self.client = client
        self._stranger = client
        self._authenticator = authenticator
        self._is_closed = is_closed
        self._session: Session | None = None
        self._shown = b""
        self.ends_at = float("inf")
        """When it has to show its credentials again."""
        self._due = trio.current_time() + LOGIN_S

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
        return min(most, BEFORE_LOGIN_BYTES) if self.is_missing else most

    def admit(self, body: bytes) -> None:
        """Raise CursusError for what is not to be looked into before the log-in: only batches are
        packed, which carry no credentials."""
        if self.is_missing and (codec_of(body) is not Compression.NONE or body.startswith(MAGIC)):
            raise CursusError("authentication_required", "command=BATCH")

    def require(self, word: str) -> None:
        """Raise CursusError where a command is not for who has not said who he is."""
        if trio.current_time() >= self.ends_at:
            self._become(self._stranger, None, b"")
        if self.is_missing and word not in FREE:
            raise CursusError("authentication_required", f"command={word}")

    async def identify(self, credentials: Credentials) -> None:
        """Take what a client says who it is. Raises CursusError, and it stays who it was."""
        if not (self._is_closed() or self.client.must_log_in):
            # Nobody's credentials are checked, and everybody is who they say.
            name = Principal(credentials.principal, Proof.NONE)
            self.client = replace(self._stranger, principal=name)
            return
        shown = sha256(f"{credentials.principal}\0{credentials.token}".encode()).digest()
        is_same = self._session is not None and hmac.compare_digest(shown, self._shown)
        if is_same and trio.current_time() < self.ends_at:
            return
        try:
            login = await self._checked(credentials)
            session = self._authenticator.sessions.enter(login, self.client.end)
        except AuthenticationFailed as error:
            raise _failed("" if str(error) == REFUSED else str(error)) from None
        self._become(replace(self._stranger, principal=login.principal), session, shown)
        self.ends_at = trio.current_time() + (login.lifetime_ms / 1000 or float("inf"))

    async def _checked(self, credentials: Credentials) -> Login:
        client = self._stranger
        if not (client.is_encrypted or client.is_loopback):
            raise _failed("this listener needs TLS for it: others would see the token")
        if len(credentials.token) > _TOKEN_CHARACTERS:
            raise _failed()
        with trio.move_on_after(_LONGEST_S):
            return await self._authenticator.password(
                credentials.principal, credentials.token, client.source
            )
        raise AuthenticationFailed(TOO_MANY)

    def _become(self, client: Client, session: Session | None, shown: bytes) -> None:
        self.close()
        self.client, self._session, self._shown = client, session, shown
        self.ends_at = float("inf")
        self._due = trio.current_time() + LOGIN_S

    def close(self) -> None:
        """The connection ends, or is another one's."""
        self._authenticator.sessions.leave(self._session)


def _failed(why: str = "") -> CursusError:
    reason = f" reason={quoted(why)}" if why else ""
    return CursusError("authentication_failed", f"mechanism=PLAIN{reason}")
