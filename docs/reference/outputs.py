"""What commands print with ``--output json``: one shape a command, shown on the page and held
against real output by ``tests/e2e/test_docs.py``.

What a shape is: ``shapes.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from docs.reference.activity_outputs import ACTIVITY
from docs.reference.health_outputs import CHECK, CHECKS
from docs.reference.markdown import whole
from docs.reference.shapes import Shape
from docs.reference.topic_outputs import TOPICS

_NODE: dict[str, Any] = {
    "id": "integer",
    "pid": "integer?",
    "pid_started": "integer?",
    "dir": "text",
    "listeners": {"*": "text"},
}
_MADE: dict[str, Any] = {
    "cluster_id": "text",
    "nodes": [_NODE],
    "settings": {"*": "text"},
    "tls": {"*": "text"},
}
_QUOTAS: Shape = {"quotas": [{"for": "text", "name": "text?", "limit": "text", "rate": "number"}]}
_USER_DONE: Shape = {"name": "text", "result": "text"}
_TOKEN = {"token_id": "text", "created_ms": "integer", "expires_ms": "integer?", "note": "text"}
_USER: Shape = {
    "name": "text",
    "mechanisms": [{"mechanism": "text", "iterations": "integer"}],
    "tokens": [_TOKEN],
}
_SEEN: dict[str, Any] = {"state": "text", "role": "text?", "leads": "integer?"}
_COUNTS: dict[str, Any] = {
    "addresses": {"*": ["text"]},
    "controller": "integer?",
    "topics": "integer?",
    "internal_topics": "integer?",
    "partitions": "integer?",
    "leaderless_partitions": "integer?",
    "under_replicated_partitions": "integer?",
    "healthy": "flag?",
    "reasons": ["text"],
    "checks": [CHECK],
}
_ELSEWHERE: dict[str, Any] = {
    "id": "integer",
    "pid": "integer?",
    "dir": "text?",
    "listeners": {"*": "text"},
    **_SEEN,
}
_PLANNED: dict[str, Any] = {
    "topic": "text",
    "partition": "integer",
    "replicas": ["integer"],
    "former_replicas": ["integer"],
    "size_bytes": "integer",
}
_MOVED: dict[str, Any] = {
    "topic": "text",
    "partition": "integer",
    "replicas": ["integer"],
    "state": "text",
    "reason": "text",
}
_MOVING: dict[str, Any] = {
    "topic": "text",
    "partition": "integer",
    "leader": "integer",
    "replicas": ["integer"],
    "adding": ["integer"],
    "removing": ["integer"],
    "left_records": "integer?",
    "left_bytes": "integer?",
    "bytes_per_s": "integer?",
    "left_s": "integer?",
    "waits_for": "text",
}
_STATUS: Shape = (
    {"cluster_id": "text?", "nodes": [_ELSEWHERE], **_COUNTS},
    {
        "cluster_id": "text",
        "nodes": [{**_NODE, **_SEEN}],
        "settings": {"*": "text"},
        "tls": {"*": "text"},
        **_COUNTS,
    },
)
"""Asked by --bootstrap there is no cluster.json, from which the rest comes."""
_ACL = ("effect", "principal", "host", "operation", "resource", "pattern", "name")
_ACLS: Shape = {"acls": [dict.fromkeys(_ACL, "text")]}
_DID: dict[str, Any] = {"node": "integer", "action": "text"}
_SETTING: dict[str, Shape] = {"key": "text", "restart": "flag", "nodes": ["integer"]}
_ACTED: Shape = {"node": "integer", "action": "text", "state": "text", "pid": "integer?"}
_CLUSTER: Shape = {
    "name": "text",
    "selected": "flag",
    "state": "text",
    "running": "integer",
    "nodes": "integer",
    "dir": "text",
}
_TRANSACTION: dict[str, Any] = {
    "id": "text",
    "family": "text",
    "state": "text",
    "open_s": "number?",
    "partitions": "integer",
    "producer_id": "integer",
    "epoch": "integer",
}
_LED: dict[str, Any] = {
    "topic": "text",
    "partition": "integer",
    "leader": "integer",
    "leader_epoch": "integer",
}
_BATCH: dict[str, Any] = {
    "segment": "text",
    "position": "integer",
    "base_offset": "integer",
    "last_offset": "integer",
    "records": "integer",
    "leader_epoch": "integer",
    "size_bytes": "integer",
    "max_timestamp": "integer",
    "compression": "text",
    "producer_id": "integer",
    "producer_epoch": "integer",
    "base_sequence": "integer",
    "crc_ok": "flag",
}
_CONTENT: Shape = {
    "offset": "integer",
    "timestamp": "integer",
    "key": "bytes?",
    "value": "bytes?",
}
_STRIKE: dict[str, Any] = {
    "kind": "text",
    "target": "text",
    "nodes": ["integer"],
    "begin": "number",
    "end": "number",
}
_VERDICT: Shape = {
    "outcome": "text",
    "counts": {"*": "integer"},
    "finding_counts": {"*": "integer"},
    "findings": [{"kind": "text", "text": "text", "t": "number"}],
}

OUTPUTS: Mapping[str, Shape] = {
    "up": _STATUS,
    "status": _STATUS,
    "health": {
        "healthy": "flag?",
        "reasons": ["text"],
        "checks": [CHECK],
        "controller": "integer?",
        "ranges": [
            {
                "node": "integer",
                "topic": "text",
                "partition": "integer",
                "start": "integer",
                "end": "integer",
                "state": "text",
                "reason": "text",
            }
        ],
        "certificates": [{"node": "integer", "setting": "text", "until": "text"}],
    },
    **CHECKS,
    **ACTIVITY,
    "down": _MADE,
    "purge": {"removed": "text"},
    "logs": (
        {
            "node": "integer",
            "time": "text",
            "level": "text",
            "event": "text",
            "fields": {"*": "anything"},
        },
        {"node": "integer", "line": "text"},
    ),
    **TOPICS,
    "produce": {"topic": "text", "acked": "integer", "failed": "integer"},
    "consume": {
        "topic": "text",
        "partition": "integer",
        "offset": "integer",
        "timestamp": "integer",
        "key": "bytes?",
        "value": "bytes?",
        "headers": [["bytes?"]],
    },
    "quota set": _QUOTAS,
    "quota unset": _QUOTAS,
    "quota list": _QUOTAS,
    "acl create": _ACLS,
    "acl list": _ACLS,
    "acl delete": _ACLS,
    "group list": {
        "groups": [
            {
                "group": "text",
                "family": "text",
                "subject": "text",
                "state": "text",
                "members": "integer",
                "generation": "integer",
            }
        ]
    },
    "group describe": {
        "group": "text",
        "family": "text",
        "subject": "text",
        "state": "text",
        "generation": "integer",
        "coordinator": "integer",
        "protocol": "text",
        "members": [
            {
                "member": "text",
                "instance": "text?",
                "client": "text",
                "host": "text?",
                "partitions": "integer",
                "leader": "flag",
                "session_timeout_ms": "integer",
                "silent_ms": "integer",
            }
        ],
        "partitions": [
            {
                "topic": "text",
                "partition": "integer",
                "committed": "integer?",
                "end": "integer?",
                "lag": "integer?",
                "member": "text?",
            }
        ],
    },
    "group delete": {"group": "text", "family": "text", "deleted": "flag"},
    "group topics": {"group": "text", "topics": ("text?", ["text"])},
    "group offsets export": {
        "group": "text",
        "family": "text",
        "offsets": [{"topic": "text", "partition": "integer", "offset": "integer"}],
    },
    "group evict": {
        "group": "text",
        "evicted": [{"member": "text", "instance": "text?", "client": "text"}],
    },
    "group offsets delete": {
        "group": "text",
        "family": "text",
        "executed": "flag",
        "offsets": [{"topic": "text", "partition": "integer", "offset": "integer"}],
    },
    "group offsets reset": {
        "group": "text",
        "family": "text",
        "executed": "flag",
        "members": ["text"],
        "offsets": [
            {"topic": "text", "partition": "integer", "before": "integer?", "after": "integer"}
        ],
    },
    "transaction list": {"transactions": [_TRANSACTION]},
    "transaction describe": {
        **_TRANSACTION,
        "timeout_ms": "integer",
        "written": [{"topic": "text", "partition": "integer"}],
        "groups": ["text"],
        "staged": "integer",
        "reason": "text",
        "sink": "text",
        "batch": "integer",
        "run": "text",
    },
    "transaction abort": {"id": "text", "family": "text", "aborted": "flag", "complete": "flag"},
    "user create": _USER_DONE,
    "user password": _USER_DONE,
    "user list": {"users": [_USER]},
    "user delete": _USER_DONE,
    "user token": {"name": "text", "token_id": "text", "token": "text?"},
    "user revoke": _USER_DONE,
    "segment create": {"name": "text", "created": "flag"},
    "segment append": {"name": "text", "writer": "text", "appended": "integer", "level": "integer"},
    "segment read": {"position": "integer", "value": "bytes"},
    "segment info": {
        "name": "text",
        "start": "integer",
        "length": "integer",
        "sealed": "flag",
        "last_modified_ms": "integer",
    },
    "segment truncate": {"name": "text", "truncated": "flag"},
    "segment seal": {"name": "text", "sealed": "flag"},
    "segment delete": {"name": "text", "deleted": "flag"},
    "partition move plan": {"version": "integer", "partitions": [_PLANNED]},
    "partition move show": {"version": "integer", "partitions": [_PLANNED]},
    "partition move execute": {"partitions": [_MOVED]},
    "partition move status": {"partitions": [_MOVING]},
    "partition move cancel": {
        "partitions": [
            {"topic": "text", "partition": "integer", "cancelled": "flag", "reason": "text"}
        ]
    },
    "role elect": {**_LED, "preferred": "integer", "pinned": "flag?", "unclean": "flag"},
    "role set": {**_LED, "node": "integer", "role": "text"},
    "node kill": _ACTED,
    "node stop": _ACTED,
    "node restart": (_ACTED, {"nodes": [_ACTED]}),
    "node suspend": _ACTED,
    "node resume": _ACTED,
    "node add": {
        "nodes": [
            {"node": "integer", "action": "text", "state": "text", "address": "text", "dir": "text"}
        ],
        "voters": ["integer"],
    },
    "node remove": _DID,
    "node drain": {**_DID, "leaderships": "integer"},
    "node revive": {**_DID, "leaderships": "integer"},
    "node decommission": {**_DID, "moved": "integer", "new_voter": "integer?", "removed": "flag"},
    "node format": {
        "node": "integer",
        "dir": "text",
        "cluster_id": "text",
        "directory_id": "text",
    },
    "config list": {"settings": [{**_SETTING, "value": "text", "default": "text"}]},
    "config set": {"settings": [{**_SETTING, "before": "text", "after": "text"}]},
    "config unset": {"settings": [{**_SETTING, "before": "text", "after": "text"}]},
    "rolling-restart": {
        "nodes": [(_ACTED, {"node": "integer", "state": "text", "breaks": ["text"]})]
    },
    "cluster list": {"clusters": [_CLUSTER]},
    "cluster use": _CLUSTER,
    "cluster forget": {"name": "text", "forgotten": "flag", "dir": "text"},
    "cluster certify": {"node": "integer", "folder": "text"},
    "cluster init": {**_MADE, "administrator": "text?", "password_file": "text?"},
    "quorum describe": {
        "leader": "integer?",
        "term": "integer",
        "voters": ["integer"],
        "learners": ["integer"],
        "nodes": [
            {
                "node": "integer",
                "vote": "text",
                "role": "text?",
                "term": "integer?",
                "commit_offset": "integer?",
                "image_offset": "integer?",
                "state": "text",
            }
        ],
    },
    "quorum add-voter": {"node": "integer", "action": "text"},
    "quorum remove-voter": {"node": "integer", "action": "text"},
    "metadata force-quorum": {
        "executed": "flag",
        "cluster_id": "text",
        "keeper": "integer",
        "term": "integer",
        "last_index": "integer",
        "listeners": ["integer"],
        "lost": ["integer"],
        "partitions": "integer?",
        "unreadable": {"*": "text"},
    },
    "limits": [
        {
            "what": "text",
            "where": "text",
            "bound": "integer",
            "setting": "text?",
            "beyond": "text",
            "room": "text?",
        }
    ],
    "log dump": (_BATCH, {**_BATCH, "content": [_CONTENT]}),
    "log verify": {
        "ok": "flag",
        "logs": [
            {
                "path": "text",
                "topic": "text?",
                "partition": "integer?",
                "log_start_offset": "integer",
                "log_end_offset": "integer",
                "batches": "integer",
                "records": "integer",
                "size_bytes": "integer",
            }
        ],
        "findings": [
            {
                "problem": "text",
                "severity": "text",
                "path": "text",
                "offset": "integer?",
                "message": "text",
            }
        ],
    },
    "chaos list": {
        "scenarios": [{"name": "text", "seconds": "number", "description": "text"}],
        "faults": [{"kind": "text", "text": "text", "settings": {"*": "number"}}],
    },
    "chaos run": {
        "outcome": "text",
        "scenario": "text",
        "seed": "integer",
        "seconds": "number",
        "nodes": "integer",
        "version": "text",
        "fault_count": "integer",
        "problems": ["text"],
        "verified_logs": "integer",
        "copied": "integer",
        "verdict": _VERDICT,
        "faults": [
            {
                **_STRIKE,
                "longest_stall_s": "number",
                "stalled_partition": "anything",
                "takeover_s": "number?",
            }
        ],
        "passed_over": [{**_STRIKE, "moves": ["anything"], "passed_over": "text"}],
    },
    "chaos check": _VERDICT,
}
"""Command -> what it prints; for those in :data:`STREAMS` each line is one."""

_EACH = "A line for each item:"
STREAMS = ("top", "events", "logs", "consume", "segment read", "log dump")
FAILURE: Shape = {"error": {"code": "text", "message": "text", "hint": "text?"}}

_INTRO = """
What commands print with `--output json`, and what nodes show [over HTTP](../how-to/api.md), which
adds `next`, and to lists `stale` and `hidden`: one document, or a line for each item of a stream.
With `--output yaml` it is the same as YAML. A test holds every shape against what is printed.
Fields may be added; none is renamed or removed without a note in `CHANGELOG.md`.

Offsets named `..._end_offset` and `high_watermark` are exclusive: the next one. Times are
milliseconds since 1970 unless the name says otherwise. A `leader` of -1 means that there is none,
an offset or size of -1 that nobody says it. `stale` says why what is told of a topic may be out of
date; `source` of a setting is `topic`, `node` (with numbers where nodes differ) or `default`.
`configs` and `settings` of a topic are null to who may not see them, `?` marks what else may be
null. Keys, values and names of headers are text where they are UTF-8, and else
`{"base64": "..."}`; `produce --json` takes the lines that `consume --output json` prints.
"""
_FAILURES = """
A command that fails prints this as the last line of standard error. `code` is the name of an
[error](errors.md); `hint` says what to do next.
"""


def page() -> str:
    """The page."""
    parts: list[str] = []
    for command, shape in OUTPUTS.items():
        parts += [f"## {command}", _EACH if command in STREAMS else "", _block(shape)]
    return whole("JSON output", _INTRO, *parts, "## Errors", _FAILURES, _block(FAILURE))


def _block(shape: Shape) -> str:
    shapes = shape if isinstance(shape, tuple) else (shape,)
    return "\n\nor\n\n".join(f"```text\n{_shown(each)}\n```" for each in shapes)


def _shown(shape: Shape) -> str:
    """As JSON, with the kinds of values bare."""
    text = re.sub(r'"(\w+\??)"(?!:)', r"\1", json.dumps(_plain(shape), indent=2))
    return re.sub(r"\[\n\s+(\w+\??)\n\s+\]", r"[\1, ...]", text)


def _plain(shape: Shape) -> Any:
    """Alternatives within a shape as the last of them, which says most."""
    if isinstance(shape, tuple):
        return _plain(shape[-1])
    if isinstance(shape, list):
        return [_plain(each) for each in shape]
    if isinstance(shape, dict):
        return {name: _plain(each) for name, each in shape.items()}
    return shape
