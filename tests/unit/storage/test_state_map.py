"""A map whose content at a moment is kept without copying it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline_node.storage.state_map import SLICES, SMALL, StateMap, slice_of

Key = tuple[int, bytes]


def key(number: int) -> Key:
    return (0, number.to_bytes(16, "big"))


steps = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "freeze"]), st.integers(0, 30), st.integers()),
    max_size=60,
)


@given(steps, st.sampled_from([0, SMALL + 5]))
def test_frozen_maps_keep_what_was_there(drawn: list[tuple[str, int, int]], filled: int) -> None:
    """Against a dictionary and its copies, in one piece and in shards."""
    states: StateMap[int] = StateMap()
    model: dict[Key, int] = {}
    for number in range(100, 100 + filled):
        states.put(key(number), number)
        model[key(number)] = number
    kept = []
    for what, number, value in drawn:
        if what == "put":
            states.put(key(number), value)
            model[key(number)] = value
        elif what == "remove":
            states.remove(key(number))
            model.pop(key(number), None)
        else:
            kept.append((states.freeze(), dict(model)))
        assert len(states) == len(model)
        assert states.get(key(number)) == model.get(key(number))
    assert dict(states.items()) == model
    for frozen, copy in kept:
        assert dict(frozen.items()) == copy
        assert len(frozen) == len(copy)
        assert dict(StateMap(frozen).items()) == copy


def test_slices_are_the_same_whatever_the_size() -> None:
    """A record of the log names one: replicas whose maps grew in other ways must agree."""
    small, large = StateMap[int](), StateMap[int]()
    for number in range(SMALL * 2):
        large.put(key(number), number)
    for number in range(SMALL, SMALL * 2):
        large.remove(key(number))
    for number in range(SMALL):
        small.put(key(number), number)
    for number in range(SLICES):
        assert dict(small.items_of(number)) == dict(large.items_of(number))
    assert small == large
    assert slice_of(key(7)) == 246


def test_freezing_and_changing_touch_one_shard_at_a_time() -> None:
    """What the event loop would stand still for: shards that one change copies."""
    states = StateMap[int]()
    for number in range(100_000):
        states.put(key(number), number)
    frozen = states.freeze()
    before = [id(shard) for shard in frozen.shards]
    states.put(key(5), -1)
    after = [id(shard) for shard in states.freeze().shards]
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1
    assert max(len(shard) for shard in frozen.shards) < 100_000 / SLICES * 2
