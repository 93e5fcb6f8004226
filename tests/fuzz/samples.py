"""Random valid messages, made from the types of their fields."""

from __future__ import annotations

import dataclasses
import enum
import random
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, Union
from uuid import UUID

from paceline.wire.message import Message

_TEXTS = ("", "a", "orders", "__groups", "ключ", "x" * 300)


def subclasses(module: types.ModuleType) -> list[type[Message]]:
    """The messages that a module defines."""
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Message)
        and each is not Message
        and each.__module__ == module.__name__
    ]


@cache
def _hints(cls: type[Message]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}  # type: ignore[arg-type]


def sample(cls: type[Message], rng: random.Random) -> Message:
    """A message of that class with random fields."""
    return cls(**{name: _value(hint, rng) for name, hint in _hints(cls).items()})


def _value(hint: Any, rng: random.Random) -> Any:
    hint = getattr(hint, "__supertype__", hint)
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _value(rng.choice(typing.get_args(hint)), rng)
    if origin is tuple:
        element, *_ = typing.get_args(hint)
        return tuple(_value(element, rng) for _ in range(rng.choice((0, 1, 3))))
    if origin is dict:
        kind = typing.get_args(hint)[1]
        return {text: _value(kind, rng) for text in rng.sample(_TEXTS, k=2)}
    if isinstance(hint, type) and issubclass(hint, enum.IntEnum):
        return rng.choice(list(hint))
    if isinstance(hint, type) and issubclass(hint, Message):
        return sample(hint, rng)
    return _PLAIN[hint](rng)


_PLAIN: dict[Any, Any] = {
    int: lambda rng: rng.choice((-1, 0, 1, 7, 300, 2**31 - 1, 2**63 - 1)),
    float: lambda rng: rng.random(),
    bool: lambda rng: rng.random() < 0.5,
    str: lambda rng: rng.choice(_TEXTS),
    bytes: lambda rng: rng.randbytes(rng.choice((0, 1, 16, 100))),
    UUID: lambda rng: UUID(int=rng.getrandbits(128)),
    type(None): lambda rng: None,
}


def each(modules: typing.Iterable[types.ModuleType]) -> Iterator[type[Message]]:
    """The messages of several modules."""
    for module in modules:
        yield from subclasses(module)
