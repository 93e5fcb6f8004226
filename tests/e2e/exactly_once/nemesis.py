"""What happens to the nodes and the copiers meanwhile: drawn from a seed, one blow after the other.

All kinds come once, in any order, before one comes again: so a short run has each of them too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import trio

from paceline.client import Client, connect
from paceline.errors import PacelineError
from paceline_cluster.chaos.nemesis import look
from paceline_cluster.faulty.fleet import Fleet
from tests.e2e.exactly_once.copiers import Copier

HEAL_S = 180.0
TRANSACTIONS, GROUPS = "__transactions", "__groups"
_DOWN_S = (0.1, 2.0)
_PAUSE_S = (0.5, 3.0)
_BREATH_S = 20.0
_LOOK_AGAIN_S = 0.2


@dataclass
class Nemesis:
    """``outputs``: the topics that are written in transactions. ``struck`` counts the blows that
    fell while some copier was at work."""

    fleet: Fleet
    copiers: Mapping[str, Copier]
    outputs: tuple[str, ...]
    rng: random.Random
    say: Callable[[str], None]
    struck: Counter[str] = field(default_factory=Counter)

    @property
    def kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "rolling restart": self._roll,
            "kill the leader of __transactions": lambda: self._kill_leader(TRANSACTIONS),
            "kill a leader of __groups": lambda: self._kill_leader(GROUPS),
            "kill a leader of an output": lambda: self._kill_leader(self.rng.choice(self.outputs)),
            "move __transactions": lambda: self._move(TRANSACTIONS, 1),
            "move partitions of __groups": lambda: self._move(GROUPS, 8),
            "move an output": lambda: self._move(self.rng.choice(self.outputs), 2),
            "kill a copier": self._kill_copier,
        }

    async def run(self, stop: trio.Event) -> None:
        """Strike until told to stop, and finish the blow: cut off, one would leave a node on its
        way down, to be taken for one that runs. Raises TooLate when the cluster does not recover.
        """
        while not stop.is_set():
            bag = sorted(self.kinds)
            self.rng.shuffle(bag)
            for kind in bag:
                with trio.move_on_after(self.rng.uniform(*_PAUSE_S)):
                    await stop.wait()
                    return
                self.say(kind)
                await self.kinds[kind]()
                if any(not each.has_ended for each in self.copiers.values()):
                    self.struck[kind] += 1
                if self.rng.random() < 0.7:  # else the next blow meets those that have not got over
                    await self._breathe(stop)

    async def _breathe(self, stop: trio.Event) -> None:
        """Until every copier has got on, for a while: struck all the time, the slow ones among many
        on a small machine would come to nothing between two blows."""
        before = {name: each.written for name, each in self.copiers.items()}
        with trio.move_on_after(_BREATH_S):
            while True:
                waiting = [name for name, each in self.copiers.items() if not each.has_ended]
                if stop.is_set() or all(self.copiers[at].written != before[at] for at in waiting):
                    return
                await trio.sleep(_LOOK_AGAIN_S)

    async def _roll(self) -> None:
        for node in self.fleet.nodes:
            await self.fleet.terminate(node)
            self.fleet.start(node)
            await self.fleet.wait_healthy(HEAL_S)

    async def _kill_leader(self, topic: str) -> None:
        picture = await look(self.fleet)
        names = [name for name in sorted(picture.partitions) if name.startswith(f"{topic}/")]
        leaders = [picture.partitions[name].leader for name in names]
        node = self.rng.choice([each for each in leaders if each is not None] or [0])
        await self.fleet.kill(node)
        await trio.sleep(self.rng.uniform(*_DOWN_S))
        self.fleet.start(node)
        await self.fleet.wait_healthy(HEAL_S)

    async def _move(self, topic: str, most: int) -> None:
        try:
            async with connect(self.fleet.bootstrap) as client:
                await self._move_by(client, topic, most)
        except PacelineError as error:
            self.say(f"  {topic} was not moved: {error}")

    async def _move_by(self, client: Client, topic: str, most: int) -> None:
        partitions = list((await client.admin.topic(topic)).partitions)
        for each in self.rng.sample(partitions, min(most, len(partitions))):
            heirs = sorted(node for node in each.isr if node != each.leader)
            if heirs:
                await client.admin.elect_leader(topic, each.partition, self.rng.choice(heirs))

    async def _kill_copier(self) -> None:
        working = sorted(name for name, each in self.copiers.items() if not each.has_ended)
        if working:
            self.copiers[self.rng.choice(working)].kill()
