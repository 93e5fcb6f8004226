"""Pages of Markdown as a reader follows them: their blocks, in order, in one shell.

* ``sh``: run by bash, which ends the page at the first command that fails.
* ``python``: a program of its own; with ``title="NAME"``, as ``toml`` is, a file for later blocks.
* ``text`` right behind one of those: what it prints, line by line; how often a space or an empty
  line stands there is not counted. ``...`` by itself in a line stands for any lines, also none, and
  within a line for the rest of a word, for words, but never for a part of the word beside it.
* Everything else is to be looked at.

A block below ``<!-- not run: WHY -->`` is not run. Addresses are those that the page names (the
documented ports), and are replaced by those of the cluster at hand.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

FENCE = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]*?) -->\n)?"
    r'^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
PROGRAMS = ("sh", "python")
_ELLIPSES = ("...", "\N{HORIZONTAL ELLIPSIS}")


@dataclass(frozen=True)
class Block:
    """``line`` is where it begins in its page, ``expected`` what it prints, where that is told,
    ``why`` the reason for not running it."""

    kind: str
    title: str
    text: str
    line: int
    expected: str | None = None
    why: str = ""

    @property
    def is_run(self) -> bool:
        return not self.why and (self.kind in PROGRAMS or bool(self.title))

    def needs(self, module: str) -> bool:
        """Whether it is a Python program that imports the module."""
        found = re.search(rf"^\s*(?:import|from) {module}\b", self.text, re.MULTILINE)
        return self.kind == "python" and found is not None


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, outputs joined with what prints them."""
    found: list[Block] = []
    end = 0
    for fence in FENCE.finditer(text):
        follows = found and not text[end : fence.start()].strip()
        end = fence.end()
        kind, title, body = fence["kind"], fence["title"] or "", fence["text"]
        if kind == "text" and follows and found[-1].is_run and found[-1].expected is None:
            before = found[-1]
            found[-1] = Block(before.kind, before.title, before.text, before.line, body)
            continue
        line = text.count("\n", 0, fence.start("text"))
        found.append(Block(kind, title, body, line, None, fence["why"] or ""))
    return found


def steps(
    found: Sequence[Block], folder: Path, addresses: Mapping[str, str]
) -> Iterator[tuple[Block, str]]:
    """What bash does for each block; files are written to ``folder``."""
    for block in found:
        text = translated(block.text, addresses)
        if not block.is_run:
            continue
        if block.kind == "sh":
            yield block, text
        elif block.title:
            (folder / block.title).write_text(text, encoding="utf-8")
        else:
            name = f"at_line_{block.line}.py"
            (folder / name).write_text(text, encoding="utf-8")
            yield block, f"python {name}\n"


def translated(text: str, addresses: Mapping[str, str]) -> str:
    """``text`` with the addresses of another cluster, also where bash opens them as files."""
    for before, after in addresses.items():
        text = re.sub(rf"(?<![\d.]){re.escape(before)}(?!\d)", after, text)
        text = text.replace("/".join(before.split(":")) + ";", "/".join(after.split(":")) + ";")
    return text


def fits(expected: str, printed: str) -> bool:
    """Whether output is what the page shows."""
    pattern = "".join(
        r"(?:.*\n)*" if line in _ELLIPSES else f"{_line_pattern(line)}\n"
        for line in _lines(expected)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed))) is not None


def _lines(text: str) -> list[str]:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line]


def _line_pattern(line: str) -> str:
    """What is hidden is something, and begins and ends where a word does: ``... 10 records`` is not
    ``110 records``."""
    parts = re.split("|".join(map(re.escape, _ELLIPSES)), line)
    pattern = re.escape(parts[0])
    for before, after in pairwise(parts):
        begins = r"(?!\w)" if re.search(r"\w$", before) else ""
        ends = r"(?<!\w)" if re.match(r"\w", after) else ""
        pattern += f"{begins}.+{ends}{re.escape(after)}"
    return pattern


def follow(
    page: Path,
    folder: Path,
    *,
    env: Mapping[str, str],
    addresses: Mapping[str, str],
    lacking: Collection[str] = (),
    pass_fds: Sequence[int] = (),
    timeout_s: float,
) -> list[Block]:
    """Do what a page says, in an empty folder, but for the blocks that import a module ``lacking``
    here, which are returned. Raises AssertionError with the place and the output of the block that
    fails or prints something else."""
    found = blocks(page.read_text(encoding="utf-8"))
    left_out = [block for block in found if block.is_run and any(map(block.needs, lacking))]
    todo = list(steps([each for each in found if each not in left_out], folder, addresses))
    shown = folder.parent / f"{folder.name}.out"
    shown.mkdir()
    script = ["set -eE -o pipefail"]
    for block, text in todo:
        script += [f"exec >'{shown}/{block.line}' 2>&1", text.rstrip("\n")]
    shell = subprocess.Popen(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    try:
        ended = f"exit code {shell.wait(timeout_s)}"
    except subprocess.TimeoutExpired:
        ended = f"no end within {timeout_s} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)  # and what it left in the background
        code = shell.wait()
    done = [block for block, _ in todo if (shown / str(block.line)).exists()]
    for block in done:
        printed = (shown / str(block.line)).read_text(errors="replace")
        failed = code != 0 and block is done[-1]
        assert not failed, f"{page.name}:{block.line}: {ended}\n{printed[-4000:]}"
        if block.expected is not None:
            told = translated(block.expected, addresses)
            assert fits(told, printed), f"{page.name}:{block.line} printed\n{printed}\nnot\n{told}"
    assert len(done) == len(todo), f"{page.name}: ended after line {done[-1].line if done else 0}"
    return left_out
