"""WebSockets of text: what serves them is told who called, and speaks in whole messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from paceline_node.client_memory import Holding
from paceline_node.security.sessions import Login


class Caller(NamedTuple):
    """Who opened a WebSocket. ``login`` is whom the upgrade showed, ``log_in`` says whose an
    Authorization header would be, for browsers cannot send one with an upgrade; ``memory`` is what
    the connection is charged with."""

    login: Login
    host: str
    log_in: Callable[[str], Awaitable[Login]]
    memory: Holding


class TextSocket(Protocol):
    """The WebSocket."""

    async def receive(self) -> str | None:
        """The next message; None once the other end is gone, or sends what is no text."""

    async def send(self, text: str) -> None:
        """Send one, and return once the network has taken it. Raises BrokenResourceError where
        the other end is gone, or takes nothing for too long."""


Talk = Callable[[TextSocket, Caller], Awaitable[None]]
"""Serves one WebSocket until it returns."""
