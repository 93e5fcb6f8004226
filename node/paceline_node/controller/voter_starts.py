"""Which starts of their directories the metadata log registers for its voters, and the votes of
those that are over (RAFT 2.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import msgpack
import structlog

from paceline.types import NodeId
from paceline_node.controller.image import Broker, Image
from paceline_node.controller.metadata_records import (
    RegisterBroker,
    UnregisterBroker,
    decode_record,
)
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_messages import RaftMessage, VoteRequest, VoteResponse
from paceline_node.controller.raft_types import UNKNOWN_START, EntryKind, MemberId, Start

_TYPES = frozenset({RegisterBroker.TYPE, UnregisterBroker.TYPE})


class EarlierStarts:
    """Tells messages of processes whose directory was started again since, by the registration that
    ``registered`` finds: what such a one has promised it may have forgotten."""

    def __init__(
        self,
        registered: Callable[[RaftLog, MemberId], Start | None],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._registered = registered
        self._log = log
        self._told: set[MemberId] = set()

    def has_sent(self, message: RaftMessage, start: Start, log: RaftLog) -> bool:
        """Whether the message, of the process ``start``, asks for a vote or lends one that does not
        count. Versions before do not say which start they are."""
        if start == UNKNOWN_START or not isinstance(message, VoteRequest | VoteResponse):
            return False
        known = self._registered(log, message.sender)
        if known is None or not start.is_before(known):
            return False
        if message.sender not in self._told:
            self._told.add(message.sender)
            self._log.error(
                "a voter's disk is an old copy: its vote does not count",
                member=str(message.sender),
                start=start.number,
                registered=known.number,
            )
        return True


class AppliedImage(Protocol):
    """What is needed of ``store.MetadataStore``."""

    @property
    def image(self) -> Image: ...


class RegisteredStarts:
    """The applied image, and over it what the log holds that is not committed yet: most of it,
    where a voter has just started. Entries are read once."""

    def __init__(self, store: AppliedImage) -> None:
        self._store = store
        self._read_to = (0, 0)
        self._newer: dict[NodeId, RegisterBroker | UnregisterBroker] = {}

    def of(self, log: RaftLog, member: MemberId) -> Start | None:
        """The newest registered start of the member's directory; None: there is none."""
        self._read(log)
        found: Broker | RegisterBroker | UnregisterBroker | None
        found = self._newer.get(member.node) or self._store.image.brokers.get(member.node)
        if found is None or isinstance(found, UnregisterBroker):
            return None
        if found.directory_id.bytes != member.directory:
            return None
        return Start(found.boot_seq, found.incarnation_id)

    def _read(self, log: RaftLog) -> None:
        index, term = self._read_to
        applied = max(self._store.image.offset, log.base_index)
        if index < applied or log.term_at(index) != term:
            index = applied
            self._newer.clear()
        for entry in log.slice(index + 1, log.last_index + 1):
            if entry.kind is EntryKind.RECORDS:
                for record in _registrations(entry.data):
                    self._newer[record.node_id] = record
        self._read_to = (log.last_index, log.last_term)


def _registrations(data: bytes) -> Iterator[RegisterBroker | UnregisterBroker]:
    for packed in msgpack.unpackb(data):
        if msgpack.unpackb(packed)[0] in _TYPES:
            record = decode_record(packed)
            assert isinstance(record, RegisterBroker | UnregisterBroker)
            yield record
