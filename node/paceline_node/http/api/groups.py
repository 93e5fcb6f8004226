"""Consumer groups."""

from __future__ import annotations

from paceline.documents.groups import group_document, listing_document, progress_document
from paceline.wire.native.groups import KAFKA_FAMILY
from paceline.wire.peer.cluster_queries import GroupProgress
from paceline.wire.peer.names import GroupName
from paceline_node.http.api.call import Call, place_of_group, place_of_partition
from paceline_node.http.api.documents import Document, listed
from paceline_node.http.problems import left_out
from paceline_node.loop_turns import Turns
from paceline_node.security.principals import ResourceKind
from paceline_node.services.groups.group_views import GroupView, GroupViews


class GroupPages:
    """Of the whole cluster."""

    def __init__(self, views: GroupViews, turns: Turns) -> None:
        self._views = views
        self._turns = turns

    async def groups(self, call: Call) -> Document:
        """As ``group list``."""
        page, reasons = await self._views.listed(
            call.principal,
            families=call.several("family"),
            states=call.several("state"),
            after=call.after_group(),
            limit=call.limit,
        )
        groups = await self._turns.run(listed(page.items, listing_document))
        last = groups[-1] if page.has_more else None
        is_whole = self._views.sees_all(call.principal)
        return {
            "groups": groups,
            "stale": "; ".join(reasons) or None,
            "hidden": None if is_whole else left_out(ResourceKind.GROUP, call.principal),
            "next": last and place_of_group(last["family"], last["group"], last["subject"]),
        }

    async def group(self, call: Call) -> Document:
        """As ``group describe``."""
        name = GroupName(
            call.text("family", KAFKA_FAMILY), call.names["group"], call.text("subject", "")
        )
        found = await self._views.describe(
            call.principal, name, after=call.after_partition(), limit=call.limit
        )
        partitions = await self._turns.run(
            listed(found.page.items, lambda each: _progress(each, found))
        )
        last = partitions[-1] if found.page.has_more else None
        return group_document(found.description, coordinator=found.coordinator) | {
            "partitions": partitions,
            "next": last and place_of_partition(last["topic"], last["partition"]),
        }


def _progress(each: GroupProgress, found: GroupView) -> Document:
    _, bounds = found.bounds.get((each.topic, each.partition), (None, None))
    return progress_document(
        each.topic,
        each.partition,
        committed=each.committed if each.committed >= 0 else None,
        start=None if bounds is None else bounds.start,
        end=None if bounds is None else bounds.end,
        member=each.member,
    )
