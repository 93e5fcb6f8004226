"""What code and pages cite exists: rules by number (``DECISIONS.md`` says in which form), pages by
name, headings by title; files and folders in back quotes, where ``CHANGELOG.md`` may tell of those
that there were. And nobody sends a reader to a page that is not here."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP = ("paceline", "node", "cluster", "tests", "scripts", "deploy", "examples", "docs")
PLACES = ("paceline", "node", "cluster", "tests", "scripts", "deploy", "examples")
ME = Path(__file__).resolve()
SITE = ME.parent / "docs"
"""Tests of the site's pages, some of which are made: ``docs/reference/links.py`` knows them all."""

_RULE = re.compile(
    r"(?<![\w/`])(?P<room>(?:[\w-]+/)*)(?P<page>DESIGN|RAFT|DECISIONS)"
    r"(?P<numbers>(?:(?:,| and| or| to)? \d+(?:\.\d+)?(?![\w-]))+)"
)
_BARE = re.compile(r"(?<![\w/`.])(?:[\w-]+/)*(?:DESIGN|DECISIONS)(?!\.md|\w| \d)")
_PAGE = re.compile(r"(?<![\w/.*-])((?:\.{0,2}/)?(?:[\w.-]+/)*[\w-]+\.md)\b(?:`?,? \"([^\"]+)\")?")
_ELSEWHERE = re.compile(
    r"\b[Ss]pec(?:ification)? (?:v1|cursus|segment|coordinator|kafka|spark|replication|testing"
    r"|style|ecosystem|\d)|\bSETTLED\b|\bARCHITECTURE\b|\b(?:spec|seeds)/|\bseed document\b"
)
_NUMBER = re.compile(r"(?<=[\w`\"'] )\(([1-9]\d?\.\d{1,2})\)")
_QUOTED = re.compile(r"`((?:\.\./)*[\w.-]+(?:/[\w.-]+)*)/?`")
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CITED = ("DESIGN", "RAFT", "DECISIONS")
"""Looked for first: most files have none, and the patterns take a hundred times as long."""
_RULES = frozenset(("DESIGN.md", "RAFT.md", "DECISIONS.md"))
_HEADING = re.compile(r"^#+ (?:(\d+(?:\.\d+)?)\.? )?(.*)$", re.MULTILINE)
_LEAD = re.compile(r"^(?:[*-] )?\*\*(.+?)\*\*", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page's headings: their numbers, and their titles (also those that open a paragraph)."""

    numbers: frozenset[str]
    titles: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Page:
        headings = _HEADING.findall(text)
        leads = [" ".join(lead.split()) for lead in _LEAD.findall(text)]
        titles = [*(title for _, title in headings), *leads]
        return cls(
            frozenset(number for number, _ in headings if number),
            frozenset(title.strip(" .:") for title in titles),
        )


def unwrapped(text: str) -> str:
    """The text as one line, so that a citation may be broken anywhere."""
    return re.sub(r"\s*\n\s*(?:# |\"\"\")?", " ", text)


def faults(text: str, pages: Mapping[Path, Page], at: Path) -> Iterator[str]:
    """What a file at ``at`` (from the root) cites and does not exist."""
    line = unwrapped(text)
    if any(name in line for name in _CITED):
        for found in _RULE.finditer(line):
            yield from _wrong_rules(found, pages, at)
        for found in _BARE.finditer(line):
            yield f"{found[0]}: of which rule?"
    if ".md" in line:
        for found in _PAGE.finditer(line):
            yield from _wrong_page(found, pages, at)
    for found in _NUMBER.finditer(line):
        if at.name not in _RULES or found[1] not in pages[at].numbers:
            yield f"{found[0]}: a heading of which page?"
    for found in _ELSEWHERE.finditer(line):
        yield f"{found[0]}: not in this repository"


def _wrong_rules(found: re.Match[str], pages: Mapping[Path, Page], at: Path) -> Iterator[str]:
    page = _cited(pages, at, found["room"].rstrip("/"), found["page"] + ".md")
    if isinstance(page, str):
        yield f"{found[0]}: {page}"
        return
    for number in re.findall(r"\d+(?:\.\d+)?", found["numbers"]):
        if number not in page.numbers:
            yield f"{found[0]}: no heading {number}"


def _wrong_page(found: re.Match[str], pages: Mapping[Path, Page], at: Path) -> Iterator[str]:
    if found[1].startswith("github.com/"):
        return
    target = _named(pages, at, found[1])
    if target is None:
        yield f"{found[1]}: no such page"
    elif found[2] is not None and found[2].strip(" .:") not in target.titles:
        yield f"{found[0]}: no such heading"


def _cited(pages: Mapping[Path, Page], at: Path, room: str, name: str) -> Page | str:
    """The page that a citation means: of a room that it names, else of the nearest above."""
    if name == "DECISIONS.md":
        return "the decisions belong to no room" if room else pages[Path(name)]
    if not room:
        for folder in at.parents:
            if folder / name in pages:
                return pages[folder / name]
        return "no such page in or above this room"
    wanted = Path(room).parts
    fits = [
        path for path in pages if path.name == name and path.parts[:-1][-len(wanted) :] == wanted
    ]
    if len(fits) == 1:
        return pages[fits[0]]
    return "no such page" if not fits else f"one of {', '.join(map(str, fits))}?"


def _named(pages: Mapping[Path, Page], at: Path, name: str) -> Page | None:
    """The page of that path: from here, from the root, or the only one that ends so."""
    here = (ROOT / at).parent / name
    if here.is_file():
        return pages.get(here.resolve().relative_to(ROOT), Page(frozenset(), frozenset()))
    parts = Path(name).parts
    fits = [path for path in pages if path.parts[-len(parts) :] == parts]
    return pages[fits[0]] if fits else None


def lost(text: str, at: Path, paths: Collection[Path]) -> Iterator[str]:
    """Files and folders in back quotes that are not in the repository: modules, by the end of their
    path or from the file ``at``; in pages all that begins with one of the repository's folders."""
    for found in _QUOTED.finditer(_BLOCK.sub("", text)):
        name = Path(found[1])
        is_whole = at.suffix == ".md" and len(name.parts) > 1 and name.parts[0] in TOP
        if name.suffix != ".py" and not is_whole:
            continue
        near = Path(os.path.normpath(at.parent / name))
        size = len(name.parts)
        ends = not is_whole and any(path.parts[-size:] == name.parts for path in paths)
        if not (name in paths or near in paths or ends):
            yield found[1]


def _paths() -> set[Path]:
    """All files and folders of the repository, from its root."""
    found = {path.relative_to(ROOT) for top in TOP for path in (ROOT / top).rglob("*")}
    return found | {Path(top) for top in TOP}


def _files() -> list[Path]:
    folders = [ROOT / place for place in PLACES]
    found = [path for folder in folders for path in folder.rglob("*.*")]
    texts = [path for path in [*found, *ROOT.glob("*.md")] if path.suffix in (".py", ".md")]
    kept = [path for path in texts if path.resolve() != ME and SITE not in path.parents]
    return sorted(path.relative_to(ROOT) for path in kept)


@cache
def _pages() -> dict[Path, Page]:
    return {
        path: Page.of((ROOT / path).read_text(encoding="utf-8"))
        for path in _files()
        if path.suffix == ".md"
    }


def test_every_citation_leads_to_a_heading_that_exists() -> None:
    pages = _pages()
    wrong = [
        f"{path}: {fault}"
        for path in _files()
        for fault in faults((ROOT / path).read_text(encoding="utf-8"), pages, path)
    ]
    assert not wrong, f"{len(wrong)} citations lead nowhere:\n" + "\n".join(wrong)


def test_every_file_in_back_quotes_exists() -> None:
    paths = _paths()
    told = [path for path in paths if path.suffix in (".py", ".md")]
    texts = [path for path in told if ROOT / path != ME and SITE not in (ROOT / path).parents]
    pages = [path.relative_to(ROOT) for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]
    wrong = [
        f"{path}: {name}"
        for path in sorted([*texts, *pages])
        for name in lost((ROOT / path).read_text(encoding="utf-8"), path, paths)
    ]
    assert not wrong, f"{len(wrong)} names of files lead nowhere:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("`log.py` `deep/file.py` `node/log/log.py`", True),
        ("`node/log`, `node/log/`, ``log.py``", True),
        ("`../log.py`", True),
        ("`new/node-0` `README` `log/other`", True),
        ("```sh\ncat `other.py`\n```\n", True),
        ("`other.py`", False),
        ("``og.py``", False),
        ("`../other.py`", False),
        ("`other/log.py`", False),
        ("`node/deep`", False),
        ("`node/log/deep/log.py`", False),
    ],
)
def test_files_in_back_quotes(text: str, good: bool) -> None:
    paths = {Path("node/log"), Path("node/log/log.py"), Path("node/log/deep/file.py")}
    assert list(lost(text, Path("node/log/deep/README.md"), paths)) == (
        [] if good else [text.strip("`")]
    )


def test_rules_have_their_numbers_once() -> None:
    for path in _files():
        if path.name in _RULES:
            numbers = [n for n, _ in _HEADING.findall((ROOT / path).read_text("utf-8")) if n]
            assert len(numbers) == len(set(numbers)), f"{path}: {sorted(numbers)}"
            assert numbers == sorted(numbers, key=lambda n: [int(each) for each in n.split(".")])


WORLD = {
    Path("DECISIONS.md"): Page.of("# Decisions\n\n## 4 Why trio\n"),
    Path("node/log/DESIGN.md"): Page.of("# log\n\n## 1 Files\n\n### 1.2 Names\n"),
    Path("node/other/DESIGN.md"): Page.of("# other\n\n## 3 All\n"),
    Path("node/log/README.md"): Page.of("# log\n\n**Time** and more\n\n## What it costs\n"),
}


@pytest.mark.parametrize(
    "text",
    [
        "as DESIGN 1.2 says",
        "(DESIGN 1 and 1.2, other/DESIGN 3)",
        "node/other/DESIGN\n    # 3",
        "DECISIONS 4",
        'README.md, "Time"; `README.md`, "What it costs"',
        "KIP-98, RFC 4122, README.md",
        "a seed, its specification, RESETTLED",
    ],
)
def test_what_is_there_may_be_cited(text: str) -> None:
    assert not list(faults(text, WORLD, Path("node/log/deep/file.py")))


@pytest.mark.parametrize(
    "text",
    [
        "DESIGN 1.3",
        "DESIGN 1.2 and 1.4",
        "other/DESIGN 1.2",
        "nowhere/DESIGN 1",
        "see DESIGN for this",
        "DECISIONS 5",
        'README.md, "Space"',
        "NOWHERE.md",
        "spec replication 3.4",
        "(spec\n    segment 2)",
        "SETTLED R5",
        "it must leave (3.6)",
    ],
)
def test_what_is_not_there_is_a_fault(text: str) -> None:
    assert len(list(faults(text, WORLD, Path("node/log/deep/file.py")))) == 1
