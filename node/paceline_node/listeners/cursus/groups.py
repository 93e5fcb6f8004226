"""Group commands of Cursus, at the group's coordinator (groups/DESIGN 4).

Clients that follow are told where that is; for those of the page's positional commands another
node sends the command on. ``reason=REBALANCE_REQUIRED`` stands behind what makes a member join
again: the page's clients look for that word, later ones for the code.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import NoReturn, TypeVar

import trio

from paceline.errors import (
    CoordinatorNotAvailable,
    GroupNotFound,
    NotEnoughReplicas,
    NotLeader,
    PacelineError,
    UnknownMember,
    UnknownTopicOrPartition,
)
from paceline.types import NodeId
from paceline.wire.cursus import replies, requests
from paceline.wire.cursus.errors import CursusError, quoted
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cursus import (
    CursusGroupsAsked,
    CursusGroupsFound,
    CursusGroupStatus,
    CursusMemberAsked,
    CursusMemberFound,
    CursusPositionAsked,
    CursusPositionFound,
)
from paceline_node.detailed_errors import NotOwner, Regression, StaleGeneration
from paceline_node.env import Env
from paceline_node.listeners.cursus.coordinators import (
    ANSWER_S,
    COORDINATOR_WAIT_S,
    Coordinators,
    told_where,
)
from paceline_node.listeners.cursus.session import CursusCall, PeerAnswer, Reply, text
from paceline_node.listeners.cursus.topic_lookup import LISTENER, TopicLookup
from paceline_node.security.principals import Operation
from paceline_node.services.groups.group_service import CURSUS, GroupService
from paceline_node.services.groups.open_cursus_group import GroupStatus, OpenCursusGroup
from paceline_node.services.leader_routing import LeaderRouting

T = TypeVar("T")
Serve = Callable[[float], Awaitable[T]]
"""Answers at the coordinator; is given how long what it says has until it is committed."""
_PAUSE_S = 0.02
_MembersOwn = (
    requests.RegisterGroup
    | requests.JoinGroup
    | requests.SyncGroup
    | requests.Heartbeat
    | requests.LeaveGroup
)


class CursusGroupCommands:
    """Answers what Cursus asks about groups."""

    def __init__(
        self,
        env: Env,
        groups: GroupService,
        places: TopicLookup,
        routing: LeaderRouting,
        coordinators: Coordinators,
    ) -> None:
        self._env = env
        self._groups = groups
        self._places = places
        self._routing = routing
        self._coordinators = coordinators

    # --- who coordinates --------------------------------------------------------------------------

    async def find_coordinator(self, request: requests.FindCoordinator, call: CursusCall) -> Reply:
        """The address of a group's coordinator."""
        assert request.group is not None, "a transactional id has another coordinator"
        group = self._groups.open_cursus(call.principal, Operation.DESCRIBE, request.group, "")
        try:
            await group.wait_place(timeout_s=COORDINATOR_WAIT_S)
            broker = group.coordinator(LISTENER)
        except CoordinatorNotAvailable:
            raise no_coordinator(request.group) from None
        return told_where(broker, "group")

    # --- members ----------------------------------------------------------------------------------

    def _open_to_member(self, request: _MembersOwn, call: CursusCall) -> OpenCursusGroup:
        return self._groups.open_cursus(
            call.principal, Operation.JOIN_GROUP, request.group, request.topic
        )

    async def register(self, request: requests.RegisterGroup, call: CursusCall) -> Reply:
        """Let a group be."""
        group = self._open_to_member(request, call)
        topic = await self._places.topic(request.topic)

        async def serve(commit_s: float) -> Reply:
            await group.register(len(topic.partitions), commit_s=commit_s)
            return text(replies.ok(group=request.group, topic=request.topic, registered=True))

        return await self._at_coordinator(group, call, serve)

    async def join(self, request: requests.JoinGroup, call: CursusCall) -> Reply:
        """Become a member, or go on as one with ``generation=``."""
        group = self._open_to_member(request, call)
        topic = await self._places.topic(request.topic)

        async def serve(commit_s: float) -> Reply:
            resumes = request.generation is not None
            if request.generation is not None:
                told = await group.sync(request.member, request.generation, commit_s=commit_s)
            else:
                count = len(topic.partitions)
                told = await group.join(request.member, count, commit_s=commit_s)
            line = replies.assignment(
                told.generation, told.member, told.partitions, resumed=resumes
            )
            return text(line)

        return await self._at_coordinator(group, call, serve, request.member)

    async def sync(self, request: requests.SyncGroup, call: CursusCall) -> Reply:
        """A member's assignment."""
        group = self._open_to_member(request, call)

        async def serve(commit_s: float) -> Reply:
            told = await group.sync(request.member, request.generation, commit_s=commit_s)
            return text(replies.assignment(told.generation, told.member, told.partitions))

        return await self._at_coordinator(group, call, serve, request.member)

    async def heartbeat(self, request: requests.Heartbeat, call: CursusCall) -> Reply:
        """Keep a member's session."""
        group = self._open_to_member(request, call)

        async def serve(commit_s: float) -> Reply:
            await group.heartbeat(request.member, request.generation, commit_s=commit_s)
            return text(replies.ok(member=request.member, generation=request.generation))

        return await self._at_coordinator(group, call, serve, request.member)

    async def leave(self, request: requests.LeaveGroup, call: CursusCall) -> Reply:
        """Be no member any more."""
        group = self._open_to_member(request, call)

        async def serve(commit_s: float) -> Reply:
            left = await group.leave(
                request.member,
                generation=request.generation,
                by_base=request.by_base,
                commit_s=commit_s,
            )
            return text(replies.ok(group=request.group, member=left, left=True))

        return await self._at_coordinator(group, call, serve, request.member)

    # --- offsets ----------------------------------------------------------------------------------

    async def fetch_offset(self, request: requests.FetchOffset, call: CursusCall) -> Reply:
        """What the group has committed; 0 where it has committed nothing. While a transaction that
        is being ended may move it, it is waited for; then the client is sent here again, which is
        the only refusal that all clients ask again after."""
        group = self._groups.open_cursus(
            call.principal, Operation.DESCRIBE, request.group, request.topic
        )
        until = call.deadline - ANSWER_S

        async def serve(commit_s: float) -> Reply:
            offset = await group.committed(request.partition, request.generation, commit_s=commit_s)
            return () if offset is None else text(replies.ok(offset=offset))

        while not (reply := await self._at_coordinator(group, call, serve, request.member)):
            if self._env.now() + _PAUSE_S > until:
                raise self._coordinators.here()
            await trio.sleep(_PAUSE_S)
        return reply

    async def commit(self, request: requests.CommitOffset, call: CursusCall) -> Reply:
        """Store one offset."""
        group = self.open_to_commit(request.group, request.topic, call)
        offsets = [(request.partition, request.offset)]

        async def serve(commit_s: float) -> Reply:
            await group.store(offsets, request.member, request.generation, commit_s=commit_s)
            return text(replies.ok())

        return await self._at_coordinator(group, call, serve, request.member or "")

    async def batch_commit(self, request: requests.BatchCommit, call: CursusCall) -> Reply:
        """Store offsets of several partitions, all or none."""
        group = self.open_to_commit(request.group, request.topic, call)

        async def serve(commit_s: float) -> Reply:
            await group.store(
                request.offsets, request.member, request.generation, commit_s=commit_s
            )
            return text(replies.ok(batched=len(request.offsets)))

        return await self._at_coordinator(group, call, serve, request.member)

    # --- looking ----------------------------------------------------------------------------------

    async def status(self, request: requests.GroupStatus, call: CursusCall) -> Reply:
        """Members and what they read, of the group's first topic that has any."""
        group = self._groups.open_cursus(call.principal, Operation.DESCRIBE, request.group, "")

        async def serve(commit_s: float) -> Reply:
            return text(_status(await group.status(commit_s=commit_s)))

        return await self._at_coordinator(group, call, serve)

    async def list(self, _: requests.ListGroups, call: CursusCall) -> Reply:
        """The names of all groups, from every coordinator."""
        names = await self._names_here()
        async with trio.open_nursery() as nursery:
            for node in self._groups.coordinators():
                if node != self._routing.node_id:
                    nursery.start_soon(self._list_at, node, call, names)
        visible = sorted(name for name in names if self._groups.may_see(call.principal, name))
        return text(replies.ok(count=len(visible), groups=",".join(visible)))

    async def _list_at(self, node: NodeId, call: CursusCall, names: set[str]) -> None:
        left_s = self._coordinators.left_s(call)
        ask = CursusGroupsAsked(int(left_s * 1000))
        frame = await self._routing.ask(node, PeerApi.CURSUS_GROUPS, ask, budget_s=left_s)
        names.update(CursusGroupsFound.unpack(frame.body).names)

    def open_to_commit(self, group: str, topic: str, call: CursusCall) -> OpenCursusGroup:
        """A group, for a client that commits offsets for it. Raises AuthorizationFailed."""
        return self._groups.open_cursus(call.principal, Operation.COMMIT_OFFSETS, group, topic)

    async def check_owner(
        self, who: requests.SyncGroup, partitions: Iterable[int], call: CursusCall
    ) -> None:
        """Raise as COMMIT_OFFSET does unless the member is in that generation and reads those
        partitions; its session is kept."""
        group = self._open_to_member(who, call)

        async def serve(commit_s: float) -> tuple[int, ...]:
            return (await group.sync(who.member, who.generation, commit_s=commit_s)).partitions

        async def there(node: NodeId) -> tuple[int, ...]:
            left_s = self._coordinators.left_s(call)
            ask = CursusMemberAsked(
                int(left_s * 1000), who.group, who.topic, who.member, who.generation
            )
            frame = await self._routing.ask(node, PeerApi.CURSUS_MEMBER, ask, budget_s=left_s)
            found = CursusMemberFound.unpack(frame.body)
            check_status(found.status, found.generation, ask)
            return found.partitions

        with _in_words(group, call, who.member):
            assigned = await self._located(group, replace(call, redirects=False), serve, there)
        for partition in partitions:
            if partition not in assigned:
                raise _not_owner(who.group, who.member, partition, who.generation)

    # --- for other nodes --------------------------------------------------------------------------

    async def names_asked(self, _: CursusGroupsAsked, call: CursusCall) -> PeerAnswer:
        """The groups that this node coordinates."""
        return CursusGroupsFound(tuple(sorted(await self._names_here()))), b""

    async def _names_here(self) -> set[str]:
        return {listing.key.group for listing in await self._groups.list((CURSUS,), ())}

    async def position_asked(self, ask: CursusPositionAsked, call: CursusCall) -> PeerAnswer:
        """What a group that this node coordinates has committed. While a transaction that is being
        ended may move it, it is waited for. Raises as :meth:`_located`."""
        group = self._groups.open_cursus(call.principal, Operation.DESCRIBE, ask.group, ask.topic)
        until = call.deadline - ANSWER_S

        async def serve(commit_s: float) -> int | None:
            return await group.committed(ask.partition, ask.generation, commit_s=commit_s)

        while True:
            try:
                offset = await self._located(group, call, serve, _goes_no_further)
            except (GroupNotFound, StaleGeneration) as error:
                status, current = status_of(error)
                return CursusPositionFound(status, generation=current), b""
            if offset is not None:
                return CursusPositionFound(CursusGroupStatus.FOUND, offset), b""
            if self._env.now() + _PAUSE_S > until:
                return CursusPositionFound(CursusGroupStatus.MOVES), b""
            await trio.sleep(_PAUSE_S)

    async def member_asked(self, ask: CursusMemberAsked, call: CursusCall) -> PeerAnswer:
        """What a member of a group that this node coordinates reads. Raises as :meth:`_located`."""
        group = self._groups.open_cursus(call.principal, Operation.JOIN_GROUP, ask.group, ask.topic)

        async def serve(commit_s: float) -> tuple[int, ...]:
            return (await group.sync(ask.member, ask.generation, commit_s=commit_s)).partitions

        try:
            partitions = await self._located(group, call, serve, _goes_no_further)
        except (GroupNotFound, StaleGeneration, UnknownMember) as error:
            status, current = status_of(error)
            return CursusMemberFound(status, generation=current), b""
        return CursusMemberFound(CursusGroupStatus.FOUND, partitions), b""

    # --- where ------------------------------------------------------------------------------------

    async def _at_coordinator(
        self, group: OpenCursusGroup, call: CursusCall, serve: Serve[Reply], member: str = ""
    ) -> Reply:
        """What ``serve`` answers on the group's engine, wherever that is."""
        with _in_words(group, call, member):
            return await self._located(
                group, call, serve, lambda node: self._coordinators.forward(node, call)
            )

    async def _located(
        self,
        group: OpenCursusGroup,
        call: CursusCall,
        serve: Serve[T],
        there: Callable[[NodeId], Awaitable[T]],
    ) -> T:
        """What ``serve`` gives here, or ``there`` elsewhere. Raises what they do, NotLeader,
        CoordinatorNotAvailable and UnknownTopicOrPartition."""
        until = self._coordinators.until(call)

        async def here() -> T:
            return await serve(self._coordinators.left_s(call))

        place = await group.wait_place(timeout_s=max(0.0, until - self._env.now()))
        return await self._coordinators.serve(*place, call, here, there, until=until)


@contextmanager
def _in_words(group: OpenCursusGroup, call: CursusCall, member: str) -> Iterator[None]:
    """Refusals become those that clients know."""
    name = group.key.group
    try:
        yield
    except (NotLeader, NotEnoughReplicas):
        if call.forwarded:
            raise
        raise no_coordinator(name) from None
    except (CoordinatorNotAvailable, UnknownTopicOrPartition):
        raise no_coordinator(name) from None
    except PacelineError as error:
        raise refusal_of(error, name, group.key.subject, member) from None


async def _goes_no_further(node: NodeId) -> NoReturn:
    raise NotLeader(f"node {node} coordinates")


def status_of(error: PacelineError) -> tuple[CursusGroupStatus, int]:
    """What another node is told of a group's refusal, and the generation of the group where that is
    what was wrong."""
    if isinstance(error, StaleGeneration):
        return CursusGroupStatus.STALE_GENERATION, error.current
    if isinstance(error, UnknownMember):
        return CursusGroupStatus.UNKNOWN_MEMBER, -1
    return CursusGroupStatus.NO_GROUP, -1


def check_status(
    status: CursusGroupStatus, current: int, ask: CursusMemberAsked | CursusPositionAsked
) -> None:
    """Raise what :func:`status_of` told of: GroupNotFound, UnknownMember, StaleGeneration."""
    if status is CursusGroupStatus.NO_GROUP:
        raise GroupNotFound(f"group {ask.group} does not exist")
    if status is CursusGroupStatus.UNKNOWN_MEMBER:
        raise UnknownMember(f"group {ask.group} does not have that member")
    if status is CursusGroupStatus.STALE_GENERATION:
        requested = -1 if ask.generation is None else ask.generation
        raise StaleGeneration(ask.group, current=current, requested=requested)


def no_coordinator(group: str) -> CursusError:
    return CursusError("coordinator_not_available", f"group={group}")


def refusal_of(error: PacelineError, group: str, topic: str, member: str) -> PacelineError:
    """A group's refusal in Cursus's words; other errors as they are."""
    if isinstance(error, StaleGeneration):
        detail = (
            f"current={error.current} requested={error.requested} group={group} member={member}"
        )
        return CursusError("GEN_MISMATCH", f"{detail} reason=REBALANCE_REQUIRED")
    if isinstance(error, UnknownMember):
        detail = f"member={member} group={group} reason=REBALANCE_REQUIRED"
        return CursusError("member_not_found", detail)
    if isinstance(error, NotOwner):
        return _not_owner(group, member, error.partition, error.generation)
    if isinstance(error, Regression):
        reason = (
            f"offset regression group={group} topic={topic} partition={error.partition}"
            f" current={error.current} got={error.got}"
        )
        return CursusError("offset_regression", f"reason={quoted(reason)}")
    if isinstance(error, GroupNotFound):
        return CursusError("group_not_found", f"group={group}")
    return error


def _not_owner(group: str, member: str, partition: int, generation: int) -> CursusError:
    detail = f"partition={partition} member={member} group={group} generation={generation}"
    return CursusError("NOT_OWNER", detail)


def _status(found: GroupStatus) -> str:
    told = {
        "status": "OK",
        "group_name": found.group,
        "topic_name": found.topic,
        "state": "Stable" if found.members else "Dead",
        "generation": found.generation,
        "member_count": len(found.members),
        "partition_count": found.partition_count,
        "members": [
            {
                "member_id": each.member_id,
                "last_heartbeat": _rfc3339(each.heard_ms),
                "assignments": list(each.partitions),
            }
            for each in found.members
        ],
        "last_rebalance": _rfc3339(found.changed_ms),
    }
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False)


def _rfc3339(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
