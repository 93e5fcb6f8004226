"""What a node says of itself and of the cluster as its metadata image shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.native.data import BrokerInfo, CertificateStanding, StatusReply
from paceline.wire.peer.control import Address
from paceline_node.controller.image import Broker, Image
from paceline_node.controller.lifecycle import BrokerState, Lifecycle
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.replication.hosted_partitions import PartitionTable
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.admin import damage_view
from paceline_node.services.authorization.authorizer import Authorizer


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


def count_partitions(image: Image) -> PartitionCounts:
    """Count what is wrong with partitions: fewer in sync than assigned, than the minimum, none."""
    partitions = leaderless = under_replicated = under_min_isr = 0
    for partition in image.partitions():
        partitions += 1
        leaderless += partition.leader < 0
        under_replicated += len(partition.isr) < len(partition.replicas)
        under_min_isr += len(partition.isr) < partition.min_isr
    return PartitionCounts(partitions, leaderless, under_replicated, under_min_isr)


def broker_info(broker: Broker) -> BrokerInfo:
    """A broker with its advertised addresses."""
    addresses = tuple(Address(e.name, e.host, e.port) for e in broker.endpoints)
    return BrokerInfo(broker.node_id, addresses, broker.rack, broker.fenced)


class Certificates(Protocol):
    """What the node shows who it is with."""

    @property
    def expiries(self) -> Mapping[str, int]:
        """Until when each is good: seconds since 1970, by setting."""

    def problems(self, now: float) -> tuple[str, ...]:
        """What an operator has to mend, a sentence each."""


class StatusService:
    """Reports this node's state, and hears that the cluster stops."""

    def __init__(
        self,
        env: Env,
        node_id: NodeId,
        software: str,
        store: MetadataStore,
        table: PartitionTable,
        lifecycle: Lifecycle,
        access: Authorizer,
        *,
        quorum: Callable[[], QuorumView],
        stop_with_cluster: Callable[[], None],
        certificates: Certificates | None = None,
    ) -> None:
        self._certificates = certificates
        self._env = env
        self._node_id = node_id
        self._software = software
        self._store = store
        self._table = table
        self._lifecycle = lifecycle
        self._quorum = quorum
        self._access = access
        self._stop_with_cluster = stop_with_cluster
        self._started = env.now()

    def reasons(self) -> tuple[str, ...]:
        """Why this node is not plainly running; empty when it is."""
        reasons = []
        state = self._lifecycle.state
        if state is not BrokerState.RUNNING:
            reasons.append(f"broker is {state.value}")
        if self._quorum().other_history:
            reasons.append(self._quorum().other_history)
        elif self._quorum().leader < 0:
            reasons.append("no active controller is known")
        if not self._lifecycle.session_valid:
            reasons.append("no session with a controller")
        return (*reasons, *self._lifecycle.health.problems)

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
        image = self._store.image
        counts = count_partitions(image)
        quorum = self._quorum()
        hosted = self._table.partitions
        return StatusReply(
            node_id=self._node_id,
            cluster_id=image.cluster_id,
            software=self._software,
            state=self._lifecycle.state.value,
            reasons=self.reasons(),
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
            leading_count=sum(partition.is_leader for partition in hosted),
            hosting_count=len(hosted),
            degraded=self._lifecycle.health.degraded,
            uptime_ms=int((self._env.now() - self._started) * 1000),
            pid=self._env.host.pid(),
            damaged=(
                *damage_view.describe(self._node_id, hosted, self._table.lost_ends),
                *self._lifecycle.health.shortage,
                *self._of_certificates(),
            ),
            ranges=damage_view.ranges(self._node_id, hosted, self._table.lost_ends),
            certificates=(
                ()
                if self._certificates is None
                else tuple(
                    CertificateStanding(setting, ends)
                    for setting, ends in self._certificates.expiries.items()
                )
            ),
        )

    def _of_certificates(self) -> tuple[str, ...]:
        if self._certificates is None:
            return ()
        return self._certificates.problems(self._env.host.wall_ms() / 1000)
