"""Writers made from the descriptions of ``layout.py``, one for each struct and version."""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, cast

from paceline.wire.kafka.layout import (
    FORMS,
    Apart,
    Array,
    Field,
    FieldType,
    Kind,
    Struct,
    primitive,
    split,
)

Write = Callable[[bytearray, Any], None]

_I16 = struct.Struct(">h").pack
_I32 = struct.Struct(">i").pack


class Parts(bytearray):
    """A message under way, and where in it bytes belong that are sent apart."""

    def __init__(self, start: bytes | bytearray = b"") -> None:
        super().__init__(start)
        self.gaps: list[tuple[int, Apart]] = []


def write_struct(out: bytearray, value: Struct, version: int, *, flexible: bool) -> None:
    """Append the encoding of ``value``; fields that the version does not have are left out.

    Where ``value`` has bytes that lie apart, ``out`` must be :class:`Parts`.
    """
    writer(type(value), version, flexible)(out, value)


def write_uvarint(out: bytearray, value: int) -> None:
    """Append ``value`` (0 to 2**32 - 1) in groups of seven bits."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def writer(cls: type[Struct], version: int, flexible: bool) -> Write:
    """The writer of one struct in one version."""
    # mypy takes the instances' __hash__ for that of the class.
    return _writer(cls, version, flexible)  # type: ignore[arg-type]


@cache
def _writer(cls: type[Struct], version: int, flexible: bool) -> Write:
    in_place, tagged = split(cls, version)
    steps = _steps(in_place, version, flexible)
    if flexible:
        steps.append(_tags_step(cls, tagged, version) if tagged else _no_tags)

    def write(out: bytearray, value: Any) -> None:
        for step in steps:
            step(out, value)

    return write


def _no_tags(out: bytearray, _value: Any) -> None:
    out.append(0)


def _tags_step(cls: type[Struct], tagged: list[tuple[int, Field]], version: int) -> Write:
    # mypy does not see that the structs are dataclasses.
    defaults = {field.name: field.default for field in dataclasses.fields(cast(Any, cls))}
    writes = [(number, field.name, _field_writer(field, version, True)) for number, field in tagged]

    def step(out: bytearray, value: Any) -> None:
        given = [entry for entry in writes if getattr(value, entry[1]) != defaults[entry[1]]]
        write_uvarint(out, len(given))
        for number, name, write_field in given:
            part = bytearray()
            write_field(part, getattr(value, name))
            write_uvarint(out, number)
            write_uvarint(out, len(part))
            out += part

    return step


def _steps(fields: list[Field], version: int, flexible: bool) -> list[Write]:
    steps: list[Write] = []
    for form, run in itertools.groupby(fields, key=_form):
        if form is None:
            steps += [_field_step(field, version, flexible) for field in run]
        else:
            steps.append(_numbers_step(list(run)))
    return steps


def _form(field: Field) -> bool | None:
    simple = primitive(field.type)
    return True if simple is not None and simple[0] in FORMS else None


def _numbers_step(fields: list[Field]) -> Write:
    kinds = [primitive(field.type) for field in fields]
    pack = struct.Struct(">" + "".join(FORMS[kind[0]] for kind in kinds if kind is not None)).pack
    get = attrgetter(*[field.name for field in fields])
    if len(fields) == 1:

        def step_one(out: bytearray, value: Any) -> None:
            out += pack(get(value))

        return step_one

    def step(out: bytearray, value: Any) -> None:
        out += pack(*get(value))

    return step


def _field_step(field: Field, version: int, flexible: bool) -> Write:
    get = attrgetter(field.name)
    write = _field_writer(field, version, flexible)
    return lambda out, value: write(out, get(value))


def _field_writer(field: Field, version: int, flexible: bool) -> Write:
    write = _type_writer(field.type, version, flexible)
    if version >= field.nullable_since:
        return write
    empty: str | tuple[()] = () if isinstance(field.type, Array) else ""
    return lambda out, value: write(out, empty if value is None else value)


def _type_writer(field_type: FieldType, version: int, flexible: bool) -> Write:
    simple = primitive(field_type)
    if simple is not None:
        return _primitive_writer(simple[0], flexible)
    if isinstance(field_type, Array):
        return _array_writer(field_type, version, flexible)
    assert isinstance(field_type, type)
    return writer(field_type, version, flexible)


def _primitive_writer(kind: Kind, flexible: bool) -> Write:
    if kind in FORMS:
        pack = struct.Struct(">" + FORMS[kind]).pack
        return lambda out, value: out.extend(pack(value))
    if kind is Kind.UUID:
        return lambda out, value: out.extend(value.bytes)
    length = _length_writer(kind, flexible)

    def write_bytes(out: bytearray, value: Any) -> None:
        if value is None:
            length(out, -1)
            return
        if hasattr(value, "size"):
            length(out, value.size)
            out.gaps.append((len(out), value))  # type: ignore[attr-defined]  # it is Parts
            return
        length(out, len(value))
        out += value

    def write_text(out: bytearray, value: Any) -> None:
        write_bytes(out, None if value is None else value.encode())

    return write_text if kind is Kind.STR else write_bytes


def _length_writer(kind: Kind, flexible: bool) -> Callable[[bytearray, int], None]:
    if flexible:
        return lambda out, length: write_uvarint(out, length + 1)
    pack = _I16 if kind is Kind.STR else _I32
    return lambda out, length: out.extend(pack(length))


def _array_writer(array: Array, version: int, flexible: bool) -> Write:
    write = _type_writer(array.item, version, flexible)
    length = _length_writer(Kind.STR if array.has_short_count else Kind.BYTES, flexible)

    def write_array(out: bytearray, items: Sequence[Any] | None) -> None:
        if items is None:
            length(out, -1)
            return
        length(out, len(items))
        for item in items:
            write(out, item)

    return write_array
