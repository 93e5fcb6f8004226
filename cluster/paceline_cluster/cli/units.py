"""Sizes and times of a topic's settings as people write them, ``7d`` or ``10GiB``.

The cluster keeps whole numbers of milliseconds and bytes, as Kafka does: what is made of them here
is told by ``topic alter`` and ``topic describe``.
"""

from __future__ import annotations

import re
from decimal import Decimal

_NUMBER = re.compile(r"(\d{1,19}(?:\.\d{1,9})?) ?([a-zA-Z]+)")
_WHOLE = re.compile(r"-?\d{1,19}")
_SECOND = 1000
_TIMES = {
    "ms": 1,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "min": 60 * _SECOND,
    "h": 3600 * _SECOND,
    "d": 86_400 * _SECOND,
    "w": 7 * 86_400 * _SECOND,
}
_SIZES = {
    "b": 1,
    **{
        unit: 1024**power
        for power, letter in enumerate("kmgt", start=1)
        for unit in (letter, f"{letter}ib")
    },
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
}
_UNITS = {
    "ms": (_TIMES, "ms, or a number with ms, s, m, h, d or w: 7d"),
    "bytes": (_SIZES, "bytes, or a number with B, KiB, MiB, GiB or TiB: 10GiB"),
}
UNITS_HELP = (
    "Times take ms, s, m, h, d and w (retention.ms=7d), sizes B, KiB, MiB, GiB and TiB "
    "(retention.bytes=10GiB)"
)


def plain(name: str, value: str) -> str:
    """The value of a setting as the cluster takes it. Raises ValueError saying what is expected."""
    from paceline_node.settings.topic_config import KEYS

    key = KEYS.get(name)
    if key is None or key.unit not in _UNITS or _WHOLE.fullmatch(value):
        return value
    factors, expected = _UNITS[key.unit]
    found = _NUMBER.fullmatch(value)
    factor = None if found is None else factors.get(found[2].lower())
    if found is None or factor is None:
        raise ValueError(f"{name}={value}: expected {expected}")
    number = Decimal(found[1]) * factor
    if number != number.to_integral_value():
        raise ValueError(f"{name}={value}: is no whole number of {key.unit}")
    return str(int(number))
