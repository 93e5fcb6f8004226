"""Every protocol error by a byte vector, with its exact text (wire/segment/DESIGN 4)."""

from __future__ import annotations

from uuid import UUID

import pytest

from paceline.wire.segment import messages as m
from paceline.wire.segment.errors import Fault, ReplyCode
from paceline.wire.segment.server import (
    MAX_RUN_BYTES,
    Append,
    ServerConnection,
    ServerLimits,
    SetUp,
)
from tests.unit.wire_segment.store import Served, Store

NAME = "sc/st/0"
WRITER = UUID("00112233-4455-6677-8899-aabbccddeeff")
OTHER = UUID(int=7)
EVENT = m.encode(m.Event(b"abc"))
UNBOUNDED = 0x7FFFFFFF


def raw(message_type: int, payload: bytes, length: int | None = None) -> bytes:
    return m.HEADER.pack(message_type, len(payload) if length is None else length) + payload


def piece(kind: int, data: bytes = b"") -> bytes:
    return m.encode(m.PartialMessage(kind, data))


def begin(offset: int = 0, length: int = UNBOUNDED, writer: UUID = WRITER) -> bytes:
    return m.encode(m.BeginAppendBlock(writer, offset, length))


def end(offset: int, length: int, writer: UUID = WRITER) -> bytes:
    return m.encode(m.EndAppendBlock(writer, offset, length))


TAIL = begin() + piece(0, EVENT[:9]) + end(11, 11)
SETUP = m.encode(m.SetupAppend(WRITER, NAME))

VECTORS = [
    (Fault.E1, raw(999, b""), "unknown message type 999"),
    (Fault.E1, raw(-5, b"", 0x7FFFFFFF), "unknown message type -5"),
    (Fault.E1, piece(0, raw(77, b"")) + piece(2), "unknown message type 77"),
    (Fault.E2, m.encode(m.SegmentCreated(NAME)), "message type 21 not valid in this direction"),
    (Fault.E2, begin() + raw(5, b""), "message type 5 not valid in this direction"),
    (Fault.E3, raw(0, b"", 1 << 24), "message too large"),
    (Fault.E3, begin() + raw(0, b"", 0xFFFFFFFF), "message too large"),
    (Fault.E4, raw(8, b"\x00\x07ab"), "message too short"),
    (Fault.E4, raw(8, b"\x00"), "message too short"),
    (Fault.E4, raw(6, b"\x00\x01a" + bytes(8)), "message too short"),
    (Fault.E4, raw(3, bytes(15)), "message too short"),
    (Fault.E4, raw(3, WRITER.bytes + bytes(8)), "message too short"),
    (Fault.E4, begin() + raw(4, WRITER.bytes + bytes(8)), "message too short"),
    (Fault.E5, raw(8, b"\x00\x04\xf0\x9f\x98\x80"), "invalid modified UTF-8"),
    (Fault.E5, raw(8, b"\x00\x03\xed\xa0\xbd"), "invalid modified UTF-8"),
    (Fault.E5, raw(8, b"\x00\x01\x80"), "invalid modified UTF-8"),
    (Fault.E5, raw(8, b"\x00\x01\xc3"), "invalid modified UTF-8"),
    (Fault.E5, raw(8, b"\x00\x01\x00"), "invalid modified UTF-8"),
    (Fault.E5, raw(8, b"\x00\x02\xc1\x81"), "invalid modified UTF-8"),
    (Fault.E10, raw(-2, b""), "invalid partial message"),
    (Fault.E10, piece(3, b"x"), "invalid partial message"),
    (Fault.E11, piece(0, b"x") + piece(0, b"y"), "partial message already open"),
    (Fault.E11, TAIL + piece(0), "partial message already open"),
    (Fault.E12, piece(1, b"x"), "no partial message open"),
    (Fault.E12, begin() + piece(2, b"x"), "no partial message open"),
    (Fault.E13, piece(0, b"1234567") + piece(2), "partial message does not form one message"),
    (Fault.E13, piece(0, EVENT) + piece(2, b"x"), "partial message does not form one message"),
    (Fault.E14, piece(0, piece(0, b"x")) + piece(2), "nested partial message"),
    (
        Fault.E15,
        begin() + piece(0, EVENT[:5]) + EVENT,
        "partial message must be an event in an append block",
    ),
    (
        Fault.E15,
        begin() + piece(0, m.encode(m.KeepAlive())) + piece(2),
        "partial message must be an event in an append block",
    ),
    (
        Fault.E15,
        piece(0, EVENT[:5]) + begin(),
        "partial message must be an event in an append block",
    ),
    (Fault.E20, begin(writer=OTHER), "append block before SetupAppend"),
    (Fault.E21, begin(length=10) + EVENT, "append block overrun"),
    (Fault.E21, begin(length=18) + EVENT + m.encode(m.KeepAlive()), "append block overrun"),
    (Fault.E21, begin(length=15) + raw(0, b"", 8), "append block overrun"),  # from the header
    (Fault.E22, begin() + EVENT + end(12, 12), "block length mismatch"),
    (Fault.E22, begin() + EVENT + end(12, 11), "block length mismatch"),
    (Fault.E22, begin() + piece(0, EVENT[:5]) + end(11, 10), "block length mismatch"),
    (
        Fault.E22,
        begin() + piece(0, EVENT[:5]) + end(12, 12) + piece(2, EVENT[5:]),
        "block length mismatch",
    ),
    (Fault.E23, begin() + begin(), "message type 3 inside an append block"),
    (Fault.E23, begin() + SETUP, "message type 1 inside an append block"),
    (
        Fault.E23,
        begin() + m.encode(m.ReadSegment(NAME, 0, 1)),
        "message type 6 inside an append block",
    ),
    (Fault.E24, TAIL + EVENT, "message type 0 before the partial message is complete"),
    (Fault.E24, TAIL + begin(11), "message type 3 before the partial message is complete"),
    (Fault.E24, TAIL + end(11, 11), "message type 4 before the partial message is complete"),
    (Fault.E24, TAIL + SETUP, "message type 1 before the partial message is complete"),
    (Fault.E25, EVENT, "event outside an append block"),
    (Fault.E25, piece(0, EVENT) + piece(2), "event outside an append block"),
    (Fault.E26, end(0, 0), "end of append block without begin"),
    (
        Fault.E27,
        begin() + end(0, 0, OTHER),
        "end of append block for another connection id",
    ),
    (Fault.E28, begin(-1), "negative offset or length"),
    (Fault.E28, begin(0, -1), "negative offset or length"),
    (Fault.E28, begin() + end(-1, -1), "negative offset or length"),
]


@pytest.mark.parametrize(("fault", "stream", "text"), VECTORS)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_a_protocol_error(fault: Fault, stream: bytes, text: str, step: int) -> None:
    served = Served(Store(NAME))
    served.feed(SETUP)
    for at in range(0, len(stream), step):
        served.feed(stream[at : at + step])
    assert served.violation is not None
    assert served.violation.fault is fault
    assert str(served.violation) == text
    # Nothing is handled behind it.
    assert served.feed(m.encode(m.KeepAlive(b"x"))) == []


def test_every_fault_has_a_vector() -> None:
    assert {fault for fault, _, _ in VECTORS} == set(Fault)


def test_pending_appenders_may_not_begin() -> None:
    """E20 until AppendSetup was sent."""
    served = Served(Store(NAME))
    served.feed(SETUP + begin())
    assert served.violation is not None
    assert served.violation.fault is Fault.E20


def test_events_before_a_violation_stay() -> None:
    store = Store(NAME)
    served = Served(store)
    served.feed(SETUP)
    served.feed(begin() + EVENT + EVENT[:4] + raw(999, b""))
    assert bytes(store.segments[NAME]) == EVENT


def test_a_failed_appender_is_drained_by_all_rules() -> None:
    store = Store(NAME, "sc/st/1")
    served = Served(store)
    served.feed(SETUP)
    served.feed(m.encode(m.SetupAppend(OTHER, "sc/st/1")))
    gap = begin(5) + EVENT + piece(0, EVENT[:9]) + end(27, 22) + piece(2, EVENT[9:])
    fine = begin(0, UNBOUNDED, OTHER) + EVENT + end(11, 11, OTHER)
    assert served.feed(gap + fine + gap) == [
        m.InvalidConnectionOffset(WRITER, 0),
        m.DataAppended(OTHER, 11),
    ]
    assert bytes(store.segments["sc/st/1"]) == EVENT
    assert not store.segments[NAME]
    served.feed(begin(5) + EVENT + end(0, 0))
    assert served.violation is not None
    assert served.violation.fault is Fault.E22


def test_set_up_again_after_a_failure() -> None:
    store = Store(NAME)
    served = Served(store)
    served.feed(SETUP)
    served.feed(begin(5) + EVENT + end(16, 11))
    assert served.feed(SETUP) == [m.AppendSetup(NAME, WRITER, 0)]
    assert served.feed(begin() + EVENT + end(11, 11)) == [m.DataAppended(WRITER, 11)]


def test_later_blocks_must_follow() -> None:
    served = Served(Store(NAME))
    served.feed(SETUP)
    served.feed(begin() + EVENT + end(11, 11))
    assert served.feed(begin(0) + EVENT + end(11, 11)) == [m.InvalidConnectionOffset(WRITER, 11)]


def test_resent_data_is_trimmed_and_must_align() -> None:
    store = Store(NAME)
    first = Served(store)
    first.feed(SETUP)
    first.feed(begin() + EVENT + EVENT + end(22, 22))
    again = Served(store)
    assert again.feed(SETUP) == [m.AppendSetup(NAME, WRITER, 22)]
    more = m.encode(m.Event(b"new"))
    assert again.feed(begin(11) + EVENT + more + end(33, 22)) == [m.DataAppended(WRITER, 33)]
    assert bytes(store.segments[NAME]) == EVENT + EVENT + more
    other_cut = Served(store)
    other_cut.feed(SETUP)
    longer = m.encode(m.Event(bytes(20)))
    (refusal,) = other_cut.feed(begin(11) + longer + end(39, 28))
    assert isinstance(refusal, m.ErrorMessage)
    assert refusal.error_code == ReplyCode.ILLEGAL_ARGUMENT
    assert refusal.message == "resent data does not align with the stored level"
    assert bytes(store.segments[NAME]) == EVENT + EVENT + more


def test_limits_of_events_and_appenders() -> None:
    limits = ServerLimits(max_event_bytes=10, max_appenders=1)
    store = Store(NAME)
    served = Served(store, limits)
    served.feed(SETUP)
    (refused,) = served.feed(m.encode(m.SetupAppend(OTHER, NAME)))
    assert isinstance(refused, m.ErrorMessage)
    assert refused.error_code == ReplyCode.LIMIT_EXCEEDED
    large = m.encode(m.Event(bytes(11)))
    (too_large,) = served.feed(begin() + EVENT + large + EVENT + end(41, 41))
    assert isinstance(too_large, m.ErrorMessage)
    assert too_large.error_code == ReplyCode.LIMIT_EXCEEDED
    assert bytes(store.segments[NAME]) == EVENT
    assert served.violation is None


def test_runs_are_bounded() -> None:
    """A burst of small Events behind a large one is passed on in runs of at most 1 MiB."""
    machine = ServerConnection()
    (step,) = machine.receive(SETUP)
    assert isinstance(step, SetUp)
    step.appender.ready(0)
    large = m.encode(m.Event(bytes(2 << 20)))
    small = m.encode(m.Event(bytes(1000))) * 1500
    steps = machine.receive(begin() + EVENT + large + small)
    runs = [each for each in steps if isinstance(each, Append)]
    assert runs == steps
    assert b"".join(each.data for each in runs) == EVENT + large + small
    assert sum(each.count for each in runs) == 1502
    assert [each.count for each in runs if len(each.data) > MAX_RUN_BYTES] == [1]


def test_only_one_message_is_kept_unfinished() -> None:
    served = Served(Store(NAME))
    served.feed(SETUP)
    served.feed(begin())
    for _ in range(1000):
        served.feed(EVENT * 100 + EVENT[:5])
        served.feed(EVENT[5:])
    assert served.machine.buffered_bytes == 0
