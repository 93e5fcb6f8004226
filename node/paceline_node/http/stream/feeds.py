"""Documents that somebody watches: each is made once for all who watch it, twice a second at most.

Nothing runs while nobody asks. Whoever asks first makes the next edition, the others wait for it.
An edition has the whole document and what changed since the edition before: who has that one is
sent the change, who is slower (or new) gets the whole of the newest. There is no queue.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import trio

from paceline.errors import PacelineError
from paceline_node.fair_places import FairPlaces
from paceline_node.http.api.documents import Document, text_of
from paceline_node.http.page import Asked
from paceline_node.http.problems import error_document
from paceline_node.http.stream.changes import change
from paceline_node.loop_turns import Turns
from paceline_node.security.principals import Principal

Ask = Callable[[Asked, Principal], Awaitable[Document]]
"""The document of a path of the API. Raises PacelineError."""
PAUSE_S = 0.5
"""Between two editions of a document, at least."""
BYTES_PER_S = 128 * 1024
"""Of a large document: what is long is made less often."""
SENT_PER_S = 100
"""To all who watch a document together: what many watch is made less often."""
_AT_ONCE = 16
_OF_ONE = 8


class Edition(NamedTuple):
    """A document at a moment. ``text`` is all of it, ``news`` what changed since the one before;
    both are messages to the browser."""

    number: int
    text: str
    news: str

    def after(self, number: int) -> str:
        """What somebody needs who has the edition of that number, 0: none."""
        is_next = 0 < number == self.number - 1
        return self.news if is_next and 0 < len(self.news) < len(self.text) else self.text


class Feed:
    """One document for those who may see the same of it."""

    def __init__(self, path: str, make: Callable[[], Awaitable[Document]], turns: Turns) -> None:
        self._head = f'{{"path":{json.dumps(path)},'
        self._make = make
        self._turns = turns
        self._making = trio.Lock()
        self._document: Document = {}
        self._is_error = False
        self._edition = Edition(0, "", "")
        self.due = -1.0
        """When there may be another edition."""
        self.watchers = 0

    async def newest(self) -> Edition:
        """The newest one, made now if the last is old enough."""
        async with self._making:
            if trio.current_time() >= self.due:
                await self._next()
            return self._edition

    async def _next(self) -> None:
        is_error = False
        try:
            document = await self._make()
        except PacelineError as error:
            document, is_error = error_document(error)["error"], True
        last = self._edition
        changed = await self._turns.run(change(self._document, document))
        if changed or not last.number:
            text = await self._turns.run(text_of(document))
            # An error stands in the place of the document, and is replaced by one.
            is_other = is_error or self._is_error
            self._edition = Edition(
                last.number + 1,
                f'{self._head}"{"error" if is_error else "document"}":{text}}}',
                "" if is_other else f'{self._head}"change":{changed}}}',
            )
            self._document, self._is_error = document, is_error
        self.due = trio.current_time() + max(
            PAUSE_S, len(self._edition.text) / BYTES_PER_S, self.watchers / SENT_PER_S
        )


class Feeds:
    """Those that are watched, by path and by who watches."""

    def __init__(self, ask: Ask, turns: Turns) -> None:
        self._ask = ask
        self._turns = turns
        self._places = FairPlaces(_AT_ONCE, of_one=_OF_ONE)
        self._watched: dict[tuple[str, Principal, str], Feed] = {}

    @contextmanager
    def watched(self, path: str, principal: Principal) -> Iterator[Feed]:
        """The feed of a path, which is kept while anybody is in the block."""
        # Where somebody asks from decides with his name what he may see.
        key = (path, principal, principal.host)
        feed = self._watched.get(key)
        if feed is None:
            feed = self._watched[key] = Feed(path, lambda: self._made(path, principal), self._turns)
        feed.watchers += 1
        try:
            yield feed
        finally:
            feed.watchers -= 1
            if not feed.watchers:
                del self._watched[key]

    async def _made(self, path: str, principal: Principal) -> Document:
        asked = urlsplit(path)
        async with self._places.place():
            return await self._ask(Asked(asked.path, asked.query), principal)
