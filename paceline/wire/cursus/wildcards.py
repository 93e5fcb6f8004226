"""Wildcards in topic names: ``*`` stands for any characters, ``?`` for one.

Matched in time linear in the name for each part between stars: a part is taken where it fits first,
and never tried elsewhere, as that could only leave less room for what follows.
"""

from __future__ import annotations

import re

from paceline.wire.cursus.errors import CursusError

PATTERN_CHARACTERS_MAX = 255
"""No topic's name is longer."""


def is_pattern(topic: str) -> bool:
    """Whether a topic's name holds wildcards."""
    return "*" in topic or "?" in topic


class TopicWildcards:
    """A pattern to match names with. Raises CursusError for one that is too long for any name."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise CursusError("invalid_topic_name", "reason=pattern_too_long")
        self._pattern = pattern
        first, *others = pattern.split("*")
        last = others.pop() if others else None
        head = "".join([_fixed(first), *(f"(?>.*?{_fixed(part)})" for part in others if part)])
        self._head = re.compile(head, re.DOTALL)
        self._tail = None if last is None else re.compile(_fixed(last), re.DOTALL)
        self._tail_characters = 0 if last is None else len(last)

    def matches(self, name: str) -> bool:
        """Whether all of ``name`` fits."""
        if self._tail is None:
            return self._head.fullmatch(name) is not None
        head = self._head.match(name)
        at = len(name) - self._tail_characters
        return head is not None and head.end() <= at and self._tail.match(name, at) is not None


def _fixed(part: str) -> str:
    return re.escape(part).replace(r"\?", ".")
