"""One simulated broker process on one simulated disk: the replica core driven by events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from paceline.errors import NotEnoughReplicas, NotLeader, PacelineError, StaleBrokerEpoch
from paceline.types import Acks, BrokerEpoch, NodeId
from paceline.wire.message import Message
from paceline.wire.peer import control
from paceline.wire.peer.replica import FetchedPartition, FetchPartition
from paceline_cluster.sim.replicas.simdisk import SimDisk, offset_of
from paceline_cluster.sim.replicas.simlog import SimLog
from paceline_cluster.sim.replicas.world import AUTHORITY, CLUSTER, TOPIC, Authority, World
from paceline_node.controller.image import Image
from paceline_node.replication.fetch_checks import ACCEPTED, FollowerIdentity
from paceline_node.replication.follower import FetchOutcome
from paceline_node.replication.registration_gate import RegistrationGate
from paceline_node.replication.replica import Replica, Transition
from paceline_node.settings.flush_mode import FlushMode
from paceline_node.storage import incarnation
from paceline_node.storage.producers import FrozenTable

LAG_MAX_S = 0.5
FETCH_RECORDS = 4
RIDE_S = 0.025
"""How often a sync is counted, at most."""


@dataclass
class Pending:
    """A write that waits for acks=all."""

    epoch: int
    offset: int
    value: int


class SimBroker:
    """A node: its disk, and at most one process on it."""

    def __init__(self, world: World, authority: Authority, node: int, mode: FlushMode) -> None:
        self.world = world
        self.authority = authority
        self.node = NodeId(node)
        self.mode = mode
        self.counts_durable = mode.counts_durable
        self.others: dict[NodeId, SimBroker] = {}
        self.boot = 0
        self.life = 0
        self.alive = False
        self.paused = False
        self.acks_leader = 0.0
        """How many writes wait for the leader alone (0 to 1)."""
        self.has_aged = False
        """It may lack what it acknowledged, and does not know that."""
        self.is_young_copy = False
        """Its disk is an older one, but younger than what the authority has noted of it."""
        self.acknowledged: Callable[[Pending], None] = lambda pending: None
        self.cutting: Callable[[SimBroker, int], None] = lambda broker, offset: None
        self.registered: Callable[[SimBroker, bool], None] = lambda broker, trusted: None
        self._held: list[Callable[[], None]] = []
        self.format()

    # --- disk and process ---------------------------------------------------------------------

    def format(self) -> None:
        """A new, empty disk."""
        self.disk = SimDisk(UUID(int=self.world.rng.getrandbits(128), version=4))

    @property
    def log(self) -> SimLog:
        return self.disk.log

    def start(self) -> None:
        """Start a process: recover, judge the former one, then register."""
        self.life += 1
        self.alive = True
        self.paused = False
        self._held = []
        self.log.recover()
        disk = self.disk
        verdict = incarnation.judge(disk.state, f"boot-{self.boot}")
        # Recovery always reaches the durable mark here: a power cut keeps what was fsynced.
        verdict = incarnation.resolve(verdict, reached_durable_mark=True)
        if self.disk.is_older(self.log):
            verdict = incarnation.Verdict.UNTRUSTED
        if disk.state is not None:
            disk.state = incarnation.opened(disk.state, self._found())
        disk.state = incarnation.begin(disk.state, verdict)
        self.trusted = disk.state.trusted
        self.gate = RegistrationGate()
        self.broker_epoch: BrokerEpoch | None = None
        self.replica: Replica | None = None
        self.pending: list[Pending] = []
        self._nonce = self.world.rng.getrandbits(32)
        self._fetch_deadline = 0.0
        self._flush_target = 0
        self._flushing = False
        self._rode_at = float("-inf")
        self._incarnation_id = UUID(int=self.world.rng.getrandbits(128), version=4)
        self.image = disk.image
        self.world.note(f"b{self.node} starts, trusted={self.trusted} {self.log.epochs}")
        self._timer(0.1, self._register_again)
        self._timer(0.02, self._learn)
        self._timer(0.025, self._fetch_again)
        self._timer(LAG_MAX_S / 2, self._shrink)
        self._timer(0.02, self._write)
        self._timer(0.05, self._propose)
        self._timer(0.1, self._heartbeat)
        self._timer(0.3, self._checkpoint)
        self._tell_whole()
        if not self.counts_durable:
            self._timer(0.3, self._flush)
        self._register()

    def _found(self) -> incarnation.Witness:
        """Where its metadata log ends."""
        return incarnation.Witness(self.disk.directory_id.bytes, offset_of(self.disk.image))

    def kill(self) -> None:
        """SIGKILL: the page cache stays."""
        self.world.note(f"b{self.node} killed at {self.log.log_end_offset}")
        self.alive = False
        self.life += 1

    def stop(self) -> None:
        """An orderly end: everything flushed and marked."""
        self.world.note(f"b{self.node} stops")
        self.log.flush()
        self._checkpoint_now()
        assert self.disk.state is not None
        self.disk.state = incarnation.stopped(self.disk.state, syncs=self.disk.noted_syncs)
        self.alive = False
        self.life += 1

    def power_cut(self) -> None:
        """The machine loses power: what was not fsynced may be lost."""
        self.alive = False
        self.life += 1
        self.boot += 1
        before = self.log.log_end_offset
        self.log.power_cut(self.world.rng)
        self.disk.high_watermark = min(self.disk.high_watermark, self.log.log_end_offset)
        self.world.note(f"b{self.node} power cut {before} -> {self.log.log_end_offset}")

    def wipe(self) -> None:
        """The disk is replaced."""
        self.world.note(f"b{self.node} wiped")
        self.alive = False
        self.life += 1
        self.format()

    def copy_disk(self, *, data_alone: bool = False) -> Callable[[], bool]:
        """What kills it and puts its disk back as it is now; False: another process runs. Of the
        same one only the metadata on it tell that it is an old one (controller/DESIGN 2.8), or if
        what it keeps of its log is put back alone, what lies beside that."""
        log, high_watermark, life = self.log.copy(), self.disk.high_watermark, self.life
        disk, image, noted_syncs = self.disk, self.disk.image, self.disk.noted_syncs

        def put_back() -> bool:
            if self.disk is not disk or not self.alive or (self.life != life and not data_alone):
                return False
            self.kill()
            self.world.note(f"b{self.node} aged {self.log.log_end_offset} -> {log.log_end_offset}")
            self.disk.log = log
            self.disk.high_watermark = high_watermark
            self.has_aged = True
            if data_alone:
                self.is_young_copy = disk.noted_syncs <= log.syncs
                return True
            self.disk.image = image
            self.disk.noted_syncs = noted_syncs
            self.is_young_copy = self.authority.noted(self.node) <= offset_of(image)
            return True

        return put_back

    def pause(self, seconds: float) -> None:
        """SIGSTOP, then SIGCONT: what came meanwhile is handled afterwards, in order."""
        self.world.note(f"b{self.node} paused {seconds:.2f}")
        self.paused = True
        life = self.life

        def resume() -> None:
            if life == self.life:
                self.paused = False
                held, self._held = self._held, []
                for event in held:
                    # One by one, so that each is checked like any other.
                    self.world.after(0.0, self.guard(event))

        self.world.after(seconds, resume)

    def _run(self, event: Callable[[], None]) -> None:
        if self.paused:
            self._held.append(event)
        else:
            self.world.touched.add(self.node)
            event()

    def guard(self, event: Callable[[], None]) -> Callable[[], None]:
        """``event``, for this process only."""
        life = self.life

        def guarded() -> None:
            if life == self.life and self.alive:
                self._run(event)

        return guarded

    def _timer(self, period: float, event: Callable[[], None]) -> None:
        def fire() -> None:
            self._timer(period, event)
            event()

        self.world.after(period * self.world.rng.uniform(0.8, 1.2), self.guard(fire))

    def receive(self, event: Callable[[], None]) -> None:
        """A message for whatever process runs now."""
        if self.alive:
            self._run(event)

    # --- the controller -----------------------------------------------------------------------

    def _register_again(self) -> None:
        if self.broker_epoch is None:
            self._register()

    def _register(self) -> None:
        state = self.disk.state
        assert state is not None
        request = control.RegisterBrokerRequest(
            cluster_id=CLUSTER,
            node_id=self.node,
            directory_id=self.disk.directory_id,
            incarnation_id=self._incarnation_id,
            boot_seq=state.boot_seq,
            prev_epoch=state.broker_epoch,
            trusted=state.trusted,
            damaged=(),
            endpoints=(),
            feature_min=1,
            feature_max=1,
            metadata_offset=state.found.of(self.disk.directory_id.bytes),
        )
        life = self.life

        def answered(answer: Message | PacelineError) -> None:
            if life == self.life and isinstance(answer, control.RegisterBrokerResponse):
                self.receive(lambda: self._accepted(answer.broker_epoch))

        self.authority.ask(self.node, request, answered)

    def _accepted(self, broker_epoch: BrokerEpoch) -> None:
        if self.broker_epoch is not None:
            return
        assert self.disk.state is not None
        known_syncs = incarnation.known_syncs(self.disk.state, self.disk.noted_syncs)
        self.disk.state = incarnation.registered(
            self.disk.state,
            broker_epoch=broker_epoch,
            boot_id=f"boot-{self.boot}",
            flush_floor=self.mode,
            syncs=self.log.syncs,
        )
        self.log.syncs = max(self.log.syncs, known_syncs)
        self.disk.noted_syncs = self.log.syncs
        self.broker_epoch = broker_epoch
        self.gate.registered(broker_epoch)
        self.world.note(f"b{self.node} registered as {broker_epoch}")
        self._apply_image()

    def _heartbeat(self) -> None:
        if self.broker_epoch is None or self.image is None:
            return
        request = control.HeartbeatRequest(
            self.node,
            self.broker_epoch,
            self.image.offset,
            want_fence=self.image.offset < self.broker_epoch,
            want_shutdown=False,
            offline=False,
            degraded=False,
            durable_offset=self.image.offset,
        )
        life = self.life

        def answered(answer: Message | PacelineError) -> None:
            if life == self.life and isinstance(answer, StaleBrokerEpoch):
                self.receive(self.kill)  # replaced: the process ends (controller/DESIGN 2.5)

        self.authority.ask(self.node, request, answered)

    def _learn(self) -> None:
        """Fetch a newer image, perhaps not the newest, perhaps late."""
        world = self.world
        if world.healed:
            target, delay = self.authority.image, 0.001
        else:
            have = 0 if self.image is None else self.image.offset
            newer = len(self.authority.history) - have
            if newer <= 0:
                return
            target = self.authority.history[-world.rng.randint(1, newer)]
            delay = world.rng.uniform(0.0, world.faults.metadata_s)
        if (AUTHORITY, self.node) in world.cuts:
            return
        world.after(delay, self.guard(lambda: self._learned(target)))

    def _learned(self, image: Image) -> None:
        if self.image is None or image.offset > self.image.offset:
            self.image = self.disk.image = image
            self._apply_image()

    def _apply_image(self) -> None:
        image = self.image
        if image is None or not self.gate.admits(image.offset):
            return
        topic = image.find_topic(TOPIC)
        if topic is None:
            return
        if self.replica is None:
            self.replica = Replica(
                self.node,
                self.log,
                high_watermark=self.disk.high_watermark,
                counts_durable=self.counts_durable,
                patience_s=LAG_MAX_S,
            )
        change = self.replica.apply(topic.partitions[0], image.brokers, self.world.now)
        if change in (Transition.LEADER, Transition.FOLLOWER, Transition.LEADERLESS):
            self.pending = []
            self.world.note(
                f"b{self.node} {change.value} epoch {self.replica.leader_epoch} "
                f"end {self.log.log_end_offset} hw {self.replica.high_watermark}"
            )
        self._advance()
        if self.replica.follower is not None:
            self._fetch()

    # --- leader -------------------------------------------------------------------------------

    def _write(self) -> None:
        replica = self.replica
        if replica is None or replica.leader is None:
            return
        rng = self.world.rng
        waits_for_all = not self.acks_leader or rng.random() >= self.acks_leader
        acks = Acks.ALL if waits_for_all else Acks.LEADER
        try:
            replica.check_produce(acks, replica.leader.registration.min_isr)
        except (NotLeader, NotEnoughReplicas):
            return
        value = rng.getrandbits(48)
        offset = self.log.append(replica.leader_epoch, value)
        if waits_for_all:
            self.pending.append(Pending(replica.leader_epoch, offset, value))
        self._grown()

    def _grown(self) -> None:
        if self.counts_durable:
            self._flush()
        else:
            self._advance()

    def _advance(self) -> None:
        replica = self.replica
        if replica is None or not replica.advance():
            return
        end = replica.high_watermark
        while self.pending and self.pending[0].offset < end:
            pending = self.pending.pop(0)
            assert pending.epoch == replica.leader_epoch  # I14
            self.acknowledged(pending)

    def _flush(self) -> None:
        if self._flushing or self.log.durable_offset == self.log.log_end_offset:
            return
        self._flushing = True
        self._flush_target = self.log.log_end_offset
        if self.world.now - self._rode_at >= RIDE_S:
            self._rode_at = self.world.now
            self.log.syncs += 1
        self.world.after(self.world.rng.uniform(0.001, 0.02), self.guard(self._flushed))

    def _flushed(self) -> None:
        self._flushing = False
        self.disk.noted_syncs = self.log.syncs
        self.log.durable_offset = max(self.log.durable_offset, self._flush_target)
        self._advance()
        replica = self.replica
        if replica is None:
            return
        if replica.follower is not None and self.counts_durable:
            self._send(replica.position(0), None)
        if self.counts_durable:
            self._flush()

    def _shrink(self) -> None:
        if self.replica is not None:
            self.replica.consider_shrink(self.world.now, LAG_MAX_S)

    def _propose(self) -> None:
        replica = self.replica
        if replica is None or replica.leader is None or self.broker_epoch is None:
            return
        due = replica.leader.proposal_due(self.world.now)
        registration = replica.registration
        if due is None or registration is None:
            return
        proposal = control.PartitionProposal(
            registration.topic_id,
            0,
            due.leader_epoch,
            due.partition_epoch,
            due.isr,
            due.relinquish,
        )
        request = control.AlterPartitionRequest(self.node, self.broker_epoch, (proposal,))
        life = self.life

        def answered(answer: Message | PacelineError) -> None:
            if life == self.life and isinstance(answer, control.AlterPartitionResponse):
                self.receive(lambda: self.on_proposal_answer(proposal, answer.results[0].error))

        self.authority.ask(self.node, request, answered, extra_s=self.world.faults.proposal_s)

    def on_proposal_answer(self, proposal: control.PartitionProposal, error: int) -> None:
        """A hint only: the ISR changes through metadata alone (replication/DESIGN 3.6)."""

    def on_fetch(
        self, sender: FollowerIdentity, position: FetchPartition, nonce: int | None
    ) -> None:
        """REPLICA_FETCH, or with no nonce REPLICA_ACK."""
        replica = self.replica
        if replica is None:
            return
        check = replica.on_fetch(sender, position, self.world.now)
        self._advance()
        if nonce is None:
            return
        records = b""
        if check is ACCEPTED:
            records = self.log.read(position.fetch_offset, FETCH_RECORDS)
        answer = replica.answer(position, check, len(records), self.log.log_end_offset)
        target = self.others[sender.node]
        self.world.send(
            self.node,
            sender.node,
            lambda: target.receive(lambda: target.on_fetched(nonce, answer, records)),
        )

    # --- follower -----------------------------------------------------------------------------

    def _fetch_again(self) -> None:
        replica = self.replica
        if replica is None or replica.follower is None:
            return
        if replica.follower.in_flight is None or self.world.now > self._fetch_deadline:
            self._fetch()

    def _fetch(self) -> None:
        replica = self.replica
        assert replica is not None
        self._nonce += 1
        position = replica.start_fetch(self._nonce, 0)
        if position is not None:
            self._fetch_deadline = self.world.now + 0.3
            self._send(position, self._nonce)

    def _send(self, position: FetchPartition, nonce: int | None) -> None:
        assert self.replica is not None
        leader = self.others.get(self.replica.leader_id)
        if leader is None or self.broker_epoch is None:
            return
        sender = FollowerIdentity(self.node, self.broker_epoch, self.disk.directory_id)
        self.world.send(
            self.node,
            leader.node,
            lambda: leader.receive(lambda: leader.on_fetch(sender, position, nonce)),
        )

    def on_fetched(self, nonce: int, answer: FetchedPartition, records: bytes) -> None:
        replica = self.replica
        if replica is None:
            return
        before = self.log.log_end_offset
        outcome = replica.on_fetched(nonce, answer, memoryview(records))
        if outcome is FetchOutcome.BEHIND:  # these logs have no state to be fetched
            replica.begin_at(FrozenTable(answer.state_offset))
        end = self.log.log_end_offset
        if outcome in (FetchOutcome.TRUNCATED, FetchOutcome.BEHIND):
            self._flush_target = min(self._flush_target, end)
            self.world.note(f"b{self.node} {outcome.value} {before} -> {end}")
        if outcome in (FetchOutcome.LACKING, FetchOutcome.LONGER):
            self._tell_lacking(replica, is_committed=outcome is FetchOutcome.LACKING)
        if outcome is FetchOutcome.APPENDED and self.counts_durable:
            self._flush()
        if outcome in (FetchOutcome.TRUNCATED, FetchOutcome.BEHIND, FetchOutcome.APPENDED):
            self._fetch()

    def _tell_lacking(self, replica: Replica, *, is_committed: bool) -> None:
        registration = replica.registration
        assert registration is not None
        assert self.broker_epoch is not None
        what = f"below {replica.high_watermark}" if is_committed else "as it is longer"
        self.world.note(f"b{self.node} refuses to be cut {what}")
        lacking = control.LackingRef(
            registration.topic_id, 0, replica.leader_epoch, replica.high_watermark, is_committed
        )
        request = control.ReportDamagedRequest(self.node, self.broker_epoch, (), lacking=(lacking,))
        self.authority.ask(self.node, request, lambda answer: None)

    def _tell_whole(self) -> None:
        """Where the registration calls it damaged: it has read its log, and found nothing."""
        self.world.after(0.2, self.guard(self._tell_whole))
        registration = None if self.replica is None else self.replica.registration
        if registration is None or self.node not in registration.damaged:
            return
        assert self.broker_epoch is not None
        whole = control.RepairedRef(registration.topic_id, 0, registration.partition_epoch)
        request = control.ReportDamagedRequest(self.node, self.broker_epoch, (), repaired=(whole,))
        self.authority.ask(self.node, request, lambda answer: None)

    # --- checkpoints --------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        self._checkpoint_now()

    def _checkpoint_now(self) -> None:
        if self.replica is not None:
            self.disk.high_watermark = self.replica.high_watermark
