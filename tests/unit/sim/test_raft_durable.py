"""The disk of a simulated member of the quorum: a snapshot is stored while its entries are still on
their way to the log (found by Raft seed 500789)."""

from __future__ import annotations

from paceline_cluster.sim.raft.durable import Durable
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_types import (
    Config,
    Entry,
    EntryKind,
    HardState,
    Snapshot,
)


def entry(index: int, term: int) -> Entry:
    return Entry(index, term, EntryKind.RECORDS, b"")


def snapshot(index: int, term: int) -> Snapshot:
    return Snapshot(index, term, Config(()), b"")


def with_uncommitted_tail() -> Durable:
    """Entries 2 to 9 of term 1, of which the new leader knows no more than the first."""
    durable = Durable(snapshot(1, 1), term=1)
    durable.append([entry(index, 1) for index in range(2, 10)])
    return durable


def test_snapshot_before_its_entries_replaces_nothing_in_the_log() -> None:
    durable = with_uncommitted_tail()

    durable.compact(snapshot(3, 2), keep=0)
    durable.write(Effects(hard_state=HardState(2), entries=[entry(3, 2)]))

    log = durable.log()
    assert (log.snapshot.index, log.last_index, log.last_term) == (3, 3, 2)


def test_start_with_a_snapshot_that_the_log_does_not_join_begins_behind_it() -> None:
    durable = with_uncommitted_tail()

    durable.compact(snapshot(3, 2), keep=0)

    log = durable.log()
    assert (log.base_index, log.base_term, log.last_index) == (3, 2, 3)


def test_received_snapshot_does_not_replace_a_newer_one_of_ones_own() -> None:
    durable = with_uncommitted_tail()

    durable.compact(snapshot(20, 2), keep=0)
    durable.write(Effects(snapshot=snapshot(15, 2)))

    assert durable.log().last_index == 20
    assert durable.has(20, 2)
