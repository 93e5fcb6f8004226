"""The operator of a simulated cluster: asks for changes, as a person at a terminal would.

What is refused is refused; what was asked for may be done later, or never.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import trio

from paceline.client.client import Client
from paceline.errors import PacelineError
from paceline.types import NodeId
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.oracle import Oracle
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.workload import while_connected

_PATIENCE_S = 3.0
_HOST = "10.0.2.2"

Act = Callable[[Client], Awaitable[None]]


class Operator:
    """``told`` hears (kind, target, nodes) of each change that is asked for."""

    def __init__(
        self,
        plan: Plan,
        cluster: SimCluster,
        oracle: Oracle,
        told: Callable[[str, str, Sequence[int]], None],
        note: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._oracle = oracle
        self._told = told
        self._note = note
        self._wishes: dict[str, Callable[[random.Random], tuple[str, Act] | None]] = {
            "move": self._move,
            "min-isr": self._min_isr,
            "remove-voter": self._remove_voter,
        }

    def ask(self, what: str, rng: random.Random) -> bool:
        """Ask for a change in the background; False when there is nothing to ask for."""
        wish = self._wishes[what](rng)
        if wish is None:
            return False
        target, act = wish

        async def insist(client: Client) -> None:
            try:
                await act(client)
            except PacelineError as error:
                self._note(f"operator refused: {error}")

        async def operate() -> None:
            with trio.move_on_after(_PATIENCE_S):
                await while_connected(self._cluster, _HOST, rng, insist)

        self._told(what, target, ())
        self._cluster.nursery.start_soon(operate)
        return True

    def _move(self, rng: random.Random) -> tuple[str, Act]:
        topic = rng.choice(self._plan.topics)
        partition = rng.randrange(topic.partitions)
        node = NodeId(rng.randrange(self._plan.nodes))

        async def act(client: Client) -> None:
            await client.admin.elect_leader(topic.name, partition, node)

        return f"{topic.name}/{partition} to n{node}", act

    def _min_isr(self, rng: random.Random) -> tuple[str, Act]:
        topic = rng.choice(self._plan.topics)
        value = topic.min_isr + rng.randrange(2)

        async def act(client: Client) -> None:
            await client.admin.alter_topic(topic.name, {"min.insync.replicas": str(value)})

        return f"{topic.name} {value}", act

    def _remove_voter(self, rng: random.Random) -> tuple[str, Act] | None:
        """The quorum takes another node in, or the same one back, by itself."""
        voters = self._oracle.voters()
        if not voters:
            return None
        voter = voters[rng.randrange(len(voters))]

        async def act(client: Client) -> None:
            await client.admin.remove_voter(voter.node_id, voter.directory_id)

        return f"n{voter.node_id}", act
