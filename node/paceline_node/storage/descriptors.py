"""Few descriptors for many files.

A log has one file per segment, and a node may have many thousands of logs: more than a process may
have descriptors. So a file that is open for its owner may rest without one, and gets one again, by
its name, when it is used next. At most ``most`` files have one at a time; the one that was not used
for long gives its up. One that must keep it is passed over: a thread works on it, it was written to
and not synced since (the sync that follows must be told of a failure to write back), or its name is
gone (a reader may still hold a slice of it).

A few descriptors are kept in reserve for what is short: syncing a directory, reading a small file.
When even they are used up, calls that may wait do; others fail with EMFILE, which is no failed disk
(:func:`paceline_node.env.is_full`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Protocol

_SHORT = frozenset({errno.EMFILE, errno.ENFILE})
_LOOKS = 64
"""Files looked at for one to rest, when there is no shortage yet."""


class Resting(Protocol):
    """What the cache asks of an open file."""

    where: str
    """Its path on the machine, as it is now."""
    used: bool
    """Whether it was used since somebody looked; the cache clears it."""

    def rest(self) -> bool:
        """Give the descriptor up, if that is harmless; whether it did."""

    def keep(self) -> None:
        """The name is about to go: have a descriptor, and keep it."""


def is_short(error: OSError) -> bool:
    """Whether there is no descriptor left, for this process or on the machine."""
    return error.errno in _SHORT


class Descriptors:
    """Who of one disk's open files has a descriptor. Paths are the machine's."""

    def __init__(self, most: int, *, reserve: int = 0) -> None:
        self.most = most
        self._having: dict[Resting, None] = {}
        self._by_directory: dict[str, dict[Resting, None]] = {}
        self._below: dict[str, dict[str, None]] = {}
        """Directories in a directory that have open files, or such below: with thousands of logs
        nobody may look through all of them for the sake of one file."""
        self._wanted_reserve = reserve
        self._reserve: list[int] = []
        self._refill()

    @property
    def count(self) -> int:
        """Files that have a descriptor now."""
        return len(self._having)

    # --- descriptors ------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """As ``os.open``, when another file has made room if need be. Raises OSError."""
        if len(self._having) >= self.most:
            self._rest_one(_LOOKS)
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, mode)
            except OSError as error:
                if not is_short(error):
                    raise
                if not self.make_room():
                    raise

    def make_room(self) -> bool:
        """Let one descriptor go, the reserve's at last; whether there was any to spare."""
        return self._rest_one(2 * len(self._having)) or self._spend()

    def close(self, descriptor: int) -> None:
        """As ``os.close``; the reserve is filled up first."""
        os.close(descriptor)
        self._refill()

    def has(self, file: Resting) -> None:
        """``file`` has a descriptor from now on."""
        self._having[file] = None

    def _rest_one(self, looks: int) -> bool:
        for _ in range(min(looks, 2 * len(self._having))):
            file = next(iter(self._having))
            del self._having[file]
            if not file.used and file.rest():
                return True
            file.used = False
            self._having[file] = None
        return False

    def _spend(self) -> bool:
        if not self._reserve:
            return False
        os.close(self._reserve.pop())
        return True

    def _refill(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._reserve) < self._wanted_reserve:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def end(self) -> None:
        """Give the reserve up, for good."""
        self._wanted_reserve = 0
        while self._spend():
            pass

    # --- names ------------------------------------------------------------------------------------

    def opened(self, file: Resting) -> None:
        """``file`` is open, and has a descriptor."""
        self._name(file)
        self.has(file)

    def closed(self, file: Resting) -> None:
        """``file`` is closed for its owner."""
        self._having.pop(file, None)
        self._forget(file)

    def _name(self, file: Resting) -> None:
        directory = os.path.dirname(file.where)
        files = self._by_directory.get(directory)
        if files is None:
            files = self._by_directory[directory] = {}
            while (parent := os.path.dirname(directory)) != directory:
                siblings = self._below.setdefault(parent, {})
                if directory in siblings:
                    break
                siblings[directory] = None
                directory = parent
        files[file] = None

    def _forget(self, file: Resting) -> None:
        directory = os.path.dirname(file.where)
        files = self._by_directory.get(directory)
        if files is None:
            return
        files.pop(file, None)
        if files:
            return
        del self._by_directory[directory]
        while directory not in self._by_directory and directory not in self._below:
            parent = os.path.dirname(directory)
            siblings = self._below.get(parent)
            if siblings is None or directory not in siblings:
                return
            del siblings[directory]
            if siblings:
                return
            del self._below[parent]
            directory = parent

    def _directories(self, path: str) -> list[str]:
        """Of the files that are open, those of ``path`` and below, if that is a directory."""
        found = [path]
        for directory in found:
            found += self._below.get(directory, ())
        return [directory for directory in found if directory in self._by_directory]

    def going(self, path: str) -> None:
        """A file is about to be unlinked or replaced, or a directory to be removed."""
        files = self._by_directory.get(os.path.dirname(path), {})
        gone = [file for file in files if file.where == path]
        for directory in self._directories(path):
            gone += self._by_directory[directory]
        for file in gone:
            file.keep()
            self._forget(file)

    def renamed(self, old: str, new: str) -> None:
        """A file or a directory has another name now."""
        files = self._by_directory.get(os.path.dirname(old), {})
        moved = [file for file in files if file.where == old]
        for file in moved:
            self._move(file, new)
        for directory in self._directories(old):
            for file in list(self._by_directory[directory]):
                self._move(file, new + file.where[len(old) :])

    def _move(self, file: Resting, where: str) -> None:
        self._forget(file)
        file.where = where
        self._name(file)
