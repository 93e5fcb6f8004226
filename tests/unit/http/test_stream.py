"""Documents as they change: what a browser that stays is told, and what it never is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from paceline.errors import AuthenticationFailed, AuthorizationFailed, PacelineError
from paceline_node.client_memory import ClientMemory, unlimited
from paceline_node.http.api.documents import text_of
from paceline_node.http.page import Asked
from paceline_node.http.stream.changes import SAME, change
from paceline_node.http.stream.conversation import Stream
from paceline_node.http.stream.feeds import BYTES_PER_S, PAUSE_S, SENT_PER_S, Feeds
from paceline_node.http.talk import Caller
from paceline_node.loop_turns import Turns
from paceline_node.security.principals import ANONYMOUS, Principal, Proof
from paceline_node.security.sessions import Login
from paceline_node.sliced_work import at_once
from tests.unit.http.changed_documents import changed

ALICE = Principal("alice", Proof.TOKEN)
PATH = "/api/topics/orders?limit=3"
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values, values)
def test_a_change_leads_from_one_to_the_other(old: Any, new: Any) -> None:
    text = at_once(change(old, new))
    assert (text == SAME) == (json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True))
    if text:
        assert json.dumps(changed(old, json.loads(text)), sort_keys=True) == json.dumps(
            new, sort_keys=True
        )


@given(st.dictionaries(st.text(max_size=2), values, max_size=4))
def test_a_document_is_written_whole(document: dict[str, Any]) -> None:
    assert json.loads(at_once(text_of(document))) == document


def test_a_change_of_much_is_made_in_turns() -> None:
    old = {"partitions": [{"partition": n, "end": n} for n in range(1000)]}
    new = {"partitions": [{"partition": n, "end": n + 1} for n in range(1000)]}
    assert sum(change(old, new)) >= 1000
    assert sum(text_of(new)) >= 1000


class Told:
    """The documents that there are, and how often each was made."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any] | PacelineError] = {
            PATH: {"n": 1, "name": "orders"}
        }
        self.asked: list[tuple[str, str]] = []
        self.silent = trio.Event()

    async def make(self, asked: Asked, principal: Principal) -> dict[str, Any]:
        path = f"{asked.path}?{asked.query}" if asked.query else asked.path
        self.asked.append((path, str(principal)))
        if path == "/api/silent":
            await self.silent.wait()
        found = self.documents[path]
        if isinstance(found, PacelineError):
            raise found
        return found


class Browser:
    """Both ends of what it says; it reads when a test does."""

    def __init__(self, told: Told, nursery: trio.Nursery, feeds: Feeds | None = None) -> None:
        self._says, self._hears = trio.open_memory_channel[str](9)
        self._tells, self._reads = trio.open_memory_channel[str](0)
        self.feeds = feeds or Feeds(told.make, Turns())
        self.memory = ClientMemory(1 << 30)
        self.ended = trio.Event()
        nursery.start_soon(self._serve)

    async def _serve(self) -> None:
        with self.memory.holding("http", "127.0.0.1", lambda _: None) as held:
            stream = Stream(self.feeds, served, lambda: {"node": 0})
            caller = Caller(Login(ANONYMOUS), "127.0.0.1", who, held)
            await stream.serve(self, caller)
        self._tells.close()
        self.ended.set()

    async def receive(self) -> str | None:
        try:
            return await self._hears.receive()
        except trio.EndOfChannel:
            return None

    async def send(self, text: str) -> None:
        await self._tells.send(text)

    async def say(self, **message: Any) -> None:
        await self._says.send(json.dumps(message))

    async def say_text(self, text: str) -> None:
        await self._says.send(text)

    async def next(self) -> dict[str, Any]:
        with trio.fail_after(1000):
            found: dict[str, Any] = json.loads(await self._reads.receive())
        return found

    def leave(self) -> None:
        self._says.close()


async def who(authorization: str) -> Login:
    if authorization != "Bearer alice's":
        raise AuthenticationFailed("no such token")
    return Login(ALICE)


@contextmanager
def served(login: Login) -> Iterator[None]:
    if login.token_id == "revoked":
        raise AuthenticationFailed("it was taken away")
    yield


async def watching(browser: Browser, *paths: str) -> dict[str, Any]:
    await browser.say(watch=list(paths))
    assert (await browser.next())["hello"]["node"] == 0
    return await browser.next()


async def test_the_document_then_what_changes(autojump_clock: MockClock) -> None:
    told = Told()
    async with trio.open_nursery() as nursery:
        browser = Browser(told, nursery)
        document = {"n": 1, "name": "a name that is long enough"}
        told.documents[PATH] = document
        assert await watching(browser, PATH) == {"path": PATH, "document": document}
        told.documents[PATH] = {**document, "n": 2}
        at = trio.current_time()
        assert await browser.next() == {"path": PATH, "change": {"in": {"n": {"to": 2}}}}
        assert trio.current_time() - at == pytest.approx(PAUSE_S)
        await trio.sleep(10 * PAUSE_S)  # nothing changes, and nothing is told
        told.documents[PATH] = {**document, "n": 3}
        assert await browser.next() == {"path": PATH, "change": {"in": {"n": {"to": 3}}}}
        browser.leave()


async def test_the_first_is_the_whole_however_long(autojump_clock: MockClock) -> None:
    told = Told()
    told.documents[PATH] = {"items": [{"n": number} for number in range(100)]}
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            browser = Browser(told, nursery)
            assert await watching(browser, PATH) == {"path": PATH, "document": told.documents[PATH]}
            browser.leave()


async def test_a_slow_browser_gets_the_newest(autojump_clock: MockClock) -> None:
    told = Told()
    async with trio.open_nursery() as nursery:
        slow = Browser(told, nursery)
        quick = Browser(told, nursery, slow.feeds)
        await watching(slow, PATH)
        await watching(quick, PATH)
        for number in range(2, 9):
            told.documents[PATH] = {"n": number, "name": "orders"}
            await quick.next()
        # One was on its way already; then comes the last, whole: the others it has never seen.
        assert (await slow.next())["change"] == {"in": {"n": {"to": 2}}}
        assert (await slow.next())["document"] == {"n": 8, "name": "orders"}
        slow.leave()
        quick.leave()


async def test_what_many_watch_is_made_once(autojump_clock: MockClock) -> None:
    told = Told()
    async with trio.open_nursery() as nursery:
        first = Browser(told, nursery)
        others = [Browser(told, nursery, first.feeds) for _ in range(20)]
        for each in (first, *others):
            await watching(each, PATH)
        made = len(told.asked)
        told.documents[PATH] = {"n": 2, "name": "orders"}
        for each in (first, *others):
            assert (await each.next())["change"]
        assert len(told.asked) - made <= 2
        for each in (first, *others):
            each.leave()


async def test_a_document_is_made_again_less_often_the_larger_it_is(
    autojump_clock: MockClock,
) -> None:
    told = Told()
    told.documents[PATH] = {"text": "x" * 10 * BYTES_PER_S, "n": 0}
    async with trio.open_nursery() as nursery:
        browser = Browser(told, nursery)
        await watching(browser, PATH)
        told.documents[PATH] = {"text": "x" * 10 * BYTES_PER_S, "n": 1}
        at = trio.current_time()
        assert (await browser.next())["change"] == {"in": {"n": {"to": 1}}}
        assert trio.current_time() - at == pytest.approx(10, rel=0.01)
        assert browser.memory.held_bytes >= 10 * BYTES_PER_S
        browser.leave()


async def test_what_many_watch_is_told_them_less_often(autojump_clock: MockClock) -> None:
    told = Told()
    many = 2 * SENT_PER_S
    async with trio.open_nursery() as nursery:
        first = Browser(told, nursery)
        browsers = [first, *(Browser(told, nursery, first.feeds) for _ in range(many - 1))]
        for each in browsers:
            await watching(each, PATH)
        await trio.sleep(10)
        began, made = trio.current_time(), len(told.asked)
        await trio.sleep(20)
        assert len(told.asked) - made == pytest.approx((trio.current_time() - began) / 2, abs=2)
        for each in browsers:
            each.leave()


async def test_an_error_stands_in_the_place_of_the_document(autojump_clock: MockClock) -> None:
    told = Told()
    told.documents[PATH] = AuthorizationFailed("anonymous may not describe topic orders")
    async with trio.open_nursery() as nursery:
        browser = Browser(told, nursery)
        found = await watching(browser, PATH)
        assert found["error"]["code"] == "AUTHORIZATION_FAILED"
        assert found["error"]["hint"]
        told.documents[PATH] = {"n": 1}
        assert (await browser.next())["document"] == {"n": 1}
        told.documents[PATH] = AuthorizationFailed("anonymous may not describe topic orders")
        assert (await browser.next())["error"]["message"].startswith("anonymous may not")
        browser.leave()


async def test_one_that_is_slow_to_make_keeps_no_other(autojump_clock: MockClock) -> None:
    told = Told()
    told.documents["/api/silent"] = {}
    async with trio.open_nursery() as nursery:
        browser = Browser(told, nursery)
        assert (await watching(browser, "/api/silent", PATH))["path"] == PATH
        browser.leave()
        await browser.ended.wait()


async def test_what_is_watched_no_more_is_not_made(autojump_clock: MockClock) -> None:
    told = Told()
    told.documents["/api/nodes"] = {"nodes": []}
    async with trio.open_nursery() as nursery:
        browser = Browser(told, nursery)
        await watching(browser, PATH)
        await browser.say(watch=["/api/nodes"])
        assert (await browser.next())["path"] == "/api/nodes"
        made = told.asked.count((PATH, "anonymous"))
        told.documents["/api/nodes"] = {"nodes": [1]}
        await browser.next()
        assert told.asked.count((PATH, "anonymous")) == made
        await browser.say(watch=[PATH])
        assert "document" in await browser.next()
        browser.leave()
        await browser.ended.wait()
        assert browser.memory.held_bytes == 0


async def test_who_does_not_read_is_not_heard(autojump_clock: MockClock) -> None:
    """Each that is watched no more was a task in the middle of its message, as many as wished."""
    told = Told()
    told.documents = {f"/api/{n}": {"n": n} for n in range(200)}
    async with trio.open_nursery() as nursery:
        browser = Browser(told, nursery)
        await browser.say(watch=[])
        assert "hello" in await browser.next()
        with trio.move_on_after(10) as heard:
            for turn in range(100):
                await browser.say(watch=[f"/api/{turn % 2 * 24 + n}" for n in range(24)])
                await trio.testing.wait_all_tasks_blocked()
        assert heard.cancelled_caught, "it is not read any further"
        assert len(nursery.child_tasks) == 1
        tasks = {child for task in nursery.child_tasks for child in tasks_below(task)}
        assert len(tasks) < 60
        nursery.cancel_scope.cancel()


def tasks_below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from tasks_below(child)


async def test_who_shows_a_token_is_somebody(autojump_clock: MockClock) -> None:
    told = Told()
    async with trio.open_nursery() as nursery:
        browser = Browser(told, nursery)
        await browser.say(token="alice's")
        assert (await browser.next())["hello"]["principal"] == "alice"
        await browser.say(watch=[PATH])
        await browser.next()
        assert {name for _, name in told.asked} == {"alice"}
        browser.leave()
        stranger = Browser(told, nursery)
        await stranger.say(token="stolen")
        assert (await stranger.next())["refused"]["code"] == "AUTHENTICATION_FAILED"
        await stranger.ended.wait()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{", "no JSON"),
        ("[" * 30_000, "no JSON"),
        (" " * 40_000, "characters"),
        ("[]", "expected a JSON object"),
        ('{"watch": 3}', "expected {"),
        ('{"watch": [], "more": 1}', "expected {"),
        ('{"watch": [3]}', "expected a string"),
        ('{"watch": ["/metrics"]}', "begin with /api/"),
        ('{"watch": ["/api/' + "x" * 1000 + '"]}', "begin with /api/"),
        (json.dumps({"watch": [f"/api/{n}" for n in range(25)]}), "at most 24"),
        ('{"token": 3}', "expected a string"),
    ],
)
async def test_what_makes_no_sense_ends_it(said: str, why: str, autojump_clock: MockClock) -> None:
    told = Told()
    for is_first in (True, False):
        if not is_first and "token" in said:
            continue
        async with trio.open_nursery() as nursery:
            browser = Browser(told, nursery)
            if not is_first:
                await watching(browser, PATH)
            await browser.say_text(said)
            answer = await browser.next()
            if "hello" in answer:
                answer = await browser.next()
            assert why in answer["refused"]["message"]
            await browser.ended.wait()
    assert unlimited().held_bytes == 0
