"""The pages every node has: /live, /ready, /metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus

from paceline_node.http.lazy import load
from paceline_node.http.server import Page, PageMaker
from paceline_node.observe.instruments import Family
from paceline_node.observe.metrics import Metrics


def standard_pages(
    metrics: Metrics, failed_checks: Callable[[], Sequence[str]], permit: Callable[[], None]
) -> dict[str, PageMaker]:
    """``failed_checks`` names what keeps the node from being ready, in order; nothing = ready.
    ``permit`` raises AuthorizationFailed of who may not see the node's state; that its process
    lives anybody may see who reaches it."""

    async def live() -> Page:
        return Page(b"live\n")

    async def ready() -> Page:
        permit()
        failed = list(failed_checks())
        status = HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.OK
        body = json.dumps({"ready": not failed, "failed": failed}).encode() + b"\n"
        return Page(body, "application/json", status)

    return {"/live": live, "/ready": ready, "/metrics": metrics_page(metrics.collect, permit)}


def metrics_page(collect: Callable[[], Iterable[Family]], permit: Callable[[], None]) -> PageMaker:
    """/metrics in Prometheus's text format, for whom ``permit`` lets see it."""

    async def text() -> Page:
        permit()
        # Here, not above: a node that nobody scrapes does without prometheus-client.
        await load("paceline_node.observe.exposition")
        from paceline_node.observe.exposition import CONTENT_TYPE, exposition

        return Page(exposition(collect()), CONTENT_TYPE)

    return text
