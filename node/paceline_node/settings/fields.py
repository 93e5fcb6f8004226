"""What a setting is: default, bounds, meaning; and how its value is read from text or TOML."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from paceline import units
from paceline.values import dataclass
from paceline_node.settings.address_rules import AddressRule
from paceline_node.settings.addresses import BootstrapPeer, Listener

T = TypeVar("T")

_SPEC = "setting"
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_PLAIN = re.compile(r"-?[0-9_.]+")
_UNITS = {"ms": units.milliseconds, "bytes": units.size}


class BadValue(Exception):
    """Says what is wrong with a value; the loader adds the setting's name and source."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything about a setting but its name, type and production default.

    ``local`` replaces the default under the ``local`` timing profile. A ``reloadable`` setting may
    change while the node runs; the others need a restart.
    """

    doc: str
    low: float | None
    high: float | None
    local: object
    reloadable: bool


def setting(
    default: T,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    local: T | None = None,
    reloadable: bool = False,
) -> T:
    """A field of a settings section; bounds are inclusive."""
    spec = Spec(doc, low, high, default if local is None else local, reloadable)
    made: T = field(default=default, metadata={_SPEC: spec})
    return made


def spec_of(metadata: Any) -> Spec:
    """The Spec of a dataclass field's metadata."""
    spec = metadata[_SPEC]
    assert isinstance(spec, Spec)
    return spec


def convert(kind: Any, spec: Spec, value: object) -> object:
    """``value`` (text, or a TOML value) as ``kind``, within its bounds. Raises BadValue."""
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        return tuple([_READERS[element](part) for part in _parts(value)])
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _read_choice(kind, value)
    result = _READERS[kind](value)
    if isinstance(result, int | float):
        _check_bounds(result, spec)
    return result


def in_units(unit: str, value: object) -> object:
    """A time (``ms``) or size (``bytes``) that is written with a unit as the number that it means;
    anything else as it is. Raises BadValue."""
    if not isinstance(value, str) or unit not in _UNITS or _PLAIN.fullmatch(value.strip()):
        return value
    try:
        return _UNITS[unit](value)
    except ValueError as error:
        raise BadValue(f"{error}, found {value!r}") from None


def bounds_text(kind: Any, spec: Spec) -> str:
    """The allowed values in words; empty when anything goes."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " or ".join(str(member.value) for member in kind)
    if spec.low is None and spec.high is None:
        return ""
    if spec.high is None:
        return f"at least {spec.low}"
    if spec.low is None:
        return f"at most {spec.high}"
    return f"{spec.low} to {spec.high}"


def _check_bounds(value: float, spec: Spec) -> None:
    too_low = spec.low is not None and value < spec.low
    too_high = spec.high is not None and value > spec.high
    if too_low or too_high:
        raise BadValue(f"expected {bounds_text(None, spec)}, found {value}")


def _parts(value: object) -> list[object]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list):
        return value
    raise BadValue(f"expected a list, found {_kind(value)}")


def _read_choice(kind: type[enum.Enum], value: object) -> enum.Enum:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(str(member.value) for member in kind)
        raise BadValue(f"expected one of {choices}, found {value!r}") from None


def _read_int(value: object) -> int:
    if isinstance(value, str):
        digits = value.strip().replace("_", "")
        if digits.removeprefix("-").isdecimal() and digits.isascii():
            return int(digits)
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    raise BadValue(f"expected a whole number, found {value!r}")


def _read_float(value: object) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if number == number and abs(number) != float("inf"):
            return number
    raise BadValue(f"expected a number, found {value!r}")


def _read_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise BadValue(f"expected true or false, found {value!r}")


def _read_str(value: object) -> str:
    if isinstance(value, str):
        return value
    raise BadValue(f"expected text, found {_kind(value)}")


def _read_path(value: object) -> Path:
    return Path(_read_str(value)).expanduser()


def _read_listener(value: object) -> Listener:
    try:
        return Listener.parse(_read_str(value))
    except ValueError as error:
        raise BadValue(str(error)) from None


def _read_peer(value: object) -> BootstrapPeer:
    try:
        return BootstrapPeer.parse(_read_str(value))
    except ValueError as error:
        raise BadValue(str(error)) from None


def _read_address_rule(value: object) -> AddressRule:
    try:
        return AddressRule.parse(_read_str(value))
    except ValueError as error:
        raise BadValue(str(error)) from None


def _kind(value: object) -> str:
    return type(value).__name__


_READERS: dict[Any, Callable[[object], object]] = {
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    str: _read_str,
    Path: _read_path,
    Listener: _read_listener,
    BootstrapPeer: _read_peer,
    AddressRule: _read_address_rule,
}
