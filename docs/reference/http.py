"""The pages that a node serves over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docs.reference.markdown import code, table, whole
from paceline_node.http.api.openapi import document
from paceline_node.http.api.pages import DESCRIPTION
from paceline_node.http.console.files import FILE, INDEX
from paceline_node.http.stream.conversation import PATH as STREAM_PATH
from paceline_node.settings import ListenerKind

HTTP, HEALTH, METRICS = (
    ListenerKind.HTTP,
    ListenerKind.CURSUS_HEALTH,
    ListenerKind.CURSUS_METRICS,
)


def _parameters(operation: Mapping[str, Any]) -> str:
    """What may stand behind the path."""
    named = [each["name"] for each in operation["parameters"] if each["in"] == "query"]
    return f"Parameters: {', '.join(f'`{name}`' for name in named)}." if named else ""


PATHS: Mapping[tuple[ListenerKind, str], str] = {
    (HTTP, "/live"): "200 and `live`, for as long as the process answers. For liveness probes.",
    (HTTP, "/health"): "The same as `/live`.",
    (HTTP, "/healthz"): "The same as `/live`.",
    (HTTP, "/ready"): (
        "200 when the node serves: it runs, knows an active controller, has a session with it, "
        "and its disk is neither slow nor (nearly) full. Otherwise 503, with the reasons. For "
        "readiness probes and load balancers. JSON: `ready`, `failed` (sentences), `checks` (each "
        "[check](../how-to/health.md#the-checks) of the node, and of the cluster as it knows it, "
        "with `name`, `level`, `reason`, `what_to_do` and `node`), `client_memory` "
        "(`held_bytes`, `limit_bytes`, `is_short`: what clients hold of this node's memory); of "
        "a node that still starts only the first three."
    ),
    (HTTP, "/metrics"): "The [metrics](metrics.md) in Prometheus's text format.",
    (HTTP, DESCRIPTION): (
        "What stands below as an OpenAPI 3.1 document, with the schema of every answer and error. "
        "Anybody may ask for it."
    ),
    **{
        (HTTP, path): f"{item['get']['summary']}. {_parameters(item['get'])}".rstrip()
        for path, item in document()["paths"].items()
        if path.startswith("/api/")
    },
    (HTTP, INDEX): "The [console](../how-to/console.md), for browsers.",
    (HTTP, FILE): "Its files.",
    (HTTP, STREAM_PATH): (
        "A WebSocket of text, for the console: documents of `/api` as they change, twice a second "
        "at most."
    ),
    (HTTP, "/native"): (
        "A WebSocket that speaks the native protocol: each binary message is one frame. Clients "
        "are given `ws://HOST:7480/native` as their address."
    ),
    (HEALTH, "/live"): '200 and `{"status":"live"}`.',
    (HEALTH, "/ready"): (
        "200 and `status` `ready`, or 503 and `not_ready`, with `checks` by name, as a Cursus "
        "broker does."
    ),
    (HEALTH, "/health"): "200 and `OK`, or 503 and a sentence.",
    (HEALTH, "/"): "The same as `/health`.",
    (METRICS, "/metrics"): "The metrics, and those that Cursus has under its names, too.",
}
"""Which listener, which path -> what it is for."""

_INTRO = """
GET and HEAD, HTTP/1.1; HTTPS behind `http+tls` in `listeners`, with certificates of clients behind
`?client_auth=required`. Without that whoever reaches the port may ask, so do not show it to
strangers. Pages under `/api` show what [commands print](json.md) with `--output json`: how to ask
for it says [Ask a node over HTTP](../how-to/api.md). Nothing is changed over HTTP: commands and the
[Python client](python.md) are for that.

Whatever is not answered with 200 (but for `/ready`) is told by the document of an error:
`{"error": {"code": ..., "message": ..., "hint": ...}}`, as commands do.

A request's `Host` must be an IP address, `localhost`, an advertised name of the node, or in
`http.allowed_hosts` (else 421); an `Origin` must be the node itself or in `http.allowed_origins`
(else 403).
"""


def page() -> str:
    """The page."""
    rows = [
        (code(kind.value), str(kind.default_port), code(path), text)
        for (kind, path), text in PATHS.items()
    ]
    behind = (
        "`cursus-health` and `cursus-metrics` are not served unless `listeners` names them. "
        "Ports are those of node 0; node N's are 1000 x N higher."
    )
    return whole("HTTP", _INTRO, table(("listener", "port", "path", ""), rows), behind)
