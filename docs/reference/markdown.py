"""Text of the code as Markdown: nothing in it may be taken for markup by accident."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#])")
_LITERAL = re.compile(r"``(.+?)``|`([^`]+)`", re.DOTALL)
_ROLE = re.compile(r":(?:class|meth|func|data|attr|exc|mod):`~?([^`]+)`")


def escape(text: str) -> str:
    """Plain text, shown as it is."""
    return _MARKUP.sub(r"\\\1", text)


def code(text: str) -> str:
    """Text as code, in a table too."""
    shown = text.replace("|", "&#124;").replace("<", "&lt;").replace(">", "&gt;")
    shown = shown.replace("*", "&#42;").replace("_", "&#95;")
    return f"<code>{shown}</code>" if text else ""


def prose(text: str) -> str:
    """A docstring's sentences: what stands in back quotes is code, all else as it is."""
    text = _ROLE.sub(r"``\1``", text)
    parts: list[str] = []
    end = 0
    for found in _LITERAL.finditer(text):
        parts += [escape(text[end : found.start()]), code(found[1] or found[2])]
        end = found.end()
    return "".join([*parts, escape(text[end:])])


def line(text: str) -> str:
    """The same in one line, for a table."""
    return prose(" ".join(text.split()))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def whole(title: str, *parts: str) -> str:
    """A page: its title, and parts with an empty line between them."""
    return "\n\n".join([f"# {title}", *(part.strip("\n") for part in parts if part)]) + "\n"
