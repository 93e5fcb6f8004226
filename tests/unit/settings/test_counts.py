"""The table of counts says what is so: settings, documentation and errors follow from it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import paceline_node.settings
from paceline import errors
from paceline_node.settings import counts, print_config
from paceline_node.settings.counts import COUNTS, Count
from paceline_node.settings.loader import leaves

BY_KEY = {count.key: count for count in COUNTS if count.key}


def test_the_readme_shows_the_table() -> None:
    readme = Path(paceline_node.settings.__file__).with_name("README.md").read_text()
    assert counts.markdown() in readme, f"put this into it:\n{counts.markdown()}"


@pytest.mark.parametrize("key", sorted(BY_KEY))
def test_settings_are_what_the_table_says(key: str) -> None:
    [leaf] = [each for each in leaves() if each.key == key]
    count = BY_KEY[key]
    assert (leaf.default, leaf.spec.low, leaf.spec.high) == (count.bound, count.low, count.high)
    assert leaf.spec.doc == count.text
    assert count.low <= count.bound <= count.high


def test_every_row_is_in_the_table_once() -> None:
    rows = [each for each in vars(counts).values() if isinstance(each, Count)]
    assert sorted(rows, key=id) == sorted(COUNTS, key=id)
    assert len(BY_KEY) == sum(1 for count in COUNTS if count.key)


def test_settings_that_count_are_rows() -> None:
    """Whatever a setting is called that says how many, it is in the table."""
    sized = ("_bytes", "_ms", "_bytes_max", "_ms_max")
    for leaf in leaves():
        if leaf.key.endswith("_max") and not leaf.key.endswith(sized):
            assert leaf.key in BY_KEY or leaf.key.endswith("timeout_max_ms"), leaf.key


@pytest.mark.parametrize("count", COUNTS, ids=lambda count: count.what)
def test_errors_that_are_named_are_there(count: Count) -> None:
    word = count.beyond.split()[0]
    if word[0].isupper() and not word.isupper():
        assert hasattr(errors, word), word


def test_the_printed_configuration_tells_what_becomes_of_one_more() -> None:
    text = print_config()
    assert "One more: GroupFull." in text


def test_a_row_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        counts.GROUPS.bound = 3  # type: ignore[misc]
