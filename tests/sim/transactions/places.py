"""A partition as transactions see it: real table and gate, on a log that loses nothing."""

from __future__ import annotations

from typing import NamedTuple

from paceline.errors import FencedLeaderEpoch
from paceline.wire.batch import read_header
from paceline.wire.end_marker import is_end_marker
from paceline.wire.peer.names import PartitionName
from paceline.wire.records import decode_records
from paceline_node.replication.sequences import SequenceFence, judge
from paceline_node.replication.transaction_gate import (
    MarkerOrder,
    TransactionGate,
    check_all,
    check_order,
)
from paceline_node.storage.producers import ProducerTable, read_detail
from paceline_node.storage.transaction_index import is_aborted

PARTITIONS = 3


class Value(NamedTuple):
    """A record says whose it is."""

    producer: int
    number: int
    index: int


class Place:
    """A partition. ``breaks`` names a rule to leave out, for a test of the tests."""

    def __init__(self, number: int, breaks: str) -> None:
        self.at = PartitionName("t", number)
        self.table = ProducerTable()
        self.gate = TransactionGate()
        self.fence = SequenceFence(lambda: 0.0)
        self.batches: list[tuple[int, bytes]] = []
        self.end = 0
        self.leader_epoch = 0
        self._breaks = breaks

    def fail_over(self) -> None:
        self.leader_epoch += 1
        self.gate.clear()
        self.fence.clear()

    def _append(self, batch: bytearray) -> None:
        header = read_header(batch)._replace(base_offset=self.end)
        self.table.note(header, read_detail(batch, 0, header), self.end)
        self.batches.append((self.end, bytes(batch)))
        self.end += header.last_offset_delta + 1

    def produce(self, batch: bytearray, ticket: object) -> None:
        header = read_header(batch)
        self.fence.seen(self.table, [header])
        if judge(self.table, [header], self.fence).duplicates:
            return
        if self._breaks != "verification":
            check_all(self.gate, self.table, [header], ticket)  # type: ignore[arg-type]
        self._append(batch)

    def end_transaction(self, order: MarkerOrder, leader_epoch: int) -> None:
        if leader_epoch != self.leader_epoch and self._breaks != "leader epoch":
            raise FencedLeaderEpoch("late")
        check_order(order, self.table.producer(order.producer_id))
        if self._breaks != "void":
            self.gate.void(order.producer_id)
        if self.gate.already(order) is None:
            self._append(order.marker(1))
            self.gate.marked(order, self.end - 1)

    def abort_hanging(self, producer_id: int, coordinator_epoch: int) -> None:
        state = self.table.producer(producer_id)
        assert state is not None
        order = MarkerOrder(
            producer_id,
            state.epoch,
            0,
            commits=False,
            coordinator_epoch=coordinator_epoch,
            noted=state,
        )
        self.end_transaction(order, self.leader_epoch)

    def visible(self) -> list[Value]:
        """What readers of committed data see."""
        index = self.table.transactions
        aborted = index.aborted_in(0, self.end)
        shown = []
        for offset, data in self.batches:
            header = read_header(data)._replace(base_offset=offset)
            if offset >= index.first_unstable(self.end) or is_end_marker(header):
                continue
            if not is_aborted(header, aborted):
                for record in decode_records(data, 0):
                    shown.append(Value(*map(int, (record.value or b"").split(b" "))))
        return shown
