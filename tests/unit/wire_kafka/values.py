"""Random messages made from the descriptions that the codec reads."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from paceline.wire.kafka.layout import Array, Field, FieldType, Kind, Struct, fields_of, primitive

_BOUNDS = {Kind.I8: 1 << 7, Kind.I16: 1 << 15, Kind.I32: 1 << 31, Kind.I64: 1 << 63}
_TEXTS = ("", "a", "orders", "ключ", "x" * 200)


class Values:
    """Makes values of any layout; ``errors`` are the error numbers that may stand in codes, and
    ``longest_ms`` bounds times, since not every codec can hold every number there."""

    def __init__(self, rng: random.Random, *, errors: tuple[int, ...], longest_ms: int) -> None:
        self._rng = rng
        self._errors = errors
        self._longest_ms = longest_ms

    def message(self, cls: type[Struct], version: int) -> Struct:
        values = {
            field.name: self._field(field, version)
            for field in fields_of(cls)
            if field.is_in(version)
        }
        return cls(**values)

    def _field(self, field: Field, version: int) -> Any:
        if field.name.endswith("error_code"):
            return self._rng.choice(self._errors)
        if field.name.endswith(("_ms", "timestamp")):
            return self._rng.randrange(self._longest_ms)
        return self._value(field.type, version, null_allowed=version >= field.nullable_since)

    def _value(self, field_type: FieldType, version: int, *, null_allowed: bool = True) -> Any:
        simple = primitive(field_type)
        if simple is not None:
            kind, nullable = simple
            if nullable and null_allowed and self._rng.random() < 0.3:
                return None
            return self._primitive(kind)
        if isinstance(field_type, Array):
            if field_type.nullable and null_allowed and self._rng.random() < 0.2:
                return None
            count = self._rng.choice((0, 1, 2, 2, 3, 130 if simple else 3))
            return tuple(self._value(field_type.item, version) for _ in range(count))
        assert isinstance(field_type, type)
        return self.message(field_type, version)

    def _primitive(self, kind: Kind) -> Any:
        if kind in _BOUNDS:
            bound = self._rng.choice((2, 100, _BOUNDS[kind]))
            return self._rng.randrange(-bound, bound) if bound > 2 else self._rng.randrange(2)
        if kind is Kind.BOOL:
            return self._rng.random() < 0.5
        if kind is Kind.F64:
            return self._rng.choice((0.0, -1.5, 1e300, self._rng.random()))
        if kind is Kind.UUID:
            return UUID(int=self._rng.getrandbits(128) | 1)
        if kind is Kind.STR:
            return self._rng.choice(_TEXTS)
        return self._rng.randbytes(self._rng.choice((0, 1, 100, 127, 128, 300)))
