"""One partition on several nodes, reduced to what a coordinator depends on.

A leader appends; followers copy, in order; the high watermark is what all in-sync replicas have;
leaders are elected among the in-sync ones, in rising epochs; who follows anew drops what its leader
does not have. A *deposed* leader has not heard of it yet. How replication keeps these promises is
proved elsewhere (`paceline_cluster/sim/replicas`); here they are given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from paceline.errors import NotEnoughReplicas, NotLeader
from paceline.wire.batch import read_header, stamp
from paceline.wire.compacted_batch import bare
from paceline.wire.records import decode_records
from paceline_node.storage.folding import FoldStart

MIN_ISR = 2


class Batch(NamedTuple):
    base: int
    next: int
    epoch: int
    data: bytes


@dataclass
class _Watch:
    offset: int
    callback: Callable[[], None] | None


class NodeLog:
    """A replica of the partition; what :class:`MachineReplica` is given as its log."""

    def __init__(self, cluster: ReplicatedLog, number: int) -> None:
        self.number = number
        self._cluster = cluster
        self.batches: list[Batch] = []
        self.believes_leader = False
        self.leader_epoch = -1
        self.high_watermark = 0
        self.generation = self.compactions = self.removed_to = 0
        self.copied = (-1, -1)  # the leader epoch, and the leader's compactions when it began anew
        self.losses = 0
        self.session_valid = True
        self._watches: list[_Watch] = []

    @property
    def is_leader(self) -> bool:
        return self.believes_leader

    @property
    def log_start_offset(self) -> int:
        return 0

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].next if self.batches else 0

    def epoch_at(self, offset: int) -> int:
        found = (each.epoch for each in self.batches if each.base <= offset < each.next)
        return next(found, -1)

    def fold_start(self) -> FoldStart:
        return FoldStart(self.generation, self.compactions)

    def leads_on(self, start: FoldStart, offset: int) -> bool:
        if start.generation != self.generation:
            return False
        return offset >= self.removed_to or start.cleaned_offset == self.compactions

    def check_serving(self) -> None:
        if not self.session_valid:
            raise NotLeader("no session")

    def read(self, offset: int, max_bytes: int, end: int) -> bytes | None:
        found = next((each for each in self.batches if each.next > offset), None)
        return None if found is None or found.next > end else found.data

    def append(self, batch: bytearray) -> None:
        self.check_serving()
        if not self.believes_leader:
            raise NotLeader("not the leader")
        if self._cluster.leader == self.number and len(self._cluster.isr) < MIN_ISR:
            raise NotEnoughReplicas("too few replicas")
        base = self.log_end_offset
        stamp(batch, 0, base, self.leader_epoch)
        end = read_header(batch, 0).next_offset
        self.batches.append(Batch(base, end, self.leader_epoch, bytes(batch)))

    def when_committed(self, offset: int, callback: Callable[[], None]) -> object:
        watch = _Watch(offset, callback)
        self._watches.append(watch)
        self._tell()
        return watch

    def cancel(self, token: object) -> None:
        assert isinstance(token, _Watch)
        token.callback = None

    # --- moved by the cluster ---------------------------------------------------------------------

    def commit(self, end: int) -> None:
        """The high watermark is at least ``end`` now."""
        if end > self.high_watermark:
            self.high_watermark = end
            self._tell()

    def change_role(self, epoch: int, *, leads: bool) -> None:
        """A new leader epoch: whoever waits is told."""
        self.leader_epoch, self.believes_leader = epoch, leads
        self.losses = self._cluster.losses
        self.session_valid = True
        watches, self._watches = self._watches, []
        for watch in watches:
            if watch.callback is not None:
                watch.callback()

    def truncate(self, end: int) -> None:
        """Drop what lies at or behind ``end``."""
        assert end >= self.high_watermark or self._cluster.losses, (
            "a committed record would be lost"
        )
        self.high_watermark = min(self.high_watermark, end)
        self.batches = [each for each in self.batches if each.next <= end]

    def lacks_deletions(self, leader: NodeLog) -> bool:
        """Whether tombstones behind its end are gone from the leader's log."""
        copied = (leader.leader_epoch, leader.compactions)
        return self.log_end_offset < leader.removed_to and self.copied != copied

    def begin_anew(self, leader: NodeLog) -> None:
        """Drop everything: what the leader has left of it follows."""
        self.copied = (leader.leader_epoch, leader.compactions)
        self.removed_to = max(self.removed_to, leader.removed_to)
        self.generation += 1
        self.high_watermark = 0
        self.batches = []

    def compact(self) -> None:
        """Leave placeholders of committed batches without the newest value of any key. Tombstones
        go, too, as if their time had passed."""
        committed = [each for each in self.batches if each.next <= self.high_watermark]
        records = [list(decode_records(each.data)) for each in committed]
        newest = {each.key: (at, each.value) for at, some in enumerate(records) for each in some}
        kept = {at for at, value in newest.values() if value is not None}
        while True:  # a batch goes as a whole, so an older value may stay with another key's newest
            told = {each.key for at in kept for each in records[at]}
            more = {at for key, (at, _) in newest.items() if key in told} - kept
            if not more:
                break
            kept |= more
        self.compactions += 1
        for at, batch in enumerate(committed):
            if at not in kept and records[at]:
                self.batches[at] = batch._replace(data=bytes(bare(read_header(batch.data))))
                if any(each.value is None for each in records[at]):
                    self.removed_to = max(self.removed_to, batch.next)

    def _tell(self) -> None:
        due = [each for each in self._watches if each.offset < self.high_watermark]
        self._watches = [each for each in self._watches if each.offset >= self.high_watermark]
        for watch in due:
            if watch.callback is not None:
                watch.callback()


class ReplicatedLog:
    """Moves the replicas; every method is one event."""

    def __init__(self, node_count: int) -> None:
        self.nodes = [NodeLog(self, number) for number in range(node_count)]
        self.epoch = 0
        self.losses = 0
        self.leader: int = 0
        self.isr: set[int] = set(range(node_count))
        self.reachable: set[int] = set(range(node_count))
        for node in self.nodes:
            node.change_role(0, leads=node.number == 0)

    def replicate(self, number: int) -> None:
        """A follower copies one batch of the leader's, or finds out what it must drop."""
        if number == self.leader or not {number, self.leader} <= self.reachable:
            return
        leader, node = self.nodes[self.leader], self.nodes[number]
        if node.leader_epoch != self.epoch:
            return
        same = 0
        for ours, theirs in zip(node.batches, leader.batches, strict=False):
            if ours[:3] != theirs[:3]:  # compacted or not
                break
            same = ours.next
        if number not in self.isr and node.lacks_deletions(leader):
            node.begin_anew(leader)
            return
        if same < node.log_end_offset:
            node.truncate(same)
            return
        missing = next((each for each in leader.batches if each.base >= same), None)
        if missing is not None:
            node.batches.append(missing)
        if node.log_end_offset == leader.log_end_offset:
            self.isr.add(number)
        self.advance()
        node.commit(min(leader.high_watermark, node.log_end_offset))

    def advance(self) -> None:
        """The leader's high watermark: what every in-sync replica has of this epoch's log."""
        leader = self.nodes[self.leader]
        if self.leader not in self.reachable:
            return
        ends = []
        for number in self.isr:
            node = self.nodes[number]
            if node.leader_epoch != self.epoch:
                return
            same = 0
            for ours, theirs in zip(node.batches, leader.batches, strict=False):
                if ours[:3] != theirs[:3]:
                    break
                same = ours.next
            ends.append(same)
        leader.commit(min(ends))

    def shrink(self, number: int) -> None:
        """A follower falls out of the in-sync set."""
        if number != self.leader:
            self.isr.discard(number)
            self.advance()

    def elect(self, number: int) -> list[int]:
        """``number`` leads, if it is in sync; the nodes that hear of it now."""
        if number not in self.isr or number not in self.reachable or number == self.leader:
            return []
        self.isr &= self.reachable
        return self._lead(number)

    def elect_unclean(self, number: int) -> list[int]:
        """``number`` leads, whatever it lacks of what was committed."""
        self.reachable.add(number)
        self.isr = {number}
        self.losses += 1
        heard = self._lead(number)
        self.advance()
        return heard

    def _lead(self, number: int) -> list[int]:
        self.epoch += 1
        self.leader = number
        heard = sorted(self.reachable)
        for each in heard:
            self.nodes[each].change_role(self.epoch, leads=each == number)
        return heard

    def cut_off(self, number: int) -> None:
        """A node hears of nothing and reaches nobody any more."""
        if len(self.reachable) > MIN_ISR:
            self.reachable.discard(number)

    def reconnect(self, number: int) -> bool:
        """The node is back; whether its role is another one."""
        if number in self.reachable:
            return False
        self.reachable.add(number)
        node = self.nodes[number]
        if node.leader_epoch == self.epoch:
            return False
        self.isr.discard(number)
        node.change_role(self.epoch, leads=False)
        return True
