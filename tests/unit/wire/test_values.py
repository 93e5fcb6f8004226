"""Value classes behave as those of the standard decorator, but for assignment at run time."""

from __future__ import annotations

import dataclasses
from dataclasses import field, fields, is_dataclass, replace
from typing import ClassVar

from paceline.values import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 7
    note: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Named(Point):
    """A point with a name."""

    name: str = ""

    def __repr__(self) -> str:
        return f"<{self.name}>"


@dataclass(frozen=True, slots=True)
class Nothing:
    """No fields at all."""


@dataclass(frozen=True, slots=True)
class Alone:
    value: int


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    x: int
    y: int = 7


def test_equality_hash_and_text() -> None:
    assert Point(1) == Point(1, 7, "told apart by nothing")
    assert Point(1) != Point(2)
    assert Point(1).__eq__(Standard(1)) is NotImplemented
    assert hash(Point(1, note="a")) == hash(Point(1, note="b"))
    assert repr(Point(1)) == repr(Standard(1)).replace("Standard", "Point")
    assert (Nothing(), hash(Nothing()), repr(Nothing())) == (Nothing(), hash(()), "Nothing()")
    assert (Alone(3) == Alone(3), Alone(3) == Alone(4)) == (True, False)


def test_what_a_class_defines_itself_stays() -> None:
    assert repr(Named(1, name="corner")) == "<corner>"
    assert Named(1, name="corner") != Named(1, name="edge")
    assert Point(1) != Named(1)


def test_it_is_a_dataclass_with_slots() -> None:
    assert is_dataclass(Point)
    assert [each.name for each in fields(Point)] == ["x", "y", "note"]
    assert replace(Point(1), y=2) == Point(1, 2)
    assert not hasattr(Point(1), "__dict__")
    assert (Point.__doc__, Named.__doc__) == ("Point", "A point with a name.")


def test_other_options_are_the_standard_ones() -> None:
    @dataclass(slots=True)
    class Mutable:
        x: int

    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        x: int

    one = Mutable(1)
    one.x = 2
    assert one == Mutable(2)
    assert Ordered(1) < Ordered(2)


def test_class_variables_are_no_part_of_a_value() -> None:
    @dataclass(frozen=True, slots=True)
    class Kind:
        NUMBER: ClassVar[int] = 7
        name: str

    assert repr(Kind("a")).endswith("Kind(name='a')")
