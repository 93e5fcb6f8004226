from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.spark import offsets
from paceline.spark.errors import OptionError
from paceline.spark.offsets import StreamOffset
from paceline.spark.values import offsets as read_offsets
from paceline.types import TopicPartition

A0, A1, B0 = (TopicPartition(*each) for each in (("a", 0), ("a", 1), ("b", 0)))

PLACES = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("abcZ._"), st.integers(0, 12)),
    st.integers(0, 2**40),
    max_size=8,
)


@st.composite
def stream_offsets(draw: st.DrawFn) -> StreamOffset:
    ends = draw(PLACES)
    epochs = {at: draw(st.integers(-1, 9)) for at in ends}
    lost = {at: draw(st.integers(1, 99)) for at in ends if draw(st.booleans())}
    return StreamOffset("c", {at.topic: f"id-{at.topic}" for at in ends}, ends, epochs, lost)


@given(stream_offsets())
def test_text_is_the_same_after_a_round_trip(offset: StreamOffset) -> None:
    assert StreamOffset.from_json(json.loads(offset.to_text())).to_text() == offset.to_text()


@given(stream_offsets(), st.randoms())
def test_text_does_not_depend_on_the_order_of_making(offset: StreamOffset, random) -> None:
    def shuffled(places):
        items = list(places.items())
        random.shuffle(items)
        return dict(items)

    other = StreamOffset(
        offset.cluster,
        shuffled(offset.ids),
        shuffled(offset.ends),
        shuffled(offset.epochs),
        shuffled(offset.lost),
    )
    assert other.to_text() == offset.to_text()


def test_canonical_form() -> None:
    ends = {TopicPartition("orders", 10): 7, TopicPartition("orders", 2): 5, A0: 1}
    offset = StreamOffset("c-9f2", {"orders": "6c", "a": "7d"}, ends, {A0: 3}, {A0: 0})
    assert offset.to_text() == (
        '{"$paceline": {"v": 1, "cluster": "c-9f2", "ids": {"a": "7d", "orders": "6c"}, '
        '"epochs": {"a": {"0": 3}}, "lost": {}}, '
        '"a": {"0": 1}, "orders": {"2": 5, "10": 7}}'
    )


def test_a_checkpoint_serves_as_starting_offsets() -> None:
    offset = StreamOffset("c", {"a": "1"}, {A0: 4, A1: 5})
    assert read_offsets("startingOffsets", offset.to_text()) == {A0: 4, A1: 5}


def test_marker() -> None:
    made = offsets.marker("latest")
    assert offsets.is_marker(made)
    assert not offsets.is_marker(StreamOffset("c", {}, {}).to_json())
    with pytest.raises(OptionError, match="not of this source"):
        StreamOffset.from_json(made)
    with pytest.raises(OptionError, match="not of this source"):
        StreamOffset.from_json({"orders": {"0": 3}})


def test_lag_counts_new_partitions_from_zero() -> None:
    end = StreamOffset("c", {"a": "1"}, {A0: 4})
    latest = StreamOffset("c", {"a": "1", "b": "2"}, {A0: 10, A1: 3, B0: 2})
    assert offsets.lag(end.to_json(), latest.to_json()) == {A0: 6, A1: 3, B0: 2}
    assert offsets.lag(offsets.marker("latest"), end.to_json()) == {A0: 4}
    assert offsets.lag(end.to_json(), offsets.marker("latest")) == {}


class TestWhereABatchBegins:
    before = StreamOffset("c", {"a": "1"}, {A0: 40})

    def begin(self, **changes) -> int:
        after = StreamOffset("c", **{"ids": {"a": "1"}, "ends": {A0: 50}, **changes})
        return after.start_of(A0, self.before)

    def test_at_the_end_of_the_one_before(self) -> None:
        assert self.begin() == 40

    def test_behind_what_was_lost(self) -> None:
        assert self.begin(lost={A0: 5}, resumed={A0: 45}) == 45

    def test_at_the_start_of_a_topic_made_anew(self) -> None:
        assert self.begin(ids={"a": "2"}, resumed={A0: 3}) == 3

    def test_at_the_start_of_a_log_that_became_shorter(self) -> None:
        assert self.begin(ends={A0: 30}, resumed={A0: 2}) == 2

    def test_of_a_new_partition_at_zero(self) -> None:
        after = StreamOffset("c", {"a": "1"}, {A0: 40, A1: 9})
        assert after.start_of(A1, self.before) == 0
