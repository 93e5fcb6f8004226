"""The health pages of a Cursus broker, on a port of their own (DESIGN 4.2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus

from paceline.errors import AuthenticationFailed, AuthorizationFailed
from paceline_node.http.page import Page, PageMaker
from paceline_node.security.principals import Principal

Checks = Callable[[Principal], Mapping[str, str]]
"""Every check by name: ``ok``, or why it fails."""
_OK = "ok"


def health_pages(checks: Checks, serves: Callable[[], bool] | None = None) -> dict[str, PageMaker]:
    """/live, /ready, /health and / as Cursus's tools expect them. ``checks`` raises the error that
    somebody is refused with who may not see them; ``serves``, if it is given, tells him whether the
    node is ready, and no more."""

    def judged(principal: Principal) -> tuple[bool, Mapping[str, str]]:
        try:
            found = checks(principal)
        except (AuthenticationFailed, AuthorizationFailed):
            if serves is None:
                raise
            return serves(), {}
        return all(result == _OK for result in found.values()), found

    async def live(_principal: Principal) -> Page:
        return _json({"status": "live"}, HTTPStatus.OK)

    async def ready(principal: Principal) -> Page:
        is_ready, found = judged(principal)
        if is_ready:
            return _json({"status": "ready", "checks": dict(found)}, HTTPStatus.OK)
        body = {"status": "not_ready", "checks": dict(found)}
        return _json(body, HTTPStatus.SERVICE_UNAVAILABLE)

    async def health(principal: Principal) -> Page:
        is_ready, found = judged(principal)
        if is_ready:
            return Page(b"OK")
        failed = ",".join(f"{name}={why}" for name, why in found.items() if why != _OK)
        text = f"Broker not ready: {failed}" if failed else "Broker not ready"
        return Page(text.encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)

    return {"/live": live, "/ready": ready, "/health": health, "/": health}


def _json(body: object, status: HTTPStatus) -> Page:
    text = json.dumps(body, separators=(",", ":"))
    return Page(text.encode(), "application/json", status)
