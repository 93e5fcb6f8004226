"""What commands print of health: named checks, and the verdicts of ``paceline check``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docs.reference.shapes import Shape

CHECK: dict[str, Any] = {
    "name": "text",
    "level": "text",
    "reason": "text",
    "what_to_do": "text",
    "node": "integer?",
}
_CHECKED: Shape = {
    "check": "text",
    "status": "text",
    "summary": "text",
    "findings": [{"status": "text", "reason": "text", "what_to_do": "text", "node": "integer?"}],
    "measures": [
        {
            "name": "text",
            "value": "number",
            "unit": "text",
            "warning": "number?",
            "critical": "number?",
            "node": "integer?",
        }
    ],
}
CHECKS: Mapping[str, Shape] = dict.fromkeys(
    (
        "check health",
        "check quorum",
        "check partitions",
        "check disk",
        "check certificates",
        "check event-loop",
    ),
    _CHECKED,
)
