"""The description of the API: an OpenAPI 3.1 document."""

from __future__ import annotations

import json
from typing import Any

from paceline.version import __version__
from paceline_node.http.api.call import USUAL
from paceline_node.http.api.schemas import SCHEMAS, Schema, ref
from paceline_node.services.admin.topic_views import TROUBLES
from paceline_node.services.paging import MOST

_ABOUT = """
What a node knows of the cluster and of itself, to be read only. The documents are those that
`paceline ... --output json` prints. Any node answers for the whole cluster: it asks the leaders and
coordinators. Whoever asks needs the rights that the command takes, and sees no topics and groups
that he may not describe. Long lists come in pages: `limit` items, and `next` for those behind them.
Fields may be added.
"""


def _parameter(name: str, about: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": about, "schema": schema}


def _named(name: str, about: str, kind: str = "string") -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": about,
        "schema": {"type": kind},
    }


_LIMIT = _parameter(
    "limit",
    "items of a page",
    {"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL},
)
_PAGED = (
    _LIMIT,
    _parameter("after", "`next` of the page before", {"type": "string"}),
)
_INTERNAL = _parameter(
    "internal", "the cluster's own topics (`__...`) too", {"type": "boolean", "default": False}
)
_TOPIC = _named("topic", "name of a topic")
_GROUP = _named("group", "name of a group, percent-encoded")
_OF_RECORDS = (
    _TOPIC,
    _named("partition", "its number", "integer"),
    _LIMIT,
    _parameter("offset", "the first one", {"type": "integer", "minimum": 0}),
    _parameter("time", "none older, in ms since 1970", {"type": "integer", "minimum": 0}),
    _parameter("last", "so many offsets before the end", {"type": "integer", "minimum": 0}),
    _parameter(
        "contains",
        "only those that hold this text in key, value or headers",
        {"type": "string", "maxLength": 1000},
    ),
)
_FAMILIES: Schema = {"type": "string", "enum": ["v1", "cursus", "coordinator", "kafka"]}


def _answer(about: str, schema: str) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": ref(schema)}}}


_ERRORS = {
    "400": "a parameter that is not known, or has no such value",
    "401": "who asks has to log in, or showed what is worth nothing",
    "403": "who asks may not see that",
    "404": "there is no such topic, partition, group or page",
    "421": "the Host is none that the node knows as its own",
    "503": "what it takes is not there now, as a group's coordinator; or the node is starting",
    "504": "another node did not answer in time",
}


def _get(name: str, about: str, schema: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "get": {
            "operationId": name,
            "summary": about,
            "parameters": list(parameters),
            "responses": {
                "200": _answer("the document", schema),
                **{status: _answer(text, "Error") for status, text in _ERRORS.items()},
                "default": _answer("why there is none", "Error"),
            },
        }
    }


_PATHS = {
    "/api/topics": _get("topics", "Topics, by name", "Topics", *_PAGED, _INTERNAL),
    "/api/topics/{topic}": _get(
        "topic", "A topic, with its partitions by number", "Topic", _TOPIC, *_PAGED
    ),
    "/api/topics/{topic}/partitions/{partition}": _get(
        "partition",
        "A partition",
        "NamedPartition",
        _TOPIC,
        _named("partition", "its number", "integer"),
    ),
    "/api/topics/{topic}/partitions/{partition}/records": _get(
        "records",
        "Committed records of a partition, from where one of `offset`, `time` and `last` says, "
        "else the last ones",
        "Records",
        *_OF_RECORDS,
    ),
    "/api/partitions": _get(
        "partitions",
        "Partitions, by topic and number",
        "Partitions",
        *_PAGED,
        _INTERNAL,
        _parameter("topic", "of this topic only", {"type": "string"}),
        _parameter("node", "with a replica there", {"type": "integer", "minimum": 0}),
        _parameter(
            "trouble", "with this wrong with them", {"type": "string", "enum": list(TROUBLES)}
        ),
    ),
    "/api/groups": _get(
        "groups",
        "Groups of all protocols, by family and name",
        "Groups",
        *_PAGED,
        _parameter("family", "of these families", {"type": "array", "items": _FAMILIES}),
        _parameter("state", "in these states", {"type": "array", "items": {"type": "string"}}),
    ),
    "/api/groups/{group}": _get(
        "group",
        "A group: members, and how far it is behind in each partition that they read, or that it "
        "has offsets of",
        "Group",
        _GROUP,
        *_PAGED,
        _parameter("family", "of which protocol", {**_FAMILIES, "default": "kafka"}),
        _parameter("subject", "the topic of a group of family cursus", {"type": "string"}),
    ),
    "/api/transactions": _get(
        "transactions",
        "Transactional ids of all protocols, by family and name",
        "Transactions",
        *_PAGED,
        _parameter("state", "in these states", {"type": "array", "items": {"type": "string"}}),
    ),
    "/api/load": _get("load", "What nodes have done since their processes began", "Loads"),
    "/api/health": _get("health", "Whether the cluster is healthy, and else what to do", "Health"),
    "/api/nodes": _get("nodes", "All nodes, each as it says itself", "Nodes"),
    "/api/quorum": _get("quorum", "Who votes about the metadata, and how far each is", "Quorum"),
    "/api/connections": _get(
        "connections", "Connections of this node's clients", "Connections", *_PAGED
    ),
    "/api/tasks": _get("tasks", "What this node's process is busy with", "Tasks"),
    "/ready": {
        "get": {
            "operationId": "ready",
            "summary": "Whether this node serves",
            "responses": {
                "200": _answer("it does", "Readiness"),
                "503": _answer("it does not, as `failed` says", "Readiness"),
                "default": _answer("why there is no answer", "Error"),
            },
        }
    },
}


def document() -> dict[str, Any]:
    """The whole of it."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Paceline",
            "version": __version__,
            "description": " ".join(_ABOUT.split()),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": _PATHS,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "a token of a user ('paceline user token'); inside TLS, or from "
                    "the machine itself",
                }
            },
        },
    }


def text() -> bytes:
    """As it is served."""
    return json.dumps(document(), indent=1).encode() + b"\n"
