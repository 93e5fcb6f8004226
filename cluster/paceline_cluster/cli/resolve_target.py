"""From a target to the number of a node: asks the cluster for the controller or a leader."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from paceline.errors import LeaderNotAvailable, PacelineError, UnknownTopicOrPartition
from paceline.types import NO_NODE, TopicPartition
from paceline.wire.native.data import PartitionInfo
from paceline_cluster.cli.find_cluster import ClusterRef
from paceline_cluster.cli.targets import LeaderOf, NodeNumber, Target
from paceline_cluster.errors import TooLate
from paceline_cluster.node_calls import ask_metadata, ask_status

WAIT_S = 10.0
POLL_S = 0.1


async def resolve(ref: ClusterRef, target: Target) -> int:
    """The node that a target means now; waits a while for one when nobody holds the role.

    Raises TooLate when nobody takes it, ClusterStopped, UnknownTopicOrPartition.
    """
    if isinstance(target, NodeNumber):
        return int(target.id)
    deadline = trio.current_time() + WAIT_S
    addresses = ref.bootstrap()
    while True:
        try:
            if isinstance(target, LeaderOf):
                return await _leader_of(addresses, target.partition)
            return await _controller(addresses)
        except UnknownTopicOrPartition:
            raise
        except PacelineError as error:
            if ref.is_stopped():
                raise ref.stopped() from None
            if trio.current_time() > deadline:
                raise TooLate(f"{error} (waited {WAIT_S:.0f} s)") from None
        await trio.sleep(POLL_S)


async def _controller(addresses: Sequence[str]) -> int:
    """What the node with the newest metadata says; a cut-off node may name a former one."""
    found = []
    last: PacelineError = LeaderNotAvailable("there is no controller")
    for address in addresses:
        try:
            found.append(await ask_status(address))
        except PacelineError as error:
            last = error
    named = [status for status in found if status.controller != NO_NODE]
    if not named:
        raise last
    return int(max(named, key=lambda status: (status.term, status.image_offset)).controller)


async def _leader_of(addresses: Sequence[str], partition: TopicPartition) -> int:
    best: PartitionInfo | None = None
    last: PacelineError = LeaderNotAvailable(f"{partition} has no leader")
    for address in addresses:
        try:
            info = await _partition_at(address, partition)
        except PacelineError as error:
            last = error
            continue
        if best is None or info.leader_epoch > best.leader_epoch:
            best = info
    if best is None or best.leader == NO_NODE:
        raise last
    return int(best.leader)


async def _partition_at(address: str, partition: TopicPartition) -> PartitionInfo:
    reply = await ask_metadata(address, partition.topic)
    for topic in reply.topics:
        for info in topic.partitions:
            if info.partition == partition.partition:
                return info
    raise UnknownTopicOrPartition(f"{partition}: no such topic or partition")
