"""Typed messages over msgpack: frozen dataclasses that pack to positional arrays.

A message class derives from :class:`Message` and is a frozen, slotted dataclass. Its fields, in
order, are the elements of a msgpack array. Compatibility is additive: a reader ignores elements
beyond those it knows, and a field with a default may be missing at the end.

Field types: ``int str bytes bool float``, ``UUID`` (16 bytes), an ``IntEnum`` (its number),
``NewType`` of those, ``T | None``, ``tuple[T, ...]``, ``dict[str, T]`` and other messages. Every
value is checked when unpacked; a wrong one raises RemoteProtocolError naming class and field.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Self, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgpack

from paceline.errors import RemoteProtocolError

Convert = Callable[[Any], Any]


class _Mismatch(Exception):
    """A value of the wrong kind; turned into RemoteProtocolError with its place named."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    pack: Convert | None  # None: the value is packed as it is
    unpack: Convert
    required: bool


class Message:
    """Base of all packed messages; adds :meth:`pack` and :meth:`unpack` to a dataclass."""

    __slots__ = ()

    def pack(self) -> list[Any]:
        """The positional array of this message, ready for msgpack."""
        return [
            getattr(self, f.name) if f.pack is None else f.pack(getattr(self, f.name))
            for f in _schema_of(type(self))
        ]

    @classmethod
    def unpack(cls, values: Any) -> Self:
        """Build from a decoded array. Raises RemoteProtocolError naming the bad field."""
        schema = _schema_of(cls)
        if type(values) is not list:
            raise RemoteProtocolError(f"{cls.__name__}: expected an array, got {_kind(values)}")
        arguments = []
        count = len(values)
        for index, field in enumerate(schema):
            if index >= count:
                if field.required:
                    raise RemoteProtocolError(
                        f"{cls.__name__}: {count} fields, {field.name} is missing"
                    )
                break
            try:
                arguments.append(field.unpack(values[index]))
            except _Mismatch as error:
                raise RemoteProtocolError(f"{cls.__name__}.{field.name}: {error}") from None
        return cls(*arguments)

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
            strict_map_key=False,
            use_list=True,
            max_str_len=len(data),
            max_bin_len=len(data),
            max_array_len=len(data),
            max_map_len=len(data),
        )
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise RemoteProtocolError(f"not a msgpack header: {error}") from None
    if type(value) is not list:
        raise RemoteProtocolError(f"expected a msgpack array, got {_kind(value)}")
    return value


def _kind(value: object) -> str:
    return type(value).__name__


def _schema_of(cls: type[Message]) -> tuple[_Field, ...]:
    # mypy takes the instances' __hash__ for that of the class.
    return _schema(cls)  # type: ignore[arg-type]


@cache
def _schema(cls: type[Message]) -> tuple[_Field, ...]:
    if not is_dataclass(cls):
        raise TypeError(f"{cls.__name__} must be a dataclass")
    hints = get_type_hints(cls)
    result = []
    for field in fields(cls):
        pack, unpack = _converters(hints[field.name])
        required = field.default is MISSING and field.default_factory is MISSING
        result.append(_Field(field.name, pack, unpack, required))
    return tuple(result)


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
    return UUID(bytes=value)


def _pack_uuid(value: UUID) -> bytes:
    return value.bytes


def _converters(hint: Any) -> tuple[Convert | None, Convert]:
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
    def unpack(value: Any) -> enum.IntEnum:
        if type(value) is not int:
            raise _Mismatch(f"expected int, got {_kind(value)}")
        try:
            return kind(value)
        except ValueError:
            raise _Mismatch(f"{value} is no {kind.__name__}") from None

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
