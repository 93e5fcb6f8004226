"""How a message class says what it looks like on the wire, version by version.

A message is a dataclass derived from :class:`Struct`; the type of a field is one of the names
below, a tuple of them, or another struct. What differs between versions stands beside the type::

    member_id: Str
    group_instance_id: Annotated[NullableStr, since(5)] = None
    epoch: Annotated[I32, since(12), tag(0)] = -1

One description thus serves the readers and writers of all versions, which ``reading.py`` and
``writing.py`` make of it.

                     classic encoding           flexible encoding
    str              i16 length, -1 null        uvarint length + 1, 0 null
    bytes, records   i32 length, -1 null        uvarint length + 1, 0 null
    array            i32 count, -1 null         uvarint count + 1, 0 null
    end of a struct  nothing                    tag section: uvarint count, then for each
                                                uvarint tag, uvarint size, bytes; ascending

    i8 i16 i32 i64 f64 big-endian; bool i8; uuid 16 bytes;
    uvarint: groups of 7 bits, lowest first, high bit set on all but the last, at most 5 bytes

Source: Kafka's published message definitions.
"""

from __future__ import annotations

import enum
from functools import cache
from typing import Annotated, Any, NamedTuple, Protocol, get_args, get_origin, get_type_hints
from uuid import UUID

from paceline.values import dataclass

LAST_VERSION = 32767
NO_UUID = UUID(int=0)
NOT_ASKED = -(1 << 31)
"""In place of authorized operations that were not asked for."""


class Kind(enum.Enum):
    """The primitive types."""

    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    F64 = "f64"
    BOOL = "bool"
    UUID = "uuid"
    STR = "str"
    BYTES = "bytes"


FORMS = {Kind.I8: "b", Kind.I16: "h", Kind.I32: "i", Kind.I64: "q", Kind.F64: "d", Kind.BOOL: "?"}
"""Those of a number's width, in the terms of the standard library's ``struct``."""
SIZES = {
    Kind.I8: 1,
    Kind.BOOL: 1,
    Kind.I16: 2,
    Kind.I32: 4,
    Kind.I64: 8,
    Kind.F64: 8,
    Kind.UUID: 16,
}


@dataclass(frozen=True, slots=True)
class _Primitive:
    kind: Kind
    nullable: bool = False


I8 = Annotated[int, _Primitive(Kind.I8)]
I16 = Annotated[int, _Primitive(Kind.I16)]
I32 = Annotated[int, _Primitive(Kind.I32)]
I64 = Annotated[int, _Primitive(Kind.I64)]
F64 = Annotated[float, _Primitive(Kind.F64)]
Bool = Annotated[bool, _Primitive(Kind.BOOL)]
Uuid = Annotated[UUID, _Primitive(Kind.UUID)]
Str = Annotated[str, _Primitive(Kind.STR)]
NullableStr = Annotated[str | None, _Primitive(Kind.STR, nullable=True)]
Bytes = Annotated[bytes | memoryview, _Primitive(Kind.BYTES)]
"""Read as a view of the frame: copy what outlives it."""


class Apart(Protocol):
    """Bytes that are sent beside the message they belong to, such as a range of a file."""

    @property
    def size(self) -> int:
        """How many bytes they are."""


Records = Annotated[bytes | memoryview | Apart | None, _Primitive(Kind.BYTES, nullable=True)]
"""A run of batches. Read as a view of the frame; to be written it may lie apart."""


@dataclass(frozen=True, slots=True)
class _Versions:
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Tag:
    number: int


@dataclass(frozen=True, slots=True)
class _NullableSince:
    version: int


def since(first: int) -> _Versions:
    """The field is there from this version on."""
    return _Versions(first, LAST_VERSION)


def between(first: int, last: int) -> _Versions:
    """The field is there in these versions, both included."""
    return _Versions(first, last)


def until(last: int) -> _Versions:
    """The field is there up to this version."""
    return _Versions(0, last)


def tag(number: int) -> _Tag:
    """The field stands in the tag section of its struct, and only when it is not the default."""
    return _Tag(number)


def nullable_since(version: int) -> _NullableSince:
    """Null is allowed from this version on; below it None is written as an empty value."""
    return _NullableSince(version)


@dataclass(frozen=True, slots=True)
class _ShortCount:
    pass


def short_count() -> _ShortCount:
    """The count of the array is an i16; only in classic encoding."""
    return _ShortCount()


class Struct:
    """Base of messages and of their parts."""

    __slots__ = ()


class Array(NamedTuple):
    """The type of an array field."""

    item: FieldType
    nullable: bool = False
    has_short_count: bool = False


FieldType = _Primitive | Array | type[Struct]


class Field(NamedTuple):
    """One field of a struct: where it stands and how it is encoded."""

    name: str
    type: FieldType
    first: int
    last: int
    tag: int | None
    nullable_since: int

    def is_in(self, version: int) -> bool:
        """Whether messages of this version have the field."""
        return self.first <= version <= self.last


def fields_of(struct: type[Struct]) -> tuple[Field, ...]:
    """The fields in wire order. Raises TypeError for a description that means nothing."""
    # mypy takes the instances' __hash__ for that of the class.
    return _fields_of(struct)  # type: ignore[arg-type]


@cache
def _fields_of(struct: type[Struct]) -> tuple[Field, ...]:
    hints = get_type_hints(struct, include_extras=True)
    return tuple(_field(struct, name, hint) for name, hint in hints.items())


def _field(struct: type[Struct], name: str, hint: Any) -> Field:
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    versions = next((extra for extra in extras if isinstance(extra, _Versions)), since(0))
    number = next((extra.number for extra in extras if isinstance(extra, _Tag)), None)
    nullable = next((extra.version for extra in extras if isinstance(extra, _NullableSince)), 0)
    place = f"{struct.__name__}.{name}"
    return Field(name, _type(place, hint), versions.first, versions.last, number, nullable)


def _type(place: str, hint: Any) -> FieldType:
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        primitive = next((extra for extra in extras if isinstance(extra, _Primitive)), None)
        if primitive is not None:
            return primitive
        found = _type(place, inner)
        if isinstance(found, Array) and any(isinstance(extra, _ShortCount) for extra in extras):
            return found._replace(has_short_count=True)
        return found
    options = [option for option in get_args(hint) if option is not type(None)]
    if type(None) in get_args(hint) and len(options) == 1:
        array = _type(place, options[0])
        if isinstance(array, Array):
            return array._replace(nullable=True)
    elif get_origin(hint) is tuple:
        return Array(_type(place, get_args(hint)[0]))
    elif isinstance(hint, type) and issubclass(hint, Struct):
        return hint
    raise TypeError(f"{place}: {hint} has no encoding")


def split(struct: type[Struct], version: int) -> tuple[list[Field], list[tuple[int, Field]]]:
    """The fields that a version has: those in place, and those of the tag section by number."""
    present = [field for field in fields_of(struct) if field.is_in(version)]
    tagged = [(field.tag, field) for field in present if field.tag is not None]
    return [field for field in present if field.tag is None], sorted(tagged)


def primitive(field_type: FieldType) -> tuple[Kind, bool] | None:
    """Kind and nullability of a primitive type; None for arrays and structs."""
    if isinstance(field_type, _Primitive):
        return field_type.kind, field_type.nullable
    return None


def has_more_items(message: Struct, at_most: int) -> bool:
    """Whether the arrays of a message have more than ``at_most`` items in all; looks at no more of
    them than that."""
    return _items_left(message, at_most) < 0


def _items_left(message: Struct, left: int) -> int:
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if isinstance(value, Struct):
            left = _items_left(value, left)
        elif isinstance(value, tuple):
            left -= len(value)
            if left >= 0 and value and isinstance(value[0], Struct):
                for item in value:
                    left = _items_left(item, left)
                    if left < 0:
                        return left
        if left < 0:
            return left
    return left
