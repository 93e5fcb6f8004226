"""A compacted log against a dict: whatever is written, truncated, compacted and crashed, the last
value of each key is what the model says, at every offset that is still the log's.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable

import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from paceline.types import Compression
from paceline.wire.records import Record
from paceline_node.storage.cleaner import CleanerLimits
from paceline_node.storage.compaction import CompactionRules
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producer_state import WINDOW
from paceline_node.storage.verify import verify_log
from tests.unit.storage.keyed import compact, keyed, last_values, visible
from tests.unit.storage.world import PATH, StillHost, content, flush, new_log, reopen

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d"])
VALUES = st.sampled_from([None, b"", b"one", b"x" * 120])
RETENTION_MS = 5_000


def run(work: Callable[[], Awaitable[object]]) -> None:
    async def main() -> None:
        await work()

    trio.run(main)


class CompactedLogMachine(RuleBasedStateMachine):
    """``model`` is every record ever written that was not truncated; ``disk`` keeps some."""

    log: Log

    @initialize(segment_bytes=st.sampled_from([250, 900, 5_000]))
    def begin(self, segment_bytes: int) -> None:
        self.disk = MemoryDisk()
        self.host = StillHost()
        self.settings = LogSettings(
            segment_bytes=segment_bytes,
            retention_ms=None,
            index_interval_bytes=150,
            checkpoint_bytes=400,
        )
        self.model: list[Record] = []
        self.epoch = 1
        self.committed = 0
        # Last sequence and last offset of each batch of the one producer.
        self.produced: list[tuple[int, int]] = []

        async def create() -> None:
            self.log = await new_log(self.disk, self.settings, self.host)

        run(create)

    # --- rules ------------------------------------------------------------------------------------

    @rule(
        pairs=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5),
        codec=st.sampled_from([Compression.NONE, Compression.NONE, Compression.ZSTD]),
        producing=st.booleans(),
    )
    def append(
        self,
        pairs: list[tuple[bytes | None, bytes | None]],
        codec: Compression,
        producing: bool,
    ) -> None:
        sequence = self.produced[-1][0] + 1 if self.produced else 0
        producer = (5, 0, sequence) if producing else (-1, -1, -1)
        data = keyed(pairs, timestamp=self.host.wall, producer=producer, codec=codec)
        first = self.log.append_leader(data, self.epoch, self.host.wall).base_offset
        for at, (key, value) in enumerate(pairs):
            self.model.append(Record(first + at, self.host.wall + at, key, value))
        if producing:
            self.produced.append((sequence + len(pairs) - 1, first + len(pairs) - 1))

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def seal(self) -> None:
        self.log.seal()

    @rule()
    def commit(self) -> None:
        async def sync() -> None:
            await flush(self.log, self.disk)
            await self.log.checkpoint()

        run(sync)
        self.committed = self.log.log_end_offset

    @rule(ms=st.sampled_from([1, 3_000, 6_000]))
    def pass_time(self, ms: int) -> None:
        self.host.wall += ms

    @rule(max_keys=st.sampled_from([1, 3, 100]), piece=st.sampled_from([150, 1 << 20]))
    def compact(self, max_keys: int, piece: int) -> None:
        limits = CleanerLimits(max_keys=max_keys, bytes_per_s=1 << 60, piece_bytes=piece)
        rules = CompactionRules(min_cleanable_ratio=0.0, delete_retention_ms=RETENTION_MS)
        active = self.log.segments[-1].base_offset
        before = {record.offset for record in visible(self.log)}

        async def clean() -> None:
            await compact(
                self.disk,
                self.log,
                self.host,
                rules=rules,
                limits=limits,
                stable_offset=self.committed,
            )

        run(clean)
        cleaned = self.log.compaction.cleaned_offset
        assert cleaned <= max(self.committed, 0)
        assert cleaned <= active
        after = visible(self.log)
        assert {record.offset for record in after if record.offset >= cleaned} == {
            offset for offset in before if offset >= cleaned
        }
        keys = [each.key for each in after if each.offset < cleaned and each.key is not None]
        assert len(keys) == len(set(keys))

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(self.committed, self.log.log_end_offset))
        self.log.truncate(end)
        # What is lost in a power cut is a tail then, not a fork (test_log_machine.py has those).
        run(lambda: flush(self.log, self.disk))
        self._forget_tail()
        self.epoch += 1

    def _forget_tail(self) -> None:
        end = self.log.log_end_offset
        self.model = [each for each in self.model if each.offset < end]
        self.produced = [each for each in self.produced if each[1] < end]

    @rule()
    def refetch(self) -> None:
        """A replica begins anew and fetches what is here; it takes this one's place."""
        whole = content(self.log)

        async def copy() -> None:
            self.log.abandon()
            self.disk = MemoryDisk()
            self.log = await new_log(self.disk, self.settings, self.host)
            if whole:
                self.log.append_follower(memoryview(whole))
            await flush(self.log, self.disk)

        run(copy)

    @rule(seed=st.none() | st.integers(0, 2**32))
    def crash(self, seed: int | None) -> None:
        if seed is None:
            self.disk.kill()
        else:
            self.disk.power_cut(random.Random(seed))

        async def recover() -> None:
            self.log.abandon()
            self.log = await reopen(
                self.disk, mark=self.committed, settings=self.settings, host=self.host
            )

        run(recover)
        assert self.log.damaged == ()
        assert self.log.log_end_offset >= self.committed
        self._forget_tail()

    @rule()
    def clean_restart(self) -> None:
        async def restart() -> None:
            end = self.log.log_end_offset
            await self.log.close()
            self.log = await reopen(
                self.disk, mark=end, clean=True, settings=self.settings, host=self.host
            )
            assert self.log.recovery.rebuilt == ()

        run(restart)

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def same_last_values(self) -> None:
        if not hasattr(self, "log"):
            return
        seen = visible(self.log)
        assert last_values(seen) == last_values(self.model)
        # Nothing is made up, and keyless records all stay.
        known = {record.offset: record for record in self.model}
        assert all(known[record.offset] == record for record in seen)
        assert [r for r in seen if r.key is None] == [r for r in self.model if r.key is None]

    @invariant()
    def same_producer_state(self) -> None:
        if hasattr(self, "log"):
            state = self.log.producers.get((0, (5).to_bytes(16, "big")))
            window = () if state is None else state.window
            assert [(w.last_sequence, w.last_offset) for w in window] == self.produced[-WINDOW:]

    def teardown(self) -> None:
        if hasattr(self, "log"):

            async def check() -> None:
                await flush(self.log, self.disk)
                await self.log.close()
                assert (await verify_log(self.disk, PATH)).findings == ()

            run(check)


TestCompactedLog = CompactedLogMachine.TestCase
TestCompactedLog.settings = settings(
    max_examples=int(os.environ.get("PACELINE_SEEDS", "30")),
    stateful_step_count=40,
    deadline=None,
)
