"""Messages of LOAD: what a node has done since its process began. Nodes ask each other likewise."""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True)
class LoadAsked(Message):
    """LOAD of clients, NODE_LOAD of nodes."""


@dataclass(frozen=True, slots=True)
class NodeLoad(Message):
    """What a node has done since its process began ``uptime_ms`` ago, for all protocols together.
    ``writes`` and ``syncs``: how many requests that wrote records, and syncs of logs, took up to
    each bound of ``bounds_us`` and no bound before it; the last is of those above all."""

    uptime_ms: int
    appended_records: int
    appended_bytes: int
    fetched_records: int
    fetched_bytes: int
    requests: int
    connections: int
    client_memory_bytes: int
    bounds_us: tuple[int, ...]
    writes: tuple[int, ...]
    syncs: tuple[int, ...]
