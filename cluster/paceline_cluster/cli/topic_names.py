"""Several topics on a command line: by name, or by a pattern as shells have them."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from paceline.client import Client
from paceline.errors import UnknownTopicOrPartition
from paceline.types import is_internal_topic

_MAGIC = frozenset("*?[")
"""No topic's name has one of them."""


async def expanded(client: Client, words: Sequence[str]) -> list[str]:
    """The topics that are meant, each once, in order. A pattern means the cluster's own topics only
    if it begins with ``__``. Raises UnknownTopicOrPartition for a pattern that no topic matches."""
    if not any(map(is_pattern, words)):
        return list(dict.fromkeys(words))
    there = sorted(each.name for each in await client.admin.list_topics())
    found: dict[str, None] = {}
    for word in words:
        names = _matching(word, there) if is_pattern(word) else [word]
        if not names:
            raise UnknownTopicOrPartition(f"{word}: no topic has such a name")
        found |= dict.fromkeys(names)
    return list(found)


def is_pattern(word: str) -> bool:
    """Whether the word stands for any number of topics."""
    return not _MAGIC.isdisjoint(word)


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    return [
        name
        for name in fnmatch.filter(names, pattern)
        if is_internal_topic(pattern) or not is_internal_topic(name)
    ]
