"""Topics and partitions."""

from __future__ import annotations

from itertools import islice

from paceline.documents.topics import (
    NO_CONTROLLER,
    TopicSummary,
    partition_document,
    topic_document,
)
from paceline.errors import UnknownTopicOrPartition
from paceline.types import NO_NODE
from paceline_node.http.api.call import Call, number, place_of_partition
from paceline_node.http.api.documents import Document, listed
from paceline_node.http.problems import left_out
from paceline_node.loop_turns import Turns
from paceline_node.security.principals import ResourceKind
from paceline_node.services.admin.node_status import StatusService
from paceline_node.services.admin.topic_views import (
    TROUBLES,
    NamedPartition,
    TopicViews,
    Wanted,
)
from paceline_node.services.topics.cluster_view import TopicView
from paceline_node.sliced_work import Work

_COUNTED_AT_A_TIME = 32
_COUNTED_UNITS = 2


class TopicPages:
    """Of the whole cluster."""

    def __init__(self, views: TopicViews, status: StatusService, turns: Turns) -> None:
        self._views = views
        self._status = status
        self._turns = turns

    async def topics(self, call: Call) -> Document:
        """As ``topic list``."""
        page = await self._views.listed(
            call.principal,
            internal=call.flag("internal"),
            after=call.text("after", ""),
            limit=call.limit,
        )
        topics = [await self._turns.run(_summary(each)) for each in page.items]
        return {
            "topics": topics,
            "stale": self._stale,
            "hidden": self._hidden(call),
            "next": topics[-1]["name"] if page.has_more else None,
        }

    async def topic(self, call: Call) -> Document:
        """As ``topic describe``."""
        found, has_more = await self._views.describe(
            call.principal, call.names["topic"], after=call.after_number(), limit=call.limit
        )
        partitions = await self._turns.run(listed(found.partitions, partition_document))
        return topic_document(found, has_controller=self._status.controller != NO_NODE) | {
            "partitions": partitions,
            "next": str(partitions[-1]["partition"]) if has_more else None,
        }

    async def partition(self, call: Call) -> Document:
        """One of a topic's."""
        name, text = call.names["topic"], call.names["partition"]
        try:
            found = await self._views.partition(call.principal, name, number(text))
        except ValueError:
            raise UnknownTopicOrPartition(f"{name}/{text}: partitions are numbers") from None
        return _named(found)

    async def partitions(self, call: Call) -> Document:
        """Of all topics, or one, each with its topic."""
        topic = call.text("topic", "") or None
        wanted = Wanted(
            topic=topic,
            internal=call.flag("internal") or topic is not None,
            node=call.node("node"),
            trouble=call.one_of("trouble", TROUBLES),
        )
        page = await self._views.partitions(
            call.principal, wanted, after=call.after_partition(), limit=call.limit
        )
        partitions = await self._turns.run(listed(page.items, _named))
        last = partitions[-1] if page.has_more else None
        place = None if last is None else place_of_partition(last["topic"], last["partition"])
        hidden = None if topic is not None else self._hidden(call)
        return {"partitions": partitions, "stale": self._stale, "hidden": hidden, "next": place}

    def _hidden(self, call: Call) -> str | None:
        """That a list may not hold all."""
        is_whole = self._views.sees_all(call.principal)
        return None if is_whole else left_out(ResourceKind.TOPIC, call.principal)

    @property
    def _stale(self) -> str | None:
        """Why a list that metadata choose, or count, may be out of date."""
        return NO_CONTROLLER if self._status.controller == NO_NODE else None


def _named(found: NamedPartition) -> Document:
    return {"topic": found.topic, **partition_document(found.description)}


def _summary(topic: TopicView) -> Work[Document]:
    summary = TopicSummary(topic.name, topic.topic_id, topic.kind)
    rest = iter(topic.partitions.values())
    while some := list(islice(rest, _COUNTED_AT_A_TIME)):
        yield _COUNTED_UNITS
        summary.add(some)
    return summary.document()
