"""Parsers of the Pravega segment dialect and of its controller."""

from __future__ import annotations

import random
from uuid import UUID

from h2.config import H2Configuration
from h2.connection import H2Connection

from paceline.wire.pravega import controller
from paceline.wire.pravega.grpc import GrpcConnection, GrpcLimits
from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.events import frame_events
from paceline.wire.segment.fields import TableKey
from paceline.wire.segment.framing import encode
from paceline.wire.segment.requests import RequestReader
from tests.fuzz.engine import Target, pieces

_WRITER = UUID(int=7)
_NAME = "scope/stream/0.#epoch.0"


def _requests(rng: random.Random) -> bytes:
    run = frame_events([rng.randbytes(rng.randrange(60)) for _ in range(3)])
    key = TableKey(rng.randbytes(9), rng.choice((pravega.ANY_VERSION, pravega.NOT_THERE, 4)))
    said = (
        pravega.Hello(15, 5),
        pravega.SetupAppend(1, _WRITER, _NAME, ""),
        pravega.AppendBlockEnd(_WRITER, len(run), run, 3, 3, 2),
        pravega.ConditionalBlockEnd(_WRITER, 4, 0, run, 3),
        pravega.ReadSegment(_NAME, 0, 100, "", 4),
        pravega.UpdateTableEntries(5, _NAME, "", ((key, b"value"),) * 2, -1),
        pravega.RemoveTableKeys(6, _NAME, "", (key,), -1),
        pravega.ReadTableEntriesDelta(7, _NAME, "", 0, 10),
        pravega.MergeSegments(8, _NAME, f"{_NAME}#transient", ""),
    )
    return b"".join(encode(each) for each in rng.choices(said, k=3))


def _feed_requests(given: bytes, rng: random.Random) -> None:
    whole, split = RequestReader(), RequestReader()
    requests = whole.receive(given)
    assert requests == [each for part in pieces(given, rng) for each in split.receive(part)]
    assert whole.buffered_bytes <= len(given)
    assert (whole.fault is None) == (split.fault is None)


def _configuration(rng: random.Random) -> bytes:
    return controller.StreamConfig(
        controller.StreamInfo("scope", "stream"),
        controller.ScalingPolicy(0, 0, 0, rng.randrange(9)),
        controller.RetentionPolicy(1, rng.randrange(9), 2**63 - 1),
        controller.Tags(("a", "b")),
    ).encode()


def _feed_configuration(given: bytes, rng: random.Random) -> None:
    read = controller.StreamConfig.decode(given)
    assert controller.StreamConfig.decode(read.encode()) == read


def _calls(rng: random.Random) -> bytes:
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    for _ in range(rng.randint(1, 3)):
        stream = client.get_next_available_stream_id()
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":authority": "x",
            ":path": f"{controller.SERVICE}createScope",
            "content-type": "application/grpc",
        }
        client.send_headers(stream, list(headers.items()))
        message = controller.ScopeInfo("scope").encode()
        client.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message, end_stream=True)
    return client.data_to_send()


def _feed_calls(given: bytes, rng: random.Random) -> None:
    limits = GrpcLimits(calls=10, message_bytes=1000)
    whole, split = GrpcConnection(limits), GrpcConnection(limits)
    found = whole.receive(given)
    others = [each for part in pieces(given, rng) for each in split.receive(part)]
    assert whole.is_over == split.is_over
    # One violation takes with it what came in the same piece.
    assert whole.is_over or found == others
    assert whole.open_calls <= limits.calls


TARGETS = (
    Target("segment-pravega", _requests, _feed_requests),
    Target("pravega-message", _configuration, _feed_configuration),
    Target("pravega-calls", _calls, _feed_calls),
)
