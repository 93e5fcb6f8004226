"""Kafka administration of topics and settings.

Any node takes these: it asks the active controller (DESIGN 6.4).
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import (
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    PacelineError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from paceline.types import NodeId, is_internal_topic, is_valid_topic_name
from paceline.wire.kafka import topics as wire
from paceline.wire.native import admin
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.errors import code_of, message_of
from paceline_node.security.principals import Operation
from paceline_node.services.admin.topic_deletion import TopicDeletion
from paceline_node.services.topics.topic_service import ADMIN_TIMEOUT_S, TopicService
from paceline_node.settings.topic_config import KEYS, ConfigKey, Source, problems

_TOPIC, _BROKER = 2, 4
_SOURCES = {Source.TOPIC: 1, Source.NODE: 4, Source.DEFAULT: 5}
_TYPE_STRING, _TYPE_LONG = 2, 5
_SET, _DELETE = 0, 1
_CONFIGS_UNITS = 5
"""What telling the settings of a topic takes."""
_TOLD = 5


class KafkaTopics:
    """Creates, deletes, grows and configures topics."""

    def __init__(self, topics: TopicService, removal: TopicDeletion) -> None:
        self._topics = topics
        self._removal = removal

    # --- topics -----------------------------------------------------------------------------------

    async def create(
        self, request: wire.CreateTopicsRequest, call: Call
    ) -> wire.CreateTopicsResponse:
        """Each topic has its own answer."""
        timeout_s = _seconds(request.timeout_ms)
        results = [
            await self._create(topic, call, timeout_s, validate_only=request.validate_only)
            async for topic in call.pace.each(request.topics)
        ]
        return wire.CreateTopicsResponse(topics=tuple(results))

    async def _create(
        self,
        asked: wire.CreateTopicsRequestTopic,
        call: Call,
        timeout_s: float,
        *,
        validate_only: bool,
    ) -> wire.CreateTopicsResponseTopic:
        try:
            wish = admin.CreateTopic(
                asked.name,
                asked.num_partitions,
                asked.replication_factor,
                await _settings(asked.configs, call),
                assignment=await _assignment(asked.assignments, call),
            )
            if is_internal_topic(asked.name):
                raise PolicyViolation(f"{asked.name}: names that begin with __ are the broker's")
            if validate_only:
                self._check(wish, call)
                return wire.CreateTopicsResponseTopic(name=asked.name, error_code=0, configs=())
            created = await self._topics.administer(
                call.principal, wish, admin.TopicCreated, timeout_s=timeout_s
            )
        except PacelineError as error:
            return wire.CreateTopicsResponseTopic(
                name=asked.name,
                error_code=code_of(error),
                error_message=message_of(error),
                configs=(),
            )
        return wire.CreateTopicsResponseTopic(
            name=asked.name,
            topic_id=created.topic_id,
            error_code=0,
            num_partitions=created.partitions,
            replication_factor=created.replication_factor,
            configs=(),
        )

    def _check(self, wish: admin.CreateTopic, call: Call) -> None:
        """What can be said of a topic without making it."""
        found = self._topics.look_up(call.principal, Operation.CREATE, wish.name)
        if not is_valid_topic_name(wish.name):
            raise InvalidTopic(wish.name)
        if found is not None:
            raise TopicAlreadyExists(wish.name)
        wrong = problems(wish.configs)
        if wrong:
            raise InvalidConfig("; ".join(wrong))

    async def delete(
        self, request: wire.DeleteTopicsRequest, call: Call
    ) -> wire.DeleteTopicsResponse:
        """Deletes topics by name."""
        timeout_s = _seconds(request.timeout_ms)
        results = []
        async for name in call.pace.each(await call.pace.once_each(request.topic_names)):
            error = await self._try(admin.DeleteTopic(name), name, call, timeout_s)
            results.append(
                wire.DeleteTopicsResponseEntry(
                    name=name,
                    error_code=0 if error is None else code_of(error),
                    error_message=None if error is None else message_of(error),
                )
            )
        return wire.DeleteTopicsResponse(responses=tuple(results))

    async def grow(
        self, request: wire.CreatePartitionsRequest, call: Call
    ) -> wire.CreatePartitionsResponse:
        """Adds partitions; where they lie is the controller's choice."""
        timeout_s = _seconds(request.timeout_ms)
        results = []
        async for asked in call.pace.each(request.topics):
            error: PacelineError | None
            if asked.assignments or request.validate_only:
                error = InvalidRequest("neither assignments nor validate_only are served here")
            else:
                wish = admin.AddPartitions(asked.name, asked.count)
                error = await self._try(wish, asked.name, call, timeout_s)
            results.append(
                wire.CreatePartitionsResponseResult(
                    name=asked.name,
                    error_code=0 if error is None else code_of(error),
                    error_message=None if error is None else message_of(error),
                )
            )
        return wire.CreatePartitionsResponse(results=tuple(results))

    async def _try(
        self,
        wish: admin.DeleteTopic | admin.AddPartitions | admin.AlterTopic,
        name: str,
        call: Call,
        timeout_s: float,
    ) -> PacelineError | None:
        try:
            if is_internal_topic(name):
                raise PolicyViolation(f"{name}: internal topics cannot be changed")
            if isinstance(wish, admin.DeleteTopic):
                await self._removal.delete(call.principal, name, timeout_s=timeout_s)
            else:
                await self._topics.administer(call.principal, wish, admin.Done, timeout_s=timeout_s)
        except PacelineError as error:
            return error
        return None

    # --- settings ---------------------------------------------------------------------------------

    async def describe_configs(
        self, request: wire.DescribeConfigsRequest, call: Call
    ) -> wire.DescribeConfigsResponse:
        """What holds for topics; of a broker nothing is told but that it is there."""
        return wire.DescribeConfigsResponse(
            results=tuple(
                [
                    self._configs(asked, request, call)
                    async for asked in call.pace.each(
                        await call.pace.once_each(request.resources), _CONFIGS_UNITS
                    )
                ]
            )
        )

    def _configs(
        self,
        asked: wire.DescribeConfigsRequestResource,
        request: wire.DescribeConfigsRequest,
        call: Call,
    ) -> wire.DescribeConfigsResponseResult:
        try:
            configs = self._config_entries(asked, call, documented=request.include_documentation)
        except PacelineError as error:
            return wire.DescribeConfigsResponseResult(
                error_code=code_of(error),
                error_message=message_of(error),
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        return wire.DescribeConfigsResponseResult(
            error_code=0,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=tuple(configs),
        )

    def _config_entries(
        self, asked: wire.DescribeConfigsRequestResource, call: Call, *, documented: bool
    ) -> list[wire.DescribeConfigsResponseResultConfig]:
        name = asked.resource_name
        if asked.resource_type == _BROKER:
            self._topics.overview(call.principal)
            return []
        if asked.resource_type != _TOPIC:
            raise InvalidRequest(f"resources of type {asked.resource_type} have no settings here")
        topic = self._topics.look_up(call.principal, Operation.DESCRIBE_CONFIGS, name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        wanted = set(KEYS if asked.configuration_keys is None else asked.configuration_keys)
        return [
            # What a topic stores is its own to tools that compare it with what they have set.
            _entry(
                key,
                value,
                Source.TOPIC if key.name in topic.configs else source,
                documented=documented,
            )
            for key, value, source in self._topics.settings(topic)
            if key.name in wanted
        ]

    async def alter_configs(
        self, request: wire.IncrementalAlterConfigsRequest, call: Call
    ) -> wire.IncrementalAlterConfigsResponse:
        """Sets and removes settings of topics."""
        results = []
        async for asked in call.pace.each(request.resources):
            error = await self._alter(asked, call, validate_only=request.validate_only)
            results.append(
                wire.IncrementalAlterConfigsResponseEntry(
                    error_code=0 if error is None else code_of(error),
                    error_message=None if error is None else message_of(error),
                    resource_type=asked.resource_type,
                    resource_name=asked.resource_name,
                )
            )
        return wire.IncrementalAlterConfigsResponse(responses=tuple(results))

    async def _alter(
        self,
        asked: wire.IncrementalAlterConfigsRequestResource,
        call: Call,
        *,
        validate_only: bool,
    ) -> PacelineError | None:
        if asked.resource_type != _TOPIC:
            return InvalidRequest(f"resources of type {asked.resource_type} cannot be altered here")
        changes: dict[str, str | None] = {}
        async for each in call.pace.each(asked.configs):
            if each.config_operation not in (_SET, _DELETE):
                return InvalidRequest(
                    f"{each.name}: operation {each.config_operation} is for lists"
                )
            changes[each.name] = each.value if each.config_operation == _SET else None
        wish = admin.AlterTopic(asked.resource_name, changes)
        if validate_only:
            return self._problem(wish, call)
        return await self._try(wish, asked.resource_name, call, ADMIN_TIMEOUT_S)

    def _problem(self, wish: admin.AlterTopic, call: Call) -> PacelineError | None:
        """What can be said of a change without making it."""
        try:
            self._topics.check(call.principal, wish)
        except PacelineError as error:
            return error
        wrong = problems({name: text for name, text in wish.configs.items() if text is not None})
        return InvalidConfig("; ".join(wrong)) if wrong else None


def _seconds(timeout_ms: int) -> float:
    return max(0.0, min(timeout_ms / 1000, ADMIN_TIMEOUT_S)) or ADMIN_TIMEOUT_S


async def _settings(
    asked: Sequence[wire.CreateTopicsRequestTopicConfig], call: Call
) -> dict[str, str]:
    return {each.name: each.value async for each in call.pace.each(asked) if each.value is not None}


async def _assignment(
    asked: Sequence[wire.CreateTopicsRequestTopicAssignment], call: Call
) -> tuple[tuple[NodeId, ...], ...]:
    found = {
        each.partition_index: tuple(map(NodeId, each.broker_ids))
        async for each in call.pace.each(asked)
    }
    if len(found) < len(asked) or any(number not in found for number in range(len(asked))):
        named = sorted(found)[:_TOLD]
        raise InvalidRequest(
            f"replicas are assigned to {len(asked)} partitions, {named} and so on: expected "
            f"0 to {len(asked) - 1}, each once"
        )
    return tuple([found[number] for number in range(len(asked))])


def _entry(
    key: ConfigKey, value: str, source: Source, *, documented: bool
) -> wire.DescribeConfigsResponseResultConfig:
    is_text = bool(key.choices or key.text_max)
    return wire.DescribeConfigsResponseResultConfig(
        name=key.name,
        value=value,
        config_source=_SOURCES[source],
        config_type=_TYPE_STRING if is_text or key.is_share else _TYPE_LONG,
        documentation=key.doc if documented else None,
    )
