"""What a browser says over the WebSocket ``/api/stream``, and is told there.

It says, each a JSON object in one message:

- ``{"token": TOKEN}``: who it is, first of all, where it is somebody;
- ``{"watch": [PATH, ...]}``: which documents of the API it wants to see from now on, and no others.

It is told ``{"hello": {...}}`` once, then of each document ``{"path": PATH, "document": {...}}``
and as it changes ``{"path": PATH, "change": CHANGE}`` (``changes.py``), or ``{"path": PATH,
"error": {...}}``. What is wrong with what it says is told as ``{"refused": {...}}``, and ends the
WebSocket.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import trio

from paceline.errors import InvalidRequest, PacelineError
from paceline_node.client_memory import Portion
from paceline_node.http.problems import error_document
from paceline_node.http.stream.feeds import Edition, Feed, Feeds
from paceline_node.http.talk import Caller, TextSocket
from paceline_node.net.connection_tasks import connection_tasks
from paceline_node.security.principals import Principal
from paceline_node.security.sessions import Login

PATH = "/api/stream"
_MOST_WATCHED = 24
_MOST_UNFINISHED = 2 * _MOST_WATCHED
"""Watched, or in the middle of a message though it is watched no more. A browser that exchanges all
that it watches needs as many."""
_PATH_CHARACTERS = 1000
_MESSAGE_CHARACTERS = 32 * 1024
_PREFIX = "/api/"
Enter = Callable[[Login], AbstractContextManager[None]]
"""Around what is served to somebody, for as long as what he showed holds. Raises
AuthenticationFailed where it holds no more."""


class Stream:
    """Serves every browser that watches. ``about``: what all are told of this node."""

    def __init__(self, feeds: Feeds, enter: Enter, about: Callable[[], dict[str, Any]]) -> None:
        self._feeds = feeds
        self._enter = enter
        self._about = about

    async def serve(self, socket: TextSocket, caller: Caller) -> None:
        """One of them, until it goes, or says what nobody can."""
        said = await socket.receive()
        try:
            first = _message(said) if said is not None else {}
            login = caller.login
            if "token" in first:
                login = await caller.log_in(f"Bearer {_text(first['token'])}")
                first = {}
            with self._enter(login):
                await self._converse(socket, caller, login, first)
        except PacelineError as error:
            await socket.send(_refusal(error))

    async def _converse(
        self, socket: TextSocket, caller: Caller, login: Login, first: dict[str, Any]
    ) -> None:
        principal = replace(login.principal, host=caller.host)
        await socket.send(json.dumps({"hello": {**self._about(), "principal": str(principal)}}))
        refusal: str | None = None
        async with connection_tasks() as nursery:
            watching = _Watching(socket, caller, self._feeds, principal, nursery)
            try:
                await watching.only(_paths(first))
                while (said := await socket.receive()) is not None:
                    await watching.only(_paths(_message(said)))
            except InvalidRequest as error:
                refusal = _refusal(error)
            nursery.cancel_scope.cancel("the browser has gone, or makes no sense")
        if refusal is not None:
            await socket.send(refusal)


class _Watching:
    """What one browser watches: a task for each document, so that one which is slow to make, since
    a node is silent, keeps none of the others."""

    def __init__(
        self,
        socket: TextSocket,
        caller: Caller,
        feeds: Feeds,
        principal: Principal,
        nursery: trio.Nursery,
    ) -> None:
        self._socket = socket
        self._caller = caller
        self._feeds = feeds
        self._principal = principal
        self._nursery = nursery
        self._sending = trio.Lock()
        self._watches: dict[str, _Watch] = {}
        self._room = trio.Semaphore(_MOST_UNFINISHED)

    async def only(self, paths: Sequence[str]) -> None:
        """Watch these. Waits while much is unfinished that is watched no more: a browser that does
        not take its messages is not heard either."""
        for path in [each for each in self._watches if each not in paths]:
            self._watches.pop(path).end()
        for path in paths:
            if path not in self._watches:
                await self._room.acquire()
                watch = self._watches[path] = _Watch()
                self._nursery.start_soon(self._watch, path, watch, name="console")

    async def _watch(self, path: str, watch: _Watch) -> None:
        number = 0
        kept = Portion(self._caller.memory)
        try:
            with self._feeds.watched(path, self._principal) as feed:
                while (edition := await watch.wait(feed, number)) is not None:
                    kept.set(len(edition.text))
                    async with self._sending:
                        await self._socket.send(edition.after(number))
                    number = edition.number
        finally:
            kept.give_all()
            self._room.release()


class _Watch:
    """One of them. It ends while it waits, never in the middle of a message."""

    def __init__(self) -> None:
        self._is_wanted = True
        self._waiting = trio.CancelScope()

    def end(self) -> None:
        """It is watched no more."""
        self._is_wanted = False
        self._waiting.cancel("it is watched no more")

    async def wait(self, feed: Feed, number: int) -> Edition | None:
        """The next edition that is another one than that; None once it is watched no more."""
        while self._is_wanted:
            with trio.CancelScope() as self._waiting:
                if number:
                    await trio.sleep_until(feed.due)
                edition = await feed.newest()
                if edition.number != number:
                    return edition
        return None


def _message(said: str) -> dict[str, Any]:
    if len(said) > _MESSAGE_CHARACTERS:
        raise InvalidRequest(f"a message of more than {_MESSAGE_CHARACTERS} characters")
    try:
        found = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"a message that is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidRequest("expected a JSON object")
    return found


def _paths(message: dict[str, Any]) -> list[str]:
    """Which documents are wanted; none before the browser has said so."""
    if not message:
        return []
    paths = message.get("watch")
    if not isinstance(paths, list) or len(message) != 1:
        raise InvalidRequest('expected {"watch": [PATH, ...]}')
    if len(paths) > _MOST_WATCHED:
        raise InvalidRequest(f"{len(paths)} documents, at most {_MOST_WATCHED} are watched")
    for each in paths:
        if not _text(each).startswith(_PREFIX) or len(each) > _PATH_CHARACTERS:
            raise InvalidRequest(f"expected paths that begin with {_PREFIX}")
    return list(dict.fromkeys(paths))


def _refusal(error: PacelineError) -> str:
    return json.dumps({"refused": error_document(error)["error"]})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"expected a string, not {type(value).__name__}")
    return value
