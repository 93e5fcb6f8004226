"""Who leads what: a cache of the cluster's metadata, refreshed when somebody finds it wrong.

:class:`ClusterView` is the cache, without I/O. :class:`Metadata` refreshes it: one request at a
time for all who ask, from whichever node answers, with a growing pause while nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from paceline.client.endpoint import Endpoint
from paceline.client.pool import ConnectionPool
from paceline.client.retry import Backoff, retrying
from paceline.client.settings import ClientSettings
from paceline.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    ErrorCode,
    LeaderNotAvailable,
    PacelineError,
    RequestTimedOut,
    UnknownTopicOrPartition,
    Unreachable,
    error_for,
)
from paceline.login import ClientLogin
from paceline.tls import ClientTls
from paceline.types import (
    NO_EPOCH,
    NO_NODE,
    TOPIC_NAMES,
    LeaderEpoch,
    NodeId,
    TopicId,
    TopicPartition,
)
from paceline.values import dataclass
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import (
    BrokerInfo,
    MetadataReply,
    MetadataRequest,
    PartitionInfo,
    TopicInfo,
)

QUIET_S = 1.0
"""After this long without a refresh the next one is made at once."""
MISSING_TOPIC_WAIT_S = 2.0
"""How long a topic may take to appear after it was first asked for."""
CATCH_UP_MS = 1000
"""How long a node may take to include what this client has changed, before another is asked."""
GONE_KEPT = 1000
"""Of how many topics that are gone it is remembered by what metadata."""


@dataclass(frozen=True, slots=True)
class Leader:
    """``node`` is -1 while there is none."""

    node: NodeId
    epoch: LeaderEpoch


class ClusterView:
    """Newest known facts. Nodes may lag behind each other, so an answer whose leader epoch is
    older than the known one does not replace it, unless the topic is another one of that name.

    Hints say nothing of which topic they mean, and may be of one that had the name before: the
    epoch of a hint that has proved wrong gives way to metadata that were asked for after it.
    ``hints`` counts those that were news.
    """

    def __init__(self) -> None:
        self.hints = 0
        self.brokers: dict[NodeId, BrokerInfo] = {}
        self.controller = NO_NODE
        self._topics: dict[str, TopicInfo] = {}
        self._leaders: dict[TopicPartition, Leader] = {}
        self._doubted: set[TopicPartition] = set()
        self._hinted: dict[TopicPartition, int] = {}
        """Which hint named the leader, where metadata have not."""
        self._newest: dict[str, tuple[TopicId, int]] = {}
        """Which topic had a name last, and by metadata up to where."""
        self._forgotten_to = -1
        """What older metadata say of a name that is not in ``_newest`` may long be over."""

    def topic(self, name: str) -> TopicInfo | None:
        """The topic, None when it was never asked for; its ``error`` may say that it is missing."""
        return self._topics.get(name)

    def topic_id(self, name: str) -> TopicId | None:
        """Which topic has the name, None when that is not known."""
        found = self._topics.get(name)
        return None if found is None or found.error else found.topic_id

    def topics(self) -> list[TopicInfo]:
        """All known topics that exist, by name."""
        return [self._topics[name] for name in sorted(self._topics) if not self._topics[name].error]

    def partition_count(self, name: str) -> int:
        """One more than the highest partition of a known topic, 0 otherwise. Numbers that a topic
        of kind ``segment`` leaves out count as empty partitions (DESIGN 2.2)."""
        topic = self._topics.get(name)
        if topic is None or topic.error:
            return 0
        return max((each.partition for each in topic.partitions), default=-1) + 1

    def leader(self, at: TopicPartition) -> Leader | None:
        """The leader, None when unknown, doubted or absent."""
        leader = self._leaders.get(at)
        if leader is None or leader.node == NO_NODE or at in self._doubted:
            return None
        return leader

    def doubt(self, at: TopicPartition, epoch: LeaderEpoch = NO_EPOCH) -> None:
        """The leader of ``epoch`` did not act as one: not to be used until metadata confirm it."""
        leader = self._leaders.get(at)
        if leader is not None and (epoch == NO_EPOCH or leader.epoch <= epoch):
            self._doubted.add(at)

    def learn(self, at: TopicPartition, node: NodeId, epoch: LeaderEpoch) -> bool:
        """Take the hint of an answer. Returns whether it was news."""
        known = self._leaders.get(at)
        if known is None or node == NO_NODE or node not in self.brokers or epoch <= known.epoch:
            return False
        self._leaders[at] = Leader(node, epoch)
        self._doubted.discard(at)
        self.hints += 1
        self._hinted[at] = self.hints
        return True

    def update(self, reply: MetadataReply, *, whole: bool, hints: int = 0) -> bool:
        """Take over an answer; ``whole`` says that it names every topic, ``hints`` how many there
        were when it was asked for. Returns whether the leader of any partition changed."""
        self.brokers = {broker.node_id: broker for broker in reply.brokers}
        self.controller = reply.controller
        if whole:
            present = {topic.name for topic in reply.topics}
            for name in [name for name in self._topics if name not in present]:
                self._forget(name)
        changed = False
        for topic in reply.topics:
            changed |= self._update_topic(topic, reply.metadata_offset, hints)
        if len(self._newest) > len(self._topics) + GONE_KEPT:
            self._forget_gone()
        return changed

    def _update_topic(self, topic: TopicInfo, metadata_offset: int, hints: int) -> bool:
        known = self._topics.get(topic.name)
        lags = False
        if topic.topic_id is not None:
            newest, told_at = self._newest.get(topic.name, (None, self._forgotten_to))
            lags = metadata_offset < told_at
            if lags and topic.topic_id != newest:
                return False  # it had the name before
            self._newest[topic.name] = (topic.topic_id, max(told_at, metadata_offset))
        if known is not None and known.topic_id != topic.topic_id:
            self._forget(topic.name)
        self._topics[topic.name] = topic
        changed = known is None or known.error != topic.error
        for partition in topic.partitions:
            at = TopicPartition(topic.name, partition.partition)
            is_refuted = not lags and self._is_doubted_hint(at, hints)
            changed |= self._update_leader(at, partition, is_refuted=is_refuted)
        return changed

    def _update_leader(
        self, at: TopicPartition, partition: PartitionInfo, *, is_refuted: bool
    ) -> bool:
        known = self._leaders.get(at)
        if known is not None and partition.leader_epoch < known.epoch and not is_refuted:
            return False
        self._doubted.discard(at)
        self._hinted.pop(at, None)
        leader = Leader(partition.leader, partition.leader_epoch)
        self._leaders[at] = leader
        return leader != known

    def _is_doubted_hint(self, at: TopicPartition, hints: int) -> bool:
        """Whether the leader is known by one of the first ``hints``, and did not act as one."""
        return at in self._doubted and self._hinted.get(at, hints + 1) <= hints

    def _forget(self, name: str) -> None:
        topic = self._topics.pop(name)
        for partition in topic.partitions:
            at = TopicPartition(name, partition.partition)
            self._leaders.pop(at, None)
            self._doubted.discard(at)
            self._hinted.pop(at, None)

    def _forget_gone(self) -> None:
        """Keep the half of the topics that are gone of which there was word last."""
        gone = [name for name in self._newest if name not in self._topics]
        gone.sort(key=lambda name: self._newest[name][1])
        for name in gone[: len(gone) - GONE_KEPT // 2]:
            _, told_at = self._newest.pop(name)
            self._forgotten_to = max(self._forgotten_to, told_at)


class Metadata:
    """Keeps a :class:`ClusterView` fresh. :meth:`run` is its task."""

    def __init__(
        self,
        pool: ConnectionPool,
        settings: ClientSettings,
        backoff: Backoff,
        *,
        pattern: Endpoint,
    ) -> None:
        self.view = ClusterView()
        self._pool = pool
        self._settings = settings
        self._backoff = backoff
        self._pattern = pattern
        self._wanted: set[str] = set()
        self._creating: set[str] = set()
        self._all_wanted = False
        self._asked = 0
        self._answered = 0
        self._error: PacelineError | None = None
        self._least_offset = -1  # metadata must include this client's own changes
        self._fruitless = 0  # refreshes in a row that changed nothing
        self._last_node = NO_NODE
        self._wake = trio.Event()
        self._done = trio.Event()

    def request(self, topics: Iterable[str], *, auto_create: bool = False) -> None:
        """Have these topics looked up soon; returns at once."""
        names = set(topics)
        self._wanted |= names
        if auto_create:
            self._creating |= names
        self._asked += 1
        self._wake.set()

    def request_all(self) -> None:
        """Have all topics looked up soon; returns at once."""
        self._all_wanted = True
        self._asked += 1
        self._wake.set()

    def expect(self, metadata_offset: int) -> None:
        """Take no metadata that do not include this record: this client has made it."""
        self._least_offset = max(self._least_offset, metadata_offset)

    @property
    def refusal(self) -> AuthenticationFailed | None:
        """Why no node lets this client in, when it was last tried."""
        return self._error if isinstance(self._error, AuthenticationFailed) else None

    async def refresh(
        self,
        topics: Iterable[str] | None,
        *,
        auto_create: bool = False,
        unreachable_s: float | None = None,
    ) -> None:
        """Wait for metadata asked for after this call; None means all topics.

        Keeps trying until a node answers or the operation timeout is over, ``unreachable_s`` where
        every address refuses, then raises the last error. Errors that no retry can help
        (authentication, another cluster) are raised at once.
        """
        if topics is None:
            self.request_all()
        else:
            self.request(topics, auto_create=auto_create)
        ticket = self._asked
        patience_s = self._settings.operation_timeout_s
        refused_s = patience_s if unreachable_s is None else unreachable_s
        begun = trio.current_time()
        error: PacelineError | None = None
        with trio.move_on_after(max(patience_s, refused_s)) as scope:
            while self._answered < ticket:
                await self._done.wait()
                error = self._error
                if error is None:
                    continue
                limit_s = refused_s if isinstance(error, Unreachable) else patience_s
                if not error.retriable or trio.current_time() - begun >= limit_s:
                    raise error
        if scope.cancelled_caught:
            raise error or RequestTimedOut(f"no metadata within {patience_s} s")

    async def topic(self, name: str, *, auto_create: bool = False) -> TopicInfo:
        """The topic, looked up if need be. Raises UnknownTopicOrPartition, InvalidTopic."""
        known = self.view.topic(name)
        if known is None or known.error:
            await self.refresh([name], auto_create=auto_create)
            known = self.view.topic(name)
        if known is None:
            raise UnknownTopicOrPartition(f"{name}: no such topic")
        if known.error:
            if known.error == ErrorCode.AUTHORIZATION_FAILED:
                raise AuthorizationFailed(f"{self._asker()} may not describe topic {name}")
            raise error_for(known.error, f"{name}: {_missing(known.error)}")
        return known

    def _asker(self) -> str:
        """Who this client is to the nodes, as far as it knows that itself."""
        login = self._settings.login or self._pattern.login or ClientLogin.from_environ()
        if login is not None:
            return login.username or f"the owner of {login.password_file}"
        tls = self._settings.tls or self._pattern.tls or ClientTls.from_environ()
        if tls is not None and tls.certificate:
            return f"the owner of {tls.certificate}"
        return "anonymous"

    async def topic_soon(self, name: str, *, auto_create: bool = False) -> TopicInfo:
        """As :meth:`topic`, for one that may just have been created: waits a little for it."""
        return await retrying(
            lambda: self.topic(name, auto_create=auto_create),
            timeout_s=MISSING_TOPIC_WAIT_S,
            backoff=self._backoff,
        )

    async def leader(self, at: TopicPartition) -> Leader:
        """The partition's leader, looked up if need be. Raises LeaderNotAvailable when there is
        none now, UnknownTopicOrPartition."""
        leader = self.view.leader(at)
        if leader is None:
            await self.refresh([at.topic])
            leader = self.view.leader(at)
        if leader is not None:
            return leader
        if at.partition >= self.view.partition_count(at.topic):
            raise UnknownTopicOrPartition(f"{at}: no such partition")
        raise LeaderNotAvailable(f"{at}: no leader")

    # --- the task ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve requests until cancelled."""
        last_end = -QUIET_S
        while True:
            await self._wake.wait()
            if trio.current_time() - last_end >= QUIET_S:
                self._fruitless = 0
            if self._fruitless:
                await trio.sleep(self._backoff.pause_s(self._fruitless - 1))
            self._wake = trio.Event()
            ticket = self._asked
            try:
                changed = await self._fetch()
            except PacelineError as error:
                self._error = error
                self._fruitless += 1
                self._wake.set()
            else:
                self._error = None
                self._answered = ticket
                self._fruitless = 0 if changed else self._fruitless + 1
            last_end = trio.current_time()
            done, self._done = self._done, trio.Event()
            done.set()

    async def _fetch(self) -> bool:
        names, self._wanted = self._wanted, set()
        everything, self._all_wanted = self._all_wanted, False
        creating = self._creating & names
        try:
            changed = False
            if everything:
                changed = await self._ask(None, auto_create=False)
            # Creation is asked for by name, apart, so that a look-up never makes a topic.
            for group, create in ((names - creating, False), (creating, True)):
                if group or not (names or everything or create):
                    changed |= await self._ask(tuple(sorted(group)), auto_create=create)
        except BaseException:
            self._wanted |= names
            self._all_wanted |= everything
            raise
        self._creating -= creating
        return changed

    async def _ask(self, topics: tuple[str, ...] | None, *, auto_create: bool) -> bool:
        # A node that is cut off from the others answers with old facts: then ask another.
        connection = await self._pool.to_any(avoid=self._last_node if self._fruitless else NO_NODE)
        if connection.hello is not None:
            self._last_node = connection.hello.node_id
        hints = self.view.hints
        reply = await connection.call(
            NativeApi.METADATA,
            MetadataRequest(topics, auto_create, self._least_offset, CATCH_UP_MS),
            MetadataReply,
            wait_s=CATCH_UP_MS / 1000,
        )
        return self.take(reply, whole=topics is None, hints=hints)

    def take(self, reply: MetadataReply, *, whole: bool = False, hints: int = 0) -> bool:
        """Take over an answer; returns whether a leader changed. ``whole`` and ``hints`` as in
        :meth:`ClusterView.update`."""
        changed = self.view.update(reply, whole=whole, hints=hints)
        self._pool.set_brokers(
            {
                broker.node_id: endpoint
                for broker in reply.brokers
                if (endpoint := self._pattern.for_broker(broker)) is not None
            }
        )
        self._pool.changed()
        return changed


def _missing(error: int) -> str:
    if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "no such topic"
    if error == ErrorCode.INVALID_TOPIC:
        return f"no topic can have this name: expected {TOPIC_NAMES}"
    try:
        return ErrorCode(error).name.lower().replace("_", " ")
    except ValueError:  # of a newer broker
        return f"error code {error}"
