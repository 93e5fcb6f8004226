"""YAML output: whoever reads YAML gets what JSON says."""

from __future__ import annotations

import io
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from paceline_cluster.cli import main as cli
from paceline_cluster.cli.output import OutputFormat, Printer, Table
from paceline_cluster.cli.yaml_text import to_yaml
from paceline_cluster.errors import Exit

_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_SCALARS = st.none() | st.booleans() | st.integers() | _FLOATS | st.text(max_size=20)
_DATA = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_DATA)
@example([1e-05, 1e16, -1e-07, 1.5e300])
def test_it_reads_back_as_what_it_was(data: Any) -> None:
    assert (found := yaml.safe_load(to_yaml(data))) == data
    assert repr(found) == repr(data)  # 1.0 == 1


@pytest.mark.parametrize(
    "word",
    [
        "true",
        "No",
        "off",
        "null",
        "~",
        "1",
        "1e3",
        "0x1f",
        "2026-01-01",
        "",
        " a",
        "a: b",
        "- a",
        "#",
    ],
)
def test_words_that_mean_something_else_stay_text(word: str) -> None:
    assert yaml.safe_load(to_yaml({"value": word, word: 1})) == {"value": word, word: 1}


def test_results_are_for_people_too() -> None:
    out = io.StringIO()
    data = {"name": "orders", "partitions": [{"partition": 0, "isr": [0, 1]}], "configs": {}}
    Printer(OutputFormat.YAML, stdout=out).result(data, Table(("x",), []))
    assert out.getvalue().splitlines() == [
        "name: orders",
        "partitions:",
        "  - partition: 0",
        "    isr:",
        "      - 0",
        "      - 1",
        "configs: {}",
    ]


def test_a_stream_is_one_document_each() -> None:
    out = io.StringIO()
    printer = Printer(OutputFormat.YAML, stdout=out)
    for number in range(2):
        printer.item({"offset": number})
    assert list(yaml.safe_load_all(out.getvalue())) == [{"offset": 0}, {"offset": 1}]


def test_errors_are_yaml_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--dir", "/nonexistent", "--output", "yaml"]) == Exit.DATA
    assert yaml.safe_load(capsys.readouterr().err)["error"]["code"] == "NO_SUCH_CLUSTER"
