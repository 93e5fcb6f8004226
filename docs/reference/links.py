"""``python -m docs.reference.links``: whether what the pages point to is there. Needs no network
and no MkDocs, so that ``scripts/check`` can ask it each time.

Looked at: links between pages, stored and made, with the headings that they name; the menu in
``mkdocs.yml``; and files of the repository that a page names in back quotes, which MkDocs takes for
words. Links to elsewhere are refused: the site has to be whole without a network.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.reference import PAGES

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "docs" / "pages"
_TOP = ("cluster", "deploy", "docs", "examples", "node", "paceline", "scripts", "tests")

_FENCE = re.compile(r"^(```+)[^\n]*\n.*?^\1\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+?)(?: \{ ?#([\w-]+) ?\})?\s*$", re.MULTILINE)
_QUOTED = re.compile(rf"`((?:{'|'.join(_TOP)})/[\w./-]*)`")
_IN_MENU = re.compile(r"(?<=[: ])([\w/-]+\.md)$", re.MULTILINE)


def pages() -> dict[str, str]:
    """Path below ``pages`` -> Markdown, of those that are stored and those that are made."""
    stored = {
        path.relative_to(PLACE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(PLACE.rglob("*.md"))
    }
    return {**stored, **{path: make() for path, make in PAGES.items()}}


def anchors(text: str) -> set[str]:
    """What links may name on a page, as the ``toc`` extension calls headings."""
    return {given or slug(title) for title, given in _HEADING.findall(_FENCE.sub("", text))}


def slug(title: str) -> str:
    """The anchor of a heading."""
    words = re.sub(r"[^\w\s-]", "", title).strip().lower()
    return re.sub(r"[-\s]+", "-", words)


def faults(found: Mapping[str, str], menu: str) -> Iterator[str]:
    """A sentence for each thing that is not where a page says."""
    known = {path: anchors(text) for path, text in found.items()}
    for path, text in found.items():
        plain = _FENCE.sub("", text)
        for target in _LINK.findall(plain):
            wrong = _wrong(path, target, known)
            if wrong:
                yield f"{path}: {target}: {wrong}"
        for name in _QUOTED.findall(plain):
            if not (ROOT / name).exists():
                yield f"{path}: `{name}`: no such file in the repository"
    listed = _IN_MENU.findall(menu)
    yield from (f"{path}: not in the menu" for path in sorted(set(found) - set(listed)))
    yield from (f"menu: {path}: no such page" for path in sorted(set(listed) - set(found)))


def _wrong(path: str, target: str, known: Mapping[str, set[str]]) -> str:
    if re.match(r"[a-z]+:|/", target):
        return "leads away from the site"
    name, _, anchor = target.partition("#")
    page = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
    if page not in known:
        return "no such page"
    return "" if not anchor or anchor in known[page] else "no such heading there"


def main() -> int:
    """Print what is wrong; the exit code says whether anything is."""
    wrong = list(faults(pages(), (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")))
    print("\n".join(wrong) or "all links of the documentation lead somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
