"""The omniscient checker: invariants of replication/DESIGN 2, after every batch of tasks.

Trio runs all tasks that are runnable in one batch; between two batches the oracle looks at every
replica of every process that ran. Looking is cheap while nothing moved; what moved is compared with
everything that was ever committed. A violation is kept and ends the run; nothing is raised inside
the product's own tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from paceline.types import NO_NODE, NodeId
from paceline.values import dataclass
from paceline_cluster.sim.committed import BatchId, CommittedLog, is_sound, read_batches
from paceline_cluster.sim.machine import Life, Machine, failure_of
from paceline_cluster.sim.metadata_checks import MetadataChecks, find_partition
from paceline_cluster.sim.promises import Promises
from paceline_node.app.broker import Broker
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import RECOVERY_UNCONFIRMED
from paceline_node.controller.raft_types import Member
from paceline_node.loop_turns import MOST_UNITS
from paceline_node.replication.leader import LeaderState
from paceline_node.replication.partition import Partition, PartitionKey
from paceline_node.replication.replica import Replica


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold; ``at_s`` is virtual time."""

    invariant: str
    text: str
    at_s: float

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at_s:.3f}: {self.text}"


class Judge(Protocol):
    """Whoever judges what partitions hold, for the protocol that wrote it."""

    def committed(self, partition: Partition, end: int) -> None:
        """A leader has committed everything below offset ``end``."""

    def holds(self, node: int, partition: Partition, committed_end: int) -> None:
        """A sound replica that has to hold everything below ``committed_end``."""


@dataclass(slots=True)
class _Seen:
    """A replica as the last look found it."""

    partition: Partition
    replica: Replica
    high_watermark: int
    leader_epoch: int
    leader: LeaderState | None
    registration: PartitionRegistration | None


def _never_seen(partition: Partition) -> _Seen:
    return _Seen(partition, partition.replica, partition.log_start_offset, -1, None, None)


class _Watched:
    """What the oracle remembers of one process: ``seen`` is of its present partitions, in a row
    because it is gone through after every batch of tasks."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.seen: list[_Seen] = []
        self.image: Image | None = None

    def partitions_are(self, partitions: tuple[Partition, ...]) -> None:
        """Keep what is known of those that are still the same, begin with the others."""
        known = {id(seen.partition): seen for seen in self.seen}
        self.seen = [known.get(id(each)) or _never_seen(each) for each in partitions]


class Oracle:
    """Watches all machines. ``found`` is called once, with the first violation."""

    def __init__(
        self,
        machines: Sequence[Machine],
        now: Callable[[], float],
        found: Callable[[Violation], None],
    ) -> None:
        self._machines = machines
        self._now = now
        self._found = found
        self.violation: Violation | None = None
        self.metadata = MetadataChecks(self.fail, self._image_changed)
        self.committed: dict[PartitionKey, CommittedLog] = {}
        self._promises = Promises(self.fail)
        self.damaged: set[tuple[int, PartitionKey]] = set()
        """Replicas whose disk was damaged on purpose: what they hold proves nothing."""
        self.judges: list[Judge] = []
        self.watchers: list[Callable[[int, Partition], None]] = []
        """Look at every replica that moved, damaged or not."""
        self._watched: dict[Life, _Watched] = {}
        self._leaders: dict[tuple[PartitionKey, int], int] = {}
        self._raft_leaders: dict[int, int] = {}

    def fail(self, invariant: str, text: str) -> None:
        """Note a violation; only the first one counts."""
        if self.violation is None:
            self.violation = Violation(invariant, text, self._now())
            self._found(self.violation)

    def forget_metadata(self) -> None:
        """A majority of the quorum is lost for good: what only that had committed never was. The
        records that were committed stay so."""
        self.metadata.begin_anew()
        self._promises = Promises(self.fail)
        self._raft_leaders.clear()

    # --- looking ----------------------------------------------------------------------------------

    def step(self) -> None:
        """Look at every process whose tasks ran."""
        for machine in self._machines:
            life = machine.life
            if life is None or not life.tasks.may_have_run():
                continue
            if life.error is not None:
                self.fail("A", f"n{machine.number} failed with {failure_of(life)}")
            broker = life.node.broker
            if broker is not None and life.is_alive:
                self._look(machine, life, broker)

    def _look(self, machine: Machine, life: Life, broker: Broker) -> None:
        watched = self._watched.get(life)
        if watched is None:
            watched = self._watched[life] = _Watched(broker)
            self._forget_dead()
            self._promises.began(machine.number, broker.metadata.quorum)
        if (units := broker.turns.longest_units) > MOST_UNITS:
            self.fail("A", f"n{machine.number} did {units} units of work in one turn of its loop")
        quorum = broker.metadata.quorum
        if quorum.is_leader:
            self._promises.look(quorum)
            former = self._raft_leaders.setdefault(quorum.term, machine.number)
            if former != machine.number:
                self.fail("I20", f"n{former} and n{machine.number} lead term {quorum.term}")
        table = broker.replicas.table
        image = broker.metadata.image_store.image
        if image is not watched.image:
            watched.image = image
            self.metadata.applied(machine.number, image)
            watched.partitions_are(table.partitions)
        elif len(table) != len(watched.seen):
            watched.partitions_are(table.partitions)
        for seen in watched.seen:
            replica = seen.replica
            if (
                replica.high_watermark != seen.high_watermark
                or replica.leader is not seen.leader
                or replica.leader_epoch != seen.leader_epoch
            ):
                self._moved(machine, seen)
            elif replica.registration is not seen.registration:
                seen.registration = replica.registration
                self._check_quorums(seen.partition)

    def _forget_dead(self) -> None:
        for life in [life for life in self._watched if not life.is_alive]:
            del self._watched[life]

    # --- replicas ---------------------------------------------------------------------------------

    def _moved(self, machine: Machine, seen: _Seen) -> None:
        """A role or a high watermark changed: I1, I3, I8, I10, I15."""
        partition = seen.partition
        replica = partition.replica
        leader = replica.leader
        if leader is not None and (
            leader is not seen.leader or replica.leader_epoch != seen.leader_epoch
        ):
            self._took_office(machine, partition)
        current, before = replica.high_watermark, seen.high_watermark
        name = f"n{machine.number} {partition}"
        for watcher in self.watchers:
            watcher(machine.number, partition)
        if not replica.log.log_start_offset <= current <= replica.log.log_end_offset:
            self.fail("I10", f"{name}: hw {current}, end {replica.log.log_end_offset}")
        if current < before and leader is not None and leader is seen.leader:
            self.fail("I10", f"{name}: the leader's hw went back from {before} to {current}")
        if current > before:
            self._learned(machine, partition, seen, before, current)
        seen.high_watermark, seen.leader_epoch = current, replica.leader_epoch
        seen.leader, seen.registration = leader, replica.registration

    def _took_office(self, machine: Machine, partition: Partition) -> None:
        """I8 and I3."""
        epoch = partition.leader_epoch
        former = self._leaders.setdefault((partition.key, epoch), machine.number)
        if former != machine.number:
            self.fail("I8", f"n{former} and n{machine.number} lead {partition} in epoch {epoch}")
        registered = self._registered(partition)
        committed = self.committed.get(partition.key)
        if registered is None or committed is None or registered.leader_epoch != epoch:
            return
        if partition.log_end_offset < committed.end:
            if self._compares_logs(registered, partition.key):
                return
            self.fail(
                "I3",
                f"n{machine.number} leads {partition} in epoch {epoch} with end "
                f"{partition.log_end_offset}, committed is {committed.end}",
            )
        self._compare(machine, partition, committed, max(0, committed.end - 200), "I3")
        if (machine.number, partition.key) not in self.damaged:
            for judge in self.judges:
                judge.holds(machine.number, partition, committed.end)

    def _learned(
        self, machine: Machine, partition: Partition, seen: _Seen, before: int, after: int
    ) -> None:
        replica = partition.replica
        committed = self.committed.setdefault(partition.key, CommittedLog())
        sound = (machine.number, partition.key) not in self.damaged
        batches = read_batches(partition.log, before, after) if sound else []
        conflict = self._conflict(partition.key, committed, batches)
        if conflict is not None:
            self.fail("I1", f"n{machine.number} {partition} {conflict}")
        if after <= committed.end:
            return
        leader = replica.leader
        if leader is None:
            # It may have been the leader until a moment ago, in the same batch of tasks.
            leader = seen.leader
        if leader is None:
            self.fail("I1", f"follower n{machine.number} {partition} is ahead of all at {after}")
            return
        now, then = leader.registration, seen.registration or leader.registration
        # One between the two, gone again in the same batch of tasks, may have allowed it.
        is_next = now.partition_epoch - then.partition_epoch <= 1
        if is_next and all(len(each.isr) < each.min_isr for each in (now, then)):
            self.fail("I15", f"n{machine.number} commits {after} of {partition} with {now}")
        committed.extend(batches, after)
        for judge in self.judges:
            judge.committed(partition, after)
        self._check_candidates(partition.key, committed)

    def _compare(
        self, machine: Machine, partition: Partition, committed: CommittedLog, start: int, rule: str
    ) -> None:
        if (machine.number, partition.key) in self.damaged:
            return
        held = read_batches(partition.log, start, committed.end)
        conflict = self._conflict(partition.key, committed, held)
        if conflict is not None:
            self.fail(rule, f"n{machine.number} {partition} {conflict}")

    def _conflict(
        self, key: PartitionKey, committed: CommittedLog, held: list[BatchId]
    ) -> str | None:
        """As :meth:`CommittedLog.conflict`, where compaction is no explanation."""
        if committed.conflict(held) is None:
            return None
        self._note_compaction(key, committed)
        return committed.conflict(held)

    def _note_compaction(self, key: PartitionKey, committed: CommittedLog) -> None:
        """Replicas are compacted each for itself, and others copy what that left. Segments are
        replaced one by one, before the compaction that does so says how far it came."""
        for watched in self._watched.values():
            hosted = watched.broker.replicas.table.find(key)
            if hosted is not None:
                state = hosted.log.compaction
                reached = (state.cleaned_offset, *(each.end for each in state.rewritten))
                committed.compacted_to = max(committed.compacted_to, *reached)

    def _registered(self, partition: Partition) -> PartitionRegistration | None:
        newest = self.metadata.newest
        if newest is None:
            return None
        return find_partition(newest, partition.topic_id, partition.partition)

    # --- candidates and quorums -------------------------------------------------------------------

    def _image_changed(self, old: Image, new: Image) -> None:
        for (topic_id, number), committed in self.committed.items():
            registered = find_partition(new, topic_id, number)
            if registered is not None and registered is not find_partition(old, topic_id, number):
                self._check_candidates((topic_id, number), committed)

    def _check_candidates(self, key: PartitionKey, committed: CommittedLog) -> None:
        """I4: whoever may be elected holds everything, if its process runs."""
        newest = self.metadata.newest
        registered = None if newest is None else find_partition(newest, *key)
        if newest is None or registered is None:
            return
        if self._compares_logs(registered, key):
            return
        for node in (*registered.isr, *registered.elr):
            partition = self._hosted(node, newest, key)
            if partition is None:
                continue
            # Who is elected out of the ELR is compared with the others before it commits anything:
            # its disk may be older than it can tell (controller/DESIGN 12).
            is_compared = node not in registered.isr and registered.min_isr > 1
            if is_compared and (node, key) in self.damaged:
                continue
            # Of a damaged one, too: whoever has lost its end must have left the sets before. What
            # old marks made it withhold it has, and counts for again once it is proven.
            withholds = not partition.log.is_proven()
            held = partition.log_end_offset if withholds else partition.replica.ack_offset
            if held < committed.end:
                self.fail(
                    "I4",
                    f"candidate n{node} of {partition} has {held}, "
                    f"committed is {committed.end}: {registered}",
                )

    def _compares_logs(self, registered: PartitionRegistration, key: PartitionKey) -> bool:
        """While the logs of those who were complete are compared, a disk that is older than its
        node knows may lack some: then nothing is committed (I1), and who has more takes over."""
        is_open = registered.recovery == RECOVERY_UNCONFIRMED
        return is_open and any(key == each for _, each in self.damaged)

    def _hosted(self, node: NodeId, image: Image, key: PartitionKey) -> Partition | None:
        """The replica on a node whose process is registered as it runs now."""
        machine = self._machines[node]
        broker = None if machine.node is None else machine.node.broker
        if broker is None or broker.replicas.broker_epoch != image.brokers[node].broker_epoch:
            return None
        return broker.replicas.table.find(key)

    def _check_quorums(self, partition: Partition) -> None:
        """I5: whoever may be elected is waited for by the leader that may commit."""
        leader = partition.replica.leader
        registered = self._registered(partition)
        if leader is None or registered is None or registered.leader == NO_NODE:
            return
        if leader.leader_epoch != registered.leader_epoch:
            return
        if len(leader.registration.isr) < leader.registration.min_isr:
            return
        electable = {*registered.isr, *registered.elr}
        if not electable <= leader.maximal_isr:
            self.fail(
                "I5", f"{partition}: {sorted(leader.maximal_isr)} lacks some of {sorted(electable)}"
            )

    def voters(self) -> tuple[Member, ...]:
        """The metadata quorum's voters, as its newest leader knows them; none without a leader."""
        leading = [
            broker.metadata.quorum
            for watched in self._watched.values()
            if (broker := watched.broker).metadata.quorum.is_leader
        ]
        return max(leading, key=lambda quorum: quorum.term).voters if leading else ()

    def is_damaged(self, machine: Machine) -> bool:
        """Whether a log that was damaged on purpose still is."""
        return self.damaged_log(machine) is not None

    def damaged_log(self, machine: Machine) -> str | None:
        """The first log that was damaged on purpose and still is."""
        broker = None if machine.node is None else machine.node.broker
        for number, key in sorted(self.damaged):
            if number != machine.number:
                continue
            if self.is_kept(machine, key):
                partition = None if broker is None else broker.replicas.table.find(key)
                if partition is None:
                    return f"the log of partition {key[1]} of {key[0]}, which is not there"
                if not is_sound(partition.log):
                    return (
                        f"{partition} with damage {[str(each) for each in partition.log.damaged]}"
                    )
            self.damaged.discard((number, key))
        return None

    def is_kept(self, machine: Machine, key: PartitionKey) -> bool:
        """Whether the machine is to have a replica still."""
        newest = self.metadata.newest
        registered = None if newest is None else find_partition(newest, *key)
        return registered is not None and machine.number in registered.replicas

    # --- the end ----------------------------------------------------------------------------------

    def in_sync(self, key: PartitionKey) -> Iterator[tuple[NodeId, Partition]]:
        """The replicas in sync of a partition, none once it is deleted."""
        newest = self.metadata.newest
        registered = None if newest is None else find_partition(newest, *key)
        if newest is None or registered is None:
            return
        for node in registered.isr:
            partition = self._hosted(node, newest, key)
            if partition is not None:
                yield node, partition

    def check_end(self) -> None:
        """I1, I2 and I6 over whole logs: every in-sync replica holds exactly what is committed."""
        newest = self.metadata.newest
        assert newest is not None, "no node ever applied metadata"
        for key, committed in self.committed.items():
            registered = find_partition(newest, *key)
            if registered is None:
                continue  # deleted
            for node in registered.isr:
                partition = self._hosted(node, newest, key)
                if partition is not None and not self.is_damaged(self._machines[node]):
                    self._check_whole(node, partition, committed)

    def _check_whole(self, node: NodeId, partition: Partition, committed: CommittedLog) -> None:
        self._note_compaction(partition.key, committed)
        held = read_batches(partition.log, 0, committed.end)
        problems: Iterable[str | None] = (
            committed.conflict(held),
            committed.missing(held, partition.log.log_start_offset),
        )
        for problem in problems:
            if problem is not None:
                self.fail("I2", f"at the end n{node} {partition} {problem}")
        for judge in self.judges:
            judge.holds(node, partition, committed.end)
