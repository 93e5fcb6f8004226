"""Records of ``__tables``: keyed, so that compaction keeps what counts.

::

    key    00                                      value   i64 newest version
    key    01 | table's name                       value   i64 version at which it was made
    key    02 | u16 size | table's name | key      value   i64 version | value

A value of None removes. The newest version is a record of its own, written with every change,
because a change whose key was removed since leaves no other trace, and versions never fall.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from paceline.errors import RemoteProtocolError
from paceline_node.state_machines.machine import Entry

TABLES_TOPIC = "__tables"

_VERSION = struct.Struct(">q")
_SIZE = struct.Struct(">H")


class _Kind(enum.IntEnum):
    NEWEST = 0
    TABLE = 1
    CELL = 2


class Newest(NamedTuple):
    """The newest version given out."""

    version: int


class TableMade(NamedTuple):
    """A table began; ``version`` None: it is gone, all its cells have been removed before."""

    table: str
    version: int | None


class Cell(NamedTuple):
    """A key of a table got a value; ``version`` None: it is gone."""

    table: str
    key: bytes
    version: int | None
    value: bytes


TableRecord = Newest | TableMade | Cell


def encode(record: TableRecord) -> Entry:
    """The record as it lies in the log."""
    match record:
        case Newest(version):
            return Entry(bytes((_Kind.NEWEST,)), _VERSION.pack(version))
        case TableMade(table, version):
            key = bytes((_Kind.TABLE,)) + table.encode()
            return Entry(key, None if version is None else _VERSION.pack(version))
        case Cell(table, cell_key, version, value):
            name = table.encode()
            key = bytes((_Kind.CELL,)) + _SIZE.pack(len(name)) + name + cell_key
            return Entry(key, None if version is None else _VERSION.pack(version) + value)


def decode(entry: Entry) -> TableRecord:
    """What a record says. Raises RemoteProtocolError for one that is none of ours."""
    key, value = entry
    try:
        version = None if value is None else _VERSION.unpack_from(value)[0]
        match key[0]:
            case _Kind.NEWEST if version is not None:
                return Newest(version)
            case _Kind.TABLE:
                return TableMade(key[1:].decode(), version)
            case _Kind.CELL:
                (size,) = _SIZE.unpack_from(key, 1)
                start = 1 + _SIZE.size
                name, rest = key[start : start + size], key[start + size :]
                if len(name) == size:
                    content = b"" if value is None else value[_VERSION.size :]
                    return Cell(name.decode(), rest, version, content)
    except (struct.error, IndexError, UnicodeDecodeError):
        pass
    raise RemoteProtocolError(f"{TABLES_TOPIC}: a record with key {key[:40]!r} is not of a table")
