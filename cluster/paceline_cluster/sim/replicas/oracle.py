"""The omniscient checker: invariants of replication/DESIGN 2, after every event."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.types import NO_NODE, NodeId
from paceline_cluster.sim.replicas.broker import Pending, SimBroker
from paceline_cluster.sim.replicas.world import AUTHORITY, TOPIC, Authority, World
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import RECOVERY_UNCONFIRMED
from paceline_node.replication.replica import Replica

Record = tuple[int, int]


class Violation(AssertionError):
    """An invariant does not hold."""


class Oracle:
    """Watches all brokers and the authority. ``committed`` is the log up to the true high
    watermark: the largest that any leader ever reached. ``ignored`` are invariants that a mutant
    breaks openly, so that what follows from it can be looked for."""

    ignored: frozenset[str] = frozenset()

    def __init__(self, world: World, authority: Authority, brokers: list[SimBroker]) -> None:
        self._world = world
        self._authority = authority
        self._brokers = brokers
        self.committed: list[Record] = []
        self.acknowledged: list[Pending] = []
        self.elections = 0
        self._leaders: dict[int, int] = {}
        self._seen: dict[int, tuple[Replica, int, int]] = {}
        self._broker_epochs: dict[int, int] = {}
        world.after_event = self.check
        authority.on_change = self.changed
        for broker in brokers:
            broker.acknowledged = self._acknowledge

    def is_complete(self, broker: SimBroker) -> bool:
        """Whether a broker has all that is committed."""
        return broker.log.records[: len(self.committed)] == self.committed

    def _may_lack(self, broker: SimBroker, partition: PartitionRegistration) -> bool:
        """Whether it may count as complete for now and yet not be so: its own disk has grown old,
        or logs of others are still compared. Whoever commits something then fails I1."""
        if broker.has_aged:
            return True
        is_open = partition.recovery == RECOVERY_UNCONFIRMED
        return is_open and any(each.has_aged for each in self._brokers)

    def fail(self, invariant: str, text: str) -> None:
        if invariant not in self.ignored:
            raise Violation(f"{invariant}: {text}")

    # --- the authority ------------------------------------------------------------------------

    def changed(self, old: Image, new: Image) -> None:
        """I9, I12, I16, I17 on every metadata record."""
        for node, broker in new.brokers.items():
            before = old.brokers.get(node)
            if before is not None and broker.broker_epoch < before.broker_epoch:
                self.fail("I17", f"broker epoch of {node} fell to {broker.broker_epoch}")
        before_topic, topic = old.find_topic(TOPIC), new.find_topic(TOPIC)
        if topic is None:
            return
        partition = topic.partitions[0]
        self._check_shape(partition, new)
        for node, broker in new.brokers.items():
            known = old.brokers.get(node)
            fresh = known is None or known.broker_epoch != broker.broker_epoch
            if fresh and not broker.trusted and node in (*partition.isr, *partition.elr):
                self.fail("I16", f"untrusted {node} in {partition}")
        if before_topic is not None:
            self._check_step(before_topic.partitions[0], partition)

    def _check_shape(self, partition: PartitionRegistration, image: Image) -> None:
        isr, elr = set(partition.isr), set(partition.elr)
        full = len(isr) >= partition.min_isr
        fenced = {node for node in isr if image.brokers[node].fenced}
        if (
            not isr | elr <= set(partition.replicas)
            or isr & elr
            or (partition.leader != NO_NODE and partition.leader not in isr)
            or fenced
            or (full and (elr or partition.lkelr))
        ):
            self.fail("I12", f"{partition}, fenced {fenced}")

    def _check_step(self, before: PartitionRegistration, after: PartitionRegistration) -> None:
        if after == before:
            return
        if after.partition_epoch != before.partition_epoch + 1:
            self.fail("I9", f"partition epoch {before.partition_epoch} -> {after.partition_epoch}")
        moved = after.leader != before.leader
        if after.leader_epoch < before.leader_epoch or (
            moved and after.leader_epoch == before.leader_epoch
        ):
            self.fail("I9", f"{before} -> {after}")

    # --- brokers ------------------------------------------------------------------------------

    def check(self) -> None:
        """After every event, for whom it concerned."""
        touched = self._world.touched
        count = len(self.committed)
        for node in touched:
            broker = self._brokers[node] if node >= 0 else None
            if broker is not None and broker.alive and broker.replica is not None:
                self._check_broker(broker, broker.replica)
        partition = self._authority.partition
        if partition is None:
            return
        if AUTHORITY in touched or len(self.committed) > count:
            self._check_candidates(partition, (*partition.isr, *partition.elr))
        else:
            for node in touched:
                if node in partition.isr or node in partition.elr:
                    self._check_candidates(partition, (NodeId(node),))
        if AUTHORITY in touched or partition.leader in touched:
            self._check_quorums(partition)

    def _check_broker(self, broker: SimBroker, replica: Replica) -> None:
        known, high_watermark, epoch = self._seen.get(broker.node, (None, 0, -1))
        if known is not replica:
            high_watermark, epoch = 0, -1
        if replica.leader_epoch != epoch and replica.leader is not None:
            self._took_office(broker, replica)
        current = replica.high_watermark
        if current == high_watermark and replica.leader_epoch == epoch:
            return
        self._seen[broker.node] = (replica, current, replica.leader_epoch)
        if not broker.log.log_start_offset <= current <= broker.log.log_end_offset:
            self.fail("I10", f"b{broker.node} hw {current}, end {broker.log.log_end_offset}")
        if (
            current < high_watermark
            and replica.leader is not None
            and replica.leader_epoch == epoch
        ):
            self.fail("I10", f"leader b{broker.node} hw {high_watermark} -> {current}")
        if current > high_watermark:
            self._learned(broker, replica, high_watermark, current)

    def _took_office(self, broker: SimBroker, replica: Replica) -> None:
        """I3, I8."""
        self.elections += 1
        former = self._leaders.setdefault(replica.leader_epoch, broker.node)
        if former != broker.node:
            self.fail("I8", f"b{former} and b{broker.node} lead epoch {replica.leader_epoch}")
        partition = self._authority.partition
        assert partition is not None
        if replica.leader_epoch != partition.leader_epoch:
            return
        if not self._may_lack(broker, partition):
            self._check_complete("I3", broker, broker.log.log_end_offset)

    def _check_complete(self, invariant: str, broker: SimBroker, end: int) -> None:
        log = broker.log
        count = len(self.committed)
        if end < count:
            self.fail(invariant, f"b{broker.node} ends at {end}, committed is {count}")
        if log.records[:count] != self.committed:
            self.fail(invariant, f"b{broker.node} holds other records below {count}")

    def _learned(self, broker: SimBroker, replica: Replica, before: int, after: int) -> None:
        """I1, I15: a high watermark moved."""
        records = broker.log.records[before:after]
        known = self.committed[before:after]
        if records[: len(known)] != known:
            self.fail("I1", f"b{broker.node} has other records in {before}..{after}")
        new = records[len(known) :]
        if not new:
            return
        if replica.leader is None:
            self.fail("I1", f"follower b{broker.node} is ahead of every leader at {after}")
            return
        registration = replica.leader.registration
        if len(registration.isr) < registration.min_isr:
            self.fail("I15", f"b{broker.node} commits with ISR {registration.isr}")
        self.committed += new

    def _acknowledge(self, pending: Pending) -> None:
        self.acknowledged.append(pending)

    def _check_candidates(self, partition: PartitionRegistration, nodes: Iterable[NodeId]) -> None:
        """I4 for ends; contents are compared when one takes office."""
        count = len(self.committed)
        registered = self._authority.image.brokers
        for node in nodes:
            broker = self._brokers[node]
            if self._may_lack(broker, partition):
                continue
            if not broker.alive or broker.broker_epoch != registered[node].broker_epoch:
                continue
            ack = broker.log.durable_offset if broker.counts_durable else broker.log.log_end_offset
            if ack < count:
                self.fail("I4", f"candidate b{node} has {ack} of {count}: {partition}")

    def _check_quorums(self, partition: PartitionRegistration) -> None:
        """I5."""
        if partition.leader == NO_NODE:
            return
        replica = self._brokers[partition.leader].replica
        leader = None if replica is None else replica.leader
        if leader is None or leader.leader_epoch != partition.leader_epoch:
            return
        registration = leader.registration
        if len(registration.isr) < registration.min_isr:
            return
        electable = {*partition.isr, *partition.elr}
        if not electable <= leader.maximal_isr:
            self.fail("I5", f"{sorted(leader.maximal_isr)} lacks some of {sorted(electable)}")

    # --- the end ------------------------------------------------------------------------------

    def check_end(self) -> None:
        """I1, I2, I6, and liveness after everything was healed."""
        partition = self._authority.partition
        assert partition is not None
        for pending in self.acknowledged:
            if self.committed[pending.offset] != (pending.epoch, pending.value):
                self.fail("I2", f"acknowledged {pending} is not in the committed log")
        self._check_logs_match()
        if partition.leader == NO_NODE:
            self.fail("V2", f"no leader: {partition}")
        if set(partition.isr) != set(partition.replicas):
            self.fail("V3", f"not all in sync: {partition}")
        self._check_complete("I3", self._brokers[partition.leader], len(self.committed))

    def _check_logs_match(self) -> None:
        """I6: equal (offset, epoch) means equal records and equal logs before."""
        logs = [broker.log.records for broker in self._brokers]
        for index, one in enumerate(logs):
            for other in logs[index + 1 :]:
                shared = min(len(one), len(other))
                while shared and one[shared - 1][0] != other[shared - 1][0]:
                    shared -= 1
                if one[:shared] != other[:shared]:
                    self.fail("I6", f"logs differ below {shared}")
