"""Wrong versions of single rules, run in whole nodes: can the oracle and the checker see them?

The rules of the replication cores are broken by the same patches as in ``tests/sim/replication``;
those of this file are about what only whole nodes do: answers, reads, repetitions, syncs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import trio

from paceline.errors import DuplicateSequence, OutOfOrderSequence
from paceline.types import Acks
from paceline.wire.batch_header import BatchHeader
from paceline.wire.v1.errors import V1Code, V1Error
from paceline_cluster.sim.profiles import (
    FLAP,
    MIXED,
    MOVER,
    POWER_ALL,
    RESTART,
    SEQUENCES,
    Profile,
)
from paceline_node.controller.raft_log_segment import encode_entry
from paceline_node.controller.raft_store import RaftStore
from paceline_node.listeners.v1 import errors as v1_errors
from paceline_node.listeners.v1 import records as v1_records
from paceline_node.replication import appends as appends_module
from paceline_node.replication.appends import Appends
from paceline_node.replication.partition import Partition
from paceline_node.replication.sequences import NEW, SequenceFence
from paceline_node.storage import producers as producers_module
from paceline_node.storage.flusher import Flusher
from paceline_node.storage.producer_state import Duplicate, ProducerState
from tests.sim.replication import mutants as cores
from tests.sim.replication.mutants import Patch


@dataclass(frozen=True)
class NodeMutant:
    """``budget`` seeds of ``profile`` must suffice; ``seed`` is the first that was found to. They
    are runs of ``seconds`` without transactions, segments and foreign clients, unless ``whole``;
    foreign clients stay where it needs them; ``alone``: the clients of topics that do not keep all
    have the cluster to themselves, but for a writer and a reader. Most seeds miss a ``rare`` one,
    and any change of what nodes do moves those that show it: it has 200, and ``scripts/test slow``
    alone looks for it. So it does for those ``found_elsewhere``, in the cores' simulator or under
    another protocol."""

    name: str
    profile: Profile
    patch: Patch
    seed: int
    budget: int = 10
    whole: bool = False
    alone: bool = False
    foreign_clients: bool = False
    seconds: float = 6.0
    rare: bool = False
    found_elsewhere: bool = False

    @property
    def is_slow(self) -> bool:
        return self.rare or self.found_elsewhere

    @property
    def seeds(self) -> Sequence[int]:
        """What to try, the known one first."""
        return list(dict.fromkeys((self.seed, *range(200 if self.rare else self.budget))))


def _set(target: object, name: str, value: object) -> Patch:
    return lambda: mock.patch.object(target, name, value)


def core(name: str) -> Patch:
    """The patch of a mutant of the replication cores."""
    return next(mutant.patch for mutant in cores.ALL if mutant.name == name)


def _answered_at_append(
    self: Appends, pending: Any, acks: Acks, timeout_s: float, *, simulated: bool
) -> None:
    pending.leader_epoch = self.replica.leader_epoch
    self._succeed(pending)


_read = Partition.read


def _read_to_the_log_end(self: Partition, *args: Any, **options: Any) -> Any:
    replica = self.replica
    honest, replica.high_watermark = replica.high_watermark, replica.log.log_end_offset
    try:
        return _read(self, *args, **options)
    finally:
        replica.high_watermark = honest


async def _no_sync(self: Flusher, tickets: Sequence[Any]) -> None:
    """Says that all is on the disk."""
    await trio.sleep(0.0002)


async def _metadata_not_synced(self: RaftStore, entries: Sequence[Any]) -> None:
    active = self._active
    assert active is not None
    active.append([encode_entry(entry, self._synced) for entry in entries])
    self._last = (entries[-1].index, entries[-1].term)
    highest = max(entry.index for entry in entries)
    self._highest[self._number] = max(self._highest[self._number], highest)
    await trio.sleep(0.0002)


_check_sequence = producers_module.check_sequence


def _behind_is_stored(header: BatchHeader, state: ProducerState) -> Duplicate | None:
    """What lies before the newest batch of a producer counts as stored."""
    try:
        return _check_sequence(header, state)
    except OutOfOrderSequence:
        last = state.window[-1].last_sequence if state.window else -1
        if header.last_sequence <= last:
            raise DuplicateSequence("stored before") from None
        raise


def _nothing_is_fenced(self: SequenceFence, *_: object) -> None:
    """A producer of which nothing is known begins with any sequence."""


@contextlib.contextmanager
def _gaps_are_accepted() -> Iterator[None]:
    with (
        mock.patch.object(SequenceFence, "check", _nothing_is_fenced),
        mock.patch.object(producers_module, "check_sequence", _behind_is_stored),
    ):
        yield


@contextlib.contextmanager
def _unknown_outcomes_called_refusals() -> Iterator[None]:
    refusal = partial(V1Error, V1Code.UNAVAILABLE, "try again")
    with (
        mock.patch.object(v1_errors, "outcome_unknown", refusal),
        mock.patch.object(v1_records, "outcome_unknown", refusal),
        mock.patch.object(v1_records, "acks_timeout", refusal),
    ):
        yield


MUTANTS = (
    NodeMutant(
        "acks=all answered at append",
        MIXED,
        _set(Appends, "_acknowledge", _answered_at_append),
        seed=0,
    ),
    NodeMutant(
        "reads go to the log end",
        MOVER,
        _set(Partition, "read", _read_to_the_log_end),
        seed=1,
        found_elsewhere=True,
    ),
    NodeMutant(
        "repetitions are stored again",
        MIXED,
        _set(appends_module, "judge", lambda *_: NEW),
        seed=2,
    ),
    NodeMutant("syncs are left out", POWER_ALL, _set(Flusher, "_sync", _no_sync), seed=0),
    NodeMutant(
        "metadata is not synced",
        POWER_ALL,
        _set(RaftStore, "_append", _metadata_not_synced),
        seed=0,
    ),
    NodeMutant(
        "V1 calls unknown outcomes refusals",
        FLAP,
        _unknown_outcomes_called_refusals,
        seed=1,
        found_elsewhere=True,
    ),
    NodeMutant(
        "sequence gaps are accepted",
        SEQUENCES,
        _gaps_are_accepted,
        seed=7,
        foreign_clients=True,
        rare=True,
    ),
    NodeMutant(
        "HW without min ISR",
        MIXED,
        core("HW without min ISR"),
        seed=2,
        found_elsewhere=True,
    ),
    NodeMutant(
        "sticky ELR",
        MIXED,
        core("sticky ELR"),
        seed=0,
        found_elsewhere=True,
    ),
    NodeMutant(
        "no maximal ISR",
        MIXED,
        core("no maximal ISR"),
        seed=34,
        whole=True,
        found_elsewhere=True,
    ),
    NodeMutant(
        "expand without ack >= HW",
        MIXED,
        core("expand without ack >= HW"),
        seed=0,
        found_elsewhere=True,
    ),
    NodeMutant("truncate to HW", MIXED, core("truncate to HW"), seed=2),
    NodeMutant(
        "log end counted in mode group",
        POWER_ALL,
        core("log end counted in mode group"),
        seed=1,
        found_elsewhere=True,
    ),
    NodeMutant(
        "roles before registration",
        RESTART,
        core("roles before registration"),
        seed=4,
        found_elsewhere=True,
    ),
)
