"""The metadata on this node: the quorum's member, the image it feeds, the controller beside it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import structlog
import trio

from paceline.errors import InvalidRequest, NotController, Throttled
from paceline.types import NO_NODE, NodeId
from paceline_node.app.boot import METADATA, Boot
from paceline_node.app.metadata_peers import serve_peers
from paceline_node.app.peering import Peering
from paceline_node.controller.context import ControllerSettings, TopicDefaults, internal_topics
from paceline_node.controller.durable_offsets import NOT_KNOWN
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.controller.quorum import Quorum, QuorumSettings
from paceline_node.controller.raft_store import RaftStore
from paceline_node.controller.raft_types import Member, MemberId, RaftTiming, Role, RoleInfo
from paceline_node.controller.service import Controller
from paceline_node.controller.voter_starts import RegisteredProcesses
from paceline_node.env import Env
from paceline_node.services.admin.node_status import QuorumView
from paceline_node.settings import Settings
from paceline_node.storage.incarnation import Witness
from paceline_node.storage.waiting_for_space import when_there_is_room


async def open_store(env: Env, boot: Boot) -> RaftStore:
    """Recover the metadata log; waits for room and descriptors. Raises MetadataCorrupt, OSError."""
    store = await when_there_is_room(
        partial(
            RaftStore.open,
            env.disk,
            METADATA,
            boot.meta.cluster_id,
            disk_failed=boot.disk_failed,
            reached=boot.metadata_reached,
        ),
        env.waits,
    )
    if store.recovery.mended:
        structlog.get_logger().error(
            "metadata mended from its copy", files=list(store.recovery.mended)
        )
    if store.recovery.bad_snapshots:
        structlog.get_logger().error(
            "metadata snapshots given up for older ones", files=list(store.recovery.bad_snapshots)
        )
    return store


class Metadata:
    """The quorum's member on this node, the image it feeds, and the controller beside it."""

    def __init__(
        self, settings: Settings, env: Env, boot: Boot, store: RaftStore, peering: Peering
    ) -> None:
        self.store_on_disk = store
        self._directory_id = boot.meta.directory_id
        found = store.recovery.log.last_index or NOT_KNOWN
        self.found = Witness(self._directory_id.bytes, found)
        """Where the metadata log ended when this process opened it; -1 where it was given up and
        begins anew."""
        self.image_store = MetadataStore(boot.meta.cluster_id)
        self._deposed = trio.Event()
        raft = settings.raft
        self.quorum = Quorum(
            env,
            store,
            MemberId(NodeId(settings.node.id), boot.meta.directory_id.bytes),
            self.image_store,
            QuorumSettings(
                timing=RaftTiming.of(heartbeat_ms=raft.heartbeat_ms, election_ms=raft.election_ms),
                most_voters=raft.voters,
                snapshot_entries=raft.snapshot_records,
                snapshot_bytes=raft.snapshot_bytes,
            ),
            send=peering.send_raft,
            on_role=self._role_changed,
            on_config=peering.on_config,
            registered=RegisteredProcesses(self.image_store),
        )
        self.controller = Controller(
            env, self.quorum, self.image_store, controller_settings(settings)
        )
        serve_peers(peering, self.quorum, self.controller, self.image_store)

    def lists(self, me: Member) -> bool:
        """Whether the quorum has committed that it lists this node with this disk, where it is now,
        as voter or learner. What a leader has only proposed, the next one may know nothing of."""
        return self.names(me) and self.quorum.config_index <= self.quorum.commit_index

    def names(self, me: Member) -> bool:
        """Whether this node's log says so, committed or not."""
        return me in self.quorum.config.members

    def admit(self, me: Member) -> None:
        """Have the quorum list this node, if this node itself leads it."""
        with suppress(NotController, Throttled):
            self.quorum.membership.admit(me)

    def _role_changed(self, info: RoleInfo) -> None:
        if info.role is Role.LEADER:
            self._deposed = trio.Event()
        else:
            self._deposed.set()
        self.controller.role_changed()

    def witness(self) -> Witness:
        """What the log here holds for good, for a file that does not lie beside it."""
        return Witness(self._directory_id.bytes, self.durable_offset())

    def durable_offset(self) -> int:
        """The metadata offset applied here that is durable, too."""
        return min(self.image_offset(), self.store_on_disk.durable_index)

    def image_offset(self) -> int:
        """The metadata offset applied here."""
        return self.image_store.image.offset

    def leader(self) -> NodeId | None:
        """The node that the quorum follows."""
        return self.quorum.leader_id

    async def hand_over(self, limit_s: float) -> None:
        """Let another voter lead the quorum before this node goes; waits until one does, or for
        ``limit_s`` seconds. A quorum without another live voter keeps its leader."""
        if not self.quorum.is_leader:
            return
        try:
            self.quorum.transfer_leadership()
        except (NotController, InvalidRequest):
            return
        with trio.move_on_after(limit_s):
            await self._deposed.wait()

    def view(self) -> QuorumView:
        """For status."""
        quorum = self.quorum
        leader = quorum.leader_id
        if not quorum.is_voter:
            role = "learner"
        elif quorum.is_leader:
            role = Role.LEADER.value
        else:
            role = "candidate" if leader is None else Role.FOLLOWER.value
        return QuorumView(
            role,
            quorum.term,
            NO_NODE if leader is None else leader,
            tuple(voter.node_id for voter in quorum.voters),
            quorum.commit_index,
            tuple(learner.node_id for learner in quorum.learners),
            quorum.other_history,
        )


def controller_settings(settings: Settings) -> ControllerSettings:
    """What of the node's settings concerns the controller."""
    balance_ms = settings.controller.balance_interval_ms
    return ControllerSettings(
        session_timeout_s=settings.broker.session_ms / 1000,
        balance_interval_s=balance_ms / 1000 if balance_ms else float("inf"),
        noop_interval_s=settings.controller.noop_interval_ms / 1000,
        topics=topic_defaults(settings),
        internal_topics=internal_topics(settings.groups.partitions),
        max_externals=settings.limits.external_brokers,
        max_listed_groups=settings.groups.lists_max,
        max_listed_bytes=settings.groups.lists_bytes,
        max_acls=settings.security.acls_max,
    )


def topic_defaults(settings: Settings) -> TopicDefaults:
    """What the controller gives topics whose creator does not say; it may change while it runs."""
    topics = settings.topics
    return TopicDefaults(topics.partitions, topics.replication_factor, topics.min_insync_replicas)
