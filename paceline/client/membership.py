"""A member's life in its group: join, be assigned, stay by heartbeats, join again, leave.

The group's rules are the coordinator's (paceline/wire/native/README.md, "Groups"); what a member
owes the others is to give up its partitions before it joins again, and to stop when it hears that
it is a member no more. What partitions mean is ``group_consumer.py``'s business.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import trio

from paceline.assignors.members import Counts, MemberView
from paceline.assignors.registry import Assignor
from paceline.client.coordinator import Coordinator
from paceline.client.group_settings import GroupSettings
from paceline.client.metadata import Metadata
from paceline.client.retry import Backoff
from paceline.client.single_error_nursery import open_scope
from paceline.errors import (
    ErrorCode,
    IllegalGeneration,
    PacelineError,
    RebalanceInProgress,
    RemoteProtocolError,
    UnknownMember,
    UnknownTopicOrPartition,
    error_for,
)
from paceline.types import TopicPartition
from paceline.wire.consumer_protocol import PROTOCOL_TYPE, Assignment, Subscription
from paceline.wire.native.api import NativeApi
from paceline.wire.native.groups import (
    NO_GENERATION,
    DescribeGroup,
    GroupDescription,
    GroupDone,
    GroupJoined,
    GroupLeft,
    GroupProtocol,
    GroupSynced,
    HeartbeatGroup,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    SyncGroup,
)

HEARTBEATS_PER_SESSION = 3
REFRESH_S = 30.0
"""How often the leader looks for new partitions."""
LEAVE_S = 3.0


class Owner(Protocol):
    """Whose partitions these are."""

    def owned(self) -> Sequence[TopicPartition]:
        """What is read now."""

    async def tell(self, topics: Sequence[str]) -> bytes | None:
        """What this member, which leads, says to all who read some of these topics. Raises what
        asking nodes raises."""

    def hear(self, told: bytes | None) -> None:
        """What the leader said, before what it has assigned is taken."""

    async def take(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these, and nothing else, from now on."""

    async def give_up(self, *, lost: bool) -> None:
        """Stop reading; ``lost``: others may read already, so commit nothing any more."""

    def is_stuck(self) -> bool:
        """Whether the program has asked for nothing for so long that others shall read."""

    async def asked_again(self) -> None:
        """Return when the program asks for more."""


class _Next(enum.Enum):
    """Why a member must join again: as itself; having lost its partitions; as somebody new, at once
    or when its program goes on."""

    REJOIN = "rejoin"
    LOST = "lost"
    NEW = "new"
    STUCK = "stuck"


def after(error: PacelineError) -> _Next | None:
    """What an answer means for a member; None: it is no member's business."""
    if isinstance(error, RebalanceInProgress):
        return _Next.REJOIN
    if isinstance(error, IllegalGeneration):
        return _Next.LOST
    if isinstance(error, UnknownMember):
        return _Next.NEW
    return None


class _End:
    """Why a member must join again, or what ended it, once ``came`` is set."""

    def __init__(self) -> None:
        self.came = trio.Event()
        self.reason = _Next.REJOIN
        self.error: PacelineError | None = None


class Membership:
    """Run :meth:`run` for as long as the member shall be one, then :meth:`leave`."""

    def __init__(
        self,
        coordinator: Coordinator,
        metadata: Metadata,
        backoff: Backoff,
        settings: GroupSettings,
        owner: Owner,
        topics: Sequence[str],
        *,
        client_id: str,
    ) -> None:
        self.member_id = ""
        self.generation = NO_GENERATION
        self._coordinator = coordinator
        self._metadata = metadata
        self._backoff = backoff
        self._settings = settings
        self._owner = owner
        self._topics = tuple(topics)
        self._client_id = client_id
        self._counts: Counts | None = None
        """What the last assignment was made from; None: by another member."""
        self._wanted = trio.Event()
        # What this member last had, and when: for assignors that move as little as they can.
        self._before: tuple[Sequence[TopicPartition], int] = ((), NO_GENERATION)

    @property
    def is_member(self) -> bool:
        return self.generation != NO_GENERATION

    async def run(self) -> None:
        """Be a member until cancelled. Raises FencedInstance, InconsistentGroupProtocol and
        whatever else cannot be mended by trying again."""
        failures = 0
        while True:
            try:
                partitions = await self._join()
                failures = 0
                reason = await self._live(partitions)
            except PacelineError as error:
                found = after(error)
                if found is None and not error.retriable:
                    raise
                reason = found or _Next.REJOIN
                await trio.sleep(self._backoff.pause_s(failures))
                failures += 1
            if reason is _Next.STUCK:
                await self.leave()  # before anything of the program's is called, which may hang
            await self._before_joining(reason)
            if reason is _Next.STUCK:
                await self._owner.asked_again()

    async def leave(self) -> None:
        """Tell the group, so that the others need not wait for the session to run out. A static
        member stays. Gives up silently after a while: the session then tells them."""
        if not self.member_id or self._settings.instance_id is not None:
            return
        request = LeaveGroup(self._coordinator.group, (LeavingMember(self.member_id),))
        with trio.move_on_after(LEAVE_S):
            try:
                await self._coordinator.call(
                    NativeApi.LEAVE_GROUP, request, GroupLeft, timeout_s=LEAVE_S
                )
            except PacelineError:
                return

    def lost_by(self, error: PacelineError) -> bool:
        """Whether ``error``, answered to a commit, says that this is a member no more; if so, it
        joins again soon."""
        if after(error) is None:
            return False
        self._wanted.set()
        return True

    # --- joining ----------------------------------------------------------------------------------

    async def _before_joining(self, reason: _Next) -> None:
        lost = reason is not _Next.REJOIN
        owned = self._owner.owned()
        if lost:
            self._before = ((), NO_GENERATION)
        elif owned:
            self._before = (owned, self.generation)
        async with open_scope() as nursery:
            if not lost:
                nursery.start_soon(self._keep)
            await self._owner.give_up(lost=lost)
        self.generation = NO_GENERATION
        if reason in (_Next.NEW, _Next.STUCK):
            self.member_id = ""

    async def _join(self) -> Sequence[TopicPartition]:
        """Become a member; what is assigned to it."""
        self._wanted = trio.Event()
        joined = await self._ask_to_join()
        if joined.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            joined = await self._ask_to_join()
        if joined.error:
            raise error_for(joined.error, f"joining group {self._coordinator.group}")
        self.member_id = joined.member_id
        assignments: tuple[MemberAssignment, ...] = ()
        self._counts = None
        leads = joined.leader == joined.member_id
        if leads and not joined.keep_assignment:
            assignments = await self._assign(joined)
        request = SyncGroup(
            self._coordinator.group,
            joined.generation,
            joined.member_id,
            assignments,
            self._settings.instance_id,
            joined.protocol_type,
            joined.protocol,
        )
        synced = await self._coordinator.call(
            NativeApi.SYNC_GROUP,
            request,
            GroupSynced,
            timeout_s=self._settings.rebalance_timeout_s,
            wait_s=self._settings.rebalance_timeout_s,
        )
        self.generation = joined.generation
        if leads and joined.keep_assignment:
            self._counts = await self._count_assigned(joined)
        assigned = _assigned(synced.assignment)
        self._owner.hear(assigned.user_data)
        return sorted(
            TopicPartition(topic, number)
            for topic, numbers in assigned.partitions.items()
            for number in numbers
        )

    async def _ask_to_join(self) -> GroupJoined:
        settings = self._settings
        owned, generation = self._before
        said = Subscription(self._topics, None, _by_topic(owned), generation).to_bytes()
        request = JoinGroup(
            group=self._coordinator.group,
            member_id=self.member_id,
            session_timeout_ms=int(settings.session_timeout_s * 1000),
            rebalance_timeout_ms=int(settings.rebalance_timeout_s * 1000),
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(GroupProtocol(each.value, said) for each in settings.assignors),
            instance_id=settings.instance_id,
            client_id=self._client_id,
        )
        return await self._coordinator.call(
            NativeApi.JOIN_GROUP,
            request,
            GroupJoined,
            timeout_s=settings.rebalance_timeout_s,
            wait_s=settings.rebalance_timeout_s,
        )

    async def _assign(self, joined: GroupJoined) -> tuple[MemberAssignment, ...]:
        """The leader's part: who reads what."""
        members = _views(joined)
        topics = sorted({topic for member in members for topic in member.topics})
        self._counts = await self._count(topics)
        found = Assignor(joined.protocol).assign(members, self._counts)
        told = await self._owner.tell(topics)
        return tuple(
            MemberAssignment(member, Assignment(_by_topic(partitions), told).to_bytes())
            for member, partitions in found.items()
        )

    async def _count(self, topics: Sequence[str]) -> Counts:
        """Partitions of each topic; 0 for those that do not exist (yet)."""
        await self._metadata.refresh(topics)
        counts = {}
        for topic in topics:
            try:
                counts[topic] = len((await self._metadata.topic(topic)).partitions)
            except UnknownTopicOrPartition:
                counts[topic] = 0
        return counts

    async def _count_assigned(self, joined: GroupJoined) -> Counts:
        """The partitions of each topic that an assignment made before this member came back has
        given out; those there are now where nobody says."""
        topics = {topic for member in _views(joined) for topic in member.topics}
        request = DescribeGroup(self._coordinator.group)
        try:
            group = await self._coordinator.call(
                NativeApi.DESCRIBE_GROUP,
                request,
                GroupDescription,
                timeout_s=self._settings.session_timeout_s,
            )
        except PacelineError:
            return await self._count(sorted(topics))
        counts = dict.fromkeys(topics, 0)
        for member in group.members:
            for each in member.assigned:
                counts[each.topic] = counts.get(each.topic, 0) + len(each.partitions)
        return counts

    # --- staying ----------------------------------------------------------------------------------

    @property
    def _pause_s(self) -> float:
        return self._settings.session_timeout_s / HEARTBEATS_PER_SESSION

    async def _live(self, partitions: Sequence[TopicPartition]) -> _Next:
        """Read ``partitions``, with heartbeats beside whatever that takes, until the member must
        join again; why. Raises what ends it."""
        end = _End()
        async with open_scope() as nursery:
            nursery.start_soon(self._watch, end)
            await self._owner.take(partitions)
            await end.came.wait()
        if end.error is not None:
            raise end.error
        return end.reason

    async def _watch(self, end: _End) -> None:
        try:
            end.reason = await self._stay()
        except PacelineError as error:
            end.error = error
        end.came.set()
        if end.reason is _Next.REJOIN and end.error is None:
            await self._keep()  # until its callbacks have ended

    async def _stay(self) -> _Next:
        """Send heartbeats until the member must join again; why. Raises what ends it."""
        refresh_at = trio.current_time() + REFRESH_S
        while True:
            with trio.move_on_after(self._pause_s):
                await self._wanted.wait()
            if self._owner.is_stuck():
                return _Next.STUCK
            if not await self._is_alive():
                return _Next.REJOIN
            if self._counts is not None and trio.current_time() >= refresh_at:
                refresh_at = trio.current_time() + REFRESH_S
                with trio.move_on_after(self._pause_s):
                    if await self._count(list(self._counts)) != self._counts:
                        return _Next.REJOIN

    async def _keep(self) -> None:
        """Stay a member while the program is busy: the others wait for it, but its session must not
        run out meanwhile."""
        while True:
            await trio.sleep(self._pause_s)
            try:
                await self._is_alive()
            except PacelineError:
                return  # a member no more, as the next thing that it asks for will be told

    async def _is_alive(self) -> bool:
        """Send a heartbeat; False when the members are joining again. Without any answer the member
        goes on: a coordinator that comes back knows its generation."""
        request = HeartbeatGroup(
            self._coordinator.group, self.generation, self.member_id, self._settings.instance_id
        )
        try:
            await self._coordinator.call(
                NativeApi.HEARTBEAT_GROUP,
                request,
                GroupDone,
                timeout_s=self._settings.session_timeout_s,
            )
        except RebalanceInProgress:
            return False
        except PacelineError as error:
            if after(error) is not None or not error.retriable:
                raise
        self._wanted = trio.Event()
        return True


def _views(joined: GroupJoined) -> list[MemberView]:
    """The members whose subscriptions can be read. One whose cannot gets no partitions; if it ended
    the leader, it would end every member in turn."""
    views = []
    for member in joined.members:
        with suppress(RemoteProtocolError):
            views.append(_view(member))
    return views


def _assigned(assignment: bytes) -> Assignment:
    """Nothing, where a leader's bytes are no assignment: the next leader may do better."""
    try:
        return Assignment.from_bytes(assignment)
    except RemoteProtocolError:
        return Assignment({})


def _view(member: JoinedMember) -> MemberView:
    said = Subscription.from_bytes(member.metadata)
    owned = tuple(TopicPartition(t, p) for t, numbers in said.owned.items() for p in numbers)
    return MemberView(member.member_id, said.topics, member.instance_id, owned, said.generation)


def _by_topic(partitions: Sequence[TopicPartition]) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for at in partitions:
        found.setdefault(at.topic, []).append(at.partition)
    return found
