"""The printer: JSON, plain columns in a pipe, drawn tables on a terminal, silent progress."""

import io
import json

import pytest

from paceline_cluster.cli.output import OutputFormat, Printer, Table


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


TABLE = Table(("id", "isr", "led"), [(0, [0, 1], True), (10, (), False), (2, None, None)], "nodes")


def test_json_is_one_document() -> None:
    out = io.StringIO()
    Printer(OutputFormat.JSON, stdout=out).result({"a": ["é"]}, TABLE)
    assert json.loads(out.getvalue()) == {"a": ["é"]}
    assert "é" in out.getvalue()


def test_pipe_gets_aligned_plain_columns() -> None:
    out = io.StringIO()
    Printer(OutputFormat.TABLE, stdout=out).result(None, TABLE)
    assert out.getvalue().splitlines() == [
        "nodes",
        "ID  ISR  LED",
        "0   0,1  yes",
        "10  -    no",
        "2   -    -",
    ]


def test_a_name_makes_no_rows_in_a_pipe() -> None:
    """A group's name with line ends in it showed a row of a group that there is not."""
    out = io.StringIO()
    name = "a\r\nfalse  Stable\u2028x\x85\x1b[2K"
    Printer(OutputFormat.TABLE, stdout=out).result(None, Table(("group",), [(name,)], title="t\nu"))
    told = out.getvalue()
    assert told == "t\\nu\nGROUP\na\\r\\nfalse  Stable\\u2028x\\x85\\x1b[2K\n"
    assert len(told.splitlines()) == 3


def test_terminal_gets_a_drawn_table_without_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    Printer(OutputFormat.TABLE, stdout=out).result(None, Table(("name",), [("[red]x",)]))
    assert "[red]x" in out.getvalue()
    assert "\x1b[" in out.getvalue()


def test_talk_goes_to_stderr() -> None:
    out, err = io.StringIO(), io.StringIO()
    Printer(OutputFormat.JSON, stdout=out, stderr=err).say("waiting")
    assert (out.getvalue(), err.getvalue()) == ("", "waiting\n")


@pytest.mark.parametrize("streams", [(io.StringIO, Terminal), (Terminal, io.StringIO)])
def test_progress_is_silent_unless_both_are_terminals(
    streams: tuple[type[io.StringIO], type[io.StringIO]],
) -> None:
    out, err = streams[0](), streams[1]()
    with Printer(OutputFormat.TABLE, stdout=out, stderr=err).progress("copy", 10) as update:
        update(5)
    assert (out.getvalue(), err.getvalue()) == ("", "")


def test_progress_on_a_terminal_is_drawn_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out, err = Terminal(), Terminal()
    with Printer(OutputFormat.TABLE, stdout=out, stderr=err).progress("copy", 10) as update:
        update(10)
    assert out.getvalue() == ""
    assert "copy" in err.getvalue()


def test_progress_of_a_file_tells_how_long_it_takes_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    out, err = Terminal(), Terminal()
    printer = Printer(OutputFormat.TABLE, stdout=out, stderr=err)
    with printer.progress("produce t", 2000, in_bytes=True) as update:
        update(1000)
    shown = err.getvalue()
    assert "50%" in shown
    assert "1.0/2.0 kB" in shown
    assert "0:00" in shown or "-:--:--" in shown
