"""What commands print of topics."""

from __future__ import annotations

from collections.abc import Mapping

from docs.reference.shapes import Shape

_TOPIC: Shape = {
    "name": "text",
    "topic_id": "text",
    "kind": "text",
    "configs": ("null", {"*": "text"}),
    "settings": ("null", [{"name": "text", "value": "text", "source": "text"}]),
    "stale": "text?",
    "partitions": [
        {
            "partition": "integer",
            "leader": "integer",
            "leader_epoch": "integer",
            "replicas": ["integer"],
            "isr": ["integer"],
            "pinned": "flag?",
            "follower_marks": ["integer"],
            "log_start_offset": "integer",
            "high_watermark": "integer",
            "log_end_offset": "integer",
            "size_bytes": "integer",
            "segments": "integer",
            "progress": [
                {
                    "node": "integer",
                    "in_sync": "flag",
                    "log_end_offset": "integer",
                    "acked_offset": "integer",
                }
            ],
            "error": "text?",
        }
    ],
}
_CREATED: Shape = {
    "name": "text",
    "topic_id": "text",
    "partitions": "integer",
    "replication_factor": "integer",
    "existed": "flag",
}
_DELETED: Shape = {"name": "text", "deleted": "flag"}
TOPICS: Mapping[str, Shape] = {
    "topic settings": {
        "settings": [{"name": "text", "default": "text", "allowed": "text", "meaning": "text"}]
    },
    "topic create": (_CREATED, {"topics": [_CREATED]}),
    "topic list": {
        "topics": [
            {
                "name": "text",
                "topic_id": "text",
                "kind": "text",
                "partitions": "integer",
                "replication_factor": "integer",
                "leaderless": "integer",
                "under_replicated": "integer",
            }
        ]
    },
    "topic describe": (_TOPIC, {"topics": [_TOPIC]}),
    "topic sizes": {
        "topics": [
            {
                "name": "text",
                "size_bytes": "integer",
                "disk_bytes": "integer",
                "partitions": [
                    {
                        "partition": "integer",
                        "replicas": [{"node": "integer", "size_bytes": "integer"}],
                    }
                ],
            }
        ],
        "nodes": [{"node": "integer", "disk_bytes": "integer?", "reason": "text?"}],
    },
    "topic alter": {
        "name": "text",
        "changes": [{"name": "text", "before": "text?", "after": "text?", "source": "text?"}],
        "configs": ("null", {"*": "text"}),
    },
    "topic add-partitions": {"name": "text", "partitions": "integer"},
    "topic trim": {
        "name": "text",
        "partitions": [{"partition": "integer", "log_start_offset": "integer"}],
    },
    "topic delete": (_DELETED, {"topics": [_DELETED]}),
}
