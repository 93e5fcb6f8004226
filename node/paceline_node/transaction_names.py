"""What transactions and their producers are called, by all rooms that speak of them."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Family(enum.Enum):
    """Transactional ids of different families never meet, whatever their names."""

    KAFKA = "kafka"
    """Ids of the Kafka protocol, and of native clients."""
    CURSUS = "cursus"
    SINK = "sink"
    """Named by the coordinator, one for each task attempt of a sink (``transactions/sinks.py``)."""


class TransactionKey(NamedTuple):
    """A transactional id. To the core ``name`` is opaque."""

    family: Family
    name: str

    def __str__(self) -> str:
        return f"{self.family.value}/{self.name}"

    @property
    def owner(self) -> str:
        """Whom policies are asked about: a sink for all of its attempts, which are named behind it
        as ``sink/batch/partition.number/spare``."""
        return self.name.rsplit("/", 3)[0] if self.family is Family.SINK else self.name


class ProducerIdentity(NamedTuple):
    """Who writes: stands in the head of every batch."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer_id} epoch {self.epoch}"
