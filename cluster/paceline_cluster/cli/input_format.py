"""``produce --format``: how a line is made up, in the signs of ``consume --format``.

What lies between the signs separates them: ``%T\\t%k\\t%s`` reads what ``consume`` prints so. Each
field ends at the first of what follows it, the last one at the end of the line, for which a format
may say ``\\n``.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from paceline_cluster.cli.record_text import FORMAT_ESCAPES, BadLine, InputRecord

Parse = Callable[[bytes], InputRecord]

_SIGNS = {
    "k": "key",
    "s": "value",
    "p": "partition",
    "T": "timestamp",
    "h": "headers",
    "t": "topic",
    "o": "offset",
}
"""Topic and offset are read, so that lines of ``consume`` can be, and left out."""


def compile_input(text: str) -> Parse:
    """A format as a function of a line. Raises BadLine naming what is wrong with the format."""
    fields, separators = _taken_apart(text)
    if "s" not in fields:
        raise BadLine(f"format {text!r} has no value: %s is missing")

    def parse(line: bytes) -> InputRecord:
        return _record(_split(line, fields, separators))

    return parse


def _taken_apart(text: str) -> tuple[list[str], list[bytes]]:
    """The fields, and what stands before, between and behind them."""
    fields: list[str] = []
    literals: list[str] = [""]
    characters = iter(text)
    for character in characters:
        if character not in "%\\":
            literals[-1] += character
            continue
        following = next(characters, "")
        if character == "%" and following in _SIGNS:
            if following in fields:
                raise BadLine(f"'%{following}' is in format {text!r} twice")
            if fields and not literals[-1]:
                raise BadLine(f"nothing in format {text!r} separates '%{following}' from the last")
            fields.append(following)
            literals.append("")
        elif character == "%" and following == "%":
            literals[-1] += "%"
        elif character == "\\" and following in FORMAT_ESCAPES and following != "n":
            literals[-1] += FORMAT_ESCAPES[following]
        elif character + following == "\\n" and next(characters, None) is None:
            break  # lines end so by themselves
        else:
            raise BadLine(f"unknown {character + following!r} in format {text!r}")
    return fields, [os.fsencode(literal) for literal in literals]


def _split(line: bytes, fields: list[str], separators: list[bytes]) -> dict[str, bytes]:
    first, *between, last = separators
    if not line.startswith(first) or not line[len(first) :].endswith(last):
        raise BadLine("it does not begin and end as the format says")
    rest = line[len(first) : len(line) - len(last)]
    found = {}
    for field, separator in zip(fields, between, strict=False):
        value, there, rest = rest.partition(separator)
        if not there:
            shown = separator.decode("utf-8", "backslashreplace")
            raise BadLine(f"no {shown!r} behind the {_SIGNS[field]}")
        found[field] = value
    found[fields[-1]] = rest
    return found


def _record(found: dict[str, bytes]) -> InputRecord:
    return InputRecord(
        key=found.get("k") or None,
        value=found["s"],
        headers=_headers(found.get("h", b"")),
        partition=_count(found, "p"),
        timestamp_ms=_count(found, "T"),
    )


def _count(found: dict[str, bytes], field: str) -> int | None:
    text = found.get(field)
    if text is None:
        return None
    if not text.isdigit():
        shown = text.decode("utf-8", "backslashreplace")
        raise BadLine(f"the {_SIGNS[field]} is no whole number: {shown!r}")
    return int(text)


def _headers(text: bytes) -> tuple[tuple[str, bytes | None], ...]:
    headers: list[tuple[str, bytes | None]] = []
    for part in text.split(b",") if text else []:
        name, equals, value = part.partition(b"=")
        if not name or not equals:
            raise BadLine("headers are no NAME=VALUE,NAME=VALUE")
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers)
