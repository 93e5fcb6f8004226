"""Which starts of their directories the metadata log registers for its voters, how much of it they
have said they hold, and the votes that do not count for that: of starts that are over, and of
directories that hold less (RAFT 2.8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgpack
import structlog

from paceline.types import NodeId
from paceline_node.controller.durable_offsets import NOT_KNOWN
from paceline_node.controller.image import Broker, Image
from paceline_node.controller.metadata_records import (
    NoOp,
    RegisterBroker,
    UnregisterBroker,
    decode_record,
)
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_messages import RaftMessage, VoteRequest, VoteResponse
from paceline_node.controller.raft_types import UNKNOWN_START, EntryKind, MemberId, Start

_TYPES = frozenset({RegisterBroker.TYPE, UnregisterBroker.TYPE, NoOp.TYPE})


class Registered(Protocol):
    """What the metadata log tells of its voters."""

    def start(self, log: RaftLog, member: MemberId) -> Start | None:
        """The newest registered start of the member's directory; None: there is none."""

    def durable_offset(self, log: RaftLog, member: MemberId) -> int:
        """How much of the log that process has said it holds for good, or NOT_KNOWN."""


class _Nobody:
    def start(self, log: RaftLog, member: MemberId) -> Start | None:
        return None

    def durable_offset(self, log: RaftLog, member: MemberId) -> int:
        return NOT_KNOWN


NOBODY_REGISTERED = _Nobody()
"""For callers without brokers."""


class OldCopies:
    """Tells messages of directories that are older copies of themselves, by what is ``registered``:
    what such a one has promised it may have forgotten."""

    def __init__(self, registered: Registered, log: structlog.typing.FilteringBoundLogger) -> None:
        self._registered = registered
        self._log = log
        self._told: set[MemberId] = set()

    def have_sent(self, message: RaftMessage, start: Start, log: RaftLog) -> bool:
        """Whether the message, of the process ``start``, asks for a vote or lends one that does not
        count."""
        if not isinstance(message, VoteRequest | VoteResponse):
            return False
        why = self._was_started_again(message, start, log) or self._holds_less(message, log)
        if why and message.sender not in self._told:
            self._told.add(message.sender)
            self._log.error(
                "a voter's disk is an older copy of itself, and its vote does not count; start the "
                "voters that are away. Where these are lost for good, run 'paceline metadata "
                "force-quorum' on the directory that holds the most",
                member=str(message.sender),
                **why,
            )
        return bool(why)

    def _was_started_again(
        self, message: RaftMessage, start: Start, log: RaftLog
    ) -> dict[str, int]:
        """The start that it is, and the one that is registered. Versions before do not say which
        they are."""
        known = self._registered.start(log, message.sender)
        if start == UNKNOWN_START or known is None or not start.is_before(known):
            return {}
        return {"start": start.number, "registered": known.number}

    def _holds_less(self, message: VoteRequest | VoteResponse, log: RaftLog) -> dict[str, int]:
        """Where its log ends, and what it had said to hold. Who may not lead does not say."""
        noted = self._registered.durable_offset(log, message.sender)
        if noted == NOT_KNOWN or not 0 < message.last_index < noted:
            return {}
        return {"holds": message.last_index, "held": noted}


class AppliedImage(Protocol):
    """What is needed of ``store.MetadataStore``."""

    @property
    def image(self) -> Image: ...


class RegisteredProcesses:
    """The applied image, and over it what the log holds that is not committed yet: most of it,
    where a voter has just started. Entries are read once."""

    def __init__(self, store: AppliedImage) -> None:
        self._store = store
        self._read_to = (0, 0)
        self._newer: dict[NodeId, RegisterBroker | UnregisterBroker] = {}
        self._epochs: dict[NodeId, int] = {}
        self._noted: dict[NodeId, int] = {}

    def start(self, log: RaftLog, member: MemberId) -> Start | None:
        """As :meth:`Registered.start`."""
        self._read(log)
        found = self._process(member)
        return None if found is None else Start(found.boot_seq, found.incarnation_id)

    def durable_offset(self, log: RaftLog, member: MemberId) -> int:
        """As :meth:`Registered.durable_offset`."""
        self._read(log)
        if self._process(member) is None:
            return NOT_KNOWN
        in_image = self._store.image.durable_offsets.get(member.node, NOT_KNOWN)
        return self._noted.get(member.node, in_image)

    def _process(self, member: MemberId) -> Broker | RegisterBroker | None:
        """The one that is registered for the member's directory."""
        found: Broker | RegisterBroker | UnregisterBroker | None
        found = self._newer.get(member.node) or self._store.image.brokers.get(member.node)
        if found is None or isinstance(found, UnregisterBroker):
            return None
        return found if found.directory_id.bytes == member.directory else None

    def _read(self, log: RaftLog) -> None:
        index, term = self._read_to
        applied = max(self._store.image.offset, log.base_index)
        if index < applied or log.term_at(index) != term:
            index = applied
            self._newer.clear()
            self._noted.clear()
            brokers = self._store.image.brokers.values()
            self._epochs = {broker.node_id: broker.broker_epoch for broker in brokers}
        for entry in log.slice(index + 1, log.last_index + 1):
            if entry.kind is EntryKind.RECORDS:
                for record in _told(entry.data):
                    self._take(entry.index, record)
        self._read_to = (log.last_index, log.last_term)

    def _take(self, index: int, record: RegisterBroker | UnregisterBroker | NoOp) -> None:
        if not isinstance(record, NoOp):
            self._newer[record.node_id] = record
            self._epochs[record.node_id] = index
            self._noted[record.node_id] = NOT_KNOWN
            return
        for each in record.durable:
            if self._epochs.get(each.node_id) == each.broker_epoch:
                self._noted[each.node_id] = each.offset


def _told(data: bytes) -> Iterator[RegisterBroker | UnregisterBroker | NoOp]:
    for packed in msgpack.unpackb(data):
        if msgpack.unpackb(packed)[0] in _TYPES:
            record = decode_record(packed)
            assert isinstance(record, RegisterBroker | UnregisterBroker | NoOp)
            yield record
