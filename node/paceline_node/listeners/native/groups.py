"""Native group requests: messages of ``wire/native/groups.py`` to calls of the engine and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from paceline.errors import (
    ErrorCode,
)
from paceline.wire.frame import Frame
from paceline.wire.message import Message, Packed
from paceline.wire.native import groups as wire
from paceline.wire.native.api import NativeApi
from paceline.wire.native.transactions import CommitTransactionOffsets
from paceline_node.listeners.serving import member_host
from paceline_node.loop_turns import Turns
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.admin.node_status import broker_info
from paceline_node.services.groups import described_groups
from paceline_node.services.groups.group_service import GroupService
from paceline_node.services.groups.offsets_to_commit import OffsetsToCommit
from paceline_node.services.groups.open_group import GroupMember, OpenGroup, Position
from paceline_node.services.transactions.transaction_offsets import TransactionOffsets
from paceline_node.sliced_work import Work
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey

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

    def _open_any(self, principal: Principal, operation: Operation, named: _Named) -> OpenGroup:
        return self._groups.open(principal, operation, named.family, named.group, named.subject)

    async def _find(self, frame: Frame, principal: Principal) -> Message:
        request = wire.FindCoordinator.unpack(frame.body)
        group = self._open_any(principal, Operation.DESCRIBE, request)
        return wire.CoordinatorFound(broker_info(group.coordinator(*_LISTENERS)))

    # --- membership -------------------------------------------------------------------------------

    async def _join(self, frame: Frame, principal: Principal) -> Message:
        request = wire.JoinGroup.unpack(frame.body)
        group = self._groups.open_kafka(principal, Operation.JOIN_GROUP, request.group)
        joined = await group.join(
            member_id=request.member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=[(each.name, each.metadata) for each in request.protocols],
            client_host=member_host(principal),
        )
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
        group = self._groups.open_kafka(principal, Operation.JOIN_GROUP, request.group)
        synced = await group.sync(
            GroupMember(request.generation, request.member_id, request.instance_id),
            request.protocol_type,
            request.protocol,
            [(each.member_id, each.assignment) for each in request.assignments],
        )
        return wire.GroupSynced(synced.assignment, synced.protocol_type, synced.protocol)

    async def _heartbeat(self, frame: Frame, principal: Principal) -> Message:
        request = wire.HeartbeatGroup.unpack(frame.body)
        group = self._groups.open_kafka(principal, Operation.JOIN_GROUP, request.group)
        await group.heartbeat(
            GroupMember(request.generation, request.member_id, request.instance_id)
        )
        return wire.GroupDone()

    async def _leave(self, frame: Frame, principal: Principal) -> Message:
        request = wire.LeaveGroup.unpack(frame.body)
        group = self._groups.open_kafka(principal, Operation.JOIN_GROUP, request.group)
        leavers = [(each.member_id, each.instance_id) for each in request.members]
        codes = await group.leave(leavers)
        return wire.GroupLeft(
            tuple(
                wire.MemberLeft(member_id, instance_id, code)
                for (member_id, instance_id), code in zip(leavers, codes, strict=True)
            )
        )

    # --- offsets ----------------------------------------------------------------------------------

    async def _commit(self, frame: Frame, principal: Principal) -> Message:
        request = wire.CommitOffsets.unpack(frame.body)
        group = self._groups.open_kafka(principal, Operation.COMMIT_OFFSETS, request.group)
        asked, results = self._judged(request.offsets, principal)
        member = GroupMember(request.generation, request.member_id, request.instance_id)
        await group.store(member, asked.good)
        return results

    async def _commit_in_transaction(self, frame: Frame, principal: Principal) -> Message:
        request = CommitTransactionOffsets.unpack(frame.body)
        group = self._groups.open_kafka(principal, Operation.COMMIT_OFFSETS, request.group)
        asked, results = self._judged(request.offsets, principal)
        await self._transactional.commit(
            principal,
            TransactionKey(Family.KAFKA, request.transactional_id),
            ProducerIdentity(request.producer_id, request.producer_epoch),
            group,
            GroupMember(request.generation, request.member_id, request.instance_id),
            asked.good,
            adds=True,
        )
        return results

    def _judged(
        self, offsets: Iterable[wire.OffsetToCommit], principal: Principal
    ) -> tuple[OffsetsToCommit, wire.OffsetResults]:
        """What may be stored, and a result for each."""
        asked = self._groups.asked_offsets(principal)
        results = [
            wire.OffsetResult(
                each.topic,
                each.partition,
                asked.add(
                    each.topic, each.partition, each.offset, each.leader_epoch, each.metadata
                ),
            )
            for each in offsets
        ]
        return asked, wire.OffsetResults(tuple(results))

    async def _fetch(self, frame: Frame, principal: Principal) -> Packed:
        request = wire.FetchOffsets.unpack(frame.body)
        group = self._open_any(principal, Operation.DESCRIBE, request)

        named = None if request.topics is None else list(_flat(request.topics))
        may_see = self._groups.may_see_offsets(principal)
        wanted = named
        if wanted is None:
            wanted = [at for at in await group.stored() if may_see(at[0])]
        is_stable = named is not None and request.require_stable
        found = await group.positions(wanted, stable=is_stable)

        def packed() -> Work[list[list[Any]]]:
            told = []
            for at, position in zip(wanted, found, strict=True):
                yield 1
                if not may_see(at[0]):
                    hidden = wire.CommittedOffset(*at, ErrorCode.AUTHORIZATION_FAILED, -1)
                    told.append(hidden.pack())
                elif named is not None or position.offset >= 0:
                    told.append(_committed(*at, position).pack())
            return told

        return Packed([await self._turns.run(packed())])

    # --- administration ---------------------------------------------------------------------------

    async def _list(self, frame: Frame, principal: Principal) -> Packed:
        request = wire.ListGroups.unpack(frame.body)
        found = await self._groups.list(request.families, request.states)

        def packed() -> Work[list[list[Any]]]:
            told = []
            for each in found:
                yield 1
                if self._groups.may_see(principal, each.key.group):
                    told.append(described_groups.listed(each).pack())
            return told

        return Packed([await self._turns.run(packed())])

    async def _describe(self, frame: Frame, principal: Principal) -> Message:
        request = wire.DescribeGroup.unpack(frame.body)
        group = self._open_any(principal, Operation.DESCRIBE, request)
        found = await group.describe()
        topics = self._groups.listed_topics(found.key)
        return await self._turns.run(described_groups.described(found, topics))

    async def _delete(self, frame: Frame, principal: Principal) -> Message:
        request = wire.DeleteGroup.unpack(frame.body)
        group = self._open_any(principal, Operation.DELETE, request)
        await group.delete()
        return wire.GroupDone()

    async def _delete_offsets(self, frame: Frame, principal: Principal) -> Message:
        request = wire.DeleteOffsets.unpack(frame.body)
        wanted = list(_flat(request.topics))
        refused = await self._groups.delete_offsets(
            principal, request.family, request.group, request.subject, wanted
        )
        return wire.OffsetResults(
            tuple(wire.OffsetResult(*each, refused.get(each, ErrorCode.NONE)) for each in wanted)
        )

    async def _reset_offsets(self, frame: Frame, principal: Principal) -> Message:
        request = wire.ResetOffsets.unpack(frame.body)
        group = self._open_any(principal, Operation.ALTER, request)
        asked, results = self._judged(request.offsets, principal)
        await group.reset(asked.good)
        return results


def _flat(topics: Iterable[wire.TopicPartitions]) -> Iterable[tuple[str, int]]:
    return ((each.topic, partition) for each in topics for partition in each.partitions)


def _committed(topic: str, partition: int, found: Position) -> wire.CommittedOffset:
    if found.is_pending:
        return wire.CommittedOffset(topic, partition, ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    return wire.CommittedOffset(
        topic,
        partition,
        ErrorCode.NONE,
        found.offset,
        found.leader_epoch,
        found.metadata.decode(),
        found.commit_ms,
    )
