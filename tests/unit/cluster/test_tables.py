"""Tables on a terminal: whatever its width, each word of them is there to be read and copied."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_cluster.cli.survey_report import address_table
from paceline_cluster.cli.tables import Table, blocks, draw, fit, print_plain

ID = "6f9bcd29-f14c-4daf-9bdd-fb4e95b0cd44"
COLUMNS = 80
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("TERM", "xterm")


def drawn(table: Table) -> list[str]:
    out = Terminal()
    draw(table, out)
    return _STYLE.sub("", out.getvalue()).splitlines()


def test_a_table_that_fits_is_one() -> None:
    table = Table(("name", "topic_id", "partitions"), [("orders", ID, 3)], title="topics")
    title, head, rule, row = drawn(table)
    assert title == "topics"
    assert head.split() == ["name", "topic", "id", "partitions"]
    assert set(rule) == {"─"}
    assert row.split() == ["orders", ID, "3"]


def test_heads_are_broken_between_words_before_anything_is_left_out() -> None:
    """'topic describe' of 116 columns was cut to 80: 'leader_…', '1234…'."""
    heads = (
        *("partition", "leader", "leader_epoch", "replicas", "isr"),
        *("log_start_offset", "high_watermark", "log_end_offset", "size_bytes", "error"),
    )
    lines = drawn(Table(heads, [(0, 1, 3, [0, 1, 2], [0, 1, 2], 0, 1234567, 1234567, 1, None)]))
    assert max(map(len, lines)) <= COLUMNS
    assert lines[-1].split() == ["0", "1", "3", "0,1,2", "0,1,2", "0", "1234567", "1234567", "1"]
    assert " ".join(lines).count("offset") == 2
    assert "error" not in " ".join(lines)  # the column in which nothing stands


def test_what_is_too_wide_for_columns_becomes_blocks() -> None:
    rows = [(f"{name}-{ID}-{ID}", "Ongoing", 12.5, None, 4000) for name in "ab"]
    lines = drawn(Table(("id", "state", "open_s", "reason", "producer_id"), rows))
    assert lines == [
        f"id a-{ID}-{ID}",
        "  state Ongoing   open s 12.5   producer id 4000",
        f"id b-{ID}-{ID}",
        "  state Ongoing   open s 12.5   producer id 4000",
    ]


_WORDS = st.text("abcXYZ019-_./:[]", min_size=1, max_size=60)
_CELLS = st.lists(_WORDS, max_size=4).map(" ".join)
_TABLES = st.integers(1, 9).flatmap(
    lambda width: st.tuples(
        st.lists(_WORDS, min_size=width, max_size=width),
        st.lists(st.lists(_CELLS, min_size=width, max_size=width), min_size=1, max_size=4),
    )
)


@given(_TABLES)
def test_no_word_of_a_cell_is_ever_cut(given_: tuple[list[str], list[list[str]]]) -> None:
    heads, rows = given_
    lines = drawn(Table(heads, rows))
    shown = {word for line in lines for word in line.split()}
    for row in rows:
        assert {word for cell in row for word in cell.split() if cell != "-"} <= shown
    longest = max(
        len(f"{head} {cell}") for row in rows for head, cell in zip(heads, row, strict=True)
    )
    assert max(map(len, lines)) <= max(COLUMNS, 2 + longest)


@given(_TABLES, st.integers(1, 200))
def test_widths_fit_and_cut_no_word(given_: tuple[list[str], list[list[str]]], room: int) -> None:
    heads, rows = given_
    widths = fit(heads, rows, room)
    if widths is None:
        return
    assert sum(widths) + 2 * (len(heads) - 1) <= room
    for at, width in enumerate(widths):
        words = [word for text in (heads[at], *(row[at] for row in rows)) for word in text.split()]
        assert width >= max(map(len, words))


def test_a_block_is_no_wider_than_it_must_be() -> None:
    lines = blocks(("id", "a", "b"), [("x", "1" * 30, "2" * 30)], 40)
    assert lines == ["id x", "  a " + "1" * 30, "  b " + "2" * 30]


def test_what_rows_begin_with_alike_is_said_once() -> None:
    """'group describe' told the topic again with every partition."""
    rows = [("orders", "0", "a"), ("orders", "1", "b"), ("bills", "0", "c"), ("bills", "-", "-")]
    assert blocks(("topic", "partition", "member"), rows, COLUMNS) == [
        "topic orders",
        "  partition 0   member a",
        "  partition 1   member b",
        "topic bills",
        "  partition 0   member c",
        "topic bills",
    ]


@pytest.mark.parametrize("is_prose", [False, True])
def test_sentences_in_blocks_are_broken_at_the_terminals_width(is_prose: bool) -> None:
    """'topic settings' had lines of 252 columns."""
    row = ("a" * 50, "b" * 50, "how long a tombstone stays, so that others read it, too " * 4)
    lines = drawn(Table(("name", "default", "meaning"), [row], is_prose=is_prose))
    assert max(map(len, lines)) <= COLUMNS
    assert " ".join(lines[2:]).split() == ["meaning", *row[2].split()]


def test_addresses_are_as_clients_take_them() -> None:
    listeners = [
        {name: f"127.0.0.1:{port + 1000 * node}" for name, port in (("peer", 7401), ("v1", 9092))}
        | {"http": f"127.0.0.1:{7480 + 1000 * node}", "kafka": f"127.0.0.1:{9192 + node}"}
        for node in range(3)
    ]
    out = io.StringIO()
    print_plain(address_table(listeners), out)
    assert out.getvalue().splitlines() == [
        "CLIENTS       ADDRESSES",
        "Kafka         127.0.0.1:9192,127.0.0.1:9193,127.0.0.1:9194",
        "V1            127.0.0.1:9092,127.0.0.1:10092,127.0.0.1:11092",
        "console, API  http://127.0.0.1:7480 http://127.0.0.1:8480 http://127.0.0.1:9480",
    ]
    assert max(map(len, drawn(address_table(listeners)))) <= COLUMNS


def test_sentences_are_no_columns_in_a_pipe() -> None:
    """'limits' was 478 columns wide there."""
    out = io.StringIO()
    long = (
        "the one that was silent for longest, of the address that has most of them, is closed " * 2
    )
    print_plain(Table(("what", "bound", "one more"), [("links", 9, long)], is_prose=True), out)
    first, second, *more = out.getvalue().splitlines()
    assert first == "what links"
    assert second == "  bound 9"
    assert more[0].startswith("  one more the one that was silent")
    assert max(map(len, more)) <= 80
    assert " ".join(" ".join(more).split()) == f"one more {long.strip()}"
