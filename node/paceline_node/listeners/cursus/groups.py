"""Group commands of Cursus, at the group's coordinator (groups/DESIGN 4).

Clients that follow are told where that is; for those of the page's positional commands another
node sends the command on. ``reason=REBALANCE_REQUIRED`` stands behind what makes a member join
again: the page's clients look for that word, later ones for the code.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime

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
from paceline.wire.cursus.errors import CursusError, parse_refusal, quoted
from paceline_node.env import Env
from paceline_node.listeners.cursus.coordinators import (
    ANSWER_S,
    COORDINATOR_WAIT_S,
    Coordinators,
    told_where,
)
from paceline_node.listeners.cursus.places import LISTENER, Places
from paceline_node.listeners.cursus.session import CursusCall, CursusSession, Reply, text
from paceline_node.refusals import NotOwner, Regression, StaleGeneration
from paceline_node.security.principals import Operation
from paceline_node.services.cursus_groups import CursusGroup, GroupStatus
from paceline_node.services.groups import CURSUS, GroupService
from paceline_node.services.routing import LeaderRouting

Serve = Callable[[float], Awaitable[Reply]]
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
        places: Places,
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

    def _open_to_member(self, request: _MembersOwn, call: CursusCall) -> CursusGroup:
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
        names = {listing.key.group for listing in await self._groups.list((CURSUS,), ())}
        if not call.forwarded:
            async with trio.open_nursery() as nursery:
                for node in self._groups.coordinators():
                    if node != self._routing.node_id:
                        nursery.start_soon(self._list_at, node, call, names)
        visible = sorted(name for name in names if self._groups.may_see(call.principal, name))
        return text(replies.ok(count=len(visible), groups=",".join(visible)))

    async def _list_at(self, node: NodeId, call: CursusCall, names: set[str]) -> None:
        reply = await self._coordinators.forward(node, call, b"LIST_GROUPS")
        listed = reply[0].decode().partition("groups=")[2]
        names.update(name for name in listed.split(",") if name)

    def open_to_commit(self, group: str, topic: str, call: CursusCall) -> CursusGroup:
        """A group, for a client that commits offsets for it. Raises AuthorizationFailed."""
        return self._groups.open_cursus(call.principal, Operation.COMMIT_OFFSETS, group, topic)

    async def check_owner(
        self, who: requests.SyncGroup, partitions: Iterable[int], call: CursusCall
    ) -> None:
        """Raise as COMMIT_OFFSET does unless the member is in that generation and reads those
        partitions; its session is kept."""
        line = (
            f"SYNC_GROUP topic={who.topic} group={who.group} member={who.member} "
            f"generation={who.generation}"
        )
        inner = replace(
            call,
            word="SYNC_GROUP",
            session=CursusSession(call.principal),
            body=line.encode(),
            redirects=False,
        )
        [told] = await self.sync(who, inner)
        answer = told.decode()
        if not answer.startswith("OK"):
            raise parse_refusal(answer)
        assigned = replies.parse_assignment(answer)
        for partition in partitions:
            if partition not in assigned:
                raise _not_owner(who.group, who.member, partition, who.generation)

    # --- where ------------------------------------------------------------------------------------

    async def _at_coordinator(
        self, group: CursusGroup, call: CursusCall, serve: Serve, member: str = ""
    ) -> Reply:
        """What ``serve`` answers on the group's engine, wherever that is."""
        name = group.key.group
        until = self._coordinators.until(call)

        async def here() -> Reply:
            return await serve(self._coordinators.left_s(call))

        try:
            place = await group.wait_place(timeout_s=max(0.0, until - self._env.now()))
            return await self._coordinators.serve(*place, call, here, until=until)
        except (NotLeader, NotEnoughReplicas):
            if call.forwarded:
                raise
            raise no_coordinator(name) from None
        except (CoordinatorNotAvailable, UnknownTopicOrPartition):
            raise no_coordinator(name) from None
        except PacelineError as error:
            raise refusal_of(error, name, group.key.subject, member) from error


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
