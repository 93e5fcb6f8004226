"""Transactions in whole nodes: the checker sees what readers must not, when a rule is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import trio

from paceline.client.client import Client
from paceline.client.settings import ProducerSettings, TransactionalSettings
from paceline.errors import RequestTimedOut
from paceline.types import NodeId
from paceline_cluster.checker import events
from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.plan import Plan
from paceline_node.groups.transactional_offsets import TransactionalOffsets
from paceline_node.replication.long_polls import LongPolls
from paceline_node.storage.transaction_index import TransactionIndex
from paceline_node.transaction_names import TransactionKey
from paceline_node.transactions.keys import TRANSACTIONS_TOPIC
from tests.sim.node.story import SESSION_S, Story, find, plan_of, play

pytestmark = pytest.mark.timeout(600)

IMPATIENT = TransactionalSettings(
    producer=ProducerSettings(ack_timeout_s=10.0, delivery_timeout_s=SESSION_S / 2)
)
"""Deliveries are given up before a leader that is cut off is deposed."""


def plan() -> Plan:
    return replace(plan_of(), transactors=2)


async def some_transactions(story: Story) -> None:
    def count() -> int:
        return sum(isinstance(event, events.Together) for event in story.recorder.events)

    await story.until("transactions", lambda: count() >= 30, within=30)


def test_committed_ones_are_read_wholly_and_aborted_ones_never() -> None:
    play(some_transactions, plan())


@pytest.mark.slow
def test_aborted_records_that_readers_are_given_are_found() -> None:
    with mock.patch.object(TransactionIndex, "aborted_in", return_value=[]):
        find(some_transactions, plan(), "refused but stored")


@pytest.mark.slow
def test_reading_beyond_what_is_decided_is_found() -> None:
    to_the_high_watermark = property(lambda self: self._replica.high_watermark)
    with mock.patch.object(LongPolls, "last_stable_offset", to_the_high_watermark):
        find(some_transactions, plan(), "read but not committed")


async def a_leader_falls_silent_in_the_middle(story: Story) -> None:
    """A transaction is decided while a leader that is to write a marker hears nothing: it ends
    soon after another leads there, although the old leader never answered. (The decision itself
    does not need that node.)"""
    room = coordinating(story)
    states = story.image.topic(TRANSACTIONS_TOPIC).partitions[0].replicas
    silent = next(m for m in led_in(story, story.run.plan.ledger.name) if m.number not in states)
    await some_transactions(story)
    story.isolate(silent)
    await trio.sleep(SESSION_S / 2)
    left = decided(room)
    story.check(bool(left), "whatever was decided could be ended")
    await story.until(
        "led by others",
        lambda: silent not in led_in(story, story.run.plan.ledger.name),
        SESSION_S + 2.0,
    )
    await story.until("they are ended", lambda: not left & decided(room), within=1.0)
    story.heal()


def coordinating(story: Story) -> Machine:
    (machine,) = led_in(story, TRANSACTIONS_TOPIC)
    return machine


def led_in(story: Story, name: str) -> list[Machine]:
    """Who leads partitions of a topic."""
    topic = story.image.find_topic(name)
    assert topic is not None
    return [story.machines[n] for n in sorted({p.leader for p in topic.partitions.values()})]


def decided(machine: Machine) -> set[TransactionKey]:
    """Transactions that ``machine`` coordinates and that are decided, but not told everywhere."""
    broker = None if machine.node is None else machine.node.broker
    assert broker is not None
    return {
        key for _, _, engine in broker.transactions.machines.machines() for key in engine.endings()
    }


@pytest.mark.slow
def test_a_marker_is_ordered_from_whoever_leads_by_now() -> None:
    # Several linger with all their records stored: one of them is decided in time.
    play(a_leader_falls_silent_in_the_middle, replace(plan(), nodes=5, transactors=6, pause_s=0.5))


async def a_record_runs_out_of_time_under_way(story: Story) -> None:
    """Its answer may come or not: the transaction has lost it, and must not be committed."""
    coordinator = coordinating(story)
    leading, *others = sorted(story.machines, key=lambda machine: machine is coordinator)

    async def work(client: Client) -> None:
        assignment = [NodeId(machine.number) for machine in (leading, *others)]
        await client.admin.create_topic("late", assignment=[assignment])
        async with client.transactional_producer("late", IMPATIENT) as producer:
            await producer.begin()
            await (await producer.submit("late", b"stored")).wait()
            story.isolate(leading)
            try:
                await (await producer.submit("late", b"late")).wait()
                story.check(False, "the record was stored by a leader that is cut off")
            except RequestTimedOut:
                pass
            try:
                await producer.commit()
                story.check(False, "a transaction was committed without one of its records")
            except RequestTimedOut:
                story.heal()
            await producer.abort()

    await story.perform(work)


def test_nothing_is_committed_without_a_record_that_ran_out_of_time() -> None:
    play(a_record_runs_out_of_time_under_way, plan())


def copies() -> Plan:
    return replace(plan_of(partitions=2), copiers=2)


async def some_copies(story: Story) -> None:
    """Both copiers work, abort, vanish and hand over for a while."""
    await story.acknowledged(100, within=30)


def test_what_was_read_for_good_is_copied_once() -> None:
    play(some_copies, copies())


@pytest.mark.slow
def test_offsets_of_aborted_transactions_that_are_kept_are_found() -> None:
    settle = TransactionalOffsets.settle

    def keep_all(self: TransactionalOffsets, *args: Any, **options: Any) -> Any:
        return settle(self, *args, **{**options, "commits": True})

    with mock.patch.object(TransactionalOffsets, "settle", keep_all):
        find(some_copies, copies(), "EOS at ")
