"""Native group requests: messages of ``wire/native/groups.py`` to calls of the engine and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from paceline.errors import (
    ErrorCode,
    InvalidRequest,
)
from paceline.wire.frame import Frame
from paceline.wire.message import Message, Packed
from paceline.wire.native import groups as wire
from paceline.wire.native.api import NativeApi
from paceline.wire.native.transactions import CommitTransactionOffsets
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.inspection import DescribedMember, Description, Inspection, Listing
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, Synced, SyncRequest
from paceline_node.groups.keys import Family, GroupKey, TopicAndNumber
from paceline_node.groups.offsets import Commit
from paceline_node.groups.records import Offset, Protocol
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.groups import GroupService
from paceline_node.services.open_group import OpenGroup
from paceline_node.services.status import broker_info
from paceline_node.services.transaction_offsets import TransactionOffsets
from paceline_node.stretches import Work
from paceline_node.transactions.keys import Family as TransactionFamily
from paceline_node.transactions.keys import ProducerIdentity, TransactionKey
from paceline_node.turns import Turns

Handler = Callable[[Frame, Principal], Awaitable[Message | Packed]]
_Named = (
    wire.FindCoordinator
    | wire.FetchOffsets
    | wire.DescribeGroup
    | wire.DeleteGroup
    | wire.DeleteOffsets
    | wire.ResetOffsets
)
"""Requests about a group of any family."""
_LISTENERS = ("native", "http")
_MAX_OFFSET = 2**63 - 1
_ASSIGNED_BYTES_PER_UNIT = 1024


class NativeGroups:
    """Handlers by api number, in :meth:`handlers`."""

    def __init__(
        self, groups: GroupService, transactional: TransactionOffsets, turns: Turns
    ) -> None:
        self._groups = groups
        self._transactional = transactional
        self._turns = turns

    def handlers(self) -> dict[int, Handler]:
        """What the native listener serves of groups."""
        return {
            NativeApi.FIND_COORDINATOR: self._find,
            NativeApi.JOIN_GROUP: self._join,
            NativeApi.SYNC_GROUP: self._sync,
            NativeApi.HEARTBEAT_GROUP: self._heartbeat,
            NativeApi.LEAVE_GROUP: self._leave,
            NativeApi.COMMIT_OFFSETS: self._commit,
            NativeApi.COMMIT_TRANSACTION_OFFSETS: self._commit_in_transaction,
            NativeApi.FETCH_OFFSETS: self._fetch,
            NativeApi.LIST_GROUPS: self._list,
            NativeApi.DESCRIBE_GROUP: self._describe,
            NativeApi.DELETE_GROUP: self._delete,
            NativeApi.DELETE_OFFSETS: self._delete_offsets,
            NativeApi.RESET_OFFSETS: self._reset_offsets,
        }

    def _open(self, principal: Principal, operation: Operation, group: str) -> OpenGroup:
        return self._groups.open(principal, operation, GroupKey(Family.KAFKA, group))

    def _open_any(self, principal: Principal, operation: Operation, named: _Named) -> OpenGroup:
        key = _key(named.family, named.group, named.subject)
        return self._groups.open(principal, operation, key)

    async def _find(self, frame: Frame, principal: Principal) -> Message:
        request = wire.FindCoordinator.unpack(frame.body)
        group = self._open_any(principal, Operation.DESCRIBE, request)
        return wire.CoordinatorFound(broker_info(group.coordinator(*_LISTENERS)))

    # --- membership -------------------------------------------------------------------------------

    async def _join(self, frame: Frame, principal: Principal) -> Message:
        request = wire.JoinGroup.unpack(frame.body)
        group = self._open(principal, Operation.JOIN_GROUP, request.group)
        asked = JoinRequest(
            key=group.key,
            member_id=request.member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple(Protocol(each.name, each.metadata) for each in request.protocols),
        )
        joined: Joined = await group.perform(lambda engine: engine.kafka.join(asked))
        return wire.GroupJoined(
            error=joined.error,
            member_id=joined.member_id,
            generation=joined.generation,
            protocol_type=joined.protocol_type,
            protocol=joined.protocol,
            leader=joined.leader,
            members=tuple(
                wire.JoinedMember(each.member_id, each.instance_id, each.metadata(joined.protocol))
                for each in joined.members
            ),
            keep_assignment=joined.keep_assignment,
        )

    async def _sync(self, frame: Frame, principal: Principal) -> Message:
        request = wire.SyncGroup.unpack(frame.body)
        group = self._open(principal, Operation.JOIN_GROUP, request.group)
        asked = SyncRequest(
            group.key,
            request.generation,
            request.member_id,
            request.instance_id,
            request.protocol_type,
            request.protocol,
            tuple((each.member_id, each.assignment) for each in request.assignments),
        )
        synced: Synced = await group.perform(lambda engine: engine.kafka.sync(asked))
        return wire.GroupSynced(synced.assignment, synced.protocol_type, synced.protocol)

    async def _heartbeat(self, frame: Frame, principal: Principal) -> Message:
        request = wire.HeartbeatGroup.unpack(frame.body)
        group = self._open(principal, Operation.JOIN_GROUP, request.group)
        await group.perform(
            lambda engine: engine.kafka.heartbeat(
                group.key, request.generation, request.member_id, request.instance_id
            ),
        )
        return wire.GroupDone()

    async def _leave(self, frame: Frame, principal: Principal) -> Message:
        request = wire.LeaveGroup.unpack(frame.body)
        group = self._open(principal, Operation.JOIN_GROUP, request.group)
        leavers = [(each.member_id, each.instance_id) for each in request.members]

        def leave(some: Sequence[tuple[str, str | None]], engine: GroupEngine) -> list[ErrorCode]:
            return list(engine.kafka.leave(group.key, some))

        codes = await group.in_slices(leavers, leave)
        return wire.GroupLeft(
            tuple(
                wire.MemberLeft(member_id, instance_id, code)
                for (member_id, instance_id), code in zip(leavers, codes, strict=True)
            )
        )

    # --- offsets ----------------------------------------------------------------------------------

    async def _commit(self, frame: Frame, principal: Principal) -> Message:
        request = wire.CommitOffsets.unpack(frame.body)
        group = self._open(principal, Operation.COMMIT_OFFSETS, request.group)
        results, good = self._judged(request.offsets, principal)
        topics = {each.topic for each in good}

        def check(engine: GroupEngine) -> None:
            engine.kafka.check_commit(
                group.key, request.generation, request.member_id, request.instance_id, topics
            )

        await group.commit(good, check)
        return results

    async def _commit_in_transaction(self, frame: Frame, principal: Principal) -> Message:
        request = CommitTransactionOffsets.unpack(frame.body)
        group = self._open(principal, Operation.COMMIT_OFFSETS, request.group)
        results, good = self._judged(request.offsets, principal)
        await self._transactional.commit(
            principal,
            TransactionKey(TransactionFamily.KAFKA, request.transactional_id),
            ProducerIdentity(request.producer_id, request.producer_epoch),
            group,
            good,
            adds=True,
            check=lambda engine: engine.kafka.check_commit(
                group.key,
                request.generation,
                request.member_id,
                request.instance_id,
                {each.topic for each in good},
            ),
        )
        return results

    def _judged(
        self, offsets: Iterable[wire.OffsetToCommit], principal: Principal
    ) -> tuple[wire.OffsetResults, list[Commit]]:
        """A result for each, and those that may be stored."""
        results = []
        good = []
        allowed: dict[str, bool] = {}
        for each in offsets:
            if each.topic not in allowed:
                allowed[each.topic] = self._groups.may_read(principal, each.topic)
            error = self._refusal(each)
            if not allowed[each.topic]:
                error = ErrorCode.AUTHORIZATION_FAILED
            results.append(wire.OffsetResult(each.topic, each.partition, error))
            if error is ErrorCode.NONE:
                good.append(
                    Commit(
                        each.topic, each.partition, each.offset, each.leader_epoch, each.metadata
                    )
                )
        return wire.OffsetResults(tuple(results)), good

    def _refusal(self, offset: wire.OffsetToCommit) -> ErrorCode:
        if len(offset.metadata.encode()) > self._groups.limits.offset_metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if not self._groups.has_partition(offset.topic, offset.partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not 0 <= offset.offset <= _MAX_OFFSET:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    async def _fetch(self, frame: Frame, principal: Principal) -> Packed:
        request = wire.FetchOffsets.unpack(frame.body)
        group = self._open_any(principal, Operation.DESCRIBE, request)

        named = None if request.topics is None else list(_flat(request.topics))

        def look_up(engine: GroupEngine, at: TopicAndNumber) -> wire.CommittedOffset | None:
            is_waited_for = named is not None and request.require_stable
            if is_waited_for and engine.transactional.is_pending(group.key, *at):
                return wire.CommittedOffset(*at, ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            offset = engine.offsets.fetch(group.key, *at)
            return None if offset is None and named is None else _committed(*at, offset)

        def fetch(some: Sequence[TopicAndNumber], engine: GroupEngine) -> list[list[Any]]:
            found = [look_up(engine, at) for at in some]
            return [each.pack() for each in found if each is not None]

        wanted = await group.stored() if named is None else named
        return Packed([await group.in_slices(wanted, fetch)])

    # --- administration ---------------------------------------------------------------------------

    async def _list(self, frame: Frame, principal: Principal) -> Packed:
        request = wire.ListGroups.unpack(frame.body)
        families = frozenset(_family(name) for name in request.families)
        found = await self._groups.list(families, frozenset(request.states))

        def packed() -> Work[list[list[Any]]]:
            listed = []
            for each in found:
                yield 1
                if self._groups.may_see(principal, each.key.group):
                    listed.append(_listed(each).pack())
            return listed

        return Packed([await self._turns.run(packed())])

    async def _describe(self, frame: Frame, principal: Principal) -> Message:
        request = wire.DescribeGroup.unpack(frame.body)
        group = self._open_any(principal, Operation.DESCRIBE, request)
        found = await group.perform(lambda engine: Inspection(engine).describe(group.key))
        members = await self._turns.run(_described_members(found))
        return _described(found, members, self._groups.listed_topics(group.key))

    async def _delete(self, frame: Frame, principal: Principal) -> Message:
        request = wire.DeleteGroup.unpack(frame.body)
        group = self._open_any(principal, Operation.DELETE, request)
        await group.delete()
        return wire.GroupDone()

    async def _delete_offsets(self, frame: Frame, principal: Principal) -> Message:
        request = wire.DeleteOffsets.unpack(frame.body)
        group = self._open_any(principal, Operation.ALTER, request)
        wanted = list(_flat(request.topics))
        kept = await group.delete_offsets(wanted)
        refused = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return wire.OffsetResults(
            tuple(
                wire.OffsetResult(*each, refused if each in kept else ErrorCode.NONE)
                for each in wanted
            )
        )

    async def _reset_offsets(self, frame: Frame, principal: Principal) -> Message:
        request = wire.ResetOffsets.unpack(frame.body)
        group = self._open_any(principal, Operation.ALTER, request)
        results, good = self._judged(request.offsets, principal)
        await group.commit(good, lambda engine: Inspection(engine).check_empty(group.key))
        return results


def _family(name: str) -> Family:
    try:
        return Family(name)
    except ValueError:
        known = ", ".join(family.value for family in Family)
        raise InvalidRequest(f"family {name!r}: expected one of {known}") from None


def _key(family: str, group: str, subject: str) -> GroupKey:
    return GroupKey(_family(family), group, subject)


def _flat(topics: Iterable[wire.TopicPartitions]) -> Iterable[tuple[str, int]]:
    return ((each.topic, partition) for each in topics for partition in each.partitions)


def _committed(topic: str, partition: int, found: Offset | None) -> wire.CommittedOffset:
    if found is None:
        return wire.CommittedOffset(topic, partition, ErrorCode.NONE, -1)
    return wire.CommittedOffset(
        topic,
        partition,
        ErrorCode.NONE,
        found.offset,
        found.leader_epoch,
        found.metadata.decode(),
        found.commit_ms,
    )


def _listed(listing: Listing) -> wire.GroupListing:
    key = listing.key
    return wire.GroupListing(
        key.family.value,
        key.group,
        key.subject,
        listing.state,
        listing.protocol_type,
        listing.member_count,
        listing.generation,
    )


def _described_members(found: Description) -> Work[list[wire.GroupMember]]:
    members = []
    for each in found.members:
        yield 1 + len(each.member.assignment) // _ASSIGNED_BYTES_PER_UNIT
        members.append(_described_member(each))
    return members


def _described(
    found: Description, members: Sequence[wire.GroupMember], listed: tuple[str, ...]
) -> wire.GroupDescription:
    key, group = found.key, found.group
    return wire.GroupDescription(
        family=key.family.value,
        group=key.group,
        subject=key.subject,
        state=found.state,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members=tuple(members),
        listed=listed,
    )


def _described_member(found: DescribedMember) -> wire.GroupMember:
    member = found.member
    return wire.GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        session_timeout_ms=member.session_timeout_ms,
        silent_ms=int(found.silent_s * 1000),
        metadata=found.metadata,
        assignment=member.assignment,
        assigned=tuple(wire.TopicPartitions(topic, numbers) for topic, numbers in found.assigned),
    )
