"""What others have named or written, shown on a terminal: control characters as escapes.

A terminal obeys what it is sent: sequences in a group's name, a client id or a record could retitle
the window, hide lines, or type into the shell. A pipe or a file gets every byte of a record as it
is, but tables escaped (``output.py``).
"""

from __future__ import annotations

import re
import shutil

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_WORD = re.compile(r"(?:(?<!\w)'[^']*'|\S)+")
"""What stays in one line: what is quoted is there to be copied."""
_LINE_ENDS = re.compile("[\t\n\u2028\u2029]")


def escaped(text: str, *, one_line: bool = False) -> str:
    """``text`` with ``\\x1b`` and the like in the place of control characters; tabs and line ends
    stay, unless it is to be ``one_line``."""
    text = _CONTROL.sub(_escape, text)
    return _LINE_ENDS.sub(_escape, text) if one_line else text


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def escaped_bytes(data: bytes) -> bytes:
    """As :func:`escaped`, for UTF-8; bytes that are none become escapes, too."""
    return escaped(data.decode("utf-8", "backslashreplace")).encode()


def sentences(text: str) -> str:
    """What a person is told, :func:`escaped`, its lines no longer than those of the terminal."""
    columns = shutil.get_terminal_size().columns
    return "\n".join(_wrapped(line, columns) for line in escaped(text).split("\n"))


def _wrapped(line: str, columns: int) -> str:
    if len(line) <= columns:
        return line
    lines = [""]
    for word in _WORD.findall(line):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if len(longer) <= columns:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(filter(None, lines))
