"""Coordinators on several nodes, clients who are told things, and what must never be told.

Checked on every answer that leaves a node:

* generations told never fall, in the order of telling;
* no two members are told the same partition in one generation;
* an offset read is never below one whose commit was answered OK.

And at quiet moments: every machine is the fold of what its replica has committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import NAMESPACE_OID, uuid5

from paceline.errors import ErrorCode, PacelineError, RebalanceInProgress
from paceline.types import TopicId
from paceline.wire.batch import iter_batches
from paceline.wire.records import decode_records
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, Synced, SyncRequest
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.records import Protocol
from paceline_node.groups.v1_groups import MemberRef, Membership, v1_key
from paceline_node.state_machines.machine import Deferred, Entry
from paceline_node.state_machines.replica import MachineReplica, Phase
from tests.sim.groups.replicated_log import NodeLog, ReplicatedLog

PARTITIONS = 4
KAFKA = GroupKey(Family.KAFKA, "k")
START_MS = 1_700_000_000_000


class EveryTopic(dict[str, TopicId]):
    """Every topic is there, and stays."""

    def get(self, topic: str, default: object = None) -> TopicId:  # type: ignore[override]
        return TopicId(uuid5(NAMESPACE_OID, topic))


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return START_MS + int(self.time * 1000)


@dataclass
class Node:
    log: NodeLog
    engine: GroupEngine
    replica: MachineReplica


@dataclass
class Request:
    """One that was sent to ``node`` and is not answered. ``answer`` may be an error."""

    node: Node
    key: GroupKey
    epoch: int
    answer: object
    heard: Callable[[object], None]
    wait_for: int | None = None


@dataclass
class KafkaClient:
    name: str
    id: str = ""
    generation: int = -1
    leader: str = ""
    members: tuple[str, ...] = ()
    is_asking: bool = False
    owns: bool = False


class World:
    """One run. ``make`` builds replicas, so that a test can break one on purpose;
    ``holds_back`` False tells answers before they are committed."""

    def __init__(
        self,
        seed: int,
        make: Callable[[str, NodeLog, GroupEngine, Clock], MachineReplica] = MachineReplica,
        *,
        holds_back: bool = True,
    ) -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.cluster = ReplicatedLog(3)
        self.limits = GroupLimits(initial_delay_s=0.1)
        self.nodes = []
        for log in self.cluster.nodes:
            engine = self._engine()
            self.nodes.append(Node(log, engine, make(f"n{log.number}", log, engine, self.clock)))
        self.holds_back = holds_back
        self.requests: list[Request] = []
        self.v1_told: dict[str, Membership] = {}
        self.kafka = [KafkaClient(f"k{number}") for number in range(3)]
        self.generations: dict[GroupKey, int] = {}
        self.owners: dict[tuple[GroupKey, int, int], str] = {}
        self.commits = 0
        self.stored: dict[int, int] = {}
        self.answered = 0
        for node in self.nodes:
            node.replica.role_changed()

    def _engine(self) -> GroupEngine:
        return GroupEngine(self.limits, random.Random(self.rng.getrandbits(64)), EveryTopic)

    # --- asking -----------------------------------------------------------------------------------

    def ask(
        self,
        key: GroupKey,
        operation: Callable[[GroupEngine], object],
        heard: Callable[[object], None],
    ) -> None:
        """Send a request to a node that thinks it leads."""
        leading = [node for node in self.nodes if node.log.is_leader]
        node = self.rng.choice(leading)
        try:
            node.replica.check_leading()
        except PacelineError:
            return
        epoch = node.replica.led_epoch
        answer: object
        try:
            answer = operation(node.engine)
        except PacelineError as error:
            answer = error
        self.requests.append(Request(node, key, epoch, answer, heard))
        self.deliver()

    def deliver(self) -> None:
        """Tell every answer that may leave; forget those whose leadership is over."""
        waiting, self.requests = self.requests, []
        for request in waiting:
            if not self._deliver(request):
                self.requests.append(request)

    def _deliver(self, request: Request) -> bool:
        replica = request.node.replica
        answer = request.answer
        if isinstance(answer, Deferred):
            if answer.value is None:
                return False
            request.answer = answer = answer.value
        if replica.led_epoch != request.epoch:
            request.heard(None)
            return True
        if request.wait_for is None:
            request.wait_for = replica.uncommitted(request.key)
        committed = request.wait_for is None or replica.is_committed(
            request.wait_for, request.epoch
        )
        if self.holds_back and not committed:
            return False
        self.answered += 1
        request.heard(answer)
        return True

    def hear_generation(self, key: GroupKey, generation: int) -> None:
        assert generation >= self.generations.get(key, 0), f"{key}: a generation went back"
        self.generations[key] = generation

    def hear_partition(self, key: GroupKey, generation: int, partition: int, name: str) -> None:
        owner = self.owners.setdefault((key, generation, partition), name)
        assert owner == name, f"{key}: {owner} and {name} both own {partition} in {generation}"

    # --- V1 clients -------------------------------------------------------------------------------

    def v1_join(self) -> None:
        name = self.rng.choice("abcde")
        self.ask(
            v1_key("v"),
            lambda engine: engine.v1.join("v", "t", name, None, PARTITIONS),
            lambda answer: self._v1_member(name, answer),
        )

    def _v1_member(self, name: str, answer: object) -> None:
        if isinstance(answer, Membership):
            self.hear_generation(v1_key("v"), answer.generation)
            for partition in answer.partitions:
                self.hear_partition(v1_key("v"), answer.generation, partition, name)
            self.v1_told[name] = answer
        elif answer is not None:
            self.v1_told.pop(name, None)

    def _v1_ref(self, name: str) -> MemberRef:
        return MemberRef("v", "t", name, self.v1_told[name].generation, PARTITIONS)

    def v1_sync(self) -> None:
        if self.v1_told:
            name = self.rng.choice(sorted(self.v1_told))
            ref = self._v1_ref(name)
            self.ask(
                v1_key("v"),
                lambda engine: engine.v1.sync(ref),
                lambda answer: self._v1_member(name, answer),
            )

    def v1_leave(self) -> None:
        if self.v1_told:
            name = self.rng.choice(sorted(self.v1_told))
            ref = self._v1_ref(name)
            del self.v1_told[name]
            self.ask(v1_key("v"), lambda engine: engine.v1.leave(ref), lambda answer: None)

    def v1_commit(self) -> None:
        owning = sorted(name for name, told in self.v1_told.items() if told.partitions)
        if not owning:
            return
        ref = self._v1_ref(name := self.rng.choice(owning))
        partition = self.rng.choice(self.v1_told[name].partitions)
        self.commits += 1
        offset = self.commits

        def heard(answer: object) -> None:
            if answer == "stored":
                self.stored[partition] = max(offset, self.stored.get(partition, 0))

        def commit(engine: GroupEngine) -> str:
            engine.v1.commit(ref, partition, offset)
            return "stored"

        self.ask(v1_key("v"), commit, heard)

    def v1_offset(self) -> None:
        partition = self.rng.randrange(PARTITIONS)
        at_least = self.stored.get(partition, 0)

        def heard(answer: object) -> None:
            if isinstance(answer, int):
                assert answer >= at_least, f"offset {answer} read after {at_least} was stored"

        def fetch(engine: GroupEngine) -> int:
            found = engine.offsets.fetch(v1_key("v"), "t", partition)
            return 0 if found is None else found.offset

        self.ask(v1_key("v"), fetch, heard)

    # --- Kafka clients ----------------------------------------------------------------------------

    def kafka_step(self) -> None:
        """A client does what the protocol asks of it next."""
        client = self.rng.choice(self.kafka)
        if client.is_asking:
            return
        if client.generation < 0:
            self._kafka_join(client)
        elif not client.owns:
            self._kafka_sync(client)
        else:
            self._kafka_beat(client)

    def _kafka_join(self, client: KafkaClient) -> None:
        made = JoinRequest(
            KAFKA, client.id, None, "app", 6000, 8000, "consumer", (Protocol("range", b""),)
        )

        def heard(answer: object) -> None:
            client.is_asking = False
            if isinstance(answer, Joined):
                client.id = answer.member_id
                if answer.error is ErrorCode.NONE:
                    self.hear_generation(KAFKA, answer.generation)
                    client.generation, client.leader = answer.generation, answer.leader
                    client.members = tuple(each.member_id for each in answer.members)
            elif isinstance(answer, PacelineError):
                self._kafka_lost(client, answer)

        client.is_asking = True
        before = len(self.requests)
        answered = self.answered
        self.ask(KAFKA, lambda engine: engine.kafka.join(made), heard)
        if len(self.requests) == before and self.answered == answered:
            client.is_asking = False

    def _kafka_sync(self, client: KafkaClient) -> None:
        assignments: tuple[tuple[str, bytes], ...] = ()
        if client.leader == client.id:
            count = len(client.members)
            assignments = tuple(
                (each, bytes(range(at, PARTITIONS, count)))
                for at, each in enumerate(client.members)
            )
        made = SyncRequest(KAFKA, client.generation, client.id, None, "", "", assignments)

        def heard(answer: object) -> None:
            client.is_asking = False
            if isinstance(answer, Synced):
                client.owns = True
                for partition in answer.assignment:
                    self.hear_partition(KAFKA, made.generation, partition, client.name)
            elif isinstance(answer, PacelineError):
                self._kafka_lost(client, answer)

        client.is_asking = True
        before = len(self.requests)
        answered = self.answered
        self.ask(KAFKA, lambda engine: engine.kafka.sync(made), heard)
        if len(self.requests) == before and self.answered == answered:
            client.is_asking = False

    def _kafka_beat(self, client: KafkaClient) -> None:
        generation, member_id = client.generation, client.id

        def heard(answer: object) -> None:
            if isinstance(answer, PacelineError):
                self._kafka_lost(client, answer)

        self.ask(
            KAFKA,
            lambda engine: engine.kafka.heartbeat(KAFKA, generation, member_id, None),
            heard,
        )

    def _kafka_lost(self, client: KafkaClient, error: PacelineError) -> None:
        client.generation, client.owns = -1, False
        if not isinstance(error, RebalanceInProgress):
            client.id = "" if error.code is ErrorCode.UNKNOWN_MEMBER_ID else client.id

    def kafka_leave(self) -> None:
        client = self.rng.choice(self.kafka)
        if client.is_asking or not client.id:
            return
        member_id = client.id
        client.id, client.generation, client.owns = "", -1, False
        self.ask(
            KAFKA,
            lambda engine: engine.kafka.leave(KAFKA, [(member_id, None)]),
            lambda answer: None,
        )

    # --- the cluster ------------------------------------------------------------------------------

    def roles(self, numbers: list[int]) -> None:
        for number in numbers:
            self.nodes[number].replica.role_changed()
        self.deliver()

    def unrest(self) -> None:
        """One leader after the other, with hardly time to copy anything."""
        for _ in range(self.rng.randrange(2, 5)):
            self.rng.choice((self.v1_join, self.v1_leave, self.v1_commit))()
            heir = self.rng.randrange(3)
            self.cluster.replicate(heir)
            self.elect(heir)
            for _ in range(3):
                self.fold_on(heir)
            self.rng.choice((self.v1_join, self.v1_sync, self.v1_offset))()

    def elect(self, heir: int | None = None) -> None:
        """The leader loses its place, hearing of it or not; a deposed one has no session left."""
        old = self.cluster.leader
        if self.rng.random() < 0.3:
            self.cluster.cut_off(old)
        candidates = sorted(self.cluster.isr & self.cluster.reachable - {old})
        if heir not in candidates:
            heir = self.rng.choice(candidates) if candidates else old
        heard = self.cluster.elect(heir)
        if heard and old not in heard:
            self.nodes[old].log.session_valid = False
        self.roles(heard)

    def reconnect(self) -> None:
        number = self.rng.randrange(3)
        if self.cluster.reconnect(number):
            self.roles([number])

    def replicate(self) -> None:
        self.cluster.replicate(self.rng.randrange(3))
        self.deliver()

    def shrink(self) -> None:
        if len(self.cluster.isr) > 2:
            self.cluster.shrink(self.rng.randrange(3))
            self.deliver()

    def compact(self) -> None:
        self.cluster.nodes[self.rng.randrange(3)].compact()

    def fold(self) -> None:
        self.fold_on(self.rng.randrange(3))

    def fold_on(self, number: int) -> None:
        try:
            self.nodes[number].replica.step()
        except PacelineError:
            return
        self.deliver()

    def wait(self) -> None:
        end = self.clock.time + self.rng.choice([0.05, 0.2, 1.0, 4.0])
        while self.clock.time < end:
            self.clock.time = min(end, self.clock.time + 0.5)
            for node in self.nodes:
                if node.replica.phase is Phase.LEADING:
                    for _ in range(5):
                        if node.engine.next_alarm() <= self.clock.time:
                            node.engine.on_alarm()
        self.deliver()

    # --- a run ------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """``steps`` random events; then everything heals and is compared."""
        events: list[tuple[Callable[[], None], int]] = [
            (self.replicate, 60),
            (self.fold, 40),
            (self.kafka_step, 30),
            (self.v1_commit, 12),
            (self.v1_join, 8),
            (self.v1_sync, 8),
            (self.v1_offset, 8),
            (self.v1_leave, 2),
            (self.kafka_leave, 1),
            (self.wait, 5),
            (self.elect, 1),
            (self.unrest, 1),
            (self.reconnect, 3),
            (self.shrink, 1),
            (self.compact, 2),
        ]
        actions = [action for action, _ in events]
        weights = [weight for _, weight in events]
        for _ in range(steps):
            self.rng.choices(actions, weights)[0]()
        self.heal()
        self.compare()

    def heal(self) -> None:
        for number in range(3):
            if self.cluster.reconnect(number):
                self.roles([number])
        for _ in range(400):
            for number in range(3):
                self.cluster.replicate(number)
            for node in self.nodes:
                while node.replica.step():
                    pass
        self.deliver()

    def compare(self) -> None:
        """All machines hold the fold of the committed log."""
        leader = self.nodes[self.cluster.leader]
        assert leader.replica.phase is Phase.LEADING
        assert leader.log.high_watermark == leader.log.log_end_offset
        expected = fold_of(leader.log, self._engine())
        for node in self.nodes:
            assert node.replica.applied == leader.log.log_end_offset
            store = node.engine.store
            assert store.groups == expected.store.groups
            assert store.offsets == expected.store.offsets


def fold_of(log: NodeLog, engine: GroupEngine) -> GroupEngine:
    """``engine`` after the whole log."""
    for batch in log.batches:
        for position, _ in iter_batches(batch.data):
            for record in decode_records(batch.data, position):
                assert record.key is not None
                engine.apply(Entry(record.key, record.value))
    return engine
