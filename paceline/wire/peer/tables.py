"""Requests to the internal tables: sent on to the node that leads ``__tables``.

A table is a small map of bytes to bytes with a version per key. Versions are numbers that grow over
all changes of all tables, so they also tell the order of changes. An update names a version per
key, and happens for all its keys or for none.
"""

from __future__ import annotations

import enum

from paceline.values import dataclass
from paceline.wire.message import Message

UNCONDITIONAL = -(2**63)
ABSENT = -1


class TableOperation(enum.IntEnum):
    """What a request asks for; which fields of it count stands behind each.

    CREATE; DELETE; DELETE_EMPTY, only if it has no key; UPDATE and REMOVE (``keys``, ``values``,
    ``versions``, ``position``); GET (``keys``); LIST, all entries by key (``keys``: the one key to
    begin behind, if any; ``count``); CHANGES, entries by version (``position`` to begin behind;
    ``count``).
    """

    CREATE = 0
    DELETE = 1
    DELETE_EMPTY = 2
    UPDATE = 3
    REMOVE = 4
    GET = 5
    LIST = 6
    CHANGES = 7


class TableStatus(enum.IntEnum):
    """What became of a request; with anything but OK nothing was changed."""

    OK = 0
    EXISTS = 1
    NO_TABLE = 2
    BAD_VERSION = 3
    NO_KEY = 4
    NOT_EMPTY = 5
    TOO_LARGE = 6


@dataclass(frozen=True, slots=True)
class TableRequest(Message):
    """``versions`` of an update or removal: one per key, UNCONDITIONAL, ABSENT, or the version
    that the key must have. ``position`` of one: the table's newest version, -1 for any."""

    operation: TableOperation
    table: str
    keys: tuple[bytes, ...] = ()
    values: tuple[bytes, ...] = ()
    versions: tuple[int, ...] = ()
    position: int = -1
    count: int = 0


@dataclass(frozen=True, slots=True)
class TableAnswer(Message):
    """``keys``, ``values`` and ``versions`` in parallel: new versions of an update; entries that
    were read, the version of one that is missing being ABSENT. ``is_end``: there are no more."""

    status: TableStatus
    keys: tuple[bytes, ...] = ()
    values: tuple[bytes, ...] = ()
    versions: tuple[int, ...] = ()
    position: int = -1
    is_end: bool = True
