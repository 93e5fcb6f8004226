"""Readers made from the descriptions of ``layout.py``, one for each struct and version.

What a frame claims is bounded before anything is made of it: no length beyond the frame's end, no
count of items beyond what the rest of the frame could hold, nor beyond :data:`MAX_ITEMS` in the
whole message, since the smallest items take three bytes of a frame and hundreds of memory. Unknown
tagged fields are skipped, as the protocol demands. Neighbouring numbers are read at once, since
most of a message is numbers.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from paceline.errors import RemoteProtocolError
from paceline.wire.kafka.layout import (
    FORMS,
    SIZES,
    Array,
    Field,
    FieldType,
    Kind,
    Struct,
    primitive,
    split,
)

MAX_ITEMS = 32_768
"""Entries of all arrays and tag sections of one message; of partitions, say, and their topics."""


class TooManyItems(RemoteProtocolError):
    """More items than the reader was to read."""


class ItemBudget:
    """How many more items a message may have."""

    __slots__ = ("_left", "_whole")

    def __init__(self, at_most: int = MAX_ITEMS) -> None:
        self._left = self._whole = at_most

    def take(self, name: str, count: int) -> None:
        """Count items that are about to be read. Raises TooManyItems."""
        self._left -= count
        if self._left < 0:
            raise TooManyItems(
                f"{name}: {count} items announced, {self._left + count} are left of the "
                f"{self._whole} that a message may have; ask in several"
            )


Read = Callable[[memoryview, int, ItemBudget], tuple[Any, int]]
"""From the frame and a position in it to the value there and the position after it."""
Length = Callable[[memoryview, int], tuple[int, int]]
Step = Callable[[memoryview, int, ItemBudget, dict[str, Any]], int]
"""Reads some fields into the dictionary and tells the position after them."""
S = TypeVar("S", bound=Struct)

_UVARINT_BYTES = 5
_I16 = struct.Struct(">h").unpack_from
_I32 = struct.Struct(">i").unpack_from


def read_struct(
    cls: type[S],
    version: int,
    data: memoryview,
    start: int,
    *,
    flexible: bool,
    may_go_on: bool = False,
    at_most: int = MAX_ITEMS,
) -> S:
    """Decode the body that takes the rest of ``data``. Raises RemoteProtocolError, also for bytes
    that are left over, unless the message ``may_go_on``; TooManyItems above ``at_most``."""
    try:
        value, position = reader(cls, version, flexible)(data, start, ItemBudget(at_most))
    except (struct.error, IndexError):
        raise RemoteProtocolError(
            f"{cls.__name__} version {version} is cut short: it goes on after its {len(data)} bytes"
        ) from None
    except RemoteProtocolError as error:
        raise type(error)(f"{cls.__name__} version {version}: {error}") from None
    if position != len(data) and not may_go_on:
        raise RemoteProtocolError(
            f"{cls.__name__} version {version}: {len(data) - position} bytes follow the message"
        )
    message: S = value
    return message


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    """The number at ``position`` and the position after it. Raises IndexError at the end."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = 0
    for shift in range(0, 7 * _UVARINT_BYTES, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise RemoteProtocolError(f"a uvarint longer than 5 bytes before byte {position}")


def skip_tags(data: memoryview, position: int) -> int:
    """The position after a tag section of which nothing is known. Raises RemoteProtocolError, and
    IndexError at the end."""
    count, position = read_uvarint(data, position)
    ItemBudget().take("tagged fields", count)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position = _after("a tagged field", data, position, size)
    return position


def reader(cls: type[Struct], version: int, flexible: bool) -> Read:
    """The reader of one struct in one version."""
    # mypy takes the instances' __hash__ for that of the class.
    return _reader(cls, version, flexible)  # type: ignore[arg-type]


@cache
def _reader(cls: type[Struct], version: int, flexible: bool) -> Read:
    in_place, tagged = split(cls, version)
    steps = _steps(in_place, version, flexible)
    by_tag = {
        number: (field.name, _type_reader(field, field.type, version, flexible))
        for number, field in tagged
    }

    def read(data: memoryview, position: int, budget: ItemBudget) -> tuple[Struct, int]:
        values: dict[str, Any] = {}
        for step in steps:
            position = step(data, position, budget, values)
        return cls(**values), position

    def read_flexible(data: memoryview, position: int, budget: ItemBudget) -> tuple[Struct, int]:
        values: dict[str, Any] = {}
        for step in steps:
            position = step(data, position, budget, values)
        if data[position]:
            position = _read_tags(data, position, budget, by_tag, values)
        else:
            position += 1
        return cls(**values), position

    return read_flexible if flexible else read


def _read_tags(
    data: memoryview,
    position: int,
    budget: ItemBudget,
    known: dict[int, tuple[str, Read]],
    values: dict[str, Any],
) -> int:
    count, position = read_uvarint(data, position)
    budget.take("tagged fields", count)
    previous = -1
    for _ in range(count):
        number, position = read_uvarint(data, position)
        if number <= previous:
            raise RemoteProtocolError(f"tag {number} after tag {previous}")
        previous = number
        size, position = read_uvarint(data, position)
        end = _after(f"tag {number}", data, position, size)
        if number in known:
            name, read = known[number]
            values[name], read_to = read(data, position, budget)
            if read_to != end:
                raise RemoteProtocolError(f"{name} takes {read_to - position} bytes, not {size}")
        position = end
    return position


def _steps(fields: list[Field], version: int, flexible: bool) -> list[Step]:
    steps: list[Step] = []
    for form, run in itertools.groupby(fields, key=_is_number):
        if form:
            steps.append(_numbers_step(list(run)))
        else:
            steps += [_field_step(field, version, flexible) for field in run]
    return steps


def _is_number(field: Field) -> bool:
    simple = primitive(field.type)
    return simple is not None and simple[0] in FORMS


def _numbers_step(fields: list[Field]) -> Step:
    names = [field.name for field in fields]
    form = struct.Struct(">" + "".join(_form(field) for field in fields))
    size, unpack = form.size, form.unpack_from

    def step(data: memoryview, position: int, _room: ItemBudget, values: dict[str, Any]) -> int:
        values.update(zip(names, unpack(data, position), strict=True))
        return position + size

    return step


def _form(field: Field) -> str:
    simple = primitive(field.type)
    assert simple is not None
    return FORMS[simple[0]]


def _field_step(field: Field, version: int, flexible: bool) -> Step:
    name = field.name
    read = _type_reader(field, field.type, version, flexible)

    def step(data: memoryview, position: int, budget: ItemBudget, values: dict[str, Any]) -> int:
        values[name], position = read(data, position, budget)
        return position

    return step


def _type_reader(field: Field, field_type: FieldType, version: int, flexible: bool) -> Read:
    null_allowed = version >= field.nullable_since
    simple = primitive(field_type)
    if simple is not None:
        kind, nullable = simple
        return _primitive_reader(field.name, kind, flexible, nullable=nullable and null_allowed)
    if isinstance(field_type, Array):
        nullable = field_type.nullable and null_allowed
        return _array_reader(field, field_type, version, flexible, nullable=nullable)
    assert isinstance(field_type, type)
    return reader(field_type, version, flexible)


def _primitive_reader(name: str, kind: Kind, flexible: bool, *, nullable: bool) -> Read:
    if kind in FORMS:
        form = struct.Struct(">" + FORMS[kind])
        return lambda data, position, _room: (
            form.unpack_from(data, position)[0],
            position + form.size,
        )
    if kind is Kind.UUID:
        return _read_uuid
    length = _length_reader(kind, flexible)

    def read_bytes(data: memoryview, position: int, _room: ItemBudget) -> tuple[Any, int]:
        size, position = length(data, position)
        if size < 0:
            _require_null(name, size, nullable)
            return None, position
        end = _after(name, data, position, size)
        return data[position:end], end

    def read_text(data: memoryview, position: int, _room: ItemBudget) -> tuple[Any, int]:
        size, position = length(data, position)
        if size < 0:
            _require_null(name, size, nullable)
            return None, position
        end = _after(name, data, position, size)
        try:
            return str(data[position:end], "utf-8"), end
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"{name} is not UTF-8: {error.reason}") from None

    return read_text if kind is Kind.STR else read_bytes


def _read_uuid(data: memoryview, position: int, _room: ItemBudget) -> tuple[UUID, int]:
    end = _after("uuid", data, position, 16)
    return UUID(bytes=bytes(data[position:end])), end


def _length_reader(kind: Kind, flexible: bool) -> Length:
    if flexible:

        def read_compact(data: memoryview, position: int) -> tuple[int, int]:
            length, position = read_uvarint(data, position)
            return length - 1, position

        return read_compact
    if kind is Kind.STR:
        return lambda data, position: (_I16(data, position)[0], position + 2)
    return lambda data, position: (_I32(data, position)[0], position + 4)


def _after(name: str, data: memoryview, position: int, size: int) -> int:
    end = position + size
    if end > len(data):
        raise RemoteProtocolError(
            f"{name} at byte {position}: {size} bytes announced, {len(data) - position} are left"
        )
    return end


def _require_null(name: str, size: int, nullable: bool) -> None:
    if size != -1:
        raise RemoteProtocolError(f"{name} has length {size}")
    if not nullable:
        raise RemoteProtocolError(f"{name} is null where a value is required")


def _array_reader(
    field: Field, array: Array, version: int, flexible: bool, *, nullable: bool
) -> Read:
    name = field.name
    read = _type_reader(field, array.item, version, flexible)
    length = _length_reader(Kind.STR if array.has_short_count else Kind.BYTES, flexible)
    smallest = _smallest(array.item, version, flexible)

    def read_array(data: memoryview, position: int, budget: ItemBudget) -> tuple[Any, int]:
        count, position = length(data, position)
        if count < 0:
            _require_null(name, count, nullable)
            return None, position
        if count * smallest > len(data) - position:
            raise RemoteProtocolError(
                f"{name} at byte {position}: {count} items announced, "
                f"{len(data) - position} bytes are left for them"
            )
        budget.take(name, count)
        items = []
        for _ in range(count):
            value, position = read(data, position, budget)
            items.append(value)
        return tuple(items), position

    return read_array


def _smallest(field_type: FieldType, version: int, flexible: bool) -> int:
    """The least that a value takes, in bytes: at least one, so that a count is always bounded."""
    simple = primitive(field_type)
    if simple is not None:
        kind = simple[0]
        return SIZES.get(kind) or (1 if flexible else 2 if kind is Kind.STR else 4)
    if isinstance(field_type, Array):
        return 1 if flexible else 2 if field_type.has_short_count else 4
    assert isinstance(field_type, type)
    in_place, _ = split(field_type, version)
    total = sum(_smallest(field.type, version, flexible) for field in in_place)
    return max(1, total + flexible)
