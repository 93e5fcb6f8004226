"""What a node says of itself and of the cluster as its metadata image shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from paceline import health
from paceline.health import Check, CheckName
from paceline.types import NO_NODE, NodeId
from paceline.values import dataclass
from paceline.wire.native.data import BrokerInfo, StatusReply
from paceline.wire.native.status_details import CertificateStanding, HealthFinding
from paceline.wire.peer.control import Address
from paceline_node.controller.image import Broker, Image
from paceline_node.controller.lifecycle import Lifecycle
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.replication.hosted_partitions import HostedPartitions
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.admin import damage_view
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.sliced_work import Work, at_once

_TO_MEND = (CheckName.DISK_SPACE, CheckName.DAMAGE, CheckName.CERTIFICATES)
"""What ``damaged`` tells."""
_COUNTED_PER_UNIT = 4
_LOOKED_AT_AT_A_TIME = 32
_LOOKED_AT_UNITS = 64


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The metadata quorum as this node sees it. ``role``: leader, follower, candidate, learner.
    ``other_history`` says why it does not follow a leader that there is; empty: it does."""

    role: str
    term: int
    leader: NodeId
    voters: tuple[NodeId, ...]
    commit_offset: int
    learners: tuple[NodeId, ...] = ()
    other_history: str = ""


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """Over the whole cluster."""

    partitions: int
    leaderless: int
    under_replicated: int
    under_min_isr: int


def count_partitions(image: Image) -> Work[PartitionCounts]:
    """Count what is wrong with partitions: fewer in sync than assigned, than the minimum, none."""
    partitions = leaderless = under_replicated = under_min_isr = 0
    for partition in image.partitions():
        partitions += 1
        if not partitions % _COUNTED_PER_UNIT:
            yield 1
        leaderless += partition.leader < 0
        under_replicated += len(partition.isr) < len(partition.replicas)
        under_min_isr += len(partition.isr) < partition.min_isr
    return PartitionCounts(partitions, leaderless, under_replicated, under_min_isr)


def broker_info(broker: Broker) -> BrokerInfo:
    """A broker with its advertised addresses."""
    addresses = tuple(Address(e.name, e.host, e.port) for e in broker.endpoints)
    return BrokerInfo(broker.node_id, addresses, broker.rack, broker.fenced, broker.operator_fenced)


class Certificates(Protocol):
    """What the node shows who it is with."""

    @property
    def expiries(self) -> Mapping[str, int]:
        """Until when each is good: seconds since 1970, by setting."""

    @property
    def refused(self) -> str:
        """Why the files that the settings name now are not in force; empty where they are."""


class StatusService:
    """Reports this node's state, and hears that the cluster stops."""

    def __init__(
        self,
        env: Env,
        node_id: NodeId,
        software: str,
        store: MetadataStore,
        table: HostedPartitions,
        lifecycle: Lifecycle,
        access: Authorizer,
        *,
        quorum: Callable[[], QuorumView],
        stop_with_cluster: Callable[[], None],
        loop_delay: Callable[[], float],
        certificates: Certificates | None = None,
        exposures: Callable[[], Sequence[health.Exposure]] = tuple,
    ) -> None:
        self.exposures = exposures
        self._loop_delay = loop_delay
        self._certificates = certificates
        self._counted: tuple[Image, PartitionCounts] | None = None
        self._env = env
        self.node_id = node_id
        self.software = software
        self._store = store
        self._table = table
        self._lifecycle = lifecycle
        self._quorum = quorum
        self._access = access
        self._stop_with_cluster = stop_with_cluster
        self._started = env.now()

    def reasons(self) -> tuple[str, ...]:
        """Why this node is not ready; empty when it is."""
        return tuple(each.reason for each in health.failed_to_serve(self._own_checks(())))

    def checks(self) -> tuple[Check, ...]:
        """How this node and the cluster are, as far as it knows; those that pass, too."""
        image, counts = self._store.image, at_once(self._counts())
        active = (node for node, broker in image.brokers.items() if not broker.fenced)
        facts = health.ClusterFacts(
            members=sorted(image.brokers),
            active=frozenset(active),
            topics=len(image.topics),
            partitions=counts.partitions,
            leaderless=counts.leaderless,
            under_min_isr=counts.under_min_isr,
            under_replicated=counts.under_replicated,
            drained=[node for node, each in sorted(image.brokers.items()) if each.operator_fenced],
        )
        return (*self._own_checks(self._damage()), *health.judge_cluster(facts))

    def _own_checks(self, damage: Sequence[health.Damage]) -> tuple[Check, ...]:
        quorum, disk = self._quorum(), self._lifecycle.health
        return health.judge_node(
            health.NodeFacts(
                node=self.node_id,
                state=self._lifecycle.state.value,
                knows_controller=quorum.leader != NO_NODE,
                other_history=quorum.other_history,
                has_session=self._lifecycle.session_valid,
                shortage=disk.shortage,
                disk_is_slow=disk.slow,
                damage=damage,
                certificates=self._certificate_facts(),
                loop_delay_s=self._loop_delay(),
                session_s=self._lifecycle.session_s,
                exposures=self.exposures(),
            )
        )

    def _damage(self) -> tuple[health.Damage, ...]:
        return damage_view.describe(self.node_id, self._table.partitions, self._table.lost_ends)

    def _certificate_facts(self) -> health.Certificates | None:
        known = self._certificates
        if known is None:
            return None
        now = self._env.host.wall_ms() / 1000
        return health.Certificates(known.expiries, known.refused, now)

    def _counts(self) -> Work[PartitionCounts]:
        # Probes come every few seconds, and images of thousands of partitions change rarely.
        image, counted = self._store.image, self._counted
        if counted is None or counted[0] is not image:
            counted = self._counted = (image, (yield from count_partitions(image)))
        return counted[1]

    def quorum(self) -> QuorumView:
        """The metadata quorum as this node sees it."""
        return self._quorum()

    @property
    def controller(self) -> NodeId:
        """The node that the quorum follows; -1 while none is known."""
        return self._quorum().leader

    def stop_with_cluster(self, principal: Principal) -> None:
        """Take note that the whole cluster is going to stop (paceline_node/DESIGN 2.4). Raises
        AuthorizationFailed."""
        self._access.cluster(principal, Operation.ADMINISTER)
        self._stop_with_cluster()

    def permit(self, principal: Principal) -> None:
        """Raise AuthorizationFailed unless ``principal`` may see this node's state."""
        self._access.cluster(principal, Operation.DESCRIBE)

    def report(self, principal: Principal) -> StatusReply:
        """The native STATUS reply. Raises AuthorizationFailed."""
        self.permit(principal)
        return at_once(self.reporting())

    def reporting(self) -> Work[StatusReply]:
        """The same, for another node, which has judged for whom."""
        node, hosted = self.node_id, self._table.partitions
        hurt: list[Partition] = []
        leading = 0
        for start in range(0, len(hosted), _LOOKED_AT_AT_A_TIME):
            yield _LOOKED_AT_UNITS
            lost = self._table.lost_ends
            for each in hosted[start : start + _LOOKED_AT_AT_A_TIME]:
                leading += each.is_leader
                if damage_view.describe(node, [each], lost) or damage_view.ranges(
                    node, [each], lost
                ):
                    hurt.append(each)
        hurt.sort(key=lambda each: (each.topic, each.partition))
        counts = yield from self._counts()
        return self._report(counts, hurt, leading=leading, hosting=len(hosted))

    def _report(
        self,
        counts: PartitionCounts,
        hurt: Sequence[Partition],
        *,
        leading: int,
        hosting: int,
    ) -> StatusReply:
        image, lost = self._store.image, self._table.lost_ends
        damage = damage_view.describe(self.node_id, hurt, lost)
        found = health.found(self._own_checks(damage))
        quorum = self._quorum()
        total, free = self._disk_bytes()
        return StatusReply(
            node_id=self.node_id,
            cluster_id=image.cluster_id,
            software=self.software,
            state=self._lifecycle.state.value,
            reasons=tuple(each.reason for each in health.failed_to_serve(found)),
            role=quorum.role,
            term=quorum.term,
            controller=quorum.leader,
            voters=quorum.voters,
            learners=quorum.learners,
            image_offset=image.offset,
            commit_offset=quorum.commit_offset,
            brokers=tuple(broker_info(b) for _, b in sorted(image.brokers.items())),
            topic_count=len(image.topics),
            partition_count=counts.partitions,
            leaderless_count=counts.leaderless,
            under_replicated_count=counts.under_replicated,
            under_min_isr_count=counts.under_min_isr,
            leading_count=leading,
            hosting_count=hosting,
            degraded=self._lifecycle.health.degraded,
            uptime_ms=int((self._env.now() - self._started) * 1000),
            pid=self._env.host.pid(),
            damaged=tuple(each.reason for each in found if each.name in _TO_MEND),
            ranges=damage_view.ranges(self.node_id, hurt, lost),
            certificates=(
                ()
                if self._certificates is None
                else tuple(
                    CertificateStanding(setting, ends)
                    for setting, ends in self._certificates.expiries.items()
                )
            ),
            findings=tuple(
                HealthFinding(each.name, each.level, each.reason, each.what_to_do) for each in found
            ),
            disk_bytes=total,
            disk_free_bytes=free,
            loop_delay_ms=int(self._loop_delay() * 1000),
        )

    def _disk_bytes(self) -> tuple[int, int]:
        try:
            return self._env.disk.total_bytes(), self._env.disk.free_bytes()
        except OSError:  # what is wrong with it shows where it is written to
            return -1, -1
