"""All parsers by name."""

from __future__ import annotations

from tests.fuzz import disk, pravega, wire
from tests.fuzz.engine import Target

TARGETS: dict[str, Target] = {
    target.name: target for target in (*wire.TARGETS, *pravega.TARGETS, *disk.TARGETS)
}
