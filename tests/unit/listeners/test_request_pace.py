"""A request's pace: free while it is little, in turns and charged before from then on."""

from __future__ import annotations

from trio.testing import assert_checkpoints, assert_no_checkpoints

from paceline_node.client_memory import Portion, unlimited
from paceline_node.loop_turns import SLICE_UNITS, Turns
from paceline_node.request_pace import FREE_UNITS, UNIT_BYTES, Pace


async def test_little_work_is_done_at_once() -> None:
    room = Portion(unlimited())
    pace = Pace(Turns(), room)
    with assert_no_checkpoints():
        assert [each async for each in pace.each(range(FREE_UNITS))] == list(range(FREE_UNITS))
        assert await Pace(Turns(), room).once_each("abacus") == list("abcus")
    assert not pace.took_turns
    assert room.held_bytes == 0


async def test_each_slice_of_more_waits_for_its_turn_and_is_charged_before() -> None:
    room = Portion(unlimited())
    pace = Pace(Turns(), room)
    await pace.spend(FREE_UNITS)
    for slices in range(1, 4):
        with assert_checkpoints():
            await pace.spend(SLICE_UNITS // 2)
        assert room.held_bytes == slices * SLICE_UNITS * UNIT_BYTES
        with assert_no_checkpoints():
            await pace.spend(SLICE_UNITS // 2)
    assert pace.took_turns


async def test_what_is_made_beside_is_charged() -> None:
    room = Portion(unlimited())
    await Pace(Turns(), room).spend(1, 1000)
    assert room.held_bytes == 1000


async def test_work_of_units_is_done_in_turns() -> None:
    pace = Pace(Turns(), Portion(unlimited()))

    def work(stretches: int):  # type: ignore[no-untyped-def]
        for _ in range(stretches):
            yield 1
        return "done"

    with assert_no_checkpoints():
        assert await pace.run(work(FREE_UNITS)) == "done"
    with assert_checkpoints():
        assert await pace.run(work(2)) == "done"


async def test_the_longest_turn_is_told() -> None:
    turns = Turns()

    def work():  # type: ignore[no-untyped-def]
        yield SLICE_UNITS - 1
        yield 7
        yield 1

    await turns.run(work())
    assert turns.longest_units == SLICE_UNITS + 6
    await Pace(turns, Portion(unlimited())).spend(3 * SLICE_UNITS)
    assert turns.longest_units == 3 * SLICE_UNITS
