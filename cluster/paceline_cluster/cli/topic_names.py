"""Several topics on a command line: by name, by a pattern as shells have them, or by a regular
expression."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence

import click

from paceline.client import Client
from paceline.errors import UnknownTopicOrPartition
from paceline.types import is_internal_topic
from paceline.values import dataclass

_MAGIC = frozenset("*?[")
"""No topic's name has one of them."""

regex_option = click.option(
    "--regex",
    "is_regex",
    is_flag=True,
    help="The topics are regular expressions, each for whole names: 'orders-[0-9]+|bills'.",
)


@dataclass(frozen=True, slots=True)
class TopicNames:
    """What was said. Raises click.UsageError for a regular expression that is none."""

    words: tuple[str, ...]
    is_regex: bool = False

    def __post_init__(self) -> None:
        for word in self.words if self.is_regex else ():
            try:
                re.compile(word)
            except re.error as error:
                raise click.UsageError(f"{word!r} is no regular expression: {error}") from None

    @property
    def are_patterns(self) -> bool:
        """Whether one of them stands for any number of topics."""
        return self.is_regex or any(map(_is_pattern, self.words))

    @property
    def is_one(self) -> bool:
        """Whether they are one topic, named by its name."""
        return len(self.words) == 1 and not self.are_patterns

    async def expanded(self, client: Client) -> list[str]:
        """The topics that are meant, each once, in order. A pattern means the cluster's own topics
        only if it begins with ``__``. Raises UnknownTopicOrPartition for a pattern that no topic
        matches."""
        if not self.are_patterns:
            return list(dict.fromkeys(self.words))
        there = sorted(each.name for each in await client.admin.list_topics())
        found: dict[str, None] = {}
        for word in self.words:
            names = self._meant_by(word, there)
            if not names:
                raise UnknownTopicOrPartition(f"{word}: no topic has such a name")
            found |= dict.fromkeys(names)
        return list(found)

    def _meant_by(self, word: str, there: Sequence[str]) -> list[str]:
        fits: Callable[[str], object]
        if self.is_regex:
            fits = re.compile(word).fullmatch
        elif _is_pattern(word):
            fits = re.compile(fnmatch.translate(word)).match
        else:
            return [word]
        with_internal = is_internal_topic(word.removeprefix("^"))
        return [
            name for name in there if fits(name) and (with_internal or not is_internal_topic(name))
        ]


async def those_in_other_case(client: Client, name: str) -> list[str]:
    """Topics whose names are ``name`` but for its case; none where that is there itself. Raises
    PacelineError where nobody can say, as of a name that no topic can have."""
    try:
        await client.admin.topic(name)
    except UnknownTopicOrPartition:
        there = [each.name for each in await client.admin.list_topics()]
        return sorted(each for each in there if each.lower() == name.lower() and each != name)
    return []


def _is_pattern(word: str) -> bool:
    return not _MAGIC.isdisjoint(word)
