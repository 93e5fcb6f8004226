"""Takes a node out of a cluster in order: its replicas, its vote, its registration (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from paceline.client import Client
from paceline.counted import counted, first_of
from paceline.errors import BrokerNotRegistered, InvalidRequest, PacelineError
from paceline.types import NO_NODE, NodeId
from paceline_cluster import moving, replica_plan
from paceline_cluster.errors import NoSuchNode, Refused, TooLate
from paceline_cluster.replica_plan import Move

LOOK_S = 0.2
VOTER_S = 60.0
"""How long another node may take to catch up with the metadata, and the quorum to change."""
ROUNDS = 10
"""So often replicas are looked for that came to the node while others were moved away."""

CarryOut = Callable[[list[Move]], Awaitable[list[moving.Result]]]


async def require_node(client: Client, node: NodeId) -> None:
    """Raise NoSuchNode unless the cluster has it."""
    known = [each.node_id for each in (await client.admin.describe_cluster()).brokers]
    if node not in known:
        names = ", ".join(map(str, sorted(known)))
        raise NoSuchNode(f"there is no node {node} in this cluster; it has {names}")


async def empty(client: Client, node: NodeId, carry_out: CarryOut) -> int:
    """Move every replica of ``node`` to other nodes; how many were moved. Raises Refused naming
    those that no other node can take, before anything is moved, and those that were not moved."""
    count = 0
    for _ in range(ROUNDS):
        sites, partitions = await moving.placement(client)
        plan = replica_plan.away_from([node], sites, partitions)
        if plan.stuck:
            raise Refused(first_of(plan.stuck), hint="add a node, or lower the replication factor")
        if not plan.moves:
            return count
        results = await carry_out(list(plan.moves))
        refused = [f"{each.move.at}: {each.reason}" for each in results if each.state == "refused"]
        if refused:
            raise Refused(
                f"{counted(len(refused), 'partition was', 'partitions were')} not moved: "
                f"{first_of(refused)}"
            )
        count += sum(each.state == "moved" for each in results)
    raise Refused(f"replicas come to node {node} as quickly as they are moved away")


async def hand_over_vote(client: Client, node: NodeId) -> NodeId | None:
    """If ``node`` votes on the metadata, let another node vote and this one listen; who votes now.
    None where nothing changed. Raises TooLate with the quorum's reason."""
    status = await client.admin.status()
    if node not in status.voters:
        return None
    fenced = {each.node_id for each in status.brokers if each.fenced}
    heirs = sorted(each for each in status.learners if each != node and each not in fenced)
    if not heirs:
        return None  # too few nodes for another voter: the quorum shrinks when this one is gone
    await _insisting(lambda: client.admin.add_voter(heirs[0]), f"node {heirs[0]} does not vote yet")
    await _insisting(lambda: client.admin.remove_voter(node), f"node {node} still votes")
    return heirs[0]


async def forget(client: Client, node: NodeId) -> None:
    """Unregister a node whose process has ended, as soon as the controller knows that."""
    try:
        await _insisting(
            lambda: client.admin.unregister_broker(node), f"node {node} is still registered"
        )
    except BrokerNotRegistered:
        return


async def _insisting(act: Callable[[], Awaitable[None]], so_far: str) -> None:
    """Do what may be refused for a while."""
    deadline = trio.current_time() + VOTER_S
    while True:
        try:
            await act()
        except InvalidRequest as error:
            if trio.current_time() > deadline:
                raise TooLate(f"{so_far}: {error}") from None
        else:
            return
        await trio.sleep(LOOK_S)


# --- leading nothing ------------------------------------------------------------------------------


async def drain(client: Client, node: NodeId, *, is_forced: bool, timeout_s: float) -> int:
    """Have ``node`` lead nothing until :func:`revive`, and return how many partitions it led. It
    goes on following, so nothing lacks replicas.

    Raises Refused where a partition would be without a leader, unless ``is_forced``, and TooLate.
    """
    led, alone = [], []
    for topic in await client.admin.list_topics():
        for each in topic.partitions:
            if each.leader == node:
                led.append(f"{topic.name}/{each.partition}")
                if set(each.isr) == {node}:
                    alone.append(f"{topic.name}/{each.partition}")
    if alone and not is_forced:
        raise Refused(
            f"{counted(len(alone), 'partition')} would have no leader, for no other replica is in "
            f"sync: {first_of(alone, ', ')}",
            hint="wait until 'paceline health' is healthy, or give --force",
        )
    await client.admin.fence_broker(node, fenced=True)
    deadline = trio.current_time() + timeout_s
    while left := await _led_by(client, node):
        if trio.current_time() > deadline:
            raise TooLate(f"node {node} still leads {first_of(left, ', ')}")
        await trio.sleep(LOOK_S)
    return len(led)


async def _led_by(client: Client, node: NodeId) -> list[str]:
    return [
        f"{topic.name}/{each.partition}"
        for topic in await client.admin.list_topics()
        for each in topic.partitions
        if each.leader == node
    ]


async def revive(client: Client, node: NodeId) -> int:
    """Let ``node`` lead again, and give it what it is the preferred leader of; how many it got."""
    await client.admin.fence_broker(node, fenced=False)
    count = 0
    for topic in await client.admin.list_topics():
        for each in topic.partitions:
            if each.replicas[:1] != (node,) or each.leader == node or node not in each.isr:
                continue
            try:
                await client.admin.elect_leader(topic.name, each.partition, NO_NODE)
            except PacelineError:
                continue  # pinned, or out of sync by now: the balancer looks again
            count += 1
    return count
