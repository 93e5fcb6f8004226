"""Finishing what an entry began and the next one, which never came, was to go on with.

A decision about more partitions than one entry holds is split. Each entry is true by itself, but a
controller that loses its leadership in between leaves partitions that do not yet show what was
decided: a fenced broker in an ISR, a leader that an operator fenced, a partition that could have a
leader, or one that is judged by an old ``min.insync.replicas``. None of these can be found at any
other time, so whoever becomes the controller looks for them once, and mends what it finds.
"""

from __future__ import annotations

from paceline.types import NO_NODE
from paceline_node.controller import elections, topics
from paceline_node.controller.context import Draft
from paceline_node.controller.partition_change import Change
from paceline_node.settings import topic_config


def settle(draft: Draft) -> None:
    """Bring partitions to what their topics and their brokers say, as many as ``draft`` has room
    for. Nothing to do is the rule."""
    for topic in draft.image.topics.values():
        topics.apply_min_isr(draft, topic, topic_config.min_insync_replicas(topic.configs))
    brokers = draft.image.brokers
    fenced = frozenset(node for node, broker in brokers.items() if broker.fenced)
    kept_from_leading = {node for node, broker in brokers.items() if broker.operator_fenced}
    without_leader = {NO_NODE, *fenced, *kept_from_leading}
    unsettled = [
        partition
        for partition in draft.partitions()
        if partition.leader in without_leader or not fenced.isdisjoint(partition.isr)
    ]
    if draft.most is not None and len(unsettled) > draft.most:
        unsettled.sort(key=lambda partition: partition.leader not in without_leader)
    for partition in unsettled:
        if not draft.has_room():
            return
        if not fenced.isdisjoint(partition.isr):
            isr = tuple(node for node in partition.isr if node not in fenced)
            partition = draft.change(partition, Change(isr=isr))
        if partition.leader in kept_from_leading:
            partition = draft.change(partition, Change(resign=True))
        if partition.leader == NO_NODE:
            elections.elect(draft, partition)
