"""Compacting one open log, beside appends, fetches, retention and truncation.

The rules are ``compaction.py``'s, the order of the steps on disk is ``compaction_file.py``'s; what
belongs here is bringing them together: reading in pieces, work in threads, pauses, and giving up
where the log has changed meanwhile. The loop is never held longer than one piece takes to write.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

import trio

from paceline.errors import CorruptMessage, StorageError
from paceline.values import dataclass
from paceline.wire.batch_header import LENGTH_OVERHEAD, MAX_STORED_BATCH_BYTES, BatchHeader
from paceline.wire.checksum import crc32c
from paceline_node.bare_errors import bare
from paceline_node.env import Bytes, Env, File
from paceline_node.settings.tree import LogSettings
from paceline_node.storage import compacted_sizes, compaction_file, producer_file
from paceline_node.storage.compaction import (
    Check,
    Cleanable,
    CompactionRules,
    FirstPass,
    SecondPass,
    judge,
    whole_batches,
)
from paceline_node.storage.compaction_file import CLEANED, CompactionState, Replacement
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.index import MAX_RELATIVE
from paceline_node.storage.key_map import KeyMap
from paceline_node.storage.log import Log
from paceline_node.storage.log_segment import Segment
from paceline_node.storage.removed_tombstones import Removals
from paceline_node.storage.transaction_index import AbortedRanges

_SECRET_BYTES = 32
_LENGTH_AT = 8


@dataclass(frozen=True, slots=True)
class CleanerLimits:
    """``max_keys``: keys in memory at a time, some 150 bytes each. ``bytes_per_s``: how much is
    read; ``piece_bytes``: how much of it without a pause."""

    max_keys: int = LogSettings().compaction_keys
    bytes_per_s: int = LogSettings().compaction_bytes_per_s
    piece_bytes: int = 256 * 1024


@dataclass(slots=True)
class CleanerStatistics:
    """Of all compactions of a node so far."""

    rounds: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    dropped_records: int = 0
    opaque_batches: int = 0
    freed_bytes: int = 0


def cleanable(log: Log, rules: CompactionRules, *, stable_offset: int, now_ms: int) -> Cleanable:
    """What of ``log`` may be compacted, below ``stable_offset``, and whether it is due."""
    return judge(
        log.segments,
        rules,
        cleaned_offset=log.compaction.cleaned_offset,
        horizon_ms=log.compaction.horizon_ms,
        stable_offset=stable_offset,
        now_ms=now_ms,
    )


class Cleaning:
    """One round over one log: what is dirty as far as the key map holds, against all before it.

    ``stable_offset`` is the high watermark or the last stable offset, whichever is lower.
    """

    def __init__(
        self,
        env: Env,
        log: Log,
        rules: CompactionRules,
        limits: CleanerLimits,
        statistics: CleanerStatistics,
        *,
        stable_offset: int,
    ) -> None:
        self._env = env
        self._log = log
        self._rules = rules
        self._limits = limits
        self._statistics = statistics
        self._stable_offset = stable_offset
        self._sizes: dict[Segment, int] = {}
        self.at_offset = log.log_start_offset
        """Base offset of the segment that is being read: where to look for a bad batch."""

    async def run(self) -> bool:
        """Compact; whether dirty segments are left because the key map was full.

        The log is whole after every step. Raises OSError (``is_full``: give it up for now),
        StorageError when the log has failed, CorruptMessage for a bad batch (``at_offset``), and
        LookupError when the log was cut meanwhile. Cancel-safe.
        """
        log = self._log
        now_ms = self._env.expiry_ms()
        found = cleanable(log, self._rules, stable_offset=self._stable_offset, now_ms=now_ms)
        segments = [each for each in log.segments[:-1] if each.next_offset <= found.end]
        self._sizes = {each: each.size for each in segments}
        keys = KeyMap(self._limits.max_keys, self._env.rng.randbytes(_SECRET_BYTES))
        # Of what lies below the last stable offset it says all.
        ended = tuple(log.producers.transactions.aborted)
        aborted = await self._env.host.run_blocking(partial(AbortedRanges, ended))
        first = FirstPass(found.dirty_from, keys, aborted)
        for segment in segments:
            if segment.next_offset > found.dirty_from and not first.is_full:
                await self._note_keys(segment, first)
        second = SecondPass(
            first,
            self._rules,
            now_ms,
            is_superseded=self._is_superseded,
            still_open=await self._open_at_anchor(),
        )
        covered = [each for each in segments if each.base_offset < first.end]
        last: list[Segment] = []
        while covered:
            count, in_place = await self._rewrite(covered, second)
            del covered[:count]
            last = [in_place]
        if found.end < found.dirty_from:  # not all that was cleaned was looked at for tombstones
            second.next_horizon_ms = now_ms + self._rules.delete_retention_ms
        removals = self._removals(second)
        if second.set_horizon_ms >= 0:
            removals = removals.with_horizon(second.set_horizon_ms, first.end)
        state = CompactionState(
            first.end,
            second.next_horizon_ms,
            removals=removals,
            rewritten=compacted_sizes.still_there(log.compaction.rewritten, log.segments),
        )
        await self._note(state, last)
        log.producers.transactions.forget_below(min(first.end, found.end))
        self._statistics.rounds += 1
        self._statistics.dropped_records += second.dropped_count
        self._statistics.opaque_batches += second.opaque_count
        return first.is_full

    async def _open_at_anchor(self) -> Collection[int]:
        """Producers that a replica which begins at the anchor takes to have transactions open, by
        batches that are gone: their markers are all that ends those."""
        log = self._log
        offset = log.state_offset
        if not offset:
            return ()
        try:
            kept = await producer_file.read(self._env.disk, log.path, offset, log.identity.owner)
        except CorruptMessage:  # nobody can begin there
            return ()
        return () if kept is None else kept.table.open.keys()

    def _is_superseded(self, marker: BatchHeader) -> bool:
        """Whether what a marker tells of its producer is told by a later batch of it that is
        committed, or the log has forgotten the producer."""
        state = self._log.producers.producer(marker.producer_id)
        return state is None or any(
            marker.base_offset < each.base_offset < self._stable_offset for each in state.window
        )

    async def _note_keys(self, segment: Segment, first: FirstPass) -> None:
        position = 0
        while not first.is_full and (piece := await self._next_piece(segment, position)):
            position += len(piece)
            await self._env.host.run_blocking(partial(first.feed, piece))

    async def _note(self, state: CompactionState, rests_on: Sequence[Segment]) -> None:
        """Write ``state`` down, which is true while the log has these segments; otherwise raise
        LookupError, with what is true then written down."""
        log = self._log
        async with log.notes_lock:
            self._require(rests_on)
            disk, owner = self._env.disk, log.identity.owner
            await compaction_file.write(disk, log.path, owner, state)
            gone: LookupError | None = None
            try:
                self._require(rests_on)
            except LookupError as error:
                gone = bare(error)
            if gone is not None:
                await compaction_file.write(disk, log.path, owner, log.compaction)
                try:
                    raise gone
                finally:
                    del gone
            log.compaction = replace(state, replacement=None)

    def _removals(self, second: SecondPass) -> Removals:
        """What is missing once all that ``second`` gave out so far is in the log."""
        state = self._log.compaction
        return state.removals.after(second.removed_to, second.expired, state.cleaned_offset)

    def _fits(self, file: File, first: Segment, following: Segment) -> bool:
        """Whether a segment's remains go into the file that holds those of its neighbours: without
        that a log of few keys would become a long row of tiny files. Not where age decides about
        whole segments: that would mix ages."""
        settings = self._log.settings
        return (
            settings.retention_ms is None
            and settings.retention_bytes is None
            and file.size() + following.size <= settings.segment_bytes
            and following.next_offset - first.base_offset <= MAX_RELATIVE
        )

    def _require(self, segments: Sequence[Segment]) -> None:
        """Raise LookupError unless the log still has these segments as they were, and no damage."""
        log = self._log
        if log.failed is not None:
            raise StorageError(f"{log.identity}: {log.failed}")
        active = log.segments[-1]
        if log.damaged or any(
            each is active or each not in log.segments or each.size != self._sizes[each]
            for each in segments
        ):
            raise LookupError(f"{log.identity}: the log has changed meanwhile")

    async def _next_piece(self, segment: Segment, position: int) -> bytes:
        """Some whole batches of a segment, as slowly as the limits ask; empty at its end."""
        self._require([segment])
        self.at_offset = max(segment.base_offset, self._log.log_start_offset)
        data = await self._read(segment.file, position, segment.size)
        self._statistics.read_bytes += len(data)
        await trio.sleep(len(data) / self._limits.bytes_per_s)
        return data

    async def _read(self, file: File, position: int, end: int) -> bytes:
        """Whole batches of a file that ends at byte ``end``; nothing there. Raises
        CorruptMessage."""
        size = min(self._limits.piece_bytes, end - position)
        if size == 0:
            return b""
        data = await file.read(size, position)
        whole = whole_batches(data)
        if whole:
            return data[:whole]
        size = int.from_bytes(data[_LENGTH_AT:LENGTH_OVERHEAD], "big") + LENGTH_OVERHEAD
        if size <= len(data) or size > min(MAX_STORED_BATCH_BYTES, end - position):
            raise CorruptMessage(f"{file.path}: no whole batch at byte {position}")
        return await file.read(size, position)

    # --- writing ----------------------------------------------------------------------------------

    async def _rewrite(
        self, segments: Sequence[Segment], second: SecondPass
    ) -> tuple[int, Segment]:
        """Write what stays of the first segments to one file, and put it in their place, unless it
        is the same. Returns how many they were, and the last segment that is there now."""
        disk, log = self._env.disk, self._log
        path = segments[0].path() + CLEANED
        disk.remove(path)
        file = disk.create(path)
        compacted: Segment | None = None
        try:
            count, crc = await self._write(file, segments, second)
            group = segments[:count]
            if not second.has_changed and count == 1:
                return 1, group[0]
            await disk.sync([file])
            compacted = await self._check(file, group)
            await self._put(group, compacted, path, crc, self._removals(second))
            return count, compacted
        finally:
            if compacted is None or compacted not in log.segments:
                file.close()
                disk.remove(path)

    async def _write(
        self, file: File, segments: Sequence[Segment], second: SecondPass
    ) -> tuple[int, int]:
        """Write the new file; of how many segments it holds the remains, and its CRC."""
        second.begin()
        count = crc = 0
        for segment in segments:
            if count and not self._fits(file, segments[0], segment):
                break
            position = 0
            while piece := await self._next_piece(segment, position):
                position += len(piece)
                kept = await self._env.host.run_blocking(partial(second.feed, piece))
                crc = self._append(file, kept, crc)
            count += 1
        return count, self._append(file, [second.finish()], crc)

    def _append(self, file: File, parts: Sequence[Bytes], crc: int) -> int:
        if any(parts):
            file.append(parts)
        for part in parts:
            crc = crc32c(part, crc)
        return crc

    async def _check(self, file: File, group: Sequence[Segment]) -> Segment:
        """Read the new file back with every check there is; the segment it makes."""
        log = self._log
        end = group[-1].next_offset
        compacted = Segment(group[0].directory, group[0].base_offset, file)
        compacted.created_ms = group[0].created_ms
        compacted.is_created_proven = group[0].is_created_proven
        check = Check(
            compacted,
            EpochCache(log.epochs.entries),
            index_interval=log.settings.index_interval_bytes,
        )
        while piece := await self._read(file, compacted.size, file.size()):
            await self._env.host.run_blocking(partial(check.feed, piece))
        if compacted.next_offset != end:
            raise CorruptMessage(f"{file.path}: ends at {compacted.next_offset}, not {end}")
        return compacted

    async def _put(
        self,
        group: Sequence[Segment],
        compacted: Segment,
        path: str,
        crc: int,
        removals: Removals,
    ) -> None:
        """Note the replacement, do it, make it durable."""
        disk, log = self._env.disk, self._log
        self._require(group)
        old = tuple((each.base_offset, each.size) for each in group)
        new = Replacement(old, compacted.size, crc)
        log.announce(path)
        sizes = compacted_sizes.replaced(log.compaction.rewritten, compacted_sizes.of(compacted))
        state = replace(log.compaction, replacement=new, removals=removals, rewritten=sizes)
        await self._note(state, group)
        freed = sum(each.size for each in group) - compacted.size
        log.replace(group, compacted, path)
        self._sizes[compacted] = compacted.size
        self._statistics.written_bytes += compacted.size
        self._statistics.freed_bytes += freed
        await disk.fsync_dir(log.path)
