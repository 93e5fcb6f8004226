"""``scripts/show-first-hour``: pages typed into a terminal of 80 columns, in a folder of their own.

It knows nothing but the text of a page: its blocks in order, each command typed into bash in tmux,
each program saved and started. Left in OUT are the screen behind every command (``screens/``) and
``report.txt``: exit codes, the widest line that was printed, and what a page promises that did not
come. Somebody has to look at the screens; ``test_docs.py`` compares without a terminal what can be
compared.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tests.e2e.pages import Block, blocks, fits, steps

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", str(Path("docs", "pages", "tutorial").with_suffix(".md")))
COLUMNS, ROWS = 80, 24
PROMPT = "$ "
HANG_S = 1800.0
POLL_S = 0.05
_CONFIGURATION = "set -g history-limit 200000\nset -g status off\n"
_JOB = re.compile(r"\[\d+\][+-]? ")
"""How bash begins what it says of a job; it writes the whole command."""


@dataclasses.dataclass
class Seen:
    """What became of one command."""

    page: str
    line: int
    command: str
    exit_code: int
    widest: int
    screen: str
    missing: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not self.exit_code and self.widest <= COLUMNS and not self.missing


class Terminal:
    """bash in tmux. Each prompt writes the exit code of what was before it to a file."""

    def __init__(self, folder: Path, home: Path, env: Mapping[str, str]) -> None:
        self._codes = home / "codes"
        self._codes.touch()
        configuration = home / "tmux.conf"
        configuration.write_text(_CONFIGURATION, encoding="utf-8")
        self._tmux = ("tmux", "-S", str(home / "tmux"), "-f", str(configuration))
        self._env = env
        start = home / "bashrc"
        start.write_text(f"PS1='{PROMPT}'\nPROMPT_COMMAND='echo $? >>{self._codes}'\n")
        size = ("-x", str(COLUMNS), "-y", str(ROWS))
        where = ("-c", str(folder))
        self._ask("new-session", "-d", *size, *where, f"bash --rcfile {start}")
        self._wait(1)
        self._begin = 0

    def _ask(self, *words: str) -> str:
        command = [*self._tmux, *words]
        asked = subprocess.run(command, env=self._env, capture_output=True, text=True, check=True)
        return asked.stdout

    def _ended(self) -> list[str]:
        return self._codes.read_text().split()

    def _wait(self, prompts: int) -> None:
        deadline = time.monotonic() + HANG_S
        while len(self._ended()) < prompts:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no prompt within {HANG_S} s")
            time.sleep(POLL_S)

    def _place(self) -> tuple[int, int]:
        """Lines above the screen, and the cursor's line on it."""
        above, cursor = self._ask("display", "-p", "#{history_size} #{cursor_y}").split()
        return int(above), int(cursor)

    def type(self, command: str) -> tuple[int, str, list[str]]:
        """The exit code, the screen since the prompt, and its lines as they were printed."""
        begin = sum(self._place())
        prompts = len(self._ended())
        for line in command.splitlines():
            self._ask("send-keys", "-l", line)
            self._ask("send-keys", "Enter")
        self._wait(prompts + 1)
        time.sleep(POLL_S)  # bash writes the code, then the prompt
        above, _ = self._place()
        since = ("-p", "-S", str(begin - above))
        screen = self._ask("capture-pane", *since).rstrip()
        whole = self._ask("capture-pane", "-J", *since).rstrip().splitlines()
        printed = [
            line.rstrip()
            for line in whole
            if not line.startswith((PROMPT.strip(), "> ")) and not _JOB.match(line)
        ]
        return int(self._ended()[prompts]), screen, printed

    def close(self) -> None:
        self._ask("kill-server")


def commands(text: str) -> Iterator[str]:
    """The commands of a block, each with all of its lines."""
    held: list[str] = []
    for line in text.splitlines():
        if not line.strip() and not held:
            continue
        held.append(line)
        whole = "\n".join(held)
        parsed = subprocess.run(["bash", "-n", "-c", whole], capture_output=True, check=False)
        if line.endswith("\\") or parsed.returncode or parsed.stderr:
            continue
        yield whole
        held = []
    if held:
        yield "\n".join(held)


def missing(block: Block, printed: Sequence[str]) -> list[str]:
    """What a block promises and nobody printed."""
    if block.expected is None:
        return []
    text = "".join(f"{line}\n" for line in printed)
    return [
        line
        for line in block.expected.splitlines()
        if line.strip() and not _is_head(line) and not fits(f"...\n{line}\n...", text)
    ]


def _is_head(line: str) -> bool:
    """A table's as a pipe gets it: on a terminal it is lower case, and may take several lines."""
    return re.fullmatch(r"[A-Z_ ]+", line) is not None


def follow(page: str, out: Path, terminal: Terminal, folder: Path) -> Iterator[Seen]:
    """Type a page; a block is judged with its last command."""
    found = blocks((ROOT / page).read_text(encoding="utf-8"))
    for block, text in steps(found, folder, {}):
        todo = list(commands(text))
        of_block: list[str] = []
        for number, command in enumerate(todo):
            code, screen, printed = terminal.type(command)
            of_block += printed
            name = f"{page.replace('/', '-').removesuffix('.md')}-{block.line:03}-{number:02}.txt"
            (out / "screens" / name).write_text(screen + "\n", encoding="utf-8")
            widest = max((len(each) for each in printed if not each.startswith("{")), default=0)
            seen = Seen(page, block.line, command, code, widest, name)
            if number == len(todo) - 1:
                seen.missing = missing(block, of_block)
            yield seen
    for block in found:
        if block.why:
            click.echo(f"{page}:{block.line} is left out: {block.why}", err=True)


def report(out: Path, seen: Sequence[Seen]) -> None:
    """What was seen, for people and for programs."""
    data = [dataclasses.asdict(each) for each in seen]
    (out / "report.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    lines = ["| where | command | exit | widest | promised, not seen |", "|---|---|---|---|---|"]
    for each in seen:
        command = each.command.replace("|", "\\|").replace("\n", " ; ")
        absent = "; ".join(each.missing).replace("|", "\\|")
        where = f"[{each.page}:{each.line}](screens/{each.screen})"
        lines.append(f"| {where} | `{command}` | {each.exit_code} | {each.widest} | {absent} |")
    (out / "report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def own_environment(home: Path) -> dict[str, str]:
    """A newcomer's: no cluster is known, the command is on the PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE")}
    places = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return {**kept, "HOME": str(home), "PATH": os.pathsep.join(places), "LC_ALL": "C.UTF-8"}


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("pages", nargs=-1)
def main(out: Path, pages: tuple[str, ...]) -> None:
    """Type PAGES (README.md and the tutorial), and leave their screens in OUT, which must not be
    inside the checkout. The documented ports have to be free."""
    out = out.absolute()
    if out.is_relative_to(ROOT):
        raise click.UsageError(f"{out} is inside the checkout")
    if shutil.which("tmux") is None:
        raise click.UsageError("tmux is not installed here")
    (out / "screens").mkdir(parents=True, exist_ok=True)
    seen: list[Seen] = []
    for page in pages or PAGES:
        # Paths as short as people have them: what is printed must not be wide because of ours.
        home = Path(tempfile.mkdtemp(prefix="first-"))
        folder = home / "work"
        folder.mkdir()
        env = own_environment(home)
        text = (ROOT / page).read_text(encoding="utf-8")

        def paceline(*words: str, env: dict[str, str] = env) -> Any:
            return subprocess.run(["paceline", *words], env=env, stdin=subprocess.DEVNULL)

        if "paceline up" not in text:  # it goes on from where the tutorial was
            paceline("up", "--detach").check_returncode()
        terminal = Terminal(folder, home, env)
        try:
            for each in follow(page, out, terminal, folder):
                mark = "ok  " if each.is_right else "LOOK"
                click.echo(f"{mark} {each.page}:{each.line} {each.command.splitlines()[0]}")
                seen.append(each)
        finally:
            report(out, seen)
            terminal.close()
            paceline("purge", "--yes")
            shutil.rmtree(home)
    wrong = [each for each in seen if not each.is_right]
    click.echo(f"{len(seen)} commands typed, {len(wrong)} to be looked at: {out / 'report.txt'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
