"""How much of the metadata each broker holds for good, as the metadata know it (DESIGN 2.8).

A directory that holds less when its next process starts is an older copy of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paceline.types import NodeId
from paceline_node.controller.liveness import Sessions
from paceline_node.controller.metadata_records import DurableOffset
from paceline_node.controller.registered_broker import Broker

NOT_KNOWN = -1


def news(
    brokers: Mapping[NodeId, Broker], noted: Mapping[NodeId, int], sessions: Sessions
) -> tuple[DurableOffset, ...]:
    """Of those brokers that hold more than was ``noted``."""
    return tuple(
        DurableOffset(node, broker.broker_epoch, offset)
        for node, broker in sorted(brokers.items())
        if (offset := sessions.durable_offset(node)) > noted.get(node, NOT_KNOWN)
    )


def with_news(
    noted: Mapping[NodeId, int],
    told: Iterable[DurableOffset],
    brokers: Mapping[NodeId, Broker],
) -> Mapping[NodeId, int]:
    """``noted`` after what was ``told`` by processes that are still the registered ones."""
    known = {
        each.node_id: each.offset
        for each in told
        if each.node_id in brokers and brokers[each.node_id].broker_epoch == each.broker_epoch
    }
    return {**noted, **known} if known else noted


def without(noted: Mapping[NodeId, int], node: NodeId) -> Mapping[NodeId, int]:
    """``noted`` when the process of ``node`` is no longer the registered one."""
    return {each: offset for each, offset in noted.items() if each != node}
