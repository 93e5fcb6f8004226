"""An anchor that is missing where the log's own table is right: it is made anew.

An anchor says what the records below a log's have said (``log_state.py``). It goes missing by
itself: its file rots, or the log start passes damage and no replica can begin before that. The
table knows the same, if it was not read around damage, and so does a later snapshot on disk.
Whatever it is made from is of an offset that is committed: whoever begins with the anchor counts
only once he has all that is committed, and then what it claims is in his log.
"""

from __future__ import annotations

from paceline.errors import StorageError
from paceline_node.env import Disk
from paceline_node.storage import producer_file
from paceline_node.storage.earlier_states import as_of
from paceline_node.storage.log import Log
from paceline_node.storage.producer_file import Snapshot
from paceline_node.storage.producers import FrozenTable


async def renew(disk: Disk, log: Log, high_watermark: int) -> bool:
    """Give ``log`` the anchor that it lacks, if it does; whether that was so. Raises OSError,
    StorageError; LookupError when it is not known yet, or the log changes meanwhile."""
    oldest = log.oldest_whole_offset
    if not log.state.lacks_anchor(oldest, log.log_start_offset):
        return False
    if log.producers.transactions.known_to is not None:
        raise LookupError(f"{log.identity}: its producers are being read again")
    version = log.version
    state = log.producers.marked_within(oldest, log.log_start_offset)
    if state is None:
        if any(log.state.is_deaf_to(each.end) for each in log.damaged):
            raise LookupError(f"{log.identity}: its producers were read around damage")
        state = await _as_committed(log, min(high_watermark, log.log_end_offset), oldest)
    await put(disk, log, state, version)
    return True


async def put(disk: Disk, log: Log, state: FrozenTable, version: int) -> None:
    """Make ``state`` the anchor of ``log``, of which it was told by the ``version``. Raises as
    :func:`renew`; LookupError also where the log gave up damage meanwhile that it was read
    around."""
    was_missing = log.state.is_missing
    await log.write_epochs()  # an older table on disk may speak against the snapshot
    if log.failed is not None:
        raise StorageError(f"{log.identity}: {log.failed}")
    if log.version != version:
        raise LookupError(f"{log.identity}: the log changed meanwhile")
    epoch = int(log.epochs.epoch_at(state.offset - 1))
    await producer_file.write(disk, log.path, log.identity.owner, Snapshot(epoch, state))
    if log.version == version and log.failed is None and log.state.is_missing == was_missing:
        log.state.anchored(state)
        return
    log.state.unwanted(state.offset)
    raise LookupError(f"{log.identity}: the log changed while its anchor was written")


async def _as_committed(log: Log, committed: int, oldest: int) -> FrozenTable:
    source = log.producers.as_of(committed)
    if source.offset < oldest:
        raise LookupError(f"{log.identity}: what is known at {oldest} is not committed yet")
    return await as_of(source, oldest)


async def believe_own(disk: Disk, log: Log, certain: int) -> None:
    """An operator let a replica lead whose records are good, but which does not know what those
    before have said; or a version before kept none. Nobody knows better: what it knows counts from
    now on, up to ``certain``: what is committed and durable here. Raises as :func:`renew`."""
    version = log.version
    state = await _as_committed(log, certain, log.oldest_offset)
    await put(disk, log, state, version)
    log.state.believed()
    log.take_snapshot()  # or the next start would read around the same hole
