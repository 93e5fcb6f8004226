"""``epochs.ckpt``: the leader epoch table of one log (framed as in ``checkpoint.py``)::

    msgpack [[epoch, start offset], ...]   both strictly increasing, oldest first

Derived from the log, which is its authority; written before a recovery point that it must cover.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgpack

from paceline.errors import CorruptMessage
from paceline_node.env import Disk
from paceline_node.storage import checkpoint
from paceline_node.storage.epochs import EpochCache, EpochStart
from paceline_node.storage.file_owner import Owner

NAME = "epochs.ckpt"


class EpochFile:
    """The file of an open log, which several may want to be written at once."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        owner: Owner,
        on_disk: Sequence[EpochStart] | None,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._owner = owner
        self._on_disk = on_disk
        self._lock = checkpoint.new_lock()

    async def write(self, epochs: EpochCache) -> None:
        """Let it say what ``epochs`` do now, if it does not. Raises OSError."""
        async with self._lock:
            entries = epochs.entries
            if entries != self._on_disk:
                await write(self._disk, self._directory, self._owner, entries)
                self._on_disk = entries


async def write(disk: Disk, directory: str, owner: Owner, entries: Iterable[EpochStart]) -> None:
    """Replace the table durably."""
    payload = msgpack.packb([list(entry) for entry in entries])
    await checkpoint.write(disk, f"{directory}/{NAME}", checkpoint.Kind.EPOCHS, payload, owner)


async def read(disk: Disk, directory: str, owner: Owner | None = None) -> EpochCache | None:
    """The table; None when there is no file. Raises CorruptMessage, also where it is not of
    ``owner`` (None: whoever has it)."""
    payload = await checkpoint.read(disk, f"{directory}/{NAME}", checkpoint.Kind.EPOCHS, owner)
    if payload is None:
        return None
    try:
        return EpochCache((epoch, start) for epoch, start in checkpoint.unpack_rows(payload, 2))
    except (TypeError, ValueError) as error:
        raise CorruptMessage(f"{directory}/{NAME}: {error}") from None
