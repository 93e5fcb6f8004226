"""Records that are messages: what those of ``__groups`` and ``__transactions`` have in common.

Keyed, so that compaction keeps the last of each key. Key, big-endian; ``str`` is u16 length and
UTF-8::

     0    1    2
    +----+----+---------------+----------------------+
    | u8 | u8 | str, as many  | the rest of the key, |
    | v1 |kind| as the topic's| of a fixed size      |
    +----+----+---------------+----------------------+

Value: u8 version (1), then a message as a msgpack array, which grows at the end only. No value
(null) forgets the key. A reader passes over kinds it does not know, and refuses versions it does
not know.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

from paceline.errors import RemoteProtocolError
from paceline.wire.message import Message
from paceline_node.state_machines.machine import Entry

_VERSION = 1
_U16 = struct.Struct(">H")
_VALUE_HEAD = bytes((_VERSION,))
_HEADS = [bytes((_VERSION, kind)) for kind in range(256)]
M = TypeVar("M", bound=Message)


class KeyedRecords:
    """How those of ``topic`` are written and read. All that reads raises RemoteProtocolError,
    naming what is wrong."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def entry(
        self, kind: int, names: tuple[str, ...], value: Message | None, rest: bytes = b""
    ) -> Entry:
        """What is of that name now, or, without a value, that it is forgotten; ``rest`` is what
        the key has behind the names."""
        key = _HEADS[kind]
        for name in names:
            raw = name.encode()
            key += _U16.pack(len(raw)) + raw
        return Entry(key + rest, None if value is None else _VALUE_HEAD + value.to_bytes())

    def kind_of(self, key: bytes) -> int:
        """The kind of a key."""
        if len(key) < 2 or key[0] != _VERSION:
            raise RemoteProtocolError(
                f"{self._topic}: key {key[:16].hex()}, expected version {_VERSION}"
            )
        return key[1]

    def names(self, key: bytes, count: int) -> tuple[list[str], int]:
        """The first names in a key, and where they end."""
        names: list[str] = []
        at = 2
        try:
            for _ in range(count):
                start = at + _U16.size
                at = start + (key[at] << 8 | key[at + 1])
                names.append(key[start:at].decode())
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"{self._topic}: key: {error}") from None
        except IndexError:
            at = len(key) + 1
        if at > len(key):
            raise RemoteProtocolError(f"{self._topic}: key of {len(key)} bytes is cut in a name")
        return names, at

    def rest(self, layout: struct.Struct, key: bytes, at: int) -> tuple[Any, ...]:
        """What comes behind the names."""
        if at + layout.size != len(key):
            raise RemoteProtocolError(
                f"{self._topic}: key of {len(key)} bytes, expected {at + layout.size}"
            )
        return layout.unpack_from(key, at)

    def value(self, kind: type[M], value: bytes | None) -> M | None:
        """The message that a value is; None where the key is forgotten."""
        if value is None:
            return None
        if value[:1] != _VALUE_HEAD:
            raise RemoteProtocolError(
                f"{self._topic}: {kind.__name__} of version {value[:1].hex()}, expected {_VERSION}"
            )
        return kind.from_bytes(memoryview(value)[1:])
