"""Paceline: a replicated log broker cluster; this package is what programs import.

The client's names are loaded on first use, so that a broker, which needs only the wire formats,
does not carry the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from paceline.version import __version__

if TYPE_CHECKING:
    from paceline.client import (
        Client,
        ClientSettings,
        Consumer,
        ConsumerSettings,
        OutOfRange,
        Position,
        Producer,
        ProducerSettings,
        connect,
    )
    from paceline.errors import PacelineError
    from paceline.types import Acks, Compression, Isolation, TopicPartition

__all__ = [
    "Acks",
    "Client",
    "ClientSettings",
    "Compression",
    "Consumer",
    "ConsumerSettings",
    "Isolation",
    "OutOfRange",
    "PacelineError",
    "Position",
    "Producer",
    "ProducerSettings",
    "TopicPartition",
    "__version__",
    "connect",
]

_HOMES = {
    "Acks": "paceline.types",
    "Compression": "paceline.types",
    "Isolation": "paceline.types",
    "TopicPartition": "paceline.types",
    "PacelineError": "paceline.errors",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES.get(name, "paceline.client")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
