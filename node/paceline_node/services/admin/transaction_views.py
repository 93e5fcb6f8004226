"""The transactions of the whole cluster, as any node shows them: the coordinator is asked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from paceline.errors import CoordinatorNotAvailable
from paceline.types import NO_NODE
from paceline.wire.frame import Frame
from paceline.wire.native.transactions import TransactionListing
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cluster_queries import TransactionName, TransactionsAsked, TransactionsFound
from paceline_node.loop_turns import Turns
from paceline_node.peers.server import PeerServer, Session
from paceline_node.security.principals import Principal
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.paging import Paged, cut_off, in_order, visible
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.services.transactions.transaction_service import (
    TransactionService,
    states_named,
)
from paceline_node.services.transactions.transaction_values import TransactionInfo, listing_of
from paceline_node.transaction_names import Family, TransactionKey

_ANSWER_S = 3.0
_AT_A_TIME = 64
"""Ids that the coordinator is asked for at once: it packs them in one go."""


class TransactionViews:
    """Asks the node that coordinates, and answers where this one does."""

    def __init__(
        self,
        transactions: TransactionService,
        topics: TopicService,
        routing: LeaderRouting,
        turns: Turns,
    ) -> None:
        self._turns = turns
        self._transactions = transactions
        self._topics = topics
        self._routing = routing

    def register(self, server: PeerServer) -> None:
        """Answer other nodes."""
        server.register(PeerApi.LIST_TRANSACTIONS, self._serve)

    async def listed(
        self,
        principal: Principal,
        *,
        states: Sequence[str],
        after: TransactionName | None,
        limit: int,
    ) -> Paged[TransactionListing]:
        """A page of the ids that ``principal`` may see, by family and name. Raises InvalidRequest
        for what is no state, and what keeps the coordinator from answering."""

        async def ask(place: TransactionName | None) -> Paged[TransactionListing]:
            found = await self._found(TransactionsAsked(tuple(states), place, _AT_A_TIME))
            return Paged(found.transactions, found.has_more)

        def may_see(found: TransactionListing) -> bool:
            key = TransactionKey(Family(found.family), found.transactional_id)
            return self._transactions.may_see(principal, key)

        return await visible(ask, _place, may_see, after, limit)

    async def _found(self, asked: TransactionsAsked) -> TransactionsFound:
        topic, partition = self._transactions.place
        found = self._topics.find(topic)
        leader = NO_NODE if found is None else found.partitions[partition].leader
        if leader == NO_NODE:
            raise CoordinatorNotAvailable("no node coordinates transactions now")
        if leader == self._routing.node_id:
            return await self._here(asked)
        frame = await self._routing.ask(
            leader, PeerApi.LIST_TRANSACTIONS, asked, budget_s=_ANSWER_S, changes_nothing=True
        )
        return TransactionsFound.unpack(frame.body)

    async def _serve(self, _session: Session, frame: Frame) -> tuple[TransactionsFound, bytes]:
        return await self._here(TransactionsAsked.unpack(frame.body)), b""

    async def _here(self, asked: TransactionsAsked) -> TransactionsFound:
        """The names of all are looked at, and as many ids as the page holds."""
        wanted, limit = states_named(asked.states), min(asked.limit, _AT_A_TIME)
        after = None if asked.after is None else f"{asked.after.family}/{asked.after.name}"
        keys = await self._transactions.keys()
        places = await self._turns.run(in_order(map(str, keys), after))
        found: list[TransactionInfo] = []
        while len(found) <= limit and (some := list(islice(places, _AT_A_TIME))):
            await self._turns.next()
            found += await self._transactions.infos([_key(each) for each in some], wanted)
        page = cut_off(found, limit)
        return TransactionsFound(tuple([listing_of(each) for each in page.items]), page.has_more)


def _key(place: str) -> TransactionKey:
    family, _, name = place.partition("/")
    return TransactionKey(Family(family), name)


def _place(found: TransactionListing) -> TransactionName:
    return TransactionName(found.family, found.transactional_id)
