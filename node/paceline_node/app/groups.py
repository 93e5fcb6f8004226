"""The group engines of a node: their settings, their task, their files."""

from __future__ import annotations

import math

import structlog
import trio

from paceline.types import NodeId
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.groups.driven_state import RoundsDue
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import GROUPS_TOPIC
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.v1_file_task import (
    FoundFiles,
    GroupFiles,
    find_files,
    is_importing,
    keep_unreadable,
)
from paceline_node.groups.v1_files import BadFile
from paceline_node.replication.log_directory import OpenedLogs
from paceline_node.replication.manager import ReplicaManager
from paceline_node.settings import Settings
from paceline_node.state_machines.topic import StateTopic


def group_limits(settings: Settings) -> GroupLimits:
    """What of the node's settings concerns groups."""
    groups = settings.groups
    retention_ms = groups.offsets_retention_ms
    return GroupLimits(
        groups_max=groups.groups_max,
        members_max=groups.members_max,
        offsets_max=groups.offsets_max,
        member_bytes_max=groups.member_bytes_max,
        group_bytes_max=groups.group_bytes_max,
        offset_metadata_bytes_max=groups.offset_metadata_bytes_max,
        pending_max=settings.transactions.partitions_max,
        v1_session_s=settings.v1.session_timeout_ms / 1000,
        cursus_session_s=settings.cursus.session_timeout_ms / 1000,
        session_min_s=groups.session_min_ms / 1000,
        session_max_s=groups.session_max_ms / 1000,
        leader_lease_s=settings.broker.session_ms / 1000,
        initial_delay_s=groups.initial_delay_ms / 1000,
        retention_s=math.inf if retention_ms < 0 else retention_ms / 1000,
        retention_check_s=groups.offsets_check_ms / 1000,
    )


class GroupMachines:
    """Owns the machines of ``__groups`` on this node."""

    def __init__(
        self,
        env: Env,
        settings: Settings,
        replicas: ReplicaManager,
        metadata: MetadataStore,
    ) -> None:
        self._env = env
        self._node_id = NodeId(settings.node.id)
        self._metadata = metadata
        self._found = FoundFiles()
        self._log = structlog.get_logger(component="groups")
        self.limits = limits = group_limits(settings)
        self.commit_s = settings.groups.commit_timeout_ms / 1000
        self.rounds_due = RoundsDue()
        self.machines: StateTopic[GroupEngine] = StateTopic(
            env,
            GROUPS_TOPIC,
            replicas,
            lambda number: GroupEngine(
                limits,
                env.rng,
                lambda: metadata.image.topic_ids,
                self._found.of_partition(number, self._count()),
                self.rounds_due,
                lambda topic: _partition_count(metadata.image, topic),
            ),
        )

    async def open(self, opened: OpenedLogs) -> None:
        """Look for the files of an older broker, before any partition can begin. Raises BadFile,
        where nothing else may have what they say; OSError."""
        hosted = [log for log in opened.logs.values() if log.identity.topic == GROUPS_TOPIC]
        has_begun = hosted and all(log.log_end_offset > 0 for log in hosted)
        if has_begun and not is_importing(self._env.disk):
            return  # the files, if any, are this node's own
        try:
            self._found = await find_files(self._env.disk, self._env.host.wall_ms())
        except BadFile as error:
            lost = opened.missing or opened.list_is_lost
            if not lost and not any(log.recovery.lost_tail or log.is_damaged for log in hosted):
                raise
            # They show what stood in logs that were here, and the other replicas have.
            await keep_unreadable(self._env.disk)
            self._log.error("files of groups cannot be read and were set aside", reason=str(error))
        if self._found.entries:
            self._log.info("found groups in files", records=len(self._found.entries))

    def topics_changed(self, old: Image, new: Image) -> None:
        """A subscriber to the metadata: what groups have of a deleted topic goes with it, and what
        a topic gets is read."""
        if old.topic_ids is not new.topic_ids:
            for number, _, _ in self.machines.machines():
                self.machines.tell(number, GroupEngine.topics_changed)
        if _has_more_partitions(old, new):
            for number, _, _ in self.machines.machines():
                self.machines.tell(number, GroupEngine.topics_grew)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises OSError when the disk fails."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.machines.run)
            task_status.started()
            files = GroupFiles(self._env, self.machines, self._found, self._assigned, self._count)
            await files.run()

    def _count(self) -> int:
        return _partition_count(self._metadata.image, GROUPS_TOPIC)

    def _assigned(self) -> list[int]:
        """The partitions of which this node has a replica, or is about to make one."""
        topic = self._metadata.image.find_topic(GROUPS_TOPIC)
        partitions = {} if topic is None else topic.partitions
        return [number for number, each in partitions.items() if self._node_id in each.replicas]


def _partition_count(image: Image, topic: str) -> int:
    found = image.find_topic(topic)
    return 0 if found is None else len(found.partitions)


def _has_more_partitions(old: Image, new: Image) -> bool:
    """Whether a topic has more partitions than before, or is there anew."""
    if old.topics is new.topics:
        return False
    before = old.topics
    for topic_id, topic in new.topics.items():
        known = before.get(topic_id)
        if known is not topic and len(topic.partitions) > (
            0 if known is None else len(known.partitions)
        ):
            return True
    return False
