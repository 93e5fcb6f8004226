"""What a producer's state was at an earlier offset of the log, as far as a later one tells.

A snapshot of the offset may be lost while the table of a later one is known. The records in
between are there, and whoever begins at the offset is told what they say; so what matters is that
both together add up to the later table, and claim nothing on the way that is not true behind them:

* What was last changed below the offset was the same then.
* Of a v2 producer the remembered batches below the offset were the last ones then.
* Numbers of records stay as they are: those stored since are stored again in them.
* A level of a segment's writer is told by its next batch.

What is no longer in the later table was forgotten on the way, or fell out of the five batches. It
is missing here as well, and nobody who has seen the later one asks for it.
"""

from __future__ import annotations

from dataclasses import replace

import trio

from paceline_node.storage.byte_segment_state import SegmentMarks, WriterState
from paceline_node.storage.producer_state import ProducerState, State, in_a_row, sequences_between
from paceline_node.storage.producers import FrozenTable, ProducerTable

_AT_ONCE = 100
"""States that are looked at without a pause."""


async def as_of(table: FrozenTable, offset: int) -> FrozenTable:
    """What ``table`` says of the log as it ended at ``offset``, which lies before it. What was
    aborted below concerns none of the records behind."""
    if table.offset == offset:
        return replace(table, aborted=())
    found = ProducerTable()
    found.load(FrozenTable(offset))
    for number, (key, state) in enumerate(table.states.items()):
        if (then := earlier(state, offset)) is not None:
            found.take(key, then)
        if number % _AT_ONCE == _AT_ONCE - 1:
            await trio.lowlevel.checkpoint()
    return found.freeze(offset)


def earlier(state: State, offset: int) -> State | None:
    """``state`` as it was when the log ended at ``offset``; None: nobody had written, or what was
    written is not known any more."""
    if state.last_offset < offset:
        return state
    if isinstance(state, ProducerState):
        return _earlier_producer(state, offset)
    if isinstance(state, WriterState):
        return None
    if isinstance(state, SegmentMarks):
        sealed_at = state.sealed_at if state.sealed_at < offset else -1
        return state._replace(sealed_at=sealed_at, last_offset=offset - 1)
    return state


def _earlier_producer(state: ProducerState, offset: int) -> ProducerState:
    window = tuple(written for written in state.window if written.base_offset < offset)
    known = 0
    if window:
        since = sequences_between(window[-1], state.window[-1])
        known = state.known - since if since < state.known else in_a_row(window)
    # It may have had a marker behind its last batch: nobody forgets it for being silent before.
    return state._replace(
        window=window,
        last_offset=offset - 1,
        open_offset=state.open_offset if state.open_offset < offset else -1,
        known=known,
    )
