"""What commands print of what the cluster is doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docs.reference.shapes import Shape

_RATES: dict[str, Any] = {
    "written_records": "number?",
    "written_bytes": "number?",
    "read_records": "number?",
    "read_bytes": "number?",
    "requests": "number?",
    "write_p50_ms": "number?",
    "write_p99_ms": "number?",
    "sync_p50_ms": "number?",
    "sync_p99_ms": "number?",
}
ACTIVITY: Mapping[str, Shape] = {
    "top": {
        "seconds": "number",
        "healthy": "flag?",
        "reasons": ["text"],
        "controller": "integer?",
        **_RATES,
        "nodes": [
            {
                "node": "integer",
                "state": "text",
                "leads": "integer?",
                **_RATES,
                "connections": "integer?",
                "client_memory_bytes": "integer?",
                "loop_delay_ms": "integer?",
                "disk_bytes": "integer?",
                "disk_free_bytes": "integer?",
                "reason": "text?",
            }
        ],
        "topics": [{"name": "text", "partitions": "integer", "written_records": "number"}],
        "partitions": [
            {
                "topic": "text",
                "partition": "integer",
                "leader": "integer",
                "high_watermark": "integer",
                "written_records": "number",
            }
        ],
        "groups": [
            {
                "group": "text",
                "family": "text",
                "subject": "text",
                "state": "text",
                "members": "integer",
                "lag": "integer?",
                "lag_change": "number?",
                "caught_up_s": "number?",
            }
        ],
        "groups_left_out": "integer",
    },
    "disk": {
        "nodes": [
            {
                "node": "integer",
                "disk_bytes": "integer?",
                "disk_free_bytes": "integer?",
                "log_bytes": "integer?",
                "reason": "text?",
            }
        ],
        "topics": [{"name": "text", "disk_bytes": "integer"}],
        "partitions": [
            {
                "topic": "text",
                "partition": "integer",
                "disk_bytes": "integer",
                "replicas": [{"node": "integer", "size_bytes": "integer"}],
            }
        ],
    },
    "events": {
        "time_ms": "integer",
        "kind": "text",
        "level": "text",
        "text": "text",
        "node": "integer?",
        "partitions": [{"topic": "text", "partition": "integer"}],
    },
}
