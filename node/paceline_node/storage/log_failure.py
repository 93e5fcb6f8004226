"""Whether the disk may still be trusted with a log, and what a failed operation of it means.

A full disk has an operation refused and changes nothing; any other failed write or sync ends the
log for good (DESIGN 2.2, 4.1).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from paceline.errors import StorageError, StorageFull
from paceline_node.env import is_full
from paceline_node.storage.partition_file import PartitionIdentity


class LogFailure:
    """What ended a log, if anything has."""

    __slots__ = ("_identity", "error")

    def __init__(self, identity: PartitionIdentity) -> None:
        self._identity = identity
        self.error: OSError | None = None

    def check(self) -> None:
        """Raise StorageError once the log has failed."""
        if self.error is not None:
            raise StorageError(f"{self._identity}: {self.error}")

    def note(self, error: OSError) -> None:
        """Refuse all further appends; the first reason stays."""
        self.error = self.error or error

    def of_write(self, error: OSError) -> StorageFull | StorageError:
        """What to raise for a failed write; one without room or descriptor has changed nothing."""
        if is_full(error):
            return StorageFull(f"{self._identity}: {error.strerror}")
        return self.final(error)

    def final(self, error: OSError) -> StorageError:
        """What to raise where even a full disk leaves a change half done: the log ends."""
        self.note(error)
        return StorageError(f"{self._identity}: {error}")

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """For what changes nothing when it fails for want of room; raises :meth:`of_write`."""
        try:
            yield
        except OSError as error:
            raise self.of_write(error) from error

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """For what must not fail half way; raises :meth:`final`."""
        try:
            yield
        except OSError as error:
            raise self.final(error) from error

    @contextlib.contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Callers that look after the whole disk get the disk's own error."""
        try:
            yield
        except StorageError:
            assert self.error is not None
            raise self.error.with_traceback(None) from None
        except StorageFull as error:
            raise (error.__cause__ or error) from None
