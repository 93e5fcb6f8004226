"""What transactions are called."""

from __future__ import annotations

import enum
from typing import NamedTuple

TRANSACTIONS_TOPIC = "__transactions"
PARTITION = 0
"""The topic has one partition (DESIGN 2.1), so that one batch can decide many transactions."""


class Family(enum.Enum):
    """Transactional ids of different families never meet, whatever their names."""

    KAFKA = "kafka"
    """Ids of the Kafka protocol, and of native clients."""
    CURSUS = "cursus"
    SINK = "sink"
    """Named by the coordinator, one for each task attempt of a sink (``sinks.py``)."""


class TransactionKey(NamedTuple):
    """A transactional id. To the core ``name`` is opaque."""

    family: Family
    name: str

    def __str__(self) -> str:
        return f"{self.family.value}/{self.name}"


class ProducerIdentity(NamedTuple):
    """Who writes: stands in the head of every batch."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer_id} epoch {self.epoch}"


LAST_EPOCH = 2**15 - 1
"""Nobody is given this one: it is left for fencing whoever has the one before."""
