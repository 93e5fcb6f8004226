"""Topic commands of Cursus over the real controller (DESIGN 5.7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

import trio

from paceline.errors import (
    AuthorizationFailed,
    InvalidPartitions,
    NotLeader,
    OffsetNotAvailable,
    PacelineError,
    TopicAlreadyExists,
)
from paceline.types import NO_NODE, NodeId, is_internal_topic
from paceline.wire.cursus import replies, requests
from paceline.wire.cursus.errors import CursusError, partition_not_found, quoted, topic_not_found
from paceline.wire.cursus.replies import PartitionOffsets
from paceline.wire.cursus.requests import AuthPolicy, Partitioner, TopicPolicy
from paceline.wire.native import admin
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cursus import CursusEnds, CursusEndsAsked, CursusEndsFound
from paceline_node.env import Env
from paceline_node.listeners.cursus.session import CursusCall, PeerAnswer, Reply, text
from paceline_node.listeners.cursus.topic_lookup import TopicLookup
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.admin.topic_deletion import TopicDeletion
from paceline_node.services.event_streams.event_streams import KIND
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.records.list_offsets import OffsetService
from paceline_node.services.topics.cluster_view import TopicView
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.settings.topic_config import (
    ACCESS_POLICY,
    ACCESS_READERS,
    ACCESS_WRITERS,
    PARTITIONER,
    PRODUCER_NUMBERING,
)

_CONTROLLER_WAIT_S = 3.5
_HOUR_MS = 3_600_000
_FOR_EVER = "-1"
_SEGMENT = "segment"
_CLEANUP = {"delete,compact": "compact,delete"}
_ANSWER_S = 0.2
_NEW_TOPIC_WAIT_S = 1.0


class CursusTopics:
    """Answers CREATE, DELETE, LIST, DESCRIBE, METADATA and LIST_OFFSETS."""

    def __init__(
        self,
        env: Env,
        topics: TopicService,
        removal: TopicDeletion,
        offsets: OffsetService,
        places: TopicLookup,
        routing: LeaderRouting,
    ) -> None:
        self._env = env
        self._topics = topics
        self._removal = removal
        self._offsets = offsets
        self._places = places
        self._routing = routing

    # --- CREATE, DELETE ---------------------------------------------------------------------------

    async def create(self, request: requests.CreateTopic, call: CursusCall) -> Reply:
        """Make the topic, or grow it when it is there, and change what is named of its policy:
        clients send CREATE each time a producer starts, and say no more than the topic."""
        try:
            await self._create(request, call.principal)
        except (CursusError, AuthorizationFailed):
            raise
        except PacelineError as error:
            if error.retriable:
                raise
            detail = f"topic={request.topic} reason={quoted(str(error))}"
            raise CursusError("create_topic_failed", detail) from error
        topic = await self._places.topic(request.topic)
        return text(
            replies.ok(
                topic=topic.name,
                partitions=len(topic.partitions),
                **self._policy_fields(topic, call.principal),
            )
        )

    def _policy_fields(self, topic: TopicView, principal: Principal) -> dict[str, object]:
        """For who may not see what is set for a topic, how keys go to partitions alone: without
        that nobody can write there as others do."""
        fields = replies.policy_fields(policy_of(topic))
        if self._topics.configs(principal, topic) is None:
            return {_PARTITIONER_FIELD: fields[_PARTITIONER_FIELD]}
        return fields

    async def _create(self, request: requests.CreateTopic, principal: Principal) -> None:
        topic: TopicView | None
        topic = self._topics.look_up(principal, Operation.CREATE, request.topic)
        if topic is None:
            configs = _configs(request.policy, _FIELDS)
            if request.idempotent:
                configs[PRODUCER_NUMBERING] = "strict"
            if request.event_sourcing and not request.policy.retention_hours:
                configs["retention.ms"] = _FOR_EVER
            wish = admin.CreateTopic(
                request.topic,
                request.partitions,
                -1 if request.replication_factor is None else request.replication_factor,
                {name: value for name, value in configs.items() if value is not None},
                KIND if request.event_sourcing else "log",
            )
            try:
                await self._topics.administer(
                    principal, wish, admin.TopicCreated, timeout_s=_CONTROLLER_WAIT_S
                )
                return
            except TopicAlreadyExists:
                topic = await self._places.topic(request.topic)
        await self._adjust(topic, request, principal)

    async def _adjust(
        self, topic: TopicView, request: requests.CreateTopic, principal: Principal
    ) -> None:
        compacts = "compact" in request.policy.cleanup and "cleanup" in request.given
        if topic.kind == _SEGMENT or (topic.kind == KIND and compacts):
            raise CursusError("unsupported_topic_policy", f"topic={topic.name} kind={topic.kind}")
        wanted = _configs(request.policy, request.given)
        if wanted and self._topics.configs(principal, topic) is None:
            # Else an answer would tell who may not see it whether he named what is set.
            self._topics.check(principal, admin.AlterTopic(topic.name, wanted))
        present = len(topic.partitions)
        if request.partitions < present:
            raise InvalidPartitions(
                f"cannot decrease partition count for topic '{topic.name}': "
                f"{present} -> {request.partitions}"
            )
        if request.partitions > present:
            grow = admin.AddPartitions(topic.name, request.partitions)
            await self._topics.administer(principal, grow, admin.Done, timeout_s=_CONTROLLER_WAIT_S)
        if topic.kind == KIND and wanted.get("retention.ms", "") is None:
            wanted["retention.ms"] = _FOR_EVER
        changes = {
            name: value for name, value in wanted.items() if topic.configs.get(name) != value
        }
        if changes:
            alter = admin.AlterTopic(topic.name, changes)
            await self._topics.administer(
                principal, alter, admin.Done, timeout_s=_CONTROLLER_WAIT_S
            )

    async def delete(self, request: requests.DeleteTopic, call: CursusCall) -> Reply:
        """Remove the topic with all its records."""
        if self._topics.look_up(call.principal, Operation.DELETE, request.topic) is None:
            raise topic_not_found(request.topic)
        await self._removal.delete(call.principal, request.topic, timeout_s=_CONTROLLER_WAIT_S)
        return text(replies.ok(topic=request.topic, deleted=True))

    # --- LIST, DESCRIBE, METADATA -----------------------------------------------------------------

    async def list(self, request: requests.ListTopics, call: CursusCall) -> Reply:
        """Names of the topics that the caller may read, or one topic's number of partitions."""
        if request.topic is not None:
            topic = await self._described(request.topic, call.principal)
            return text(replies.ok(topic=topic.name, partitions=len(topic.partitions)))
        names = sorted(
            topic.name
            for topic in self._topics.visible(call.principal)
            if not is_internal_topic(topic.name) and self._topics.may_read(call.principal, topic)
        )
        return text(replies.ok(count=len(names), topics=",".join(names)))

    async def _described(self, name: str, principal: Principal) -> TopicView:
        return await self._places.topic_for(principal, Operation.DESCRIBE, name)

    async def describe(self, request: requests.DescribeTopic, call: CursusCall) -> Reply:
        """A topic with each partition's leader, replicas and ends; -1 for an end that no leader
        could be asked for."""
        topic = await self._described(request.topic, call.principal)
        offsets = await self._gather(topic, call, sorted(topic.partitions))
        policy = self._policy_fields(topic, call.principal)
        partitions = []
        for number, partition in sorted(topic.partitions.items()):
            found = offsets.get(number)
            partitions.append(
                {
                    "id": number,
                    "leader": self._places.address(self._topics.leader(partition)),
                    "replicas": [str(node) for node in partition.replicas],
                    "isr": [str(node) for node in partition.isr],
                    "leo": -1 if found is None else found.log_end,
                    "hwm": -1 if found is None else found.high_watermark,
                }
            )
        rules = {name: policy[name] for name in _DESCRIBED if name in policy}
        fields = {"topic": topic.name, "partitions": partitions, "policy": rules}
        return text(replies.status_json(fields))

    async def metadata(self, request: requests.TopicMetadata, call: CursusCall) -> Reply:
        """Who leads which partition; an empty address for one without a leader."""
        topic = await self._described(request.topic, call.principal)
        ordered = [partition for _, partition in sorted(topic.partitions.items())]
        return text(
            replies.ok(
                topic=topic.name,
                partitions=len(ordered),
                leaders=",".join(
                    self._places.address(self._topics.leader(each)) for each in ordered
                ),
                epochs=",".join(str(each.leader_epoch) for each in ordered),
                **self._policy_fields(topic, call.principal),
            )
        )

    # --- LIST_OFFSETS -----------------------------------------------------------------------------

    async def list_offsets(self, request: requests.ListOffsets, call: CursusCall) -> Reply:
        """Ends of partitions, each as its leader knows them."""
        topic = await self._described(request.topic, call.principal)
        wanted = sorted(topic.partitions)
        if request.partition is not None:
            if request.partition not in topic.partitions:
                raise partition_not_found(request.partition)
            wanted = [request.partition]
        found = await self._gather(topic, call, wanted)
        missing = [number for number in wanted if number not in found]
        if missing:
            detail = f"topic={topic.name} partition={missing[0]}"
            raise CursusError("leader_not_available", detail)
        return text(replies.list_offsets(topic.name, [found[number] for number in wanted]))

    async def _led_here(
        self, topic: TopicView, call: CursusCall, wanted: Sequence[int], *, wait_s: float
    ) -> dict[int, PartitionOffsets]:
        until = self._env.now() + wait_s
        found = {}
        for number in wanted:
            with suppress(NotLeader, OffsetNotAvailable):
                await self._routing.wait_leading(topic.name, number, until=until)
                ends = self._offsets.ends(call.principal, topic.name, number)
                found[number] = PartitionOffsets(
                    number, ends.start, ends.stable, ends.log_end, ends.high_watermark
                )
        return found

    async def _gather(
        self, topic: TopicView, call: CursusCall, wanted: Sequence[int]
    ) -> dict[int, PartitionOffsets]:
        """Ends of the partitions, from this node and from all others that lead any of them."""
        found = await self._led_here(topic, call, wanted, wait_s=_NEW_TOPIC_WAIT_S)
        others = {topic.partitions[number].leader for number in wanted if number not in found}
        async with trio.open_nursery() as nursery:
            for leader in sorted(others - {NO_NODE, self._routing.node_id}):
                nursery.start_soon(self._ask, leader, topic.name, call, found)
        return found

    async def _ask(
        self, leader: NodeId, topic: str, call: CursusCall, found: dict[int, PartitionOffsets]
    ) -> None:
        budget_s = call.deadline - self._env.now() - _ANSWER_S
        ask = CursusEndsAsked(int(budget_s * 1000), topic)
        try:
            frame = await self._routing.ask(leader, PeerApi.CURSUS_ENDS, ask, budget_s=budget_s)
        except PacelineError as error:
            if error.retriable or isinstance(error, NotLeader):
                return
            raise
        for each in CursusEndsFound.unpack(frame.body).partitions:
            ends = PartitionOffsets(
                each.partition, each.earliest, each.latest, each.log_end, each.high_watermark
            )
            found.setdefault(each.partition, ends)

    async def ends_asked(self, ask: CursusEndsAsked, call: CursusCall) -> PeerAnswer:
        """For another node: ends of the partitions that this node leads."""
        try:
            topic = await self._described(ask.topic, call.principal)
        except CursusError:
            return CursusEndsFound(()), b""
        found = await self._led_here(topic, call, sorted(topic.partitions), wait_s=0.0)
        return CursusEndsFound(tuple([CursusEnds(*each) for each in found.values()])), b""


_PARTITIONER_FIELD = "partitioner"
_DESCRIBED = ("cleanup_policy", _PARTITIONER_FIELD, "auth_policy")
_FIELDS: Mapping[str, tuple[str, Callable[[TopicPolicy], str | None]]] = {
    "cleanup": ("cleanup.policy", lambda it: _CLEANUP.get(it.cleanup, it.cleanup)),
    "retention_hours": ("retention.ms", lambda it: _set(it.retention_hours * _HOUR_MS)),
    "retention_bytes": ("retention.bytes", lambda it: _set(it.retention_bytes)),
    "partitioner": (PARTITIONER, lambda it: it.partitioner.value),
    "auth": (ACCESS_POLICY, lambda it: it.auth.value),
    "read_acl": (ACCESS_READERS, lambda it: ",".join(it.read_acl) or None),
    "write_acl": (ACCESS_WRITERS, lambda it: ",".join(it.write_acl) or None),
}
"""What is set of a topic for each part of its policy."""


def _configs(policy: TopicPolicy, fields: Collection[str]) -> dict[str, str | None]:
    """Parts of a policy as a topic's configuration; None where the broker's default is to hold."""
    return {name: value(policy) for field, (name, value) in _FIELDS.items() if field in fields}


def _set(value: int) -> str | None:
    return str(value) if value else None


def policy_of(topic: TopicView) -> TopicPolicy:
    """A topic's configuration as Cursus shows it; 0 where the broker's default holds."""
    configs = topic.configs
    cleanup = configs.get("cleanup.policy", "delete")
    return TopicPolicy(
        "delete,compact" if cleanup == "compact,delete" else cleanup,
        Partitioner(configs.get(PARTITIONER, Partitioner.HASH_KEY.value)),
        AuthPolicy(configs.get(ACCESS_POLICY, AuthPolicy.OPEN.value)),
        _names(configs, ACCESS_READERS),
        _names(configs, ACCESS_WRITERS),
        max(0, int(configs.get("retention.ms", "0"))) // _HOUR_MS,
        max(0, int(configs.get("retention.bytes", "0"))),
    )


def _names(configs: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(name for name in configs.get(key, "").split(",") if name)
