"""Who votes on the metadata after nodes have come: waits for what the quorum does by itself, and
does what it was not told to when it started (DESIGN 7)."""

from __future__ import annotations

import trio

from paceline.client import Client
from paceline.errors import InvalidRequest
from paceline.types import NodeId

LOOK_S = 0.2


async def settle(client: Client, wanted: int, *, by_hand: bool, timeout_s: float) -> list[NodeId]:
    """Wait until ``wanted`` nodes vote, at most ``timeout_s``; those that do.

    ``by_hand``: voters that run were started to be fewer, so the next ones have to be named. That
    is done as soon as enough of them follow the metadata to make the number odd again.
    """
    deadline = trio.current_time() + timeout_s
    while True:
        status = await client.admin.status()
        voters = sorted(status.voters)
        if len(voters) >= wanted or trio.current_time() > deadline:
            return voters
        if by_hand:
            fenced = {each.node_id for each in status.brokers if each.fenced}
            ready = sorted(each for each in status.learners if each not in fenced)
            missing = wanted - len(voters)
            if len(ready) >= missing:
                await _add(client, ready[:missing])
        await trio.sleep(LOOK_S)


async def _add(client: Client, nodes: list[NodeId]) -> None:
    """One after the other; who was refused is asked for again when the caller looks again."""
    for node in nodes:
        try:
            await client.admin.add_voter(node)
        except InvalidRequest:
            return  # it has not caught up, or another change is under way
