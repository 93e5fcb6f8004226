"""Where ``group offsets reset`` would go, before it goes there."""

from __future__ import annotations

import json

import pytest

from paceline.types import TopicPartition
from paceline_cluster.cli.group_plan import BadPlan, Change, from_json, plan, shifted, to_json

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
STARTS, ENDS = {A: 10, B: 0}, {A: 100, B: 50}


def test_a_plan_stays_within_the_log() -> None:
    changes = plan({A: 40}, {A: 5, B: 999}, STARTS, ENDS)
    assert changes == [Change(A, 40, 10), Change(B, None, 50)]
    assert all(change.is_one for change in changes)
    assert not plan({A: 40}, {A: 40}, STARTS, ENDS)[0].is_one


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
