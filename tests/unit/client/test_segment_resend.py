"""What a segment writer keeps and sends again, against a plain model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.client.segment_resend import ResendBuffer
from paceline.errors import InvalidProducerEpoch, UnknownProducerId
from paceline.wire.segment.events import frame_events, walk_events


def test_a_former_process_is_gone_on_from() -> None:
    buffer = ResendBuffer()
    run = frame_events([b"queued before the set-up"])
    buffer.add(run)
    buffer.resume(100)
    assert buffer.end == 100 + len(run)
    assert list(buffer.from_offset(100)) == [(100, run)]


def test_a_lost_state_and_a_second_writer_are_noticed() -> None:
    buffer = ResendBuffer()
    buffer.resume(0)
    buffer.add(frame_events([b"one"]))
    buffer.acknowledge(11)
    with pytest.raises(UnknownProducerId, match="11 bytes of this writer were acknowledged"):
        buffer.resume(0)
    with pytest.raises(InvalidProducerEpoch, match="another process"):
        buffer.resume(12)
    buffer.resume(11)


@given(
    st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=4), max_size=12),
    st.data(),
)
def test_what_is_sent_again_is_what_is_missing(
    runs: list[list[bytes]], data: st.DataObject
) -> None:
    buffer = ResendBuffer()
    buffer.resume(0)
    stream = b""
    for events in runs:
        run = frame_events(events)
        buffer.add(run)
        stream += run
        bounds = [0, *(end for _, end in walk_events(stream))]
        level = data.draw(st.sampled_from([each for each in bounds if each >= (buffer.acked or 0)]))
        resumed = data.draw(st.booleans())
        (buffer.resume if resumed else buffer.acknowledge)(level)
        again = list(buffer.from_offset(level))
        assert b"".join(part for _, part in again) == stream[level:]
        assert [start for start, _ in again] == sorted(start for start, _ in again)
        assert buffer.size_bytes >= len(stream) - level
    buffer.acknowledge(len(stream))
    assert buffer.size_bytes == 0
    assert not list(buffer.from_offset(len(stream)))
