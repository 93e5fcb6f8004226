"""Making a log, opening it, and making durable what recovery decided."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from dataclasses import replace

import trio

from paceline.errors import CorruptMessage, StorageFull
from paceline.wire.batch_header import HEADER_BYTES, read_header
from paceline_node.env import Disk, Env
from paceline_node.storage import anchors, compaction_file, damage, epoch_file, producer_file
from paceline_node.storage.durability import Durability
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.partition_file import (
    VERSION,
    PartitionIdentity,
    read_metadata,
    write_identity,
)
from paceline_node.storage.recovery import Recovered, recover
from paceline_node.storage.recovery_report import RecoveryHints
from paceline_node.storage.transaction_index import AbortedTransaction

_LOOKED_AT_ONCE = 20
"""Markers that are looked for without a pause."""


async def create_log(
    env: Env, path: str, identity: PartitionIdentity, settings: LogSettings
) -> Log:
    """Make the directory of a new, empty log, and open it. Raises OSError.

    A crash or cancellation in between leaves a directory that :func:`open_log` accepts, or one
    without ``partition.metadata``, which holds no record.
    """
    env.disk.mkdir(path)
    await write_identity(env.disk, path, identity)
    await env.disk.fsync_dir(path.rpartition("/")[0])
    return await open_log(env, path, settings, RecoveryHints())


async def open_log(env: Env, path: str, settings: LogSettings, hints: RecoveryHints) -> Log:
    """Open and recover a log; ``log.recovery`` says what was found.

    A damaged log opens and is readable outside ``log.damaged``. Raises OSError, and CorruptMessage
    when ``partition.metadata`` cannot be read.
    """
    metadata = await read_metadata(env.disk, path)
    parts = await recover(env.disk, path, metadata.owner, hints, settings.index_interval_bytes)
    now_ms = env.host.wall_ms()
    for segment in parts.segments:
        segment.opened(now_ms)
    durability = Durability(path, parts.segments[0].base_offset)
    log = Log(env, path, metadata.identity, settings, parts, durability)
    try:
        with log.disk_errors():
            await _settle(env.disk, log, durability, parts, hints)
            await _raise_version(env.disk, log, metadata.version)
    except BaseException:
        log.abandon()
        raise
    return log


async def _settle(
    disk: Disk, log: Log, durability: Durability, parts: Recovered, hints: RecoveryHints
) -> None:
    """Make durable what recovery decided, so that nothing rests on unsynced bytes. Raises
    OSError."""
    for segment in parts.scanned:
        durability.touch(segment.file)
        if segment is not log.segments[-1]:
            with contextlib.suppress(StorageFull):  # they are read again next time
                log.write_indexes(segment)
    if parts.dirty:
        durability.touch_directory()
    if hints.log_start > log.log_end_offset:
        await _begin_at_start(disk, log, hints.log_start)
    log.advance_start(min(hints.log_start, log.log_end_offset))
    log.start_written(hints.log_start)
    log.drop_snapshots_above(log.log_end_offset)
    if parts.scanned and log.size_bytes:
        # Snapshots on which the table rests may never have been synced.
        with contextlib.suppress(StorageFull):
            log.take_snapshot()
    if durability.is_dirty:
        await log.sync()
    reach = 0 if hints.mark is None else hints.mark.fingerprint.reach
    durability.opened(log.segments[-1], reach)
    if hints.mark is not None and hints.mark_exact:
        durability.withhold(hints.mark.unproven_from(log.epochs))
    await log.write_epochs()
    is_right = not log.state.is_missing  # or the table was read around damage that is given up now
    if is_right and parts.anchor is not None and parts.anchor.offset == log.oldest_offset:
        await anchors.put(disk, log, parts.anchor, log.version)
    if parts.scanned:
        await damage.write(disk, log.path, log.identity.owner, log.damaged)
    await _settle_removals(disk, log)
    await _forget_removed(log)


async def _begin_at_start(disk: Disk, log: Log, start: int) -> None:
    """The log ends below its start: go on there, with what a snapshot there says. The producers of
    what is left may know less. Raises OSError."""
    kept = None
    if log.state.anchor(start, start) == start:
        with contextlib.suppress(CorruptMessage):
            kept = await producer_file.read(disk, log.path, start, log.identity.owner)
    state = log.producers.freeze(start) if kept is None else kept.table
    log.begin_at(state, is_kept=kept is not None)


async def _settle_removals(disk: Disk, log: Log) -> None:
    """Every compacted log has a file that says what it lacks; without one it may lack anything."""
    state = log.compaction
    doubtful = compaction_file.NAME in log.recovery.rebuilt or state.cleaned_offset > 0
    is_compacted = doubtful or log.settings.compaction is not None
    removals = state.removals.known(log.log_end_offset, is_compacted=is_compacted)
    if removals != state.removals:
        log.compaction = replace(state, removals=removals)
        if is_compacted:
            await compaction_file.write(disk, log.path, log.identity.owner, log.compaction)


async def _forget_removed(log: Log) -> None:
    """The table may come from a snapshot older than a compaction, and list aborted transactions
    whose markers have gone since. Their records went before; but who is told of one waits for its
    marker, and drops what its producer has committed behind it. Raises OSError."""
    index, removed_to = log.producers.transactions, log.compaction.removals.removed_to
    kept = []
    for number, each in enumerate(index.aborted):
        if number % _LOOKED_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        if each.last_offset >= removed_to or _has_marker(log, each):
            kept.append(each)
    if len(kept) < len(index.aborted):
        index.replace_aborted(kept)


def _has_marker(log: Log, aborted: AbortedTransaction) -> bool:
    """Whether the log still says that it ended; where it cannot be read, it may."""
    at = bisect_right(log.segments, aborted.last_offset, key=lambda each: each.base_offset) - 1
    try:
        step = None if at < 0 else log.segments[at].find(aborted.last_offset)
        if step is None or step.base_offset > aborted.last_offset:
            return step is not None  # behind a hole
        header = read_header(log.segments[at].file.pread(HEADER_BYTES, step.position))
    except CorruptMessage:
        return True
    return header.is_control and header.producer_id == aborted.producer_id


async def _raise_version(disk: Disk, log: Log, version: int) -> None:
    """Where an earlier version made this log: the first kept no anchor (``log_state.py``), and none
    named the owner in its files. From now on what has no name is not believed. Raises OSError."""
    if version >= VERSION:
        return
    if version == 0 and log.state.is_missing:
        # Nothing says yet what is committed. All of it is synced, though a part may be withheld.
        await anchors.believe_own(disk, log, log.log_end_offset)
    owner = log.identity.owner
    await log.state.name_owner()
    await epoch_file.write(disk, log.path, owner, log.epochs.entries)
    await damage.write(disk, log.path, owner, log.damaged)
    if compaction_file.exists(disk, log.path):
        await compaction_file.write(disk, log.path, owner, log.compaction)
    await write_identity(disk, log.path, log.identity)
