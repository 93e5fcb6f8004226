"""``dataclass`` as everywhere, but frozen, slotted classes are made quickly.

A process of ours makes some 250 value classes while it starts. For each the standard decorator
compiles six functions, which together took a fifth of the start of a node. Here ``__init__`` alone
is compiled, and the other methods are closures over the names of the fields. That nobody assigns to
a field is checked by mypy, where this is the standard decorator, and no longer at run time; so
making an instance takes a third of the time, too.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from functools import partial

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, **options):
        """As :func:`dataclasses.dataclass`, quick where exactly ``frozen`` and ``slots`` are on."""
        if cls is not None or options or not (frozen and slots):
            options |= {"frozen": frozen, "slots": slots, "kw_only": kw_only}
            return dataclasses.dataclass(cls, **options)
        return partial(_value_class, kw_only=kw_only)

    def _value_class(cls, *, kw_only):
        # Without a docstring the standard decorator writes one from the signature: slow, unread.
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__
        own = vars(cls)
        made = dataclasses.dataclass(cls, slots=True, eq=False, repr=False, kw_only=kw_only)
        for name, method in _methods(dataclasses.fields(made)).items():
            if name not in own:
                setattr(made, name, method)
        return made

    def _methods(fields):
        names = [field.name for field in fields if field.compare]
        shown = tuple(field.name for field in fields if field.repr)
        values = attrgetter(*names) if names else lambda instance: ()

        def equals(self, other):
            if other.__class__ is not self.__class__:
                return NotImplemented
            return values(self) == values(other)

        def hashed(self):
            return hash(values(self))

        def text(self):
            inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
            return f"{self.__class__.__qualname__}({inside})"

        return {"__eq__": equals, "__hash__": hashed, "__repr__": text}
