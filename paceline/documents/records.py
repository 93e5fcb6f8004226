"""Records."""

from __future__ import annotations

import base64
from typing import Any

from paceline.wire.records import Record


def json_of(data: bytes | None) -> Any:
    """Bytes as JSON: text, null, or ``{"base64": ...}``."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def record_document(topic: str, partition: int, record: Record) -> dict[str, Any]:
    """One record as ``consume`` prints it."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": json_of(record.key),
        "value": json_of(record.value),
        "headers": [[_name(name), json_of(value)] for name, value in record.headers],
    }


def _name(name: str) -> Any:
    # Bytes that are not UTF-8 stand in header names as surrogate escapes.
    return json_of(name.encode("utf-8", "surrogateescape"))
