"""A terminal is never sent what it would obey; a pipe gets every byte."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from paceline_cluster.cli.output import OutputFormat, Printer, Table
from paceline_cluster.cli.record_output import write_all
from paceline_cluster.cli.terminal import escaped_bytes, sentences

TITLE = "\x1b]0;owned\x07"
"""Sets the title of many terminals' windows."""


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """(what the terminal shows, what programs write to)."""
    shown, written = os.openpty()
    yield shown, written
    os.close(shown)
    os.close(written)


async def test_records_are_escaped_on_a_terminal_alone(terminal: tuple[int, int]) -> None:
    shown, written = terminal
    record = f"a\tb{TITLE}\u009b2J\n".encode() + b"\xff\n"
    await write_all(written, record)
    told = os.read(shown, 1000)
    assert told == b"a\tb\\x1b]0;owned\\x07\\x9b2J\r\n\\xff\r\n"
    await write_all(written, b"\x1b[0m", raw=True)
    assert os.read(shown, 1000) == b"\x1b[0m"
    into, out = os.pipe()
    await write_all(out, record)
    assert os.read(into, 1000) == record
    os.close(into)
    os.close(out)


@pytest.mark.parametrize("form", list(OutputFormat))
def test_names_in_tables_and_talk(form: OutputFormat, terminal: tuple[int, int]) -> None:
    shown, written = terminal
    with os.fdopen(os.dup(written), "w") as stream:
        printer = Printer(form, stdout=stream, stderr=stream)
        name = f"{TITLE}\u009b"
        printer.result([name], Table(("group",), [(name,)], title=name))
        printer.say(f"group {name} is gone")
        stream.flush()
        told = os.read(shown, 100_000).decode()
    assert "\x1b]" not in told
    assert "\x07" not in told
    assert "\u009b" not in told
    assert "owned" in told


def test_what_is_harmless_stays() -> None:
    assert escaped_bytes("Grüße, 世界\t1\n".encode()) == "Grüße, 世界\t1\n".encode()


def test_sentences_break_between_words_and_never_within_what_is_to_be_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    said = (
        "paceline: node 0's data lie elsewhere; 'paceline up --dir /somewhere' starts it\n"
        "short\n"
        "/a/path/that/is/longer/than/a/line/of/the/terminal is whole"
    )
    assert sentences(said).splitlines() == [
        "paceline: node 0's data lie elsewhere;",
        "'paceline up --dir /somewhere' starts it",
        "short",
        "/a/path/that/is/longer/than/a/line/of/the/terminal",
        "is whole",
    ]
