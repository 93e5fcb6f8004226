"""The health pages of a Cursus broker, on a port of their own (DESIGN 4.2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus

from paceline_node.http.page import Page, PageMaker
from paceline_node.security.principals import Principal

Checks = Callable[[Principal], Mapping[str, str]]
"""Every check by name: ``ok``, or why it fails."""
_OK = "ok"


def health_pages(checks: Checks) -> dict[str, PageMaker]:
    """/live, /ready, /health and / as Cursus's tools expect them."""

    async def live(_principal: Principal) -> Page:
        return _json({"status": "live"}, HTTPStatus.OK)

    async def ready(principal: Principal) -> Page:
        found = checks(principal)
        if all(result == _OK for result in found.values()):
            return _json({"status": "ready", "checks": dict(found)}, HTTPStatus.OK)
        body = {"status": "not_ready", "checks": dict(found)}
        return _json(body, HTTPStatus.SERVICE_UNAVAILABLE)

    async def health(principal: Principal) -> Page:
        failed = [f"{name}={why}" for name, why in checks(principal).items() if why != _OK]
        if not failed:
            return Page(b"OK")
        text = f"Broker not ready: {','.join(failed)}"
        return Page(text.encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)

    return {"/live": live, "/ready": ready, "/health": health, "/": health}


def _json(body: object, status: HTTPStatus) -> Page:
    text = json.dumps(body, separators=(",", ":"))
    return Page(text.encode(), "application/json", status)
