"""``dataclass`` as everywhere, with methods that are compiled when they are first needed.

A node makes some 750 classes of values while it starts, and few of them have an instance by then.
The standard decorator compiles up to six functions for each, which together took a quarter of a
start. Here a class gets its fields and slots at once, and each method when it is first looked up:
a descriptor stands in its place until then. What an instance may do is the same: a frozen one
refuses assignment, is hashed by its fields, and can be copied and pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from dataclasses import MISSING, FrozenInstanceError, fields
    from functools import partial
    from operator import attrgetter

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True, **options):
        """As :func:`dataclasses.dataclass`, quick where ``slots`` is on."""
        if not slots or options:
            options |= {"frozen": frozen, "slots": slots, "kw_only": kw_only}
            return dataclasses.dataclass(cls, eq=eq, **options)
        return partial(_slotted, frozen=frozen, kw_only=kw_only, eq=eq)

    def _slotted(cls, *, frozen, kw_only, eq):
        # Without a docstring the standard decorator writes one from the signature: slow, unread.
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__
        own = vars(cls)
        made = dataclasses.dataclass(
            cls, slots=True, init=False, eq=False, repr=False, kw_only=kw_only
        )
        later = {"__init__": _frozen_init if frozen else _init, "__repr__": _repr}
        now = {}
        if eq:
            later["__eq__"] = _eq
            if frozen:
                later["__hash__"] = _hash
            else:
                now["__hash__"] = None
        if frozen:
            now |= _FROZEN
        for name, make in later.items():
            # A class with an __eq__ of its own has None for a __hash__: Python writes it there.
            if own.get(name) is None:
                setattr(made, name, _Later(made, name, make))
        for name, method in now.items():
            if own.get(name) is None:
                setattr(made, name, method)
        return made

    class _Later:
        """A method of a class that is made when it is first looked up, and replaces this then."""

        __slots__ = ("cls", "make", "name")

        def __init__(self, cls, name, make):
            self.cls, self.name, self.make = cls, name, make

        def __get__(self, instance, owner=None):
            method = self.make(self.cls)
            method.__qualname__ = f"{self.cls.__qualname__}.{self.name}"
            setattr(self.cls, self.name, method)
            return method.__get__(instance, owner)

    def _frozen_init(cls):
        # Past __setattr__, which refuses: each slot's own setter, quicker than object's by name.
        setters = {f"set_{field.name}": getattr(cls, field.name).__set__ for field in fields(cls)}
        return _compiled_init(cls, "set_{0}(self, {1})", setters)

    def _init(cls):
        return _compiled_init(cls, "self.{0} = {1}", {})

    def _compiled_init(cls, assignment, names):
        """``__init__`` with a parameter and an assignment for each field; ``names`` is what else
        its text may name."""
        parameters, keywords, body = [], [], []
        for field in fields(cls):
            name = value = field.name
            default = ""
            if field.default_factory is not MISSING:
                names |= {f"make_{name}": field.default_factory, "MISSING": MISSING}
                default = " = MISSING"
                value = f"make_{name}()"
                if field.init:
                    value += f" if {name} is MISSING else {name}"
            elif field.default is not MISSING:
                names[f"default_{name}"] = field.default
                default = f" = default_{name}"
                value = name if field.init else f"default_{name}"
            elif not field.init:
                continue
            body.append(assignment.format(name, value))
            if field.init:
                (keywords if field.kw_only else parameters).append(name + default)
        if hasattr(cls, "__post_init__"):
            body.append("self.__post_init__()")
        if keywords:
            keywords.insert(0, "*")
        lines = [
            f"def around({', '.join(names)}):",
            f" def __init__({', '.join(['self', *parameters, *keywords])}):",
            *(f"  {line}" for line in body or ["pass"]),
            " return __init__",
        ]
        scope = {}
        exec("\n".join(lines), scope)  # noqa: S102  # as the standard decorator does
        made = scope["around"](**names)
        made.__annotations__ = {each.name: each.type for each in fields(cls) if each.init}
        return made

    def _compared(cls):
        names = [field.name for field in fields(cls) if field.compare]
        return attrgetter(*names) if names else lambda instance: ()

    def _eq(cls):
        values = _compared(cls)

        def __eq__(self, other):  # noqa: N807
            if other.__class__ is not self.__class__:
                return NotImplemented
            return values(self) == values(other)

        return __eq__

    def _hash(cls):
        values = _compared(cls)

        def __hash__(self):  # noqa: N807
            return hash(values(self))

        return __hash__

    def _repr(cls):
        shown = tuple(field.name for field in fields(cls) if field.repr)

        def __repr__(self):  # noqa: N807
            inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
            return f"{self.__class__.__qualname__}({inside})"

        return __repr__

    def _refuse_set(self, name, value):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_delete(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    # What copies and pickles an instance by default assigns to its fields.
    def _get_state(self):
        return [getattr(self, field.name) for field in fields(self)]

    def _set_state(self, state):
        for field, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)

    _FROZEN = {
        "__setattr__": _refuse_set,
        "__delattr__": _refuse_delete,
        "__getstate__": _get_state,
        "__setstate__": _set_state,
    }
