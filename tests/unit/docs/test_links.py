"""What is wrong with the links of pages is found. The pages as they are: ``scripts/check``."""

from __future__ import annotations

import re

from docs.reference import links
from docs.reference.links import PLACE

MENU = "nav:\n  - Home: a.md\n  - B: sub/b.md\n"
PAGES = {
    "a.md": "# A\n\n[b](sub/b.md#two-words)\n",
    "sub/b.md": "# B\n\n## Two words\n[a](../a.md)\n",
}


def faults(menu: str = MENU, **pages: str) -> list[str]:
    changed = {**PAGES, **{name.replace("__", "/") + ".md": text for name, text in pages.items()}}
    return list(links.faults(changed, menu))


def test_what_is_there_is_no_fault() -> None:
    assert faults() == []
    assert faults(a="```sh\n[x](gone.md) `scripts/gone`\n```\n`scripts/up` [b](sub/b.md)") == []


def test_the_first_page_leads_to_every_how_to() -> None:
    """Those on groups, users, disks, clusters and HTTP were found in the menu alone."""
    first = (PLACE / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\((how-to/[\w-]+\.md)\)", first))
    pages = {path.relative_to(PLACE).as_posix() for path in PLACE.glob("how-to/*.md")}
    assert len(pages) > 10
    assert pages == linked


def test_what_is_not_there_is_named() -> None:
    assert faults(a="[x](gone.md)") == ["a.md: gone.md: no such page"]
    assert faults(a="[b](sub/b.md#three)") == ["a.md: sub/b.md#three: no such heading there"]
    assert faults(a="[x](#here)") == ["a.md: #here: no such heading there"]
    assert faults(a="[x](/etc)") == ["a.md: /etc: leads away from the site"]
    assert faults(a="[x](ftp:x)") == ["a.md: ftp:x: leads away from the site"]
    assert faults(a="`scripts/gone`") == ["a.md: `scripts/gone`: no such file in the repository"]
    assert faults(c="# C") == ["c.md: not in the menu"]
    assert faults(MENU + "  - D: d.md\n") == ["menu: d.md: no such page"]
