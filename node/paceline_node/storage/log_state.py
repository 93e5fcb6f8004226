"""What a log's records add up to, at its end and at its start, and the snapshots that keep it.

At the end: the producer table (``producers.py``), which every append changes. At the start: a
snapshot at or below the log start and at or above the oldest batch on disk, the *anchor*. It stands
for all records that are gone. Who begins to follow begins at the anchor, with its state
(``replication/state_transfer.py``); so a segment is only removed once a durable snapshot lies at or
above its end and at or below the log start on disk: there a restart looks for it. A log whose
records begin above 0 and that has no anchor does not know what the records below have said, and is
damaged (:attr:`LogState.is_missing`). So is one whose table was read around a hole that lies below
the log start now: nobody fills it any more.

Snapshots are taken when a segment is sealed, at checkpoints, and when the log is closed. Of a few
producers one is written at once and synced with the log's next flush. Of many it is frozen, and
written by :meth:`LogState.write_due`, a little at a time.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Sequence

from paceline.errors import CorruptMessage
from paceline_node.env import Disk, File
from paceline_node.storage import producer_file
from paceline_node.storage.file_owner import Owner
from paceline_node.storage.log_file import Unreadable, open_file
from paceline_node.storage.producer_file import Snapshot
from paceline_node.storage.producers import FrozenTable, ProducerTable

_AT_ONCE = 256
"""States of which a snapshot may be written in the middle of an append (about a millisecond)."""
_NEWEST = 3
"""Snapshots kept besides those at segments' starts: they shorten the replay after a crash."""


def _nobody() -> None:
    """Nobody writes what is due."""


class LogState:
    """``known`` are the offsets of snapshots in the directory, of which those at or below
    ``durable_to`` are on stable storage. ``on_due`` is called when a snapshot waits for
    :meth:`write_due`. ``is_missing``: the log has no anchor, though it begins above 0;
    ``is_founded``: the table is right all the same, by a later snapshot. ``read_from``: as
    :meth:`read_around`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        owner: Owner,
        table: ProducerTable,
        known: Iterable[int] = (),
        *,
        durable: bool = True,
        is_missing: bool = False,
        is_founded: bool = True,
        read_from: float = math.inf,
    ) -> None:
        self.table = table
        self.is_missing = is_missing
        self.is_founded = is_founded
        self.on_due: Callable[[], None] = _nobody
        self._read_from = read_from
        self._disk = disk
        self._directory = directory
        self._owner = owner
        self._durable = dict.fromkeys(known, durable)
        self._syncing: dict[int, File] = {}
        self._due: Snapshot | None = None
        self._writing: int | None = None
        self._under_way: int | None = None
        """As ``_writing``, also where it was given up meanwhile: nobody else may touch its file."""

    def __repr__(self) -> str:
        return f"<LogState {self._durable} due {self._due} missing {self.is_missing}>"

    # --- the anchor -----------------------------------------------------------------------------

    def anchor(self, oldest: int, log_start: int) -> int | None:
        """Where a replica that has nothing begins: the newest durable snapshot within ``oldest``,
        the first offset on disk, and ``log_start``. None: nothing is known there."""
        if self.is_missing:
            return None
        found = self._newest_durable(log_start)
        if found is not None and found >= oldest:
            return found
        return 0 if oldest == 0 else None

    def lacks_anchor(self, oldest: int, log_start: int) -> bool:
        """Whether what was said before the log is known here, and nobody can begin with it: its
        file is lost, or damage below the log start was given up (``anchors.py``). ``oldest``: from
        there on nothing is damaged below the log start."""
        return not self.is_missing and self.anchor(oldest, log_start) is None

    def want_anchor(self, oldest: int, log_start: int) -> None:
        """Have the anchor made that the log lacks, if it does (``anchors.renew``)."""
        if self.lacks_anchor(oldest, log_start):
            self.on_due()

    def _newest_durable(self, limit: int) -> int | None:
        fit = (offset for offset, sure in self._durable.items() if sure and offset <= limit)
        return max(fit, default=None)

    def removable(self, bases: Sequence[int], count: int, log_start: int) -> int:
        """How many of the ``count`` oldest segments may go, given the base offsets of all: behind
        them a durable snapshot must say what they said."""
        limit = self._newest_durable(log_start)
        while count and (limit is None or bases[count] > limit):
            count -= 1
        return count

    @property
    def floor(self) -> FrozenTable:
        """What truncations may go back to: the state at the anchor or before."""
        return self.table.floor

    def serve(self, on_due: Callable[[], None]) -> None:
        """Call ``on_due`` whenever :meth:`write_due` has something to do, from now on."""
        self.on_due = on_due
        on_due()

    # --- taking snapshots -----------------------------------------------------------------------

    def take(self, offset: int, epoch: int, bases: Sequence[int], log_start: int) -> File | None:
        """Snapshot the table; ``offset`` is the log's end, ``epoch`` that of the batch before.
        Returns a file to sync and close with the next flush; None: it will be written later.
        Raises OSError."""
        if self.table.transactions.known_to is not None:
            return None  # being rebuilt behind a repair: it does not know its end
        frozen = self.table.freeze(offset)
        self.table.mark(frozen)
        self._prune(bases, log_start)
        snapshot = Snapshot(epoch, frozen)
        if self._durable.get(offset):
            return None  # written before, of the same history
        is_large = len(frozen.states) + len(frozen.aborted) > _AT_ONCE
        if is_large or offset == self._under_way:
            self._due = snapshot
            self.on_due()
            return None
        file = producer_file.create_unsynced(self._disk, self._directory, self._owner, snapshot)
        self._durable[offset] = False
        self._syncing[offset] = file
        return file

    def synced(self, files: Collection[File]) -> bool:
        """These files are on stable storage; whether a snapshot was among them. One that was made
        again while its sync ran is another file, and waits for a sync of its own."""
        done = [offset for offset, file in self._syncing.items() if file in files]
        for offset in done:
            del self._syncing[offset]
            self._durable[offset] = True
        return bool(done)

    @property
    def is_due(self) -> bool:
        """Whether :meth:`write_due` has something to do."""
        return self._due is not None or self._unsure() is not None

    def _unsure(self) -> int | None:
        unsure = (o for o, sure in self._durable.items() if not sure and o not in self._syncing)
        return next(unsure, None)

    async def write_due(self) -> None:
        """Write and sync what waits for it. Raises OSError. One call at a time; cancelled, it is
        still due."""
        try:
            while (due := self._due) is not None:
                self._writing = self._under_way = due.table.offset
                await producer_file.write(self._disk, self._directory, self._owner, due)
                self._confirm(due.table.offset)
                if self._due is due:
                    self._due = None
            while (offset := self._unsure()) is not None:
                self._writing = self._under_way = offset
                await self._make_sure(offset)
        finally:
            self._under_way = None

    async def _make_sure(self, offset: int) -> None:
        """Sync a snapshot of which nobody knows whether it was."""
        try:
            file = await open_file(self._disk, self._path(offset))
        except (FileNotFoundError, Unreadable):
            self._durable.pop(offset, None)
            return
        try:
            await self._disk.sync([file])
        finally:
            file.close()
        await self._disk.fsync_dir(self._directory)
        self._confirm(offset)

    def _confirm(self, offset: int) -> None:
        """A file was written, and perhaps given up meanwhile."""
        if self._writing == offset:
            self._durable[offset] = True
            self._writing = None
        else:
            self._disk.remove(self._path(offset))

    def begun(self, state: FrozenTable, *, is_kept: bool) -> None:
        """The log is empty and goes on where ``state`` was taken; ``is_kept``: durably known."""
        self.table.load(state)
        self.is_missing = not is_kept
        self.is_founded = is_kept
        self._read_from = math.inf
        if is_kept and state.offset > 0:
            self._durable[state.offset] = True

    def unreadable(self, offset: int) -> None:
        """The snapshot there turned out to be damaged. What it said is known here all the same."""
        self._durable.pop(offset, None)
        self._syncing.pop(offset, None)
        self.on_due()

    def read_around(self, start: int) -> None:
        """The table was, or will be, read from the log from ``start`` on, and there are holes."""
        self._read_from = min(self._read_from, start)

    def is_deaf_to(self, hole_end: int) -> bool:
        """Whether the table does not know what the records in a hole have said."""
        return hole_end > self._read_from

    def lose_table(self) -> None:
        """It was read around a hole that nobody will fill."""
        self.is_missing = True
        self.is_founded = False

    def anchored(self, state: FrozenTable) -> None:
        """A snapshot of what the records below the log's have said was put on disk."""
        self.table.set_floor(state)
        self._durable[state.offset] = True
        self.is_missing = False
        self.is_founded = True

    def believed(self) -> None:
        """The table counts as it is, whatever it was read around."""
        self._read_from = math.inf

    def unwanted(self, offset: int) -> None:
        """A snapshot was written that the log has no use for any more. Raises OSError."""
        if offset not in self._durable:
            self._disk.remove(self._path(offset))

    async def name_owner(self) -> None:
        """Let the snapshots that name nobody say whose they are; what cannot be read is left as it
        is, and not believed. Raises OSError."""
        for offset in sorted(self._durable):
            with contextlib.suppress(CorruptMessage):
                kept = await producer_file.read(self._disk, self._directory, offset)
                if kept is not None and kept.named is None:
                    await producer_file.write(self._disk, self._directory, self._owner, kept)

    # --- dropping -------------------------------------------------------------------------------

    def drop_above(self, offset: int, *, spared: int = -1) -> bool:
        """Remove snapshots that a truncation to ``offset`` made untrue, but for the one at
        ``spared``; whether there were any. Raises OSError."""
        if self._due is not None and self._due.table.offset > offset:
            self._due = None
        if self._writing is not None and self._writing > offset:
            self._writing = None
        return self._drop([each for each in self._durable if each > offset and each != spared])

    def _prune(self, bases: Sequence[int], log_start: int) -> None:
        """Remove what no removal of segments and no start will ask for. Raises OSError."""
        anchor = self._newest_durable(log_start)
        kept = {*bases, *sorted(self._durable)[-_NEWEST:]}
        if anchor is not None:
            kept = {offset for offset in kept if offset >= anchor} | {anchor}
        self._drop([offset for offset in self._durable if offset not in kept])

    def _drop(self, offsets: Sequence[int]) -> bool:
        for offset in offsets:
            self._disk.remove(self._path(offset))
            del self._durable[offset]
            self._syncing.pop(offset, None)
        return bool(offsets)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{producer_file.name(offset)}"
