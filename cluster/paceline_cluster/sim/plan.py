"""What a run will be: sizes, weather, workload and faults, all drawn from one seed.

A plan is data. Each fault is drawn from a generator of its own, so any of them can be left out
without changing the others: that is what makes a failing plan shrink.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterable
from dataclasses import field, replace
from typing import NamedTuple

from paceline.values import dataclass
from paceline_cluster.sim.fabric import Weather
from paceline_cluster.sim.profiles import Profile
from paceline_node.settings.flush_mode import FlushMode

LEDGER = "ledger"
COPIES = "copies"
TALLIES = "tallies"
TRAILS = "trails"
_FOREIGN_PAUSE_S = 0.2
_FIRST_BESIDES = 10_000
"""Where the numbers of faults begin that strike beside the others."""
_OFTEN = {"log.retention_check_ms": "400", "log.compaction_check_ms": "700"}
"""What has expired goes at once."""
_CROWD_PIECE_BYTES = 8192
"""What followers are given at a time, one segment's records at most, where a crowd writes: fetched
by less over a slow network, nothing would ever be in sync."""


class ForeignClient(enum.Enum):
    """Clients of another broker, by their protocol, that may work in a run."""

    CURSUS = "cursus"
    KAFKA = "kafka"
    COORDINATOR = "coordinator"


_TRANSACTIONAL = (ForeignClient.CURSUS, ForeignClient.KAFKA)
_COPYING = 0.25


class Keeping(enum.Enum):
    """A way in which a topic does not keep all that is written to it (``retention/``)."""

    TRIMMED = "trimmed"
    REPEATED = "repeated"
    EVENTS = "events"
    SEASONS = "seasons"
    STATES = "states"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: ``at_s`` after the warm-up; whom and how long it strikes is drawn from ``draw``
    and the state of the cluster at that moment."""

    number: int
    at_s: float
    kind: str
    draw: int

    def rng(self) -> random.Random:
        return random.Random(self.draw)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic of the workload."""

    name: str
    partitions: int
    replicas: int
    min_isr: int
    flush_mode: FlushMode
    segment_bytes: int
    numbers_strictly: bool = False

    @property
    def configs(self) -> dict[str, str]:
        numbering = {"producer.numbering": "strict"} if self.numbers_strictly else {}
        return {
            **numbering,
            "min.insync.replicas": str(self.min_isr),
            "flush.mode": self.flush_mode.value,
            "segment.bytes": str(self.segment_bytes),
        }


def places_of(topics: Iterable[TopicPlan]) -> list[tuple[str, int]]:
    """All their partitions: topic and number."""
    return [(topic.name, number) for topic in topics for number in range(topic.partitions)]


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run. ``writers``, ``readers`` and so on are counts of clients (``line_``: of V1);
    where there are ``streamers``, others use segments too. Each of ``foreign_clients`` brings a
    few, each of ``foreign_copiers`` some that copy a topic in transactions, too. ``pause_s`` bounds
    a writer's pause between two writes. ``crowd`` of the writers go when all is healed: they write
    more than replicas that are behind can bear. ``spares`` are machines that have a disk but no
    process until a fault starts one. ``losses`` is how many machines may have lost data at a time;
    above min ISR - 1 the cluster need not become whole again, but must not lie. ``keepings`` are
    the ways in which further topics do not keep all. ``troubled`` of the ``members`` are static,
    slow or hang, and read a topic that dies now and then. ``audience`` is the size of a Kafka group
    that reads nothing. ``labourers`` are members of a native group that say what they have worked
    through."""

    seed: int
    profile: str
    nodes: int
    voters: int
    topics: tuple[TopicPlan, ...]
    weather: Weather
    settings: dict[str, str]
    writers: int
    readers: int
    pause_s: float
    seconds: float
    faults: tuple[Fault, ...] = field(default=())
    members: int = 0
    line_writers: int = 0
    line_members: int = 0
    spares: int = 0
    losses: int = 1
    transactors: int = 0
    streamers: int = 0
    copiers: int = 0
    crowd: int = 0
    foreign_clients: tuple[ForeignClient, ...] = ()
    foreign_copiers: tuple[ForeignClient, ...] = ()
    pipelines: int = 1
    namers: int = 0
    keepings: tuple[Keeping, ...] = ()
    troubled: int = 0
    audience: int = 0
    labourers: int = 0

    @property
    def ledger(self) -> TopicPlan:
        """The topic that is written in transactions only, two partitions at a time."""
        return replace(self.topics[0], name=LEDGER, partitions=2)

    @property
    def copies(self) -> TopicPlan:
        """Where the first topic is copied to, in transactions."""
        return replace(self.topics[0], name=COPIES, partitions=1)

    def foreign_copies(self, client: ForeignClient) -> TopicPlan:
        """Where clients of ``client`` copy the first topic to."""
        return replace(self.copies, name=f"{COPIES}.{client.value}")

    @property
    def all_copies(self) -> tuple[TopicPlan, ...]:
        """All topics that others are copied to."""
        own = (self.copies,) if self.copiers else ()
        return (*own, *[self.foreign_copies(client) for client in self.foreign_copiers])

    @property
    def tallies(self) -> TopicPlan:
        """Where Cursus producers may leave no gap between the numbers of their records."""
        return replace(self.topics[0], name=TALLIES, partitions=1, numbers_strictly=True)

    @property
    def trails(self) -> TopicPlan:
        """What is deleted from its start by clients. In segments so small that there are many, or
        so large that most of what is deleted lies on the disk still, and what it says is read at
        each start; and no number may be missing, so that whoever forgets one is found."""
        size = 32768 if Keeping.REPEATED in self.keepings else 1024
        return replace(
            self.topics[0], name=TRAILS, partitions=1, segment_bytes=size, numbers_strictly=True
        )

    @property
    def written(self) -> tuple[TopicPlan, ...]:
        """Those that writers of all kinds write to."""
        trails = (self.trails,) if Keeping.TRIMMED in self.keepings else ()
        return (*self.topics, *trails)

    @property
    def foreign_pause_s(self) -> float:
        """Bounds the pause of foreign writers between two writes: they are few, and in no haste."""
        return max(self.pause_s, _FOREIGN_PAUSE_S)

    @property
    def all_topics(self) -> tuple[TopicPlan, ...]:
        """Those that are written to by clients, and read by all."""
        ledger = (self.ledger,) if self.transactors else ()
        tallies = (self.tallies,) if ForeignClient.CURSUS in self.foreign_clients else ()
        return (*self.topics, *ledger, *tallies)

    @property
    def node_settings(self) -> dict[str, str]:
        """Settings of every node. Segments are made without a word about their configuration."""
        settings = {**_OFTEN, **self.settings} if self.keepings else self.settings
        if not self.streamers:
            return settings
        first = self.topics[0]
        return {
            "flush.mode": first.flush_mode.value,
            "log.segment_bytes": str(first.segment_bytes),
            **settings,
        }

    @property
    def may_halt(self) -> bool:
        """Whether more may be lost than the replicas can make up for."""
        return any(self.losses >= topic.min_isr for topic in self.topics)

    @property
    def counts_durable(self) -> bool:
        """Whether a power cut loses nothing that was acknowledged."""
        durable = (FlushMode.GROUP, FlushMode.BATCH)
        return all(topic.flush_mode in durable for topic in self.topics)


def draw(seed: int, profile: Profile, *, seconds: float | None = None) -> Plan:
    """The plan of a seed. Swarm: each run leaves some kinds of faults out."""
    rng = random.Random(f"{seed}/{profile.name}")
    nodes = rng.choice(profile.nodes)
    topics = _topics(rng, profile)
    length = profile.seconds if seconds is None else seconds
    workers = _workers(seed, profile)
    is_busy = bool(workers.streamers or workers.transactors)
    foreign_clients = _foreign_clients(seed, profile, is_busy=is_busy)
    return Plan(
        seed=seed,
        profile=profile.name,
        nodes=nodes,
        voters=3 if nodes < 5 or rng.random() < 0.7 else 5,
        topics=topics,
        weather=_weather(rng, profile),
        settings={**_settings(rng, profile), **profile.settings},
        writers=rng.randint(2, 4) + profile.crowd,
        readers=rng.randint(1, 2),
        pause_s=0.002 if profile.crowd else rng.choice(profile.pauses_s),
        seconds=length,
        faults=(*_faults(seed, profile, length), *_besides(seed, profile, length)),
        members=workers.members + profile.troubled,
        troubled=profile.troubled,
        labourers=profile.labourers,
        line_writers=workers.line_writers,
        line_members=workers.line_members,
        spares=profile.spares,
        losses=profile.losses,
        transactors=workers.transactors,
        streamers=workers.streamers,
        copiers=workers.copiers,
        crowd=profile.crowd,
        pipelines=profile.pipelines,
        namers=profile.namers,
        foreign_clients=foreign_clients,
        foreign_copiers=_foreign_copiers(seed, profile, foreign_clients),
        keepings=_keepings(seed, profile),
        audience=random.Random(f"{seed}/{profile.name}/audience").choice(profile.audiences),
    )


def _topics(rng: random.Random, profile: Profile) -> tuple[TopicPlan, ...]:
    mode = rng.choice(profile.flush_modes)
    least = _CROWD_PIECE_BYTES if profile.crowd else 0
    return tuple(
        TopicPlan(
            name=name,
            partitions=rng.choice((1, 1, 2, 3)),
            replicas=3,
            min_isr=2,
            flush_mode=mode,
            segment_bytes=max(least, rng.choice((2048, 8192, 65536))),
        )
        for name in ("orders", "visits")[: rng.choice((1, 2))]
    )


def _weather(rng: random.Random, profile: Profile) -> Weather:
    if not profile.rough:
        return Weather(slow_share=0.0)
    return Weather(
        latency_s=rng.choice(((0.0001, 0.001), (0.0005, 0.005), (0.005, 0.02))),
        slow_share=rng.choice((0.0, 0.001, 0.02)),
        slow_s=rng.choice((0.05, 0.3)),
        split_share=rng.choice((0.0, 0.0, 0.1)),
    )


def _settings(rng: random.Random, profile: Profile) -> dict[str, str]:
    snapshot_records = rng.choice((20, 100, 5000))
    fetch_bytes = rng.choice((1024, 4096, 1024 * 1024))
    if profile.crowd:
        fetch_bytes = max(fetch_bytes, _CROWD_PIECE_BYTES)
    return {
        "raft.snapshot_records": str(snapshot_records),
        "replication.fetch_partition_bytes": str(fetch_bytes),
    }


class _Workers(NamedTuple):
    """How many clients there are of each kind."""

    members: int
    line_writers: int
    line_members: int
    transactors: int
    copiers: int
    streamers: int


def _workers(seed: int, profile: Profile) -> _Workers:
    rng = random.Random(f"{seed}/{profile.name}/company")
    members, line_writers, line_members, transactors = (
        rng.choice(counts) for counts in ((0, 1, 2), (0, 1, 1), (0, 1, 2), (0, 1, 1, 2))
    )
    transactors, copiers = (1, 2) if transactors == 2 else (transactors, 0)
    streamers = rng.choice((0, 1, 1))
    if streamers and transactors:
        # Each costs about as much as all else.
        transactors, copiers, streamers = rng.choice(((transactors, copiers, 0), (0, 0, streamers)))
    return _Workers(members, line_writers, line_members, transactors, copiers, streamers)


def _foreign_clients(seed: int, profile: Profile, *, is_busy: bool) -> tuple[ForeignClient, ...]:
    """Which other protocols have clients in a run: none, one or two; where transactions or segments
    cost much already, one at most. Drawn apart, so that nothing else of a seed depends on it."""
    # Another word here would be another plan of every seed.
    rng = random.Random(f"{seed}/{profile.name}/guests")
    count = rng.choice((0, 1, 1, 2))
    found = rng.sample(list(ForeignClient), min(count, len(ForeignClient)))
    always = [ForeignClient(name) for name in profile.foreign_clients]
    return tuple(dict.fromkeys((*always, *(found[:1] if is_busy else found))))


def _foreign_copiers(
    seed: int, profile: Profile, foreign_clients: Iterable[ForeignClient]
) -> tuple[ForeignClient, ...]:
    """Those of ``foreign_clients`` that have transactions, now and then: they cost as much as all
    else of theirs. Drawn apart."""
    rng = random.Random(f"{seed}/{profile.name}/copying guests")
    able = [client for client in foreign_clients if client in _TRANSACTIONAL]
    return tuple(client for client in able if rng.random() < _COPYING)


def _keepings(seed: int, profile: Profile) -> tuple[Keeping, ...]:
    """Two of those that the profile has, drawn apart."""
    rng = random.Random(f"{seed}/{profile.name}/keepings")
    names = profile.keepings
    return tuple(Keeping(name) for name in rng.sample(names, min(2, len(names))))


def _faults(seed: int, profile: Profile, seconds: float) -> tuple[Fault, ...]:
    rng = random.Random(f"{seed}/{profile.name}/faults")
    shares = {kind: share for kind, share in profile.faults.items() if rng.random() >= 0.25}
    shares = shares or dict(profile.faults)
    if not shares:
        return ()
    low, high = profile.slot_s
    pace = rng.choice((0.6, 1.0, 2.0))
    faults: list[Fault] = []
    at = rng.uniform(low, high)
    while at < seconds:
        kind = rng.choices(list(shares), list(shares.values()))[0]
        faults.append(Fault(len(faults), round(at, 4), kind, rng.getrandbits(48)))
        at += rng.uniform(low, high) * pace
    return tuple(faults)


def _besides(seed: int, profile: Profile, seconds: float) -> tuple[Fault, ...]:
    """None in many runs. Drawn apart, with numbers of their own, so that the other faults stay what
    they are."""
    if not profile.besides:
        return ()
    rng = random.Random(f"{seed}/{profile.name}/besides")
    kinds, weights = list(profile.besides), list(profile.besides.values())
    count = rng.choice((0, 0, 1, 2, 3))
    times = sorted(round(rng.uniform(0.0, seconds), 4) for _ in range(count))
    return tuple(
        Fault(_FIRST_BESIDES + number, at, rng.choices(kinds, weights)[0], rng.getrandbits(48))
        for number, at in enumerate(times)
    )
