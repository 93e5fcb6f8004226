"""Administration of consumer groups: of any family, from any program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import trio

from paceline.client.coordinator import Coordinator
from paceline.client.metadata import Metadata
from paceline.client.pool import ConnectionPool
from paceline.client.retry import Backoff, may_repeat, retrying
from paceline.client.settings import ClientSettings
from paceline.errors import (
    ErrorCode,
    GroupNotFound,
    GroupSubscribedToTopic,
    PacelineError,
    error_for,
)
from paceline.types import NodeId, TopicPartition
from paceline.wire.message import Message
from paceline.wire.native.admin import AlterGroup, Done
from paceline.wire.native.api import NativeApi
from paceline.wire.native.groups import (
    KAFKA_FAMILY,
    CommittedOffset,
    CoordinatorFound,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    FindCoordinator,
    GroupDescription,
    GroupDone,
    GroupLeft,
    GroupListing,
    GroupsListed,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetResults,
    OffsetsFetched,
    OffsetToCommit,
    ResetOffsets,
    TopicPartitions,
)

COORDINATOR_FAMILY = "coordinator"
DEAD = "Dead"
"""State of a group that does not exist."""

M = TypeVar("M", bound=Message)


class GroupAdmin:
    """Reached as ``client.admin.groups``. ``family`` is the protocol whose group is meant:
    ``kafka`` (shared by this client and Kafka's), ``v1``, ``cursus`` (``subject`` is its topic),
    ``coordinator``. Calls are retried until the operation timeout."""

    def __init__(
        self, pool: ConnectionPool, metadata: Metadata, settings: ClientSettings, backoff: Backoff
    ) -> None:
        self._pool = pool
        self._metadata = metadata
        self._settings = settings
        self._backoff = backoff

    async def list(self, *, families: Sequence[str] = ()) -> list[GroupListing]:
        """All groups, or those of some families, by family and name.

        Every node is asked for those it coordinates; a node that does not answer is left out with
        its groups, unless none answers: then its error is raised.
        """
        await self._metadata.refresh([])
        found: dict[tuple[str, str, str], GroupListing] = {}
        errors: list[PacelineError] = []
        nodes = self._pool.nodes()

        async def ask(node: NodeId) -> None:
            try:
                connection = await self._pool.to_node(node)
                reply = await connection.call(
                    NativeApi.LIST_GROUPS, ListGroups(tuple(families)), GroupsListed
                )
            except PacelineError as error:
                errors.append(error)
                return
            for each in reply.groups:
                found[each.family, each.group, each.subject] = each

        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(ask, node)
        if errors and len(errors) == len(nodes):
            raise errors[0]
        return [found[key] for key in sorted(found)]

    async def coordinator(
        self, group: str, *, family: str = KAFKA_FAMILY, subject: str = ""
    ) -> NodeId:
        """The node that coordinates a group now. Raises CoordinatorNotAvailable."""
        connection = await self._pool.to_any()
        request = FindCoordinator(group, family, subject)
        found = await connection.call(NativeApi.FIND_COORDINATOR, request, CoordinatorFound)
        return found.broker.node_id

    async def describe(
        self, group: str, *, family: str = KAFKA_FAMILY, subject: str = ""
    ) -> GroupDescription:
        """State, members, and what they read. Raises GroupNotFound."""
        described = await self._call(
            NativeApi.DESCRIBE_GROUP,
            DescribeGroup(group, family, subject),
            GroupDescription,
            (group, family, subject),
        )
        if described.state == DEAD:
            raise GroupNotFound(f"group {group} of family {family} does not exist")
        return described

    async def delete(self, group: str, *, family: str = KAFKA_FAMILY, subject: str = "") -> None:
        """Forget a group and its offsets. Raises NonEmptyGroup while it has members,
        GroupNotFound."""
        await self._call(
            NativeApi.DELETE_GROUP,
            DeleteGroup(group, family, subject),
            GroupDone,
            (group, family, subject),
        )

    async def topics(self, group: str) -> tuple[str, ...]:
        """What consumers of a group of family ``coordinator`` read that name no topics, as set by
        :meth:`set_topics`; empty for all."""
        which = (group, COORDINATOR_FAMILY, "")
        described = await self._call(
            NativeApi.DESCRIBE_GROUP, DescribeGroup(*which), GroupDescription, which
        )
        return described.listed

    async def set_topics(self, group: str, topics: Sequence[str]) -> None:
        """Say what consumers of a group of family ``coordinator`` read that name no topics, as
        those of version 0 of its protocol cannot; with none, again all that are not internal. The
        group need not exist, nor the topics; one that has consumers is assigned anew.

        Raises InvalidTopic, PolicyViolation (internal ones, or too many), InvalidGroup.
        """

        async def attempt() -> Done:
            connection = await self._pool.to_any()
            return await connection.call(
                NativeApi.ALTER_GROUP, AlterGroup(group, tuple(topics)), Done
            )

        await retrying(
            attempt,
            timeout_s=self._settings.operation_timeout_s,
            backoff=self._backoff,
            may_retry=may_repeat,
        )

    async def offsets(
        self, group: str, *, family: str = KAFKA_FAMILY, subject: str = ""
    ) -> dict[TopicPartition, CommittedOffset]:
        """All that the group has committed, by partition; nothing when it does not exist."""
        fetched = await self._call(
            NativeApi.FETCH_OFFSETS,
            FetchOffsets(group, None, False, family, subject),
            OffsetsFetched,
            (group, family, subject),
        )
        found = {
            TopicPartition(each.topic, each.partition): each
            for each in fetched.partitions
            if each.offset >= 0
        }
        return dict(sorted(found.items()))

    async def alter_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        family: str = KAFKA_FAMILY,
        subject: str = "",
    ) -> None:
        """Set committed offsets, forwards or backwards, of a group without members; one that does
        not exist is made. Raises NonEmptyGroup."""
        listed = tuple(
            OffsetToCommit(at.topic, at.partition, offset) for at, offset in offsets.items()
        )
        results = await self._call(
            NativeApi.RESET_OFFSETS,
            ResetOffsets(group, listed, family, subject),
            OffsetResults,
            (group, family, subject),
        )
        _raise_first(group, results)

    async def delete_offsets(
        self,
        group: str,
        partitions: Sequence[TopicPartition],
        *,
        family: str = KAFKA_FAMILY,
        subject: str = "",
    ) -> None:
        """Forget committed offsets. Raises GroupNotFound, and GroupSubscribedToTopic for
        topics that members read; those of other topics are forgotten."""
        by_topic: dict[str, list[int]] = {}
        for at in partitions:
            by_topic.setdefault(at.topic, []).append(at.partition)
        topics = tuple(TopicPartitions(topic, tuple(each)) for topic, each in by_topic.items())
        results = await self._call(
            NativeApi.DELETE_OFFSETS,
            DeleteOffsets(group, topics, family, subject),
            OffsetResults,
            (group, family, subject),
        )
        _raise_first(group, results)

    async def evict(self, group: str, members: Sequence[str]) -> None:
        """Take members out of a group of family ``kafka``, by their ids (:meth:`describe`): the
        others get their partitions at once, and need not wait for the end of a session. One that
        lives is told so at its next heartbeat, and joins anew unless it is stopped. Those before
        the first that is refused are out. Raises UnknownMember."""
        request = LeaveGroup(group, tuple(LeavingMember(each) for each in members))
        left = await self._call(
            NativeApi.LEAVE_GROUP, request, GroupLeft, (group, KAFKA_FAMILY, "")
        )
        for each in left.members:
            if each.error:
                raise error_for(each.error, f"group {group} has no member {each.member_id}")

    async def _call(
        self, api: NativeApi, body: Message, reply: type[M], which: tuple[str, str, str]
    ) -> M:
        group, family, subject = which
        coordinator = Coordinator(
            self._pool, self._metadata, self._backoff, group, family=family, subject=subject
        )
        return await coordinator.call(
            api, body, reply, timeout_s=self._settings.operation_timeout_s
        )


def _raise_first(group: str, results: OffsetResults) -> None:
    for each in results.partitions:
        if each.error == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
            raise GroupSubscribedToTopic(f"members of group {group} read {each.topic}")
        if each.error:
            raise error_for(each.error, f"{each.topic}/{each.partition}")
