"""The planner's side of the cluster: topics, ids, ends, look-ups. Blocking calls.

One client is kept for a query's life; a failed look-up is tried again from fresh metadata, as often
as ``fetchOffset.numRetries`` says, because a failover must not end a query (DESIGN 2.4).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TypeVar

from paceline.client import ClientSettings, blocking
from paceline.client.offsets import Sought, Wanted
from paceline.errors import PacelineError, UnknownTopicOrPartition
from paceline.spark.errors import OptionError
from paceline.spark.facts import Facts, PartitionFacts
from paceline.spark.options import Link, SourceOptions, Topics
from paceline.types import Isolation, LeaderEpoch, OffsetSpec, TopicPartition, is_internal_topic
from paceline.wire.native.data import OffsetFound, TopicInfo

T = TypeVar("T")
FIRST_CONTACT_S = 10.0
"""How long planning goes on trying while every address refuses it: long enough for a cluster that
is starting, and short for who has named a wrong port. Tasks take the client's own, longer time:
they begin when the cluster has been reached before."""


def connect(link: Link, role: str, first_contact_s: float | None = None) -> blocking.Client:
    """A client for one process of a query. Raises ConnectionLost, ConfigurationError."""
    settings = ClientSettings(
        client_id=f"{link.client_id}-{role}", first_contact_timeout_s=first_contact_s
    )
    return blocking.connect(list(link.bootstrap), settings)


def reach(link: Link) -> None:
    """Contact the cluster once, so that a wrong address ends a write before it has tasks, each of
    which would try for longer. Raises as :func:`connect`."""
    connect(link, "planner", FIRST_CONTACT_S).close()


class Cluster:
    """Look-ups for planning. Connects at the first one; :meth:`close` ends the connections."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: blocking.Client | None = None

    @property
    def client(self) -> blocking.Client:
        """The connected client."""
        if self._client is None:
            self._client = connect(self._options.link, "planner", FIRST_CONTACT_S)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def retrying(self, work: Callable[[], T]) -> T:
        """Do ``work``, again after a pause while it fails in ways that may pass. The first contact
        is none of these: it has waited for long enough by itself."""
        left = self._options.fetch_retries
        _ = self.client
        while True:
            try:
                return work()
            except PacelineError as error:
                if left <= 0 or not error.retriable:
                    raise
            left -= 1
            time.sleep(self._options.fetch_retry_ms / 1000)

    # --- looking ----------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        """The cluster's id, as hex text."""
        return self.client.admin.describe_cluster().cluster_id.hex

    def topics(self) -> dict[str, TopicInfo]:
        """The topics that the query reads and that exist, fresh."""
        wanted = self._options.topics
        known = {info.name: info for info in self.client.admin.list_topics()}
        if wanted.pattern:
            matching = re.compile(wanted.pattern)
            return {
                name: info
                for name, info in known.items()
                if matching.fullmatch(name) and not is_internal_topic(name)
            }
        return {name: known[name] for name in _names(wanted) if name in known}

    def require(self, topics: Container[str]) -> None:
        """Raise OptionError when a topic that was named is not among ``topics``, unless
        ``waitForTopics``."""
        for name in _names(self._options.topics):
            if name not in topics and not self._options.wait_for_topics:
                raise OptionError(
                    f"paceline: {name}: no such topic (waitForTopics=true makes a stream wait)"
                )

    def partitions(self, topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
        """What is read of ``topics``."""
        present = [
            TopicPartition(name, each.partition)
            for name, info in sorted(topics.items())
            for each in info.partitions
        ]
        assigned = self._options.topics.assigned
        if not assigned:
            return sorted(present)
        missing = [at for at in assigned if at.topic in topics and at not in set(present)]
        if missing:
            raise UnknownTopicOrPartition(f"{missing[0]}: the topic has no such partition")
        return [at for at in assigned if at.topic in topics]

    def find(self, wanted: Mapping[TopicPartition, Wanted]) -> dict[TopicPartition, OffsetFound]:
        """Offsets for the query's isolation."""
        if not wanted:
            return {}
        return self.client.admin.find_offsets(wanted, isolation=self._options.isolation)

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetFound]:
        """Where the partitions end now."""
        return self.find(dict.fromkeys(partitions, int(OffsetSpec.LATEST)))

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the partitions' logs begin now."""
        found = self.find(dict.fromkeys(partitions, int(OffsetSpec.EARLIEST)))
        return {at: each.offset for at, each in found.items()}

    def _stored_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted: dict[TopicPartition, Wanted] = dict.fromkeys(partitions, int(OffsetSpec.LATEST))
        if not wanted or self._options.isolation is Isolation.READ_UNCOMMITTED:
            return {}
        found = self.client.admin.find_offsets(wanted, isolation=Isolation.READ_UNCOMMITTED)
        return {at: each.offset for at, each in found.items()}

    def ahead(
        self, after: Mapping[TopicPartition, int], sizes: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The offsets that so many stored bytes behind ``after`` reach."""
        wanted: dict[TopicPartition, Wanted] = {
            at: Sought(OffsetSpec.AHEAD, after_offset=after[at], ahead_bytes=size)
            for at, size in sizes.items()
        }
        return {at: each.offset for at, each in self.find(wanted).items()}

    def facts(
        self,
        epochs: Mapping[TopicPartition, int],
        positions: Mapping[TopicPartition, int] | None = None,
    ) -> Facts:
        """Everything that planning needs. ``epochs``: the checkpoint's leader epochs, whose ends
        are asked for where another epoch leads now. ``positions``: its offsets; where one is beyond
        the end, what is stored but not committed is asked for too."""
        topics = self.topics()
        partitions = self.partitions(topics)
        ends = self.ends(partitions)
        starts = self.starts(partitions)
        passed: dict[TopicPartition, Wanted] = {
            at: Sought(OffsetSpec.EPOCH_END, epoch=LeaderEpoch(epochs[at]))
            for at in partitions
            if 0 <= epochs.get(at, -1) < ends[at].leader_epoch
        }
        epoch_ends = self.find(passed)
        beyond = [at for at in partitions if (positions or {}).get(at, 0) > ends[at].offset]
        stored = self._stored_ends(beyond)
        return Facts(
            self.cluster_id(),
            {name: topic_id(info) for name, info in topics.items()},
            {
                at: PartitionFacts(
                    starts[at],
                    ends[at].offset,
                    ends[at].leader_epoch,
                    epoch_ends[at].offset if at in epoch_ends else None,
                    stored.get(at),
                )
                for at in partitions
            },
        )

    def publish(self, group: str, ends: Mapping[TopicPartition, int]) -> None:
        """Store progress as a group's offsets, for tools that show lag (no membership)."""
        self.client.admin.groups.alter_offsets(group, dict(ends))


def topic_id(info: TopicInfo) -> str:
    """The topic's id as text."""
    assert info.topic_id is not None
    return info.topic_id.hex


def _names(wanted: Topics) -> list[str]:
    return sorted(set(wanted.names) | {at.topic for at in wanted.assigned})
