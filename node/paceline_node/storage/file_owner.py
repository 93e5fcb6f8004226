"""Which partition a small file belongs to.

A file of the same name lies beside every log, and those of two logs may be exchanged: by a mistaken
copy, or by a file system that repaired its directories. So each that decides something names its
partition (``checkpoint.py``, ``producer_file.py``), and one that names another is as good as
rotten.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from paceline.errors import CorruptMessage
from paceline.types import TopicId
from paceline.values import dataclass

NAMED_SINCE = 2
"""Directories of this version (``partition_file.py``) and later have no file without a name."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A partition, as its files name it. ``is_always_named``: a file that names nobody is not its
    own either; false while a directory of an earlier version is opened."""

    topic_id: TopicId
    partition: int
    is_always_named: bool = True

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.partition}"

    @property
    def named(self) -> list[bytes | int]:
        """As it stands in a file."""
        return [self.topic_id.bytes, self.partition]

    def named_always(self) -> Owner:
        """The same, as its own files are written."""
        return replace(self, is_always_named=True)

    def check(self, named: object) -> None:
        """Raise CorruptMessage where ``named``, what a file says, is not this; None: it says
        nothing."""
        if named is None:
            if self.is_always_named:
                raise CorruptMessage(f"it does not say whose it is, expected {self}")
        elif named != self.named:
            raise CorruptMessage(f"it belongs to {_shown(named)}, expected {self}")


def _shown(named: object) -> str:
    match named:
        case [bytes() as topic_id, int() as partition] if len(topic_id) == 16:
            return f"{UUID(bytes=topic_id)}/{partition}"
    return repr(named)
