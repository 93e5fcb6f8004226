"""Who reads for a group of Cursus: whether it may, and from where on (DESIGN 5.3)."""

from __future__ import annotations

import trio

from paceline.errors import (
    AuthorizationFailed,
    CoordinatorNotAvailable,
    GroupNotFound,
    PacelineError,
)
from paceline.wire.cursus.errors import CursusError
from paceline.wire.cursus.requests import ReadPlace
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cursus import CursusGroupStatus, CursusPositionAsked, CursusPositionFound
from paceline_node.detailed_errors import StaleGeneration
from paceline_node.env import Env
from paceline_node.listeners.cursus.coordinators import COORDINATOR_WAIT_S
from paceline_node.listeners.cursus.groups import check_status, no_coordinator, refusal_of
from paceline_node.listeners.cursus.session import CursusCall
from paceline_node.listeners.cursus.topic_lookup import LISTENER
from paceline_node.security.principals import Operation
from paceline_node.services.groups.group_service import GroupService
from paceline_node.services.groups.open_cursus_group import OpenCursusGroup
from paceline_node.services.leader_routing import LeaderRouting

_PAUSE_S = 0.02


class GroupReaders:
    """Judges readers that name a group."""

    def __init__(self, env: Env, groups: GroupService, routing: LeaderRouting) -> None:
        self._env = env
        self._groups = groups
        self._routing = routing

    def open(self, place: ReadPlace, call: CursusCall) -> OpenCursusGroup | None:
        """The group that a reader reads for, whose other streams it may end. Raises CursusError for
        one that may not act on it."""
        if place.group is None:
            return None
        try:
            return self._groups.open_cursus(
                call.principal, Operation.JOIN_GROUP, place.group, place.topic
            )
        except AuthorizationFailed as error:
            detail = f"command={call.word} permission=group"
            raise CursusError("NOT_AUTHORIZED_FOR_OPERATION", detail) from error

    async def fence(self, place: ReadPlace, group: OpenCursusGroup | None) -> int | None:
        """What its group has committed for a reader's partition. Refuses a reader of an older
        generation, and, after a while, one that would begin where a transaction that is being ended
        has read already.

        Asks this node's replica of the group's state, so that a read costs no round trip; where
        that does not know it, the coordinator is asked.
        """
        if group is None:
            return None
        until = self._env.now() + COORDINATOR_WAIT_S
        while True:
            try:
                found = group.position_here(
                    place.partition, place.generation, place.offset or 0, self._routing.node_id
                )
            except CoordinatorNotAvailable:
                return None
            except StaleGeneration as error:
                raise refusal_of(error, group.key.group, place.topic, place.member or "") from None
            if not found.known:
                return await self._committed_elsewhere(place, group)
            if not found.may_move:
                return found.offset
            if self._env.now() + _PAUSE_S > until:
                raise no_coordinator(group.key.group)
            await trio.sleep(_PAUSE_S)

    async def _committed_elsewhere(self, place: ReadPlace, group: OpenCursusGroup) -> int | None:
        """As the coordinator says. It is not asked for a reader that names an offset and no
        generation; one that names an offset reads on, too, where nobody answers, and is refused
        when it commits; not where the coordinator says that the offset may move."""
        if place.generation is None and place.offset:
            return None
        name, budget_s = group.key.group, COORDINATOR_WAIT_S
        ask = CursusPositionAsked(
            int(budget_s * 1000), name, place.topic, place.partition, place.generation
        )
        try:
            node = group.coordinator(LISTENER).node_id
            frame = await self._routing.ask(node, PeerApi.CURSUS_POSITION, ask, budget_s=budget_s)
        except PacelineError:
            if place.offset:
                return None
            raise no_coordinator(name) from None
        found = CursusPositionFound.unpack(frame.body)
        if found.status is CursusGroupStatus.MOVES:
            raise no_coordinator(name)
        try:
            check_status(found.status, found.generation, ask)
        except GroupNotFound:
            return None
        except StaleGeneration as error:
            raise refusal_of(error, name, place.topic, place.member or "") from None
        return found.offset or None
