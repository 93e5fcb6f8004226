"""Group commands of Cursus, at the group's coordinator (groups/DESIGN 4).

Clients that follow are told where that is; for those of the page's positional commands another
node sends the command on. ``reason=REBALANCE_REQUIRED`` stands behind what makes a member join
again: the page's clients look for that word, later ones for the code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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
from paceline.types import NodeId, TopicId
from paceline.wire.cursus import replies, requests
from paceline.wire.cursus.errors import CursusError, parse_refusal, quoted
from paceline.wire.cursus.wildcards import TopicWildcards, is_pattern
from paceline.wire.peer.names import GroupName
from paceline_node.env import Env
from paceline_node.groups.cursus_groups import (
    CursusMember,
    NotOwner,
    Regression,
    StaleGeneration,
    cursus_key,
)
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import GROUPS_TOPIC, Family, GroupKey
from paceline_node.groups.offsets import Commit
from paceline_node.listeners.cursus.coordinators import (
    ANSWER_S,
    COORDINATOR_WAIT_S,
    Coordinators,
    told_where,
)
from paceline_node.listeners.cursus.places import LISTENER, Places
from paceline_node.listeners.cursus.session import CursusCall, CursusSession, Reply, text
from paceline_node.security.principals import Operation
from paceline_node.services.groups import CURSUS, GroupService
from paceline_node.services.open_group import OpenGroup
from paceline_node.services.routing import LeaderRouting
from paceline_node.transactions.records import StagedOffset

Serve = Callable[[GroupEngine, GroupKey], Reply]
_PAUSE_S = 0.02


class _OffsetPending(PacelineError):
    """A transaction that is being ended may commit the offset that was asked for."""


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
        key = cursus_key(request.group, "")
        group = self._groups.open(call.principal, Operation.DESCRIBE, key)
        try:
            await self._groups.wait_partition(key, timeout_s=COORDINATOR_WAIT_S)
            broker = group.coordinator(LISTENER)
        except CoordinatorNotAvailable:
            raise no_coordinator(request.group) from None
        return told_where(broker, "group")

    # --- members ----------------------------------------------------------------------------------

    async def register(self, request: requests.RegisterGroup, call: CursusCall) -> Reply:
        """Let a group be."""
        key = cursus_key(request.group, request.topic)
        group = self._groups.open(call.principal, Operation.JOIN_GROUP, key)
        topic = await self._places.topic(request.topic)

        def serve(engine: GroupEngine, key: GroupKey) -> Reply:
            engine.cursus.register(key, len(topic.partitions))
            return text(replies.ok(group=request.group, topic=request.topic, registered=True))

        return await self._at_coordinator(group, call, serve)

    async def join(self, request: requests.JoinGroup, call: CursusCall) -> Reply:
        """Become a member, or go on as one with ``generation=``."""
        key = cursus_key(request.group, request.topic)
        group = self._groups.open(call.principal, Operation.JOIN_GROUP, key)
        topic = await self._places.topic(request.topic)
        resumes = request.generation is not None

        def serve(engine: GroupEngine, key: GroupKey) -> Reply:
            if request.generation is not None:
                who = self._member(request.group, request.topic, request.member, request.generation)
                told = engine.cursus.sync(who)
            else:
                told = engine.cursus.join(key, request.member, len(topic.partitions))
            line = replies.assignment(
                told.generation, told.member, told.partitions, resumed=resumes
            )
            return text(line)

        return await self._at_coordinator(group, call, serve, request.member)

    async def sync(self, request: requests.SyncGroup, call: CursusCall) -> Reply:
        """A member's assignment."""
        who = self._member(request.group, request.topic, request.member, request.generation)
        group = self._groups.open(call.principal, Operation.JOIN_GROUP, who.key)

        def serve(engine: GroupEngine, key: GroupKey) -> Reply:
            told = engine.cursus.sync(who)
            return text(replies.assignment(told.generation, told.member, told.partitions))

        return await self._at_coordinator(group, call, serve, request.member)

    async def heartbeat(self, request: requests.Heartbeat, call: CursusCall) -> Reply:
        """Keep a member's session."""
        who = self._member(request.group, request.topic, request.member, request.generation)
        group = self._groups.open(call.principal, Operation.JOIN_GROUP, who.key)

        def serve(engine: GroupEngine, key: GroupKey) -> Reply:
            engine.cursus.heartbeat(who)
            return text(replies.ok(member=request.member, generation=request.generation))

        return await self._at_coordinator(group, call, serve, request.member)

    async def leave(self, request: requests.LeaveGroup, call: CursusCall) -> Reply:
        """Be no member any more."""
        key = cursus_key(request.group, request.topic)
        group = self._groups.open(call.principal, Operation.JOIN_GROUP, key)

        def serve(engine: GroupEngine, key: GroupKey) -> Reply:
            left = engine.cursus.leave(
                key, request.member, generation=request.generation, by_base=request.by_base
            )
            return text(replies.ok(group=request.group, member=left, left=True))

        return await self._at_coordinator(group, call, serve, request.member)

    def _member(self, group: str, topic: str, member: str, generation: int) -> CursusMember:
        return CursusMember(group, topic, member, generation, self._groups.partition_count(topic))

    # --- offsets ----------------------------------------------------------------------------------

    async def fetch_offset(self, request: requests.FetchOffset, call: CursusCall) -> Reply:
        """What the group has committed; 0 where it has committed nothing. While a transaction that
        is being ended may move it, it is waited for; then the client is sent here again, which is
        the only refusal that all clients ask again after."""
        anywhere = cursus_key(request.group, request.topic)
        group = self._groups.open(call.principal, Operation.DESCRIBE, anywhere)
        until = call.deadline - ANSWER_S

        def serve(engine: GroupEngine, key: GroupKey) -> Reply:
            if not engine.cursus.knows(key):
                raise GroupNotFound(f"group {request.group} does not exist")
            engine.cursus.check_reader(engine.store, key, request.generation)
            found = engine.offsets.fetch(key, key.subject, request.partition)
            offset = 0 if found is None else found.offset
            if engine.transactional.is_pending(key, key.subject, request.partition, beyond=offset):
                raise _OffsetPending(f"group {key}: the offset may move")
            return text(replies.ok(offset=offset))

        while True:
            try:
                return await self._at_coordinator(group, call, serve, request.member)
            except _OffsetPending:
                if self._env.now() + _PAUSE_S > until:
                    raise self._coordinators.here() from None
            await trio.sleep(_PAUSE_S)

    async def commit(self, request: requests.CommitOffset, call: CursusCall) -> Reply:
        """Store one offset."""
        anywhere = cursus_key(request.group, request.topic)
        group = self._groups.open(call.principal, Operation.COMMIT_OFFSETS, anywhere)

        def serve(engine: GroupEngine, key: GroupKey) -> Reply:
            commit = Commit(key.subject, request.partition, request.offset)
            if request.member is None or request.generation is None:
                engine.cursus.commit_unfenced(key, commit, call.principal.account)
            else:
                who = self._member(request.group, key.subject, request.member, request.generation)
                engine.cursus.commit(who, [commit], call.principal.account)
            return text(replies.ok())

        return await self._at_coordinator(group, call, serve, request.member or "")

    async def batch_commit(self, request: requests.BatchCommit, call: CursusCall) -> Reply:
        """Store offsets of several partitions, all or none."""
        anywhere = cursus_key(request.group, request.topic)
        group = self._groups.open(call.principal, Operation.COMMIT_OFFSETS, anywhere)

        def serve(engine: GroupEngine, key: GroupKey) -> Reply:
            who = self._member(request.group, key.subject, request.member, request.generation)
            engine.cursus.commit(
                who,
                [Commit(key.subject, number, offset) for number, offset in request.offsets],
                call.principal.account,
            )
            return text(replies.ok(batched=len(request.offsets)))

        return await self._at_coordinator(group, call, serve, request.member)

    # --- looking ----------------------------------------------------------------------------------

    async def status(self, request: requests.GroupStatus, call: CursusCall) -> Reply:
        """Members and what they read, of the group's first topic that has any."""
        anywhere = cursus_key(request.group, "")
        group = self._groups.open(call.principal, Operation.DESCRIBE, anywhere)

        def serve(engine: GroupEngine, key: GroupKey) -> Reply:
            if not engine.cursus.knows(key):
                raise GroupNotFound(f"group {request.group} does not exist")
            return text(_status(engine, key))

        return await self._at_coordinator(group, call, serve)

    async def list(self, _: requests.ListGroups, call: CursusCall) -> Reply:
        """The names of all groups, from every coordinator."""
        names = {listing.key.group for listing in await self._groups.list((CURSUS,), ())}
        if not call.forwarded:
            async with trio.open_nursery() as nursery:
                for node in self._routing.leaders(GROUPS_TOPIC):
                    if node != self._routing.node_id:
                        nursery.start_soon(self._list_at, node, call, names)
        visible = sorted(name for name in names if self._groups.may_see(call.principal, name))
        return text(replies.ok(count=len(visible), groups=",".join(visible)))

    async def _list_at(self, node: NodeId, call: CursusCall, names: set[str]) -> None:
        reply = await self._coordinators.forward(node, call, b"LIST_GROUPS")
        listed = reply[0].decode().partition("groups=")[2]
        names.update(name for name in listed.split(",") if name)

    def topic_id(self, topic: str) -> TopicId | None:
        """The topic of that name, as far as this node knows."""
        return self._groups.topic_id(topic)

    def open_to_commit(self, group: GroupName, call: CursusCall) -> OpenGroup:
        """A group, for a client that commits offsets for it with a transaction. Raises
        AuthorizationFailed."""
        key = cursus_key(group.group, group.subject)
        return self._groups.open(call.principal, Operation.COMMIT_OFFSETS, key)

    async def check_owner(self, offsets: Sequence[StagedOffset], call: CursusCall) -> None:
        """Raise as COMMIT_OFFSET does unless the member that commits ``offsets``, which have one
        member of one group, is in that generation and reads those partitions; its session is kept.
        """
        if not offsets:
            return
        first = offsets[0]
        group, topic, member, generation = (
            first.group.group,
            first.topic,
            first.member,
            first.generation,
        )
        line = f"SYNC_GROUP topic={topic} group={group} member={member} generation={generation}"
        inner = replace(
            call,
            word="SYNC_GROUP",
            session=CursusSession(call.principal),
            body=line.encode(),
            redirects=False,
        )
        [told] = await self.sync(requests.SyncGroup(topic, group, member, generation), inner)
        answer = told.decode()
        if not answer.startswith("OK"):
            raise parse_refusal(answer)
        assigned = replies.parse_assignment(answer)
        for each in offsets:
            if each.partition not in assigned:
                foreign = NotOwner(cursus_key(group, topic), member, each.partition, generation)
                raise refusal_of(foreign, cursus_key(group, topic), member)

    # --- where ------------------------------------------------------------------------------------

    async def _at_coordinator(
        self, group: OpenGroup, call: CursusCall, serve: Serve, member: str = ""
    ) -> Reply:
        """What ``serve`` answers on the group's engine, wherever that is."""
        key = group.key
        until = self._coordinators.until(call)

        async def here() -> Reply:
            exact = self._exact(key)
            return await group.exactly(exact).perform(
                lambda engine: serve(engine, exact),
                commit_s=self._coordinators.left_s(call),
            )

        try:
            left_s = max(0.0, until - self._env.now())
            number = await self._groups.wait_partition(key, timeout_s=left_s)
            return await self._coordinators.serve(GROUPS_TOPIC, number, call, here, until=until)
        except (NotLeader, NotEnoughReplicas):
            if call.forwarded:
                raise
            raise no_coordinator(key.group) from None
        except (CoordinatorNotAvailable, UnknownTopicOrPartition):
            raise no_coordinator(key.group) from None
        except PacelineError as error:
            raise refusal_of(error, key, member) from error

    def _exact(self, key: GroupKey) -> GroupKey:
        """The group that ``key`` means: where it names no topic, or a pattern, the first that
        matches, those with members before others."""
        if key.subject and not is_pattern(key.subject):
            return key
        store = self._groups.replica_store(key)
        known = [] if store is None else [*store.groups, *store.offsets]
        wildcards = TopicWildcards(key.subject or "*")
        matching = [
            each
            for each in known
            if each.family is Family.CURSUS
            and each.group == key.group
            and wildcards.matches(each.subject)
        ]
        groups = {} if store is None else store.groups
        silent = {each for each in matching if each not in groups or not groups[each].members}
        return min(matching, key=lambda each: (each in silent, each.subject), default=key)


def no_coordinator(group: str) -> CursusError:
    return CursusError("coordinator_not_available", f"group={group}")


def refusal_of(error: PacelineError, key: GroupKey, member: str) -> PacelineError:
    """A group's refusal in Cursus's words; other errors as they are."""
    group = key.group
    if isinstance(error, StaleGeneration):
        detail = (
            f"current={error.current} requested={error.requested} group={group} member={member}"
        )
        return CursusError("GEN_MISMATCH", f"{detail} reason=REBALANCE_REQUIRED")
    if isinstance(error, UnknownMember):
        detail = f"member={member} group={group} reason=REBALANCE_REQUIRED"
        return CursusError("member_not_found", detail)
    if isinstance(error, NotOwner):
        detail = f"partition={error.partition} member={member} group={group}"
        return CursusError("NOT_OWNER", f"{detail} generation={error.generation}")
    if isinstance(error, Regression):
        reason = (
            f"offset regression group={group} topic={key.subject} partition={error.partition}"
            f" current={error.current} got={error.got}"
        )
        return CursusError("offset_regression", f"reason={quoted(reason)}")
    if isinstance(error, GroupNotFound):
        return CursusError("group_not_found", f"group={group}")
    return error


def _status(engine: GroupEngine, key: GroupKey) -> str:
    group = engine.store.groups.get(key)
    members = [] if group is None else sorted(group.members, key=lambda each: each.member_id)
    told = {
        "status": "OK",
        "group_name": key.group,
        "topic_name": key.subject,
        "state": "Stable" if members else "Dead",
        "generation": 0 if group is None else group.generation,
        "member_count": len(members),
        "partition_count": 0 if group is None else group.partition_count,
        "members": [
            {
                "member_id": each.member_id,
                "last_heartbeat": _rfc3339(
                    engine.sessions.heard_ms(key, each.member_id) or each.heard_ms
                ),
                "assignments": list(each.partitions),
            }
            for each in members
        ],
        "last_rebalance": _rfc3339(0 if group is None else group.changed_ms),
    }
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False)


def _rfc3339(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
