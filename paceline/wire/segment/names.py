"""Names of segments, and the topics that hold them (DESIGN 1.3).

``scope/stream/N`` is partition N of the topic ``scope_stream``: user names hold no underscore, so
the first one splits a topic's name again. ``scope/stream/N.#epoch.0`` is the same segment. Any
other name is legal too: it is partition 0 of a topic named by a hash, which keeps the name itself
in its metadata.
"""

from __future__ import annotations

import base64
import hashlib
import re

from paceline.values import dataclass
from paceline.wire.segment.text import encode_text

MAX_NAME_BYTES = 512
MAX_SEGMENT_NUMBER = 65535
_MAX_USER_NAMES = 248
_STRUCTURED = re.compile(
    r"([A-Za-z0-9.-]{1,255})/([A-Za-z0-9.-]{1,250})/(0|[1-9][0-9]{0,4})(\.#epoch\.0)?\Z"
)
_HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """Where a segment lies. ``name`` is its one canonical name."""

    topic: str
    partition: int
    name: str


def place_of(name: str) -> SegmentPlace | None:
    """Where the segment ``name`` lies; None for what names no segment: an empty name, or one of
    more than 512 encoded bytes."""
    size = len(encode_text(name))
    if not 0 < size <= MAX_NAME_BYTES:
        return None
    match = _STRUCTURED.match(name)
    if match is not None:
        scope, stream, number, _ = match.groups()
        fits = len(scope) + len(stream) <= _MAX_USER_NAMES
        if fits and int(number) <= MAX_SEGMENT_NUMBER:
            return SegmentPlace(f"{scope}_{stream}", int(number), f"{scope}/{stream}/{number}")
    digest = hashlib.blake2b(encode_text(name), digest_size=_HASH_BYTES).digest()
    label = base64.b32encode(digest).decode("ascii").rstrip("=").lower()
    return SegmentPlace(f"seg-{label}", 0, name)
