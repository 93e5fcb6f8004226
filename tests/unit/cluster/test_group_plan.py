"""Where ``group offsets reset`` would go, before it goes there."""

from __future__ import annotations

import json

import pytest

from paceline.types import TopicPartition
from paceline_cluster.cli.group_plan import (
    BadPlan,
    Change,
    from_json,
    plan,
    require_within,
    shifted,
    to_json,
)

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
STARTS, ENDS = {A: 10, B: 0}, {A: 100, B: 50}


def test_a_plan_tells_changes_from_what_is_so() -> None:
    changes = plan({A: 40}, {A: 10, B: 50})
    assert changes == [Change(A, 40, 10), Change(B, None, 50)]
    assert all(change.is_one for change in changes)
    assert not plan({A: 40}, {A: 40})[0].is_one


def test_an_offset_that_is_not_there_is_refused() -> None:
    """5000 was taken for the end without a word, and 'executed'."""
    require_within({A: 10, B: 50}, STARTS, ENDS)
    with pytest.raises(BadPlan) as refused:
        require_within({A: 9, B: 51}, STARTS, ENDS)
    assert "orders/0 has 10 to 100, not 9, orders/1 has 0 to 50, not 51" in str(refused.value)


def test_shifting_needs_something_to_shift() -> None:
    assert shifted({A: 40, B: 3}, [A, B], -5) == {A: 35, B: -2}
    with pytest.raises(BadPlan, match="nothing is committed of orders/1"):
        shifted({A: 40}, [A, B], 1)


def test_exported_offsets_come_back() -> None:
    exported = to_json("g", "kafka", {B: 7, A: 3})
    assert exported["group"] == "g"
    assert from_json(json.dumps(exported)) == {A: 3, B: 7}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"offsets": [1]}',
        '{"offsets": [{"topic": "a", "partition": 0}]}',
        '{"offsets": [{"topic": "a", "partition": 0, "offset": -1}]}',
        '{"offsets": [{"topic": "a", "partition": -1, "offset": 0}]}',
        '{"offsets": [{"topic": "a", "partition": 0, "offset": "3"}]}',
        '{"offsets": [{"topic": "a/b", "partition": 0, "offset": 3}]}',
    ],
)
def test_what_is_no_export(text: str) -> None:
    with pytest.raises(BadPlan, match="expected"):
        from_json(text)
