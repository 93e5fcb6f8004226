"""Who uses the topics of a run that do not keep all, what has to be made for them, and what is
judged in the end."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from paceline.client.client import Client
from paceline.types import TopicPartition
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.history import Recorder
from paceline_cluster.sim.oracle import Oracle
from paceline_cluster.sim.plan import Keeping, Plan, TopicPlan
from paceline_cluster.sim.retention import compacted_topic, event_streams
from paceline_cluster.sim.retention.compacted_topic import CompactedTopicWriter
from paceline_cluster.sim.retention.event_streams import EventStreamJudge, EventStreamWriter
from paceline_cluster.sim.retention.insistent_writer import InsistentWriter
from paceline_cluster.sim.retention.log_starts import LogStarts
from paceline_cluster.sim.retention.producer_state_check import differing_producer_states
from paceline_cluster.sim.retention.recreated_topic import RecreatedTopic
from paceline_cluster.sim.retention.trimmer import Trimmer

_STREAM_WRITERS = 2
_INSISTENT = 2


class RetentionClients:
    """``fail`` is told of what broke, and how. What they do is drawn apart."""

    def __init__(self, plan: Plan, recorder: Recorder, fail: Callable[[str, str], None]) -> None:
        self._plan = plan
        self._fail = fail
        rng = self._rng = random.Random(f"{plan.seed}/{plan.profile}/keepers at work")
        fork: Callable[[], random.Random] = lambda: random.Random(rng.getrandbits(64))  # noqa: E731
        self.starts = LogStarts((topic.name for topic in plan.written), fail)
        self._streams = EventStreamJudge(fail)
        self.writers: list[EventStreamWriter | CompactedTopicWriter | InsistentWriter] = []
        self._insistent: list[InsistentWriter] = []
        self.others: list[Trimmer | RecreatedTopic] = []
        self._states = CompactedTopicWriter("states", plan, fork())
        has = plan.keepings.__contains__
        if has(Keeping.TRIMMED):
            where = TopicPartition(plan.trails.name, 0)
            self.others.append(Trimmer("trimmer", where, self.starts, recorder, fork()))
        if has(Keeping.REPEATED):
            where = TopicPartition(plan.trails.name, 0)
            for number in range(_INSISTENT):
                name = f"insistent{number}"
                writer = InsistentWriter(name, where, plan, recorder, fork(), fail)
                self._insistent.append(writer)
            self.writers += self._insistent
        if has(Keeping.EVENTS):
            for number in range(_STREAM_WRITERS):
                self.writers.append(
                    EventStreamWriter(f"teller{number}", plan, self._streams, fork())
                )
        if has(Keeping.SEASONS):
            self.others.append(RecreatedTopic("almanac", plan, fail, fork()))
        if has(Keeping.STATES):
            self.writers.append(self._states)

    @property
    def read_at_last(self) -> Sequence[TopicPartition]:
        """What the last reading reads besides."""
        trails = self._plan.trails
        return [TopicPartition(trails.name, 0)] if trails in self._plan.written else []

    async def make_topics(self, client: Client, cluster: SimCluster, host: str) -> None:
        """Make what is not made by whoever uses it."""
        plan = self._plan
        if Keeping.TRIMMED in plan.keepings:
            await _make(client, plan.trails, {})
        if Keeping.STATES in plan.keepings:
            await _make(client, compacted_topic.topic_of(plan), compacted_topic.CONFIGS)
        if Keeping.EVENTS in plan.keepings:
            await event_streams.make_topic(cluster, host, self._rng)
            configs = {**event_streams.topic_of(plan).configs, **event_streams.CONFIGS}
            await client.admin.alter_topic(event_streams.TOPIC, configs)

    async def last_look(self, cluster: SimCluster, host: str) -> None:
        """Ask once more for what only answers tell."""
        for writer in self._insistent:
            await writer.last_look(cluster, host)
        if Keeping.EVENTS in self._plan.keepings:
            await event_streams.last_look(cluster, host, self._rng, self._streams)

    def judge(self, oracle: Oracle) -> None:
        """What holds when nothing moves any more."""
        self.starts.look_at_last(oracle)
        problem = differing_producer_states(oracle)
        if problem is not None:
            self._fail("M", problem)
        if Keeping.STATES in self._plan.keepings:
            problem = self._states.judge(oracle)
            if problem is not None:
                self._fail("K", problem)


async def _make(client: Client, topic: TopicPlan, configs: dict[str, str]) -> None:
    await client.admin.create_topic(
        topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replicas,
        configs={**topic.configs, **configs},
        if_not_exists=True,
    )
