"""The arguments of a command: ``key=value`` words, positional words, and a message at the end.

Words are separated by runs of blanks. A command that has a positional form is read that way
unless its first argument is ``key=…`` with a key that it knows. ``message=`` at the start of a
word takes everything behind it as it stands; ``metadata=`` before a message takes everything up to
it. The last of equal keys wins, unknown ones are ignored (DESIGN 3.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from paceline.wire.cursus.errors import CursusError, invalid, missing
from paceline.wire.cursus.inbound import BLANKS

_INTEGER = re.compile(r"-?[0-9]{1,19}\Z")
_MESSAGE = re.compile(r"(?:^|(?<=\s))message=")
_METADATA = re.compile(r"(?:^|(?<=\s))metadata=")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
T = TypeVar("T")


class Arguments:
    """What stood behind a command's word; every getter raises CursusError for a bad value."""

    def __init__(self, command: str, values: Mapping[str, str], *, positional: bool) -> None:
        self.command = command
        self.positional = positional
        self._values = values

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, *names: str, default: str = "") -> str:
        """The value under the first of ``names`` that is there."""
        for name in names:
            if name in self._values:
                return self._values[name]
        return default

    def required(self, *names: str, field: str | None = None) -> str:
        """As :meth:`text`, but it must be there and not empty."""
        value = self.text(*names)
        if not value:
            raise missing(field or names[0], self.command)
        return value

    def integer(
        self, *names: str, default: int | None = None, field: str | None = None, low: int = 0
    ) -> int:
        """A whole number of 64 bits, at least ``low``; required unless there is a ``default``."""
        word = field or names[0]
        text = self.text(*names)
        if not text:
            if default is None:
                raise missing(word, self.command)
            return default
        if not _INTEGER.match(text) or not low <= int(text) < 2**63:
            raise invalid(word, self.command, f"{text[:32]!r} is no number from {low} on")
        return int(text)

    def optional_integer(self, *names: str, field: str | None = None, low: int = 0) -> int | None:
        """As :meth:`integer`; None when it is not there."""
        if not self.text(*names):
            return None
        return self.integer(*names, field=field, low=low)

    def flag(self, *names: str, field: str) -> bool:
        """true or false; false when it is not there."""
        text = self.text(*names)
        value = _TRUTH.get(text.lower()) if text else False
        if value is None:
            raise CursusError(f"invalid_{field}", f"value={text[:32]}")
        return value

    def choice(self, options: Mapping[str, T], *names: str, default: T, field: str) -> T:
        """One of ``options``, whatever its case."""
        text = self.text(*names)
        if not text:
            return default
        try:
            return options[text.lower()]
        except KeyError:
            raise CursusError(f"invalid_{field}", f"{field}={text[:32]}") from None

    def names(self, name: str) -> tuple[str, ...]:
        """A list of names with commas between them, none empty."""
        return tuple(part for part in self.text(name).split(",") if part)


def read_arguments(
    command: str,
    rest: str,
    *,
    keys: frozenset[str],
    positions: tuple[str, ...] = (),
    message: bool = False,
    last_word: str | None = None,
) -> Arguments:
    """Read what stands behind ``command``.

    ``positions`` names the arguments of its positional form, empty where it has none. ``message``
    tells that the command may end in one. ``last_word`` names a parameter without a key, the last
    word (BATCH_COMMIT's offsets). What is missing is found by who asks for it.
    """
    values: dict[str, str] = {}
    if message:
        rest = _take_message(rest, values)
    words = rest.strip(BLANKS).split()
    if positions and words and words[0].partition("=")[0] not in keys:
        values.update(zip(positions, words, strict=False))
        return Arguments(command, values, positional=True)
    if last_word is not None and words and "=" not in words[-1]:
        values[last_word] = words.pop()
    values.update(_pairs(words, keys))
    return Arguments(command, values, positional=False)


def _take_message(rest: str, values: dict[str, str]) -> str:
    """Cut the message, and the metadata before it, off the end."""
    found = _MESSAGE.search(rest)
    if found is None:
        return rest
    values["message"] = rest[found.end() :]
    rest = rest[: found.start()]
    found = _METADATA.search(rest)
    if found is None:
        return rest
    # One blank parts it from the message; any before that belong to it.
    values["metadata"] = rest[found.end() : -1]
    return rest[: found.start()]


def _pairs(words: Iterable[str], keys: frozenset[str]) -> Iterable[tuple[str, str]]:
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key in keys:
            yield key, value
