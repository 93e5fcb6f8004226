"""Documents to bytes, and lists of them, a few milliseconds of work at a time at most.

Encoding a page of a thousand partitions takes ten milliseconds, in a thread as well: the encoder
lets nobody else run. So each item of a list is encoded by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from paceline_node.sliced_work import Work

T = TypeVar("T")
Document = dict[str, Any]
_ITEM_UNITS = 2
"""What it costs to make an item, and to encode one: some 10 microseconds each."""


def listed(items: Iterable[T], make: Callable[[T], Document]) -> Work[list[Document]]:
    """A document for each item."""
    made = []
    for each in items:
        yield _ITEM_UNITS
        made.append(make(each))
    return made


def encoded(document: Document) -> Work[bytes]:
    """A document as a page has it."""
    return f"{(yield from text_of(document))}\n".encode()


def text_of(document: Document) -> Work[str]:
    """A document whose lists may be long."""
    parts: list[str] = []
    for name, value in document.items():
        parts.append(f"{', ' if parts else ''}{json.dumps(name)}: ")
        if not isinstance(value, list):
            parts.append(json.dumps(value))
            continue
        parts.append("[")
        for position, item in enumerate(value):
            yield _ITEM_UNITS
            parts.append(f"{', ' if position else ''}{json.dumps(item)}")
        parts.append("]")
    yield 1 + len(parts) // 64
    return f"{{{''.join(parts)}}}"
