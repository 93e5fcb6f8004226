"""Typed messages over msgpack: frozen dataclasses that pack to positional arrays.

A message class derives from :class:`Message` and is a frozen, slotted dataclass. Its fields, in
order, are the elements of a msgpack array. Compatibility is additive: a reader ignores elements
beyond those it knows, and a field with a default may be missing at the end.

Field types: ``int str bytes bool float``, ``UUID`` (16 bytes), an ``IntEnum`` (its number),
``Utf8`` (text, held as its bytes), ``NewType`` of those, ``T | None``, ``tuple[T, ...]``,
``dict[str, T]`` and other messages. Every value is checked when unpacked; a wrong one raises
RemoteProtocolError naming class and field.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, NewType, Self, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgpack

from paceline.errors import RemoteProtocolError

Convert = Callable[[Any], Any]
Utf8 = NewType("Utf8", bytes)
"""Text that is kept: one rare character makes four bytes of each in a ``str``."""
_CHECKED = 8


class _Mismatch(Exception):
    """A value of the wrong kind; turned into RemoteProtocolError with its place named."""


class _Schema(NamedTuple):
    """How one message class is packed and unpacked.

    ``kinds`` are the exact types of fields that travel as they are, None for the others, whose
    conversions stand by index in ``packers`` and ``unpackers``. ``checked`` remembers the types of
    whole messages that were found to fit ``kinds``: one look-up checks the next such message,
    which makes unpacking PRODUCE twice as fast. It is bounded, for others choose the types.
    """

    names: tuple[str, ...]
    values: Callable[[Any], Any]
    kinds: tuple[type | None, ...]
    checked: set[tuple[type, ...]]
    packers: tuple[tuple[int, Convert], ...]
    unpackers: tuple[tuple[int, Convert], ...]
    required_count: int


class Packed:
    """The array of a message that was packed without making the message."""

    __slots__ = ("_values",)

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def pack(self) -> list[Any]:
        """The positional array, as of :meth:`Message.pack`."""
        return self._values


class Message:
    """Base of all packed messages; adds :meth:`pack` and :meth:`unpack` to a dataclass."""

    __slots__ = ()

    def pack(self) -> list[Any]:
        """The positional array of this message, ready for msgpack."""
        schema = _schema_of(type(self))
        packed = list(schema.values(self))
        for index, pack in schema.packers:
            packed[index] = pack(packed[index])
        return packed

    @classmethod
    def unpack(cls, values: Any) -> Self:
        """Build from a decoded array. Raises RemoteProtocolError naming the bad field."""
        schema = _schema_of(cls)
        if type(values) is not list:
            raise RemoteProtocolError(f"{cls.__name__}: expected an array, got {_kind(values)}")
        found = tuple(map(type, values))
        if found not in schema.checked:
            _check_kinds(cls, schema, values)
            if len(schema.checked) < _CHECKED:
                schema.checked.add(found)
        if schema.unpackers or len(values) > len(schema.names):
            values = _converted(cls, schema, values)
        return cls(*values)

    def to_bytes(self) -> bytes:
        """The message as msgpack bytes."""
        packed: bytes = msgpack.packb(self.pack())
        return packed

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """The message from msgpack bytes. Raises RemoteProtocolError."""
        return cls.unpack(unpack_array(data))


def unpack_array(data: bytes | memoryview) -> list[Any]:
    """Decode one msgpack array; anything else, or trailing bytes, is a RemoteProtocolError.

    Nested containers and strings are bounded by ``len(data)``, so a header limit bounds memory.
    """
    try:
        value = msgpack.unpackb(
            data,
            strict_map_key=True,  # other keys, which need not even be hashable, name no field
            use_list=True,
            max_str_len=len(data),
            max_bin_len=len(data),
            max_array_len=len(data),
            max_map_len=len(data),
        )
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise RemoteProtocolError(f"not a msgpack header: {error}") from None
    if type(value) is not list:
        raise RemoteProtocolError(f"expected a msgpack array, got {_kind(value)}")
    return value


def _kind(value: object) -> str:
    return type(value).__name__


def _schema_of(cls: type[Message]) -> _Schema:
    # mypy takes the instances' __hash__ for that of the class.
    return _schema(cls)  # type: ignore[arg-type]


@cache
def _schema(cls: type[Message]) -> _Schema:
    if not is_dataclass(cls):
        raise TypeError(f"{cls.__name__} must be a dataclass")
    hints = get_type_hints(cls)
    names = tuple(field.name for field in fields(cls))
    kinds: list[type | None] = []
    packers = []
    unpackers = []
    for index, name in enumerate(names):
        kind = _plain_kind(hints[name])
        kinds.append(kind)
        if kind is None:
            pack, unpack = _converters(hints[name])
            unpackers.append((index, unpack))
            if pack is not None:
                packers.append((index, pack))
    required = [f.default is MISSING and f.default_factory is MISSING for f in fields(cls)]
    return _Schema(
        names,
        _getter(names),
        tuple(kinds),
        set(),
        tuple(packers),
        tuple(unpackers),
        sum(required),
    )


def _getter(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """All fields of a message as a sequence."""
    if not names:
        return lambda message: ()
    if len(names) == 1:
        return lambda message: (getattr(message, names[0]),)
    return attrgetter(*names)


def _check_kinds(cls: type[Message], schema: _Schema, values: list[Any]) -> None:
    """Check the fields that travel as they are, and that none is missing."""
    count = len(values)
    if count < schema.required_count:
        missing = schema.names[count]
        raise RemoteProtocolError(f"{cls.__name__}: {count} fields, {missing} is missing")
    for index, kind in enumerate(schema.kinds[:count]):
        if kind is not None and type(values[index]) is not kind:
            name, found = schema.names[index], _kind(values[index])
            raise RemoteProtocolError(
                f"{cls.__name__}.{name}: expected {kind.__name__}, got {found}"
            )


def _converted(cls: type[Message], schema: _Schema, values: list[Any]) -> list[Any]:
    """Convert the other fields; what lies beyond the known fields is a newer sender's."""
    arguments = values[: len(schema.names)]
    count = len(arguments)
    index = 0
    try:
        for index, unpack in schema.unpackers:
            if index < count:
                arguments[index] = unpack(arguments[index])
    except _Mismatch as error:
        raise RemoteProtocolError(f"{cls.__name__}.{schema.names[index]}: {error}") from None
    return arguments


def _plain_kind(hint: Any) -> type | None:
    """The type of a field that travels as it is; None for one that needs a conversion."""
    if hint is Utf8:
        return None
    while hasattr(hint, "__supertype__"):  # NewType
        hint = hint.__supertype__
    return hint if hint in (int, str, bytes, bool) else None


def _exactly(kind: type) -> Convert:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise _Mismatch(f"expected {kind.__name__}, got {_kind(value)}")
        return value

    return check


def _unpack_float(value: Any) -> float:
    if type(value) not in (int, float):
        raise _Mismatch(f"expected float, got {_kind(value)}")
    return float(value)


def _unpack_uuid(value: Any) -> UUID:
    if type(value) is not bytes or len(value) != 16:
        raise _Mismatch("expected 16 bytes")
    return _uuid_of(value)


@lru_cache(maxsize=4096)
def _uuid_of(value: bytes) -> UUID:
    """The same few topics and nodes are named in every fetch; making a UUID is slow."""
    return UUID(bytes=value)


def _pack_uuid(value: UUID) -> bytes:
    return value.bytes


def _unpack_utf8(value: Any) -> bytes:
    if type(value) is not str:
        raise _Mismatch(f"expected str, got {_kind(value)}")
    return value.encode()


def _converters(hint: Any) -> tuple[Convert | None, Convert]:
    if hint is Utf8:
        return bytes.decode, _unpack_utf8
    if hasattr(hint, "__supertype__"):  # NewType
        return _converters(hint.__supertype__)
    origin = get_origin(hint)
    if origin in (types.UnionType, Union):
        return _optional(hint)
    if origin is tuple:
        return _sequence(get_args(hint)[0])
    if origin is dict:
        return _mapping(get_args(hint)[1])
    if hint is float:
        return None, _unpack_float
    if hint in (int, str, bytes, bool):
        return None, _exactly(hint)
    if hint is UUID:
        return _pack_uuid, _unpack_uuid
    if isinstance(hint, type) and issubclass(hint, enum.IntEnum):
        return int, _enumeration(hint)
    if isinstance(hint, type) and issubclass(hint, Message):
        return hint.pack, hint.unpack
    raise TypeError(f"no wire form for {hint!r}")


def _enumeration(kind: type[enum.IntEnum]) -> Convert:
    members = {int(member): member for member in kind}

    def unpack(value: Any) -> enum.IntEnum:
        if type(value) is not int:
            raise _Mismatch(f"expected int, got {_kind(value)}")
        member = members.get(value)
        if member is None:
            raise _Mismatch(f"{value} is no {kind.__name__}")
        return member

    return unpack


def _optional(hint: Any) -> tuple[Convert | None, Convert]:
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    if len(kinds) != 1:
        raise TypeError(f"no wire form for {hint!r}")
    pack, unpack = _converters(kinds[0])

    def pack_optional(value: Any) -> Any:
        return None if value is None else pack(value)  # type: ignore[misc]

    def unpack_optional(value: Any) -> Any:
        return None if value is None else unpack(value)

    return (None if pack is None else pack_optional), unpack_optional


def _sequence(element: Any) -> tuple[Convert | None, Convert]:
    pack, unpack = _converters(element)

    def pack_all(values: Any) -> list[Any]:
        return list(values) if pack is None else [pack(value) for value in values]

    def unpack_all(values: Any) -> tuple[Any, ...]:
        if type(values) is not list:
            raise _Mismatch(f"expected an array, got {_kind(values)}")
        return tuple([unpack(value) for value in values])

    return pack_all, unpack_all


def _mapping(element: Any) -> tuple[Convert | None, Convert]:
    pack, unpack = _converters(element)

    def pack_all(values: Any) -> dict[str, Any]:
        return values if pack is None else {key: pack(value) for key, value in values.items()}

    def unpack_all(values: Any) -> dict[str, Any]:
        if type(values) is not dict:
            raise _Mismatch(f"expected a map, got {_kind(values)}")
        result = {}
        for key, value in values.items():
            if type(key) is not str:
                raise _Mismatch(f"expected text keys, got {_kind(key)}")
            result[key] = unpack(value)
        return result

    return pack_all, unpack_all
