"""All parsers by name."""

from __future__ import annotations

from tests.fuzz import disk, people, pravega, wire
from tests.fuzz.engine import Target

TARGETS: dict[str, Target] = {
    target.name: target for room in (wire, pravega, disk, people) for target in room.TARGETS
}
