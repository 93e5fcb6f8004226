"""Who reads for a group of Cursus: whether it may, and from where on (DESIGN 5.3)."""

from __future__ import annotations

import trio

from paceline.errors import AuthorizationFailed, CoordinatorNotAvailable, PacelineError
from paceline.wire.cursus.errors import CursusError, parse_refusal
from paceline.wire.cursus.requests import ReadPlace
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cursus import CursusFrame
from paceline_node.env import Env
from paceline_node.groups.cursus_groups import CursusGroups, StaleGeneration, cursus_key
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.store import GroupStore
from paceline_node.listeners.cursus.coordinators import COORDINATOR_WAIT_S
from paceline_node.listeners.cursus.groups import no_coordinator, refusal_of
from paceline_node.listeners.cursus.places import LISTENER
from paceline_node.listeners.cursus.session import CursusCall
from paceline_node.security.principals import Operation
from paceline_node.services.groups import GroupService
from paceline_node.services.open_group import OpenGroup
from paceline_node.services.routing import LeaderRouting

_PAUSE_S = 0.02


class GroupReaders:
    """Judges readers that name a group."""

    def __init__(self, env: Env, groups: GroupService, routing: LeaderRouting) -> None:
        self._env = env
        self._groups = groups
        self._routing = routing

    def open(self, place: ReadPlace, call: CursusCall) -> OpenGroup | None:
        """The group that a reader reads for, whose other streams it may end. Raises CursusError for
        one that may not act on it."""
        if place.group is None:
            return None
        key = cursus_key(place.group, place.topic)
        try:
            return self._groups.open(call.principal, Operation.JOIN_GROUP, key)
        except AuthorizationFailed as error:
            detail = f"command={call.word} permission=group"
            raise CursusError("NOT_AUTHORIZED_FOR_OPERATION", detail) from error

    async def fence(self, place: ReadPlace, group: OpenGroup | None) -> int | None:
        """What its group has committed for a reader's partition. Refuses a reader of an older
        generation, and, after a while, one that would begin where a transaction that is being ended
        has read already.

        Asks this node's replica of the group's state, so that a read costs no round trip; one that
        lags lets an older reader pass a moment longer. Where it has none, or has not heard of the
        reader's generation yet, the coordinator is asked: what members of generations before have
        pending lies before that in the log.
        """
        if group is None:
            return None
        key = group.key
        until = self._env.now() + COORDINATOR_WAIT_S
        while True:
            try:
                store = self._groups.replica_store(key)
            except CoordinatorNotAvailable:
                return None
            if store is None or self._lags(store, key, place):
                return await self._committed_elsewhere(place, key)
            committed = self._committed_here(store, place, key)
            if not self._may_move(store, key, place, max(committed or 0, place.offset or 0)):
                return committed
            if self._env.now() + _PAUSE_S > until:
                raise no_coordinator(key.group)
            await trio.sleep(_PAUSE_S)

    def _lags(self, store: GroupStore, key: GroupKey, place: ReadPlace) -> bool:
        """Whether another node knows of a generation that this one has not heard of."""
        if place.generation is None:
            return False
        group = store.groups.get(key)
        if group is not None and group.generation >= place.generation:
            return False
        return self._routing.node_id != self._groups.leader(key)

    def _may_move(self, store: GroupStore, key: GroupKey, place: ReadPlace, offset: int) -> bool:
        """Whether a transaction may yet commit more than ``offset``."""
        pendings = store.pending.get(key)
        if pendings is None:
            return False
        return any(
            each.offset > offset and self._groups.is_current(place.topic, each.topic_id)
            for each in pendings.at(place.topic, place.partition)
        )

    def _committed_here(self, store: GroupStore, place: ReadPlace, key: GroupKey) -> int | None:
        try:
            group = store.groups.get(key)
            if group is not None and self._groups.is_current(place.topic, group.topic_id):
                CursusGroups.check_reader(store, key, place.generation)
        except StaleGeneration as error:
            raise refusal_of(error, key, place.member or "") from None
        found = store.offsets.get(key, {}).get((place.topic, place.partition))
        if found is None or not self._groups.is_current(place.topic, found.topic_id):
            return None
        return found.offset

    async def _committed_elsewhere(self, place: ReadPlace, key: GroupKey) -> int | None:
        """As the coordinator says. It is not asked for a reader that names an offset and no
        generation; one that names an offset reads on, too, where nobody answers, and is refused
        when it commits; not where the coordinator says that the offset may move."""
        line = f"FETCH_OFFSET topic={place.topic} partition={place.partition} group={place.group}"
        if place.generation is not None:
            line += f" member={place.member or '-'} generation={place.generation}"
        elif place.offset:
            return None
        try:
            node = self._groups.coordinator(key, LISTENER).node_id
            ask = CursusFrame(int(COORDINATOR_WAIT_S * 1000), False)
            frame = await self._routing.ask(
                node, PeerApi.CURSUS_FRAME, ask, line.encode(), budget_s=COORDINATOR_WAIT_S
            )
        except PacelineError:
            if place.offset:
                return None
            raise no_coordinator(key.group) from None
        answer = bytes(frame.payload).decode()
        if answer.startswith("ERROR: GEN_MISMATCH"):
            raise parse_refusal(answer)
        if not answer.startswith("OK offset="):
            moves = answer.startswith("ERROR: NOT_COORDINATOR")
            if moves or not (place.offset or answer.startswith("ERROR: group_not_found")):
                raise no_coordinator(key.group)
            return None
        return int(answer.removeprefix("OK offset=")) or None
