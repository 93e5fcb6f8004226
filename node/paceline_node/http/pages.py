"""The pages every node has: /live (also /health and /healthz), /ready, /metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus

import trio

from paceline.errors import AuthenticationFailed, AuthorizationFailed
from paceline.health import Check, failed_to_serve
from paceline_node.client_memory import ClientMemory
from paceline_node.env import RunBlocking
from paceline_node.fair_line import ASKER, Asker
from paceline_node.http.lazy_imports import load
from paceline_node.http.page import Page, PageMaker
from paceline_node.loop_turns import Turns
from paceline_node.observe.metric_types import Family
from paceline_node.security.principals import Principal


class Scrapes:
    """Pages of metrics, each made once for all who asked before it was begun.

    A node with thousands of partitions has a hundred thousand series: they are gathered in turns
    with other work, and written down beside the event loop, one page at a time."""

    def __init__(
        self, collect: Callable[[], Iterable[Family]], turns: Turns, run_blocking: RunBlocking
    ) -> None:
        self._collect = collect
        self._turns = turns
        self._run_blocking = run_blocking
        self._making = trio.Lock()
        self._asked = 0
        self._covered = 0  # so many have been asked for when the last page was begun
        self._page = Page(b"")

    async def page(self) -> Page:
        """A page that is no older than the call."""
        self._asked += 1
        number = self._asked
        async with self._making:
            if self._covered < number:
                begun = self._asked
                asker = ASKER.set(Asker())  # shared, so not at the turns of who asked first
                try:
                    self._page = await self._made()
                finally:
                    ASKER.reset(asker)
                self._covered = begun
            return self._page

    async def _made(self) -> Page:
        # Here, not above: a node that nobody scrapes does without prometheus-client.
        await load("paceline_node.observe.exposition")
        from paceline_node.observe.exposition import CONTENT_TYPE, exposition

        families: list[Family] = []
        await self._turns.next()
        for family in self._collect():
            families.append(family)
            await self._turns.next()
        text = await self._run_blocking(partial(exposition, families))
        return Page(text, CONTENT_TYPE)


def standard_pages(
    scrapes: Scrapes,
    checks: Callable[[], Sequence[Check]],
    permit: Callable[[Principal], None],
    memory: ClientMemory,
    more: Callable[[], Mapping[str, object]] = dict,
    *,
    serves: Callable[[], bool] | None = None,
    open_metrics: bool = False,
) -> dict[str, PageMaker]:
    """``checks`` is how the node and its cluster are; which of it keeps a node from being ready
    ``paceline.health`` says.
    /ready shows beside it what clients hold of ``memory``, which keeps no node from being ready:
    those who hold most wait or are ended; and ``more``.
    ``permit`` raises the error that somebody is refused with who may not see the node's state;
    ``serves``, if it is given, tells him whether the node is ready, and no more. That its process
    lives anybody may see who reaches it."""

    async def ready(principal: Principal) -> Page:
        try:
            permit(principal)
        except (AuthenticationFailed, AuthorizationFailed):
            if serves is None:
                raise
            return _answered({"ready": serves()})
        held = {
            "held_bytes": memory.held_bytes,
            "limit_bytes": memory.limit_bytes,
            "is_short": memory.is_short,
        }
        return ready_page(checks(), {"client_memory": held, **more()})

    metrics = metrics_page(scrapes, _anybody if open_metrics else permit)
    return {**LIVE_PAGES, "/ready": ready, "/metrics": metrics}


def _anybody(_principal: Principal) -> None:
    """Whoever reaches the port."""


async def _live(_principal: Principal) -> Page:
    return Page(b"live\n")


LIVE_PAGES: Mapping[str, PageMaker] = {"/live": _live, "/health": _live, "/healthz": _live}
"""That the process lives, under the names that probes are set to elsewhere."""


def ready_page(checks: Sequence[Check], more: Mapping[str, object]) -> Page:
    """Whether a node serves, and all its checks by name."""
    failed = [each.reason for each in failed_to_serve(checks)]
    return _answered(
        {
            "ready": not failed,
            "failed": failed,
            "checks": [each.to_json() for each in checks],
            **more,
        }
    )


def _answered(told: Mapping[str, object]) -> Page:
    status = HTTPStatus.OK if told["ready"] else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(json.dumps(told).encode() + b"\n", "application/json", status)


def metrics_page(scrapes: Scrapes, permit: Callable[[Principal], None]) -> PageMaker:
    """/metrics in Prometheus's text format, for whom ``permit`` lets see it."""

    async def text(principal: Principal) -> Page:
        permit(principal)
        return await scrapes.page()

    return text
