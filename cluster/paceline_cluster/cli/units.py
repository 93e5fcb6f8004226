"""Sizes and times on the command line, with units (``paceline.units``).

The cluster keeps whole numbers of milliseconds and bytes, as Kafka does: what is made of a topic's
settings here is told by ``topic alter`` and ``topic describe``.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import click

from paceline import units

if TYPE_CHECKING:
    _ParamType = click.ParamType[float]
else:
    _ParamType = click.ParamType  # generic in newer versions only

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_READERS = {"ms": units.milliseconds, "bytes": units.size}
UNITS_HELP = (
    "Times take ms, s, m, h, d and w (retention.ms=7d), sizes KB, MB, GB and KiB, MiB, GiB "
    "(retention.bytes=10GiB)"
)


def plain(name: str, value: str) -> str:
    """The value of a setting as the cluster takes it. Raises ValueError saying what is expected."""
    from paceline_node.settings.topic_config import KEYS

    key = KEYS.get(name)
    if key is None or key.unit not in _READERS or _WHOLE.fullmatch(value):
        return value
    try:
        return str(_READERS[key.unit](value))
    except ValueError as error:
        raise ValueError(f"{name}={value}: {error}") from None


def told(name: str, value: str) -> str:
    """The value of a setting for people: a number with what it is in larger units, and in the place
    of what stands for no bound, what that means."""
    from paceline_node.settings.topic_config import FOREVER, KEYS

    key = KEYS.get(name)
    if key is None or key.unit not in _READERS or not _WHOLE.fullmatch(value):
        return value
    number = int(value)
    if number == FOREVER:
        return key.boundless
    if number < 0:
        return f"{value} ({key.boundless})"
    text = units.time_text(number) if key.unit == "ms" else units.size_text(number)
    return value if text == f"{value} {key.unit}" else f"{value} ({text})"


def told_bounds(name: str) -> str:
    """Which values a setting takes, for people: where it has no upper bound, only from where on."""
    from paceline_node.settings.topic_config import FOREVER, KEYS

    key = KEYS[name]
    if key.unit and key.high == FOREVER:
        return f"{key.low} or more ({key.unit})"
    return key.allowed


class Seconds(_ParamType):
    """A time between bounds; a bare number is seconds."""

    name = "seconds"

    def __init__(self, low: float = 0, high: float = math.inf, *, low_open: bool = False) -> None:
        self._low = low
        self._high = high
        self._low_open = low_open

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """From text, or the option's default."""
        try:
            found = units.seconds(value) if isinstance(value, str) else float(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)
        if not self._low <= found <= self._high or (self._low_open and found == self._low):
            self.fail(f"{value} is not {self._bounds()}", param, ctx)
        return found

    def _bounds(self) -> str:
        least = "more than" if self._low_open else "at least"
        if self._high == math.inf:
            return f"{least} {self._low:g} s"
        return f"{self._low:g} to {self._high:g} s"
