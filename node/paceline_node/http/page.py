"""Answers of the http port, and what makes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple, Protocol

from paceline.values import dataclass
from paceline_node.security.principals import Principal


@dataclass(frozen=True, slots=True)
class Page:
    """An answer to GET. With an ``etag``, which names its content, browsers keep it and ask each
    time whether it is still the same; without, nobody keeps it."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    etag: str = ""
    headers: tuple[tuple[str, str], ...] = ()


PageMaker = Callable[[Principal], Awaitable[Page]]
"""Makes a page for who asks."""


class Asked(NamedTuple):
    """What of a request's target matters, as it was sent: percent-encoded."""

    path: str
    query: str


class Branch(Protocol):
    """Pages whose paths begin alike, and hold names of topics and the like."""

    @property
    def prefix(self) -> str:
        """How their paths begin."""

    def counted_as(self, path: str) -> str:
        """One of few names for all paths of a kind; one that is no page is itself."""

    async def page(self, asked: Asked, principal: Principal) -> Page:
        """The page. Raises PacelineError."""
