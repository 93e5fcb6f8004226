from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import RemoteProtocolError
from paceline.wire.frame import Frame, Kind, encode_head
from paceline.wire.framebuffer import DIRECT_BYTES, MAX_BUFFER_BYTES, FrameBuffer


def frame(number: int, payload: bytes) -> bytes:
    return encode_head(Kind.ONE_WAY, 7, number, [number], len(payload)) + payload


def receive(buffer: FrameBuffer, data: bytes, most: int) -> list[Frame]:
    """Feed as a socket would: at most ``most`` bytes a receive, spread over the targets."""
    frames = []
    view = memoryview(data)
    while view:
        taken = 0
        for target in buffer.targets():
            size = min(len(target), most - taken, len(view))
            target[:size] = view[:size]
            view = view[size:]
            taken += size
        buffer.received(taken)
        while (found := buffer.next_frame()) is not None:
            frames.append(found)
    return frames


@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 300), st.integers(0, 5 * DIRECT_BYTES), st.just(300_000)),
        max_size=6,
    ),
    most=st.one_of(st.integers(1, 64), st.integers(1, 200_000)),
)
@settings(max_examples=60, deadline=None)
def test_frames_come_out_as_they_went_in_at_any_split(sizes: list[int], most: int) -> None:
    if most < 32:
        sizes = [min(size, 20_000) for size in sizes]
    payloads = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    buffer = FrameBuffer()
    got = receive(buffer, b"".join(frame(n, p) for n, p in enumerate(payloads)), most)
    assert [bytes(f.payload) for f in got] == payloads
    assert [f.correlation for f in got] == list(range(len(sizes)))
    assert buffer.is_between_frames


def test_every_split_of_a_short_stream() -> None:
    data = frame(1, b"abc") + frame(2, b"") + frame(3, b"defgh")
    for cut in range(len(data) + 1):
        buffer = FrameBuffer()
        got = receive(buffer, data[:cut], 1 << 20) + receive(buffer, data[cut:], 1 << 20)
        assert [bytes(f.payload) for f in got] == [b"abc", b"", b"defgh"]


def test_an_oversized_length_is_refused_before_memory_is_taken() -> None:
    buffer = FrameBuffer(max_frame_bytes=1000)
    with pytest.raises(RemoteProtocolError, match=r"frame of 1001 bytes exceeds the limit of 1000"):
        receive(buffer, (1001).to_bytes(4, "big"), 4)


def test_frames_survive_later_receives_and_are_writable() -> None:
    buffer = FrameBuffer()
    (first,) = receive(buffer, frame(1, b"first"), 1 << 20)
    receive(buffer, frame(2, b"other"), 1 << 20)
    assert bytes(first.payload) == b"first"
    first.payload[0:1] = b"F"
    assert bytes(first.payload) == b"First"


def test_the_shared_buffer_grows_with_the_load_and_shrinks_again() -> None:
    buffer = FrameBuffer()
    small = frame(0, bytes(100))
    receive(buffer, small * 60_000, 4 * MAX_BUFFER_BYTES)
    assert sum(map(len, buffer.targets())) == MAX_BUFFER_BYTES
    for _ in range(2000):
        receive(buffer, small, 1 << 20)
    assert sum(map(len, buffer.targets())) < MAX_BUFFER_BYTES // 8


def test_an_unfinished_frame_is_known() -> None:
    buffer = FrameBuffer()
    data = frame(1, bytes(100_000))
    for cut in (1, 3, 4, 20, 99_000):
        buffer = FrameBuffer()
        assert receive(buffer, data[:cut], 1 << 20) == []
        assert not buffer.is_between_frames


def test_an_idle_connection_holds_little() -> None:
    """10,000 of them took 800 MiB."""
    buffer = FrameBuffer()
    for number in range(50):
        receive(buffer, frame(number, b"heartbeat"), 1 << 20)
    assert sum(map(len, buffer.targets())) <= 4096
