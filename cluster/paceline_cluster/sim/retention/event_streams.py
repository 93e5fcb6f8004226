"""Event streams: writers who contend for the versions of a few keys, in a topic that keeps little.

A version is given once, and never falls, whatever has expired and whoever leads. What a version
says, and the snapshot of a version, is what its writer put there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import trio

from paceline.errors import PacelineError
from paceline.wire.cursus.batch import CursusRecord, parse_batch
from paceline.wire.cursus.errors import CursusError, parse_refusal
from paceline.wire.cursus.frames import framed
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.cursus import (
    AnyNode,
    CursusLink,
    CursusLinks,
    cursus_links,
    leader_told,
)
from paceline_cluster.sim.foreign_clients.links import AGAIN_S, keep_on
from paceline_cluster.sim.plan import Plan, TopicPlan

TOPIC = "tales"
CONFIGS = {"segment.bytes": "1024", "retention.bytes": "2048"}
KEYS = ("fox", "owl")
_PADDING = "." * 150
_READ = 0.1
_SNAPSHOT = 0.1


def topic_of(plan: Plan) -> TopicPlan:
    """The topic; its further settings are :data:`CONFIGS`."""
    return replace(plan.topics[0], name=TOPIC, partitions=1)


class EventStreamJudge:
    """What all were told of all streams; ``fail`` is told of what cannot be."""

    def __init__(self, fail: Callable[[str, str], None]) -> None:
        self._fail = fail
        self.newest = dict.fromkeys(KEYS, 0)
        """The newest version that was acknowledged."""
        self._highest = dict.fromkeys(KEYS, 0)
        self._offered: dict[tuple[str, int], set[str]] = {}
        self._stored: dict[tuple[str, int], str] = {}

    def offered(self, key: str, version: int, text: str) -> None:
        """A writer is about to give ``version``."""
        self._offered.setdefault((key, version), set()).add(text)
        self._highest[key] = max(version, self._highest[key])

    def stored(self, key: str, version: int, text: str) -> None:
        """A version is what it is for ever."""
        if text not in self._offered.get((key, version), ()):
            self._fail("E", f"{key}: version {version} says {text!r}, which nobody wrote")
        known = self._stored.setdefault((key, version), text)
        if known != text:
            self._fail("E", f"{key}: version {version} says {text!r}, and said {known!r}")
        self.newest[key] = max(version, self.newest[key])

    def told(self, key: str, version: int, at_least: int) -> None:
        """The stream is said to be at ``version``; before it was asked for, it was at least at
        ``at_least``."""
        if not at_least <= version <= self._highest[key]:
            self._fail(
                "E",
                f"{key}: it is at version {version}, it was at {at_least}, and "
                f"{self._highest[key]} is the highest that anybody has written",
            )

    def read(
        self, key: str, snapshot: tuple[int, str] | None, events: Sequence[CursusRecord]
    ) -> None:
        """What READ_STREAM gave."""
        if snapshot is not None and snapshot[1] != f"as of {key} {snapshot[0]}":
            self._fail("E", f"{key}: the snapshot of version {snapshot[0]} says {snapshot[1]!r}")
        versions = [event.aggregate_version for event in events]
        if versions and versions != list(range(versions[0], versions[0] + len(versions))):
            self._fail("E", f"{key}: versions {versions} in a row")
        for event in events:
            self.stored(key, event.aggregate_version, event.payload.decode())


class EventStreamWriter:
    """Appends to the streams until told to stop."""

    def __init__(self, name: str, plan: Plan, judge: EventStreamJudge, rng: random.Random) -> None:
        self.name = name
        self.stopping = False
        self.ended = trio.Event()
        self._judge = judge
        self._rng = rng
        self._pause_s = plan.foreign_pause_s
        self._count = 0

    async def run(self, cluster: SimCluster, host: str) -> None:
        async with cursus_links(cluster, host, self._rng) as links:
            node = AnyNode(links)
            while not self.stopping:
                try:
                    await self._act(links, await node.link())
                except PacelineError:
                    node.forget()
                    await trio.sleep(AGAIN_S)
                await trio.sleep(self._rng.uniform(0.0, self._pause_s))
        self.ended.set()

    async def _act(self, links: CursusLinks, link: CursusLink) -> None:
        key, chance = self._rng.choice(KEYS), self._rng.random()
        if chance < _READ:
            await read_stream(links, link, key, self._judge)
            return
        version = await version_of(link, key, self._judge)
        if chance < _READ + _SNAPSHOT and version:
            await link.ask(
                f"SAVE_SNAPSHOT topic={TOPIC} key={key} version={version} "
                f"message=as of {key} {version}"
            )
            return
        for _ in range(self._rng.choice((1, 2, 4))):
            version += 1
            await self._append(link, key, version)

    async def _append(self, link: CursusLink, key: str, version: int) -> None:
        self._count += 1
        text = f"{key} {version} by {self.name} {self._count}{_PADDING}"
        self._judge.offered(key, version, text)
        before = self._judge.newest[key]
        try:
            told = await link.ask(
                f"APPEND_STREAM topic={TOPIC} key={key} version={version} message={text}"
            )
        except CursusError as error:
            if error.word == "version_conflict":
                self._judge.told(key, int(_field(error, "current")), before)
            raise
        self._judge.stored(key, int(told["version"]), text)


def _field(error: CursusError, name: str) -> str:
    return dict(word.partition("=")[::2] for word in error.detail.split())[name]


async def version_of(link: CursusLink, key: str, judge: EventStreamJudge) -> int:
    """Ask for a stream's version, and have the answer judged."""
    before = judge.newest[key]
    told = await link.ask(f"STREAM_VERSION topic={TOPIC} key={key}")
    version = int(told["version"])
    judge.told(key, version, before)
    return version


async def read_stream(
    links: CursusLinks, link: CursusLink, key: str, judge: EventStreamJudge
) -> None:
    """Read a stream where its leader is, and have judged what it gives."""
    line = f"READ_STREAM topic={TOPIC} key={key} from_version=1"

    async def talk() -> tuple[bytes, bytes]:
        await link.stream.send_all(framed(line.encode()))
        head = await link.frame()
        return head, await link.frame() if json.loads(head)["status"] == "OK" else b""

    head, body = await link.exchange("READ_STREAM", talk)
    told = json.loads(head)
    if told["status"] != "OK":
        error = parse_refusal(f"ERROR: {told['error']}")
        leader = leader_told(error)
        if leader is None:
            raise error
        return await read_stream(links, await links.to(leader), key, judge)
    snapshot = told.get("snapshot")
    judge.read(
        key,
        None if snapshot is None else (snapshot["version"], snapshot["payload"]),
        parse_batch(body).records,
    )
    return None


async def make_topic(cluster: SimCluster, host: str, rng: random.Random) -> None:
    """Only this protocol makes topics of this kind."""
    async with cursus_links(cluster, host, rng) as links:

        async def make() -> None:
            link = await links.to_any()
            try:
                await link.say(f"CREATE topic={TOPIC} partitions=1 event_sourcing=true")
            except CursusError as error:
                if "exists" not in error.word:
                    raise

        await keep_on(make)


async def last_look(
    cluster: SimCluster, host: str, rng: random.Random, judge: EventStreamJudge
) -> None:
    """Ask for all streams once more."""
    async with cursus_links(cluster, host, rng) as links:
        for key in KEYS:

            async def ask(key: str = key) -> None:
                link = await links.to_any()
                await version_of(link, key, judge)
                await read_stream(links, link, key, judge)

            await keep_on(ask)
