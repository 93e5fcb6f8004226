"""Trusted and untrusted starts (storage/DESIGN 2.3), exhaustively."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import msgpack
import pytest

from paceline.types import BrokerEpoch
from paceline_node.settings.flush_mode import FlushMode
from paceline_node.storage import checkpoint, incarnation
from paceline_node.storage.incarnation import (
    FORMATTED,
    NO_WITNESS,
    Incarnation,
    Verdict,
    Witness,
    begin,
    judge,
    lowered,
    opened,
    registered,
    resolve,
    stopped,
)
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.storage.world import StillHost, env_on

EVERY = list(
    itertools.product([True, False], [True, False], ["", "one", "two"], ["", "one"], FlushMode)
)


@pytest.mark.parametrize("reached", [True, False])
@pytest.mark.parametrize(("clean", "tainted", "old_boot", "boot", "floor"), EVERY)
def test_the_decision(
    clean: bool, tainted: bool, old_boot: str, boot: str, floor: FlushMode, reached: bool
) -> None:
    previous = Incarnation(7, BrokerEpoch(40), old_boot, clean, tainted, floor)
    verdict = resolve(judge(previous, boot), reached_durable_mark=reached)
    ok = (
        clean
        or (boot != "" and boot == old_boot)
        or (floor in (FlushMode.GROUP, FlushMode.BATCH) and reached)
    )
    started = begin(previous, verdict)
    assert started.trusted == (ok and not tainted)
    assert (started.boot_seq, started.clean, started.broker_epoch) == (8, False, 40)


def test_a_lost_file_makes_a_start_that_no_count_has_reached() -> None:
    """Counted from 1 again, every start would be one that is registered already."""
    lost = begin(None, Verdict.UNTRUSTED, wall_ms=1_700_000_000_000)
    assert (lost.boot_seq, lost.trusted) == (1_700_000_000_001, False)
    assert begin(lost, Verdict.TRUSTED, wall_ms=1).boot_seq == 1_700_000_000_002


def test_what_the_first_start_found_counts_until_one_registers() -> None:
    """A start on an old copy hears of newer metadata, and ends before it has registered."""
    me, other = bytes([1] * 16), bytes([2] * 16)
    state = begin(opened(FORMATTED, Witness(me, 40)), Verdict.TRUSTED)
    state = registered(state, broker_epoch=BrokerEpoch(9), boot_id="", flush_floor=FlushMode.GROUP)
    assert state.found == NO_WITNESS
    state = begin(opened(state, Witness(me, 50)), Verdict.TRUSTED)
    for offset in (60, -1, 50):
        state = begin(opened(stopped(state), Witness(me, offset)), Verdict.TRUSTED)
        assert state.found == Witness(me, 50)
    assert opened(state, Witness(me, 45)).found == Witness(me, 45), "older still"
    assert opened(state, Witness(other, 70)).found == Witness(other, 70), "another directory"


def test_recovery_is_asked_only_where_it_decides() -> None:
    for clean, tainted, old_boot, boot, floor in EVERY:
        previous = Incarnation(7, BrokerEpoch(40), old_boot, clean, tainted, floor)
        undecided = judge(previous, boot) is Verdict.UNDECIDED
        answers = {
            begin(previous, resolve(judge(previous, boot), reached_durable_mark=reached)).trusted
            for reached in (True, False)
        }
        assert undecided == (len(answers) == 2)


def test_no_file_is_no_trust() -> None:
    started = begin(None, judge(None, "boot"))
    assert not started.trusted
    assert started.boot_seq == 1


def test_an_undecided_start_cannot_begin() -> None:
    with pytest.raises(ValueError, match="recover the logs"):
        begin(FORMATTED, Verdict.UNDECIDED)


def test_taint_is_sticky_until_registered() -> None:
    """Power loss, a start that stops in an orderly way before it registers, another start."""
    crashed = registered(
        FORMATTED, broker_epoch=BrokerEpoch(3), boot_id="one", flush_floor=FlushMode.NONE
    )
    first = begin(crashed, judge(crashed, "two"))
    assert not first.trusted
    second = begin(stopped(first), judge(stopped(first), "two"))
    assert not second.trusted
    healed = registered(
        second, broker_epoch=BrokerEpoch(9), boot_id="two", flush_floor=FlushMode.GROUP
    )
    assert healed.trusted
    third = begin(healed, judge(healed, "two"))
    assert third.trusted
    assert third.boot_seq == 3


def test_a_formatted_directory_is_trusted_once() -> None:
    first = begin(FORMATTED, judge(FORMATTED, "one"))
    assert first.trusted
    assert judge(first, "two") is Verdict.UNDECIDED


def test_weakening_is_noted() -> None:
    assert lowered(FORMATTED, FlushMode.NONE).flush_floor is FlushMode.NONE


def test_the_boot_identity_names_boot_and_device() -> None:
    class Bootless(StillHost):
        def boot_id(self) -> str:
            return ""

    assert incarnation.boot_identity(env_on(MemoryDisk())) == "boot/1"
    assert incarnation.boot_identity(env_on(MemoryDisk(), Bootless())) == ""


async def test_the_file() -> None:
    disk = MemoryDisk()
    assert await incarnation.read(disk) is None
    kept = Incarnation(9, BrokerEpoch(77), "boot/1", False, True, FlushMode.INTERVAL)
    await incarnation.write(disk, kept)
    disk.power_cut(random.Random(1))
    assert await incarnation.read(disk) == kept
    whole = disk.content(incarnation.NAME)
    for at in range(len(whole)):
        disk.overwrite(incarnation.NAME, bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]]))
        assert await incarnation.read(disk) is None


async def test_another_nodes_file_says_nothing() -> None:
    """A higher or lower count of starts would keep the node down, or have it trusted."""
    disk = MemoryDisk()
    kept = Incarnation(9, BrokerEpoch(77), "boot/1", clean=True)
    await incarnation.write(disk, kept, b"node 1")
    assert await incarnation.read(disk, b"node 1") == kept
    assert await incarnation.read(disk, b"node 2") is None
    earlier = msgpack.packb([9, 77, "boot/1", True, False, kept.flush_floor.weakness])
    await checkpoint.write(disk, incarnation.NAME, checkpoint.Kind.INCARNATION, earlier)
    assert await incarnation.read(disk, b"node 2") == kept


def test_what_is_known_of_the_syncs_of_the_logs() -> None:
    assert incarnation.known_syncs(None, 5) == 0
    before = stopped(begin(FORMATTED, Verdict.TRUSTED), syncs=4)
    assert incarnation.known_syncs(before, 5) == 0, "a version before did not count"
    process = registered(
        begin(before, Verdict.TRUSTED),
        broker_epoch=BrokerEpoch(1),
        boot_id="boot/1",
        flush_floor=FlushMode.GROUP,
        syncs=7,
    )
    assert incarnation.known_syncs(process, 9) == 9
    assert incarnation.known_syncs(process, 0) == 7, "what was noted is lost"
    unregistered = stopped(begin(process, Verdict.UNTRUSTED), syncs=3)
    assert incarnation.known_syncs(unregistered, 0) == 7
    assert incarnation.known_syncs(stopped(process, syncs=12), 9) == 12


async def test_a_file_of_a_version_before_knows_no_syncs() -> None:
    disk = MemoryDisk()
    process = replace(FORMATTED, syncs=7)
    await incarnation.write(disk, process)
    assert await incarnation.read(disk) == process
    content = disk.content(incarnation.NAME)
    fields = msgpack.unpackb(checkpoint.decode(checkpoint.Kind.INCARNATION, content))[:-1]
    packed = msgpack.packb(fields)
    await checkpoint.write(disk, incarnation.NAME, checkpoint.Kind.INCARNATION, packed)
    assert await incarnation.read(disk) == FORMATTED
