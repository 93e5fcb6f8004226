"""Members of a group that copy a topic exactly once (``chaos/copier.py``), over the simulated
network."""

from __future__ import annotations

import random

import trio

from paceline.client import Client, GroupSettings
from paceline_cluster.chaos.copier import Copier
from paceline_cluster.chaos.copies import Copying, judge_copies
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.plan import COPIES, Plan
from paceline_cluster.sim.transactor import SETTINGS
from paceline_cluster.sim.workload import while_connected

_MEMBERSHIP = GroupSettings(auto_commit_s=None, session_timeout_s=2.0, rebalance_timeout_s=4.0)
_DECIDED_S = 10.0


def copying(plan: Plan) -> Copying:
    """Who copies what in this run."""
    topic = plan.topics[0]
    return Copying(topic.name, topic.partitions, "copiers", COPIES, 1)


class SimCopier(Copier):
    """Copies until told to stop, on a host of its own."""

    def __init__(self, name: str, plan: Plan, rng: random.Random) -> None:
        super().__init__(
            name,
            copying(plan),
            rng,
            membership=_MEMBERSHIP,
            settings=SETTINGS,
            lives=(2.0, 8.0),
            abort=0.15,
            vanish=0.05,
        )
        self._hosts = rng
        self.ended = trio.Event()

    async def run(self, cluster: SimCluster, host: str) -> None:
        await while_connected(cluster, host, self._hosts, self.copy)
        self.ended.set()


async def what_is_wrong_with_copies(client: Client, plan: Plan) -> str | None:
    """What is wrong with the copies, once all transactions are decided; None for nothing."""
    judgement = await judge_copies(client, copying(plan), decided_s=_DECIDED_S)
    return judgement.problem
