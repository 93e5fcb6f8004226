"""Which clients each guest of a run brings, and what is asked of their groups in the end."""

from __future__ import annotations

import random
from collections.abc import Callable

from paceline_cluster.sim.cluster import CURSUS_PORT, SimCluster
from paceline_cluster.sim.guests.cursus import CursusLink
from paceline_cluster.sim.guests.cursus_member import GROUP as CURSORS
from paceline_cluster.sim.guests.cursus_member import CursusMember, committed, coordinator_of
from paceline_cluster.sim.guests.cursus_reader import CursusReader
from paceline_cluster.sim.guests.cursus_writer import CursusWriter
from paceline_cluster.sim.guests.links import Links, keep_on
from paceline_cluster.sim.history import Recorder
from paceline_cluster.sim.plan import Guest, Plan

GuestWriter = CursusWriter
GuestReader = CursusReader | CursusMember
_MEMBERS = 2


def invited(plan: Plan, recorder: Recorder) -> tuple[list[GuestWriter], list[GuestReader]]:
    """Those who come to an end when they are told to stop, and those who are cancelled. What they
    do is drawn apart, so that all others of a seed do what they would without them."""
    rng = random.Random(f"{plan.seed}/{plan.profile}/guests at work")
    fork: Callable[[], random.Random] = lambda: random.Random(rng.getrandbits(64))  # noqa: E731
    writers: list[GuestWriter] = []
    others: list[GuestReader] = []
    topic = plan.topics[0]
    if Guest.CURSUS in plan.guests:
        writers.append(CursusWriter("cw0", plan, recorder, fork(), is_numbered=True))
        others_numbered = rng.random() < 0.5
        writers.append(CursusWriter("cw1", plan, recorder, fork(), is_numbered=others_numbered))
        others.append(CursusReader("cr", plan, recorder, fork()))
        others += [CursusMember(f"cm{n}", topic, recorder, fork()) for n in range(_MEMBERS)]
    return writers, others


async def last_questions(
    plan: Plan, recorder: Recorder, cluster: SimCluster, host: str, rng: random.Random
) -> None:
    """Ask what the guests' groups have committed, until all is told."""
    if Guest.CURSUS in plan.guests:
        topic = plan.topics[0]
        async with Links(cluster, host, CURSUS_PORT, CursusLink, rng) as links:

            async def ask() -> None:
                link = await links.to(await coordinator_of(links, CURSORS))
                for number in range(topic.partitions):
                    await committed(link, topic.name, number, recorder)

            await keep_on(ask)
