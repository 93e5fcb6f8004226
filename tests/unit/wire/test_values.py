"""Value classes behave as those of the standard decorator does, and are frozen when they say so."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field, fields, is_dataclass, replace
from typing import ClassVar, get_type_hints

import pytest

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


def test_a_frozen_one_refuses_assignment_and_keeps_its_hash() -> None:
    for one in (Point(1), Named(1, name="a"), Alone(3)):
        before = hash(one)
        for name in [each.name for each in fields(one)] + ["other"]:
            with pytest.raises(FrozenInstanceError, match=name):
                setattr(one, name, 9)
            with pytest.raises(FrozenInstanceError, match=name):
                delattr(one, name)
        assert hash(one) == before


@dataclass(slots=True)
class Mutable:
    x: int
    seen: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keywords:
    limit: int
    names: tuple[str, ...] = field(default_factory=tuple)
    total: int = field(init=False, default=5)
    late: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "late", self.limit + 1)


@pytest.mark.parametrize("one", [Named(1, name="a"), Nothing(), Mutable(3, [4]), Keywords(limit=1)])
def test_it_is_copied_and_pickled(one: object) -> None:
    for other in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert other == one
        assert other is not one


def test_fields_that_are_set_by_name_by_a_factory_or_by_the_class_itself() -> None:
    one = Keywords(limit=2)
    assert (one.limit, one.names, one.total, one.late) == (2, (), 5, 3)
    assert Keywords(limit=2, names=("a",)).names == ("a",)
    with pytest.raises(TypeError, match=r"Keywords.__init__\(\) takes 1 positional"):
        Keywords(2)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required"):
        Point()  # type: ignore[call-arg]
    assert Mutable(1).seen is not Mutable(1).seen
    given: list[int] = []
    assert Mutable(1, given).seen is given


def test_one_that_is_not_frozen_may_change_and_has_no_hash() -> None:
    one = Mutable(1)
    one.x = 2
    assert one == Mutable(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)

    @dataclass(slots=True, eq=False)
    class Told:
        x: int

    assert Told(1) != Told(1)
    assert len({Told(1), Told(1)}) == 2


def test_methods_are_made_when_first_used_and_look_as_written() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        x: int
        y: int = 7

    class Under(Fresh):
        pass

    made = {name: vars(Fresh)[name] for name in ("__init__", "__eq__", "__hash__", "__repr__")}
    assert not any(inspect.isfunction(each) for each in made.values())
    assert (Under(1), hash(Under(1))) == (Under(1, 7), hash((1, 7)))
    assert repr(Under(1)).endswith("Under(x=1, y=7)")
    assert all(inspect.isfunction(vars(Fresh)[name]) for name in made)
    assert [*inspect.signature(Fresh).parameters] == ["x", "y"]
    assert get_type_hints(Fresh.__init__) == {"x": int, "y": int}


def test_it_is_a_dataclass_with_slots() -> None:
    assert is_dataclass(Point)
    assert [each.name for each in fields(Point)] == ["x", "y", "note"]
    assert replace(Point(1), y=2) == Point(1, 2)
    assert not hasattr(Point(1), "__dict__")
    assert (Point.__doc__, Named.__doc__) == ("Point", "A point with a name.")


def test_other_options_are_the_standard_ones() -> None:
    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        x: int

    @dataclass
    class Open:
        x: int

    assert Ordered(1) < Ordered(2)
    assert vars(Open(1)) == {"x": 1}


def test_class_variables_are_no_part_of_a_value() -> None:
    @dataclass(frozen=True, slots=True)
    class Kind:
        NUMBER: ClassVar[int] = 7
        name: str

    assert repr(Kind("a")).endswith("Kind(name='a')")
