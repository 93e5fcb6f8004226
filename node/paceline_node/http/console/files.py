"""The files of the console: read once, when the first browser asks, and served as they are.

They hold nothing of the cluster, so whoever reaches the port may have them; what they show is asked
for at ``/api``, which judges who asks.
"""

from __future__ import annotations

import hashlib
from functools import partial
from http import HTTPStatus
from pathlib import Path

import trio

from paceline_node.env import RunBlocking
from paceline_node.http.page import Asked, Page
from paceline_node.http.problems import problem
from paceline_node.security.principals import Principal

INDEX = "/"
PREFIX = "/console/"
FILE = "/console/{file}"
"""Under this name all are counted."""
_STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""What the pages may do: load and ask what this node serves, nothing else."""
_HEADERS = (
    ("content-security-policy", POLICY),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
)


class ConsoleFiles:
    """All of them, by their path behind :data:`PREFIX`."""

    prefix = PREFIX

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._reading = trio.Lock()
        self._pages: dict[str, Page] = {}

    @property
    def templates(self) -> tuple[str, ...]:
        """Under what names their requests are counted."""
        return (FILE,)

    def counted_as(self, path: str) -> str:
        """One name for all, also for what is none."""
        return FILE

    async def index(self, _principal: Principal) -> Page:
        """The page that loads the others."""
        return await self._page("index.html")

    async def page(self, asked: Asked, _principal: Principal) -> Page:
        """A file."""
        return await self._page(asked.path.removeprefix(PREFIX))

    async def _page(self, name: str) -> Page:
        async with self._reading:
            if not self._pages:
                self._pages = await self._run_blocking(partial(_read, _STATIC))
        found = self._pages.get(name)
        if found is not None:
            return found
        return problem(HTTPStatus.NOT_FOUND, f"the console has no file {name}", "it begins at /")


def _read(directory: Path) -> dict[str, Page]:
    """Only what lies there can be asked for, under the name that it has there."""
    return {
        str(file.relative_to(directory)): _page_of(file)
        for file in sorted(directory.rglob("*"))
        if file.suffix in _TYPES
    }


def _page_of(file: Path) -> Page:
    body = file.read_bytes()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return Page(body, _TYPES[file.suffix], etag=etag, headers=_HEADERS)
