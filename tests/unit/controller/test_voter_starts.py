"""Which starts of a voter's directory its log registers (controller/RAFT 2.8)."""

from __future__ import annotations

from uuid import UUID

import msgpack

from paceline.types import BrokerEpoch, NodeId
from paceline.values import dataclass
from paceline_node.controller.durable_offsets import NOT_KNOWN
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import (
    DurableOffset,
    NoOp,
    Record,
    RegisterBroker,
    UnregisterBroker,
)
from paceline_node.controller.metadata_records import encode_record as encode
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_types import (
    Config,
    Entry,
    EntryKind,
    MemberId,
    Snapshot,
    Start,
)
from paceline_node.controller.voter_starts import RegisteredProcesses

CLUSTER = UUID(int=1)
DISK = UUID(int=0xD1)
MEMBER = MemberId(NodeId(1), DISK.bytes)


@dataclass(slots=True)
class Held:
    image: Image


def registration(count: int, *, node: int = 1, disk: UUID = DISK) -> RegisterBroker:
    never = BrokerEpoch(-1)
    return RegisterBroker(NodeId(node), never, UUID(int=count), count, disk, never, True, ())


def entry(index: int, *records: Record, term: int = 1) -> Entry:
    packed: bytes = msgpack.packb([encode(record) for record in records])
    return Entry(index, term, EntryKind.RECORDS, packed)


def start(count: int) -> Start:
    return Start(count, UUID(int=count))


def log_of(*entries: Entry) -> RaftLog:
    image = Image(CLUSTER).apply(1, [registration(3)])
    snapshot = Snapshot(1, 1, Config(), image.to_snapshot())
    return RaftLog(snapshot, entries, base=(1, 1))


def starts_of(log: RaftLog) -> tuple[RegisteredProcesses, Held]:
    held = Held(Image.from_snapshot(log.snapshot.state))
    return RegisteredProcesses(held), held


def test_the_image_and_what_is_not_committed_yet() -> None:
    log = log_of()
    starts, _ = starts_of(log)
    assert starts.start(log, MEMBER) == start(3)
    log.append(entry(2, NoOp(1), registration(4)))
    log.append(Entry(3, 1, EntryKind.NOOP))
    log.append(entry(4, registration(9, node=2)))
    assert starts.start(log, MEMBER) == start(4)


def test_what_is_cut_off_again_says_nothing() -> None:
    log = log_of(entry(2, registration(4)), entry(3, registration(5)))
    starts, _ = starts_of(log)
    assert starts.start(log, MEMBER) == start(5)
    log.truncate(3)
    log.append(entry(3, NoOp(2), term=2))
    log.append(entry(4, NoOp(2), term=2))
    assert starts.start(log, MEMBER) == start(4)


def test_what_is_applied_meanwhile_is_read_from_the_image() -> None:
    log = log_of(entry(2, registration(4)))
    starts, held = starts_of(log)
    assert starts.start(log, MEMBER) == start(4)
    for index in (3, 4):
        log.append(entry(index, registration(index + 2)))
    held.image = held.image.apply(2, [registration(4)]).apply(3, [registration(5)])
    assert starts.start(log, MEMBER) == start(6)
    log.compact(log.snapshot_at(4, b""), keep=0)
    held.image = held.image.apply(4, [registration(6)])
    assert starts.start(log, MEMBER) == start(6)


def test_how_much_a_process_has_said_it_holds() -> None:
    log = log_of()
    starts, held = starts_of(log)
    assert starts.durable_offset(log, MEMBER) == NOT_KNOWN
    log.append(entry(2, NoOp(1, (DurableOffset(NodeId(1), BrokerEpoch(1), 17),))))
    assert starts.durable_offset(log, MEMBER) == 17
    log.append(entry(3, registration(4)))
    assert starts.durable_offset(log, MEMBER) == NOT_KNOWN, "another process"
    log.append(entry(4, NoOp(1, (DurableOffset(NodeId(1), BrokerEpoch(1), 18),))))
    assert starts.durable_offset(log, MEMBER) == NOT_KNOWN, "of the one before"
    log.append(entry(5, NoOp(1, (DurableOffset(NodeId(1), BrokerEpoch(3), 19),))))
    assert starts.durable_offset(log, MEMBER) == 19
    assert starts.durable_offset(log, MemberId(NodeId(1), bytes(16))) == NOT_KNOWN
    note = NoOp(1, (DurableOffset(NodeId(1), BrokerEpoch(1), 17),))
    held.image = held.image.apply(2, [note])
    assert starts.durable_offset(log, MEMBER) == 19


def test_another_directory_and_one_that_is_gone_have_no_start() -> None:
    log = log_of()
    starts, _ = starts_of(log)
    assert starts.start(log, MemberId(NodeId(1), bytes(16))) is None
    assert starts.start(log, MemberId(NodeId(7), DISK.bytes)) is None
    log.append(entry(2, UnregisterBroker(NodeId(1), BrokerEpoch(1))))
    assert starts.start(log, MEMBER) is None


def test_a_process_comes_before_a_later_one_and_never_before_itself() -> None:
    assert start(2).is_before(start(3))
    assert Start(3, UUID(int=99)).is_before(start(3)), "a copy that counted its start alike"
    assert not start(3).is_before(start(3))
    assert not start(4).is_before(start(3))
