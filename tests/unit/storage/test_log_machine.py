"""A log against a list, through every kind of crash.

The model is a list of batches, each with its epoch and bytes. After a kill nothing is lost; after a
power cut the log is a prefix of some state it was in since the last sync, and holds everything that
was durable; what rots below the recovery point is reported, never cut.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest import mock

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from paceline.wire.batch import iter_batches
from paceline.wire.records import decode_records
from paceline_node.storage import recovery, segment_scan
from paceline_node.storage.durability import Durability, SyncTicket
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producer_evictions import Eviction
from paceline_node.storage.producer_state import ProducerKey, key_of_id
from paceline_node.storage.producers import ProducerTable, read_detail
from tests.unit.broken_rules import assert_found
from tests.unit.storage.world import StillHost, batch, content, flush, new_log, reopen


class Kept(NamedTuple):
    """A batch of the model."""

    base: int
    end: int
    data: bytes


def run(work: Callable[[], Awaitable[object]]) -> None:
    async def main() -> None:
        await work()

    trio.run(main)


def parse(data: bytes) -> list[Kept]:
    return [
        Kept(h.base_offset, h.next_offset, data[at : at + h.size_bytes])
        for at, h in iter_batches(data)
    ]


class LogMachine(RuleBasedStateMachine):
    log: Log
    model: list[Kept]

    @initialize(
        segment_bytes=st.sampled_from([250, 900, 5_000]),
        checkpoint_bytes=st.sampled_from([1, 400, 1 << 20]),
    )
    def begin(self, segment_bytes: int, checkpoint_bytes: int) -> None:
        self.disk = MemoryDisk()
        self.host = StillHost()
        self.settings = LogSettings(
            segment_bytes=segment_bytes,
            segment_ms=10_000,
            retention_ms=50_000,
            index_interval_bytes=150,
            checkpoint_bytes=checkpoint_bytes,
        )
        self.model = []
        self.start = 0
        self.epoch = 1
        self.mark = 0
        self.committed = 0
        self.sequences = {1: 0, 2: 0}
        self.past: list[list[Kept]] = []
        run(self._create)

    async def _create(self) -> None:
        self.log = await new_log(self.disk, self.settings, self.host)

    # --- rules ------------------------------------------------------------------------------------

    @rule(
        drawn=st.lists(
            st.tuples(
                st.integers(1, 3), st.sampled_from([1, 100, 700]), st.sampled_from([-1, 1, 2])
            ),
            min_size=1,
            max_size=6,
        )
    )
    def append(self, drawn: list[tuple[int, int, int]]) -> None:
        for count, size, producer in drawn:
            self._append(count, size, producer)

    def _append(self, count: int, size: int, producer: int) -> None:
        sequence = self.sequences.get(producer, -1)
        data = batch(
            count,
            value=bytes([len(self.model) % 256]) * size,
            timestamp=self.host.wall,
            producer=(producer, 0 if producer > 0 else -1, sequence),
        )
        if producer > 0:
            self.sequences[producer] += count
        appended = self.log.append_leader(data, self.epoch, self.host.wall)
        self.model.append(Kept(appended.base_offset, appended.last_offset + 1, bytes(data)))
        self.past.append(list(self.model))

    @rule(producers=st.sets(st.sampled_from([1, 2]), min_size=1))
    def forget(self, producers: set[int]) -> None:
        """A record that forgets producers by name."""
        data = self.log.producers.eviction([key_of_id(each) for each in producers], self.host.wall)
        appended = self.log.append_leader(data, self.epoch, self.host.wall)
        self.model.append(Kept(appended.base_offset, appended.last_offset + 1, bytes(data)))
        self.past.append(list(self.model))

    @rule(shift=st.integers(0, 2))
    def replicate(self, shift: int) -> None:
        """The last batches come again from a leader, after a truncation."""
        again = self.model[len(self.model) - shift :]
        if not again or again[0].base < max(self.committed, self.start):
            return
        self.log.truncate(again[0].base)
        self.log.append_follower(memoryview(b"".join(kept.data for kept in again)))
        self.past.append(list(self.model))

    @rule(shift=st.integers(1, 3), count=st.integers(1, 2))
    def give_way(self, shift: int, count: int) -> None:
        """The last batches give way to others of their size, perhaps of the same term: only a
        sync tells, after a power cut, which of them were there."""
        replaced = self.model[-shift:]
        if not replaced or replaced[0].base < max(self.committed, self.start):
            return
        self.log.truncate(replaced[0].base)
        del self.model[len(self.model) - len(replaced) :]
        self.past.append(list(self.model))
        epoch = max(1, self.log.epochs.last_epoch)
        for kept in replaced[:count]:
            sizes = {len(each.value or b"") for each in decode_records(kept.data)}
            other = batch(
                kept.end - kept.base, value=b"?" * max(sizes, default=1), timestamp=self.host.wall
            )
            appended = self.log.append_leader(other, epoch, self.host.wall)
            self.model.append(Kept(appended.base_offset, appended.last_offset + 1, bytes(other)))
            self.past.append(list(self.model))

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def sync(self) -> None:
        run(lambda: flush(self.log, self.disk))
        assert self.log.durable_offset == self.log.log_end_offset
        self.past = [list(self.model)]

    @rule()
    def commit_and_checkpoint(self) -> None:
        async def checkpoint() -> None:
            point = await self.log.checkpoint()
            self.committed = max(self.committed, point)
            self.mark = min(point, self.committed)

        run(checkpoint)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        lowest = max(self.committed, self.start)
        ends = [lowest, *(kept.end for kept in self.model if kept.end >= lowest)]
        end = data.draw(st.sampled_from(ends))
        if end > self.log.log_end_offset:
            return
        self.log.truncate(end)
        self.model = [kept for kept in self.model if kept.end <= end]
        self.epoch += 1
        self.past.append(list(self.model))

    @rule(ms=st.sampled_from([0, 5_000, 60_000]))
    def retain(self, ms: int) -> None:
        self.host.wall += ms
        self.log.enforce_retention(self.host.wall, self.committed)
        self._cut_start(self.log.log_start_offset)

    @rule(data=st.data())
    def advance_start(self, data: st.DataObject) -> None:
        if self.committed > self.start:
            offset = data.draw(st.integers(self.start, self.committed))
            self.log.advance_start(offset)
            self._cut_start(self.log.log_start_offset)

    @rule()
    def write_start(self) -> None:
        self.log.start_written(self.log.log_start_offset)

    @rule()
    def clean_restart(self) -> None:
        async def restart() -> None:
            await self.log.close()
            self.log = await self._reopen(mark=self.log.log_end_offset, clean=True)
            assert self.log.recovery.scanned_bytes == 0
            assert self.log.recovery.rebuilt == ()

        run(restart)
        self.past = [list(self.model)]

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        run(self._recover)
        assert self.log.recovery.truncated_bytes == 0
        self.past = [list(self.model)]

    @rule(seed=st.integers(0, 2**32))
    def power_cut(self, seed: int) -> None:
        durable = self.log.durable_offset
        safe = [kept for kept in self.model if kept.end <= durable]
        self.disk.power_cut(random.Random(seed))
        run(self._recover)
        assert self.log.damaged == ()
        assert not self.log.recovery.lost_tail
        got = (
            parse(content(self.log)) if self.log.log_end_offset > self.log.log_start_offset else []
        )
        end = self.log.log_end_offset
        assert end >= durable
        histories = [safe, *self.past]
        matching = [
            [kept for kept in history if kept.end <= end]
            for history in histories
            if not history or history[-1].end >= end or history is safe
        ]
        assert any(self._same(got, history) for history in matching)
        self.model = next(history for history in matching if self._same(got, history))
        self._cut_start(self.log.log_start_offset)
        self.past = [list(self.model)]
        self.epoch += 1

    def _same(self, got: list[Kept], history: list[Kept]) -> bool:
        return got == [kept for kept in history if kept.end > self.log.log_start_offset]

    @precondition(lambda self: self.model)
    @rule(seed=st.integers(0, 2**32))
    def rot(self, seed: int) -> None:
        """A bit below the mark flips, in a part that recovery reads: it is reported, and the rest
        of the log is as it was. Then the bit flips back."""
        rng = random.Random(seed)
        self.sync()
        self.commit_and_checkpoint()
        self.disk.kill()
        run(self._recover)
        segment = self.log.segments[-1]
        read_from = segment.boundary_at_position(segment.size - self.log.recovery.scanned_bytes)
        victims = [
            kept
            for kept in self.model
            if read_from.offset <= kept.base and self.start < kept.end <= self.mark
        ]
        if not victims:
            return
        victim = rng.choice(victims)
        found = segment.find(victim.base)
        assert found is not None
        before = self.disk.content(segment.path())
        at = rng.randrange(found.position, found.end)
        spoiled = bytearray(before)
        spoiled[at] ^= 1 << rng.randrange(8)
        self.disk.kill()
        self.disk.overwrite(segment.path(), bytes(spoiled))
        run(self._recover)
        assert [(each.start, each.end) for each in self.log.damaged] == [(victim.base, victim.end)]
        self.disk.kill()
        self.disk.overwrite(segment.path(), before)
        run(self._recover)
        assert self.log.damaged == ()
        self.past = [list(self.model)]

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def log_equals_model(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        start = log.log_start_offset
        expected = [kept for kept in self.model if kept.end > start]
        assert parse(content(log)) == expected
        assert start <= log.log_end_offset
        assert log.durable_offset <= log.log_end_offset
        if expected:
            assert log.log_end_offset == expected[-1].end
            assert log.epochs.last_epoch == epoch_of(expected[-1])
            assert [log.epochs.epoch_at(max(start, kept.base)) for kept in expected] == [
                epoch_of(kept) for kept in expected
            ]
        assert all(segment.size == segment.file.size() for segment in log.segments)

    @invariant()
    def producers_equal_a_replay(self) -> None:
        """What a replay of the visible log gives, the table knows too; it may know more of what
        retention has removed."""
        if not hasattr(self, "log"):
            return
        table = ProducerTable()
        forgotten: set[ProducerKey] = set()
        for kept in self.model:
            for at, header in iter_batches(kept.data):
                detail = read_detail(kept.data, at, header)
                table.note(header, detail, kept.base)
                if isinstance(detail, Eviction):
                    forgotten.update(detail.keys)
        for key in forgotten:
            assert (self.log.producers.get(key) is None) == (table.get(key) is None)
        for key, state in table:
            known = self.log.producers.get(key)
            assert known is not None
            assert known.window[-len(state.window) :] == state.window

    # --- inside -----------------------------------------------------------------------------------

    def _cut_start(self, start: int) -> None:
        self.start = start
        first = self.log.segments[0].base_offset
        self.model = [kept for kept in self.model if kept.base >= first]

    async def _recover(self) -> None:
        self.log = await self._reopen(mark=max(self.mark, 0), clean=False)
        self._resume_start()

    def _resume_start(self) -> None:
        self.start = self.log.log_start_offset

    async def _reopen(self, *, mark: int, clean: bool) -> Log:
        return await reopen(
            self.disk,
            mark=mark,
            clean=clean,
            log_start=self.start,
            settings=self.settings,
            host=self.host,
        )


def epoch_of(kept: Kept) -> int:
    return next(iter_batches(kept.data))[1].leader_epoch


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=int(os.environ.get("PACELINE_SEEDS", "50")),
    stateful_step_count=40,
    deadline=None,
)


Patch = AbstractContextManager[object]


def appended_is_called_durable() -> Patch:
    honest = Log._append

    def mutant(self: Log, *arguments: Any) -> Any:
        appended = honest(self, *arguments)
        self._durability.durable_offset = self.log_end_offset
        return appended

    return mock.patch.object(Log, "_append", mutant)


def directories_are_not_synced() -> Patch:
    honest = Durability.draw

    def mutant(self: Durability, end_offset: int) -> SyncTicket:
        ticket = honest(self, end_offset)
        ticket.directory = None
        return ticket

    return mock.patch.object(Durability, "draw", mutant)


def damage_is_cut_like_a_torn_tail() -> Patch:
    honest = recovery._Recovery.__init__

    def mutant(self: recovery._Recovery, *arguments: Any) -> None:
        honest(self, *arguments)
        self._mark = 0

    return mock.patch.object(recovery._Recovery, "__init__", mutant)


def checksums_are_not_checked() -> Patch:
    return mock.patch.object(
        segment_scan, "batch_crc", lambda data, at, _: segment_scan.read_header(data, at).crc
    )


def truncation_keeps_epochs() -> Patch:
    return mock.patch.object(EpochCache, "truncate_end", return_value=False)


def truncation_keeps_the_durable_offset() -> Patch:
    return mock.patch.object(Durability, "cut_back", return_value=None)


@pytest.mark.parametrize(
    ("broken", "rules"),
    [
        (appended_is_called_durable, ("append", "sync", "power_cut")),
        (directories_are_not_synced, ("append", "sync", "power_cut")),
        (damage_is_cut_like_a_torn_tail, ("append", "rot")),
        (checksums_are_not_checked, ()),
        (truncation_keeps_epochs, ()),
        (truncation_keeps_the_durable_offset, ()),
    ],
)
def test_the_machine_finds_a_broken_rule(broken: Callable[[], Patch], rules: Sequence[str]) -> None:
    assert_found(LogMachine, broken(), rules=rules)
