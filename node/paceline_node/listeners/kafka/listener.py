"""The Kafka listener: the protocol that today's Kafka clients speak (DESIGN 6).

A thin driver: messages and versions are ``paceline/wire/kafka``'s, what is done is the services'.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from paceline.wire.kafka import apis
from paceline.wire.kafka.apis import APIS
from paceline_node.env import Env
from paceline_node.listeners.kafka.acls import KafkaAcls
from paceline_node.listeners.kafka.call import Handlers
from paceline_node.listeners.kafka.cluster import KafkaCluster
from paceline_node.listeners.kafka.connection import (
    KafkaConnection,
    KafkaLimits,
    KafkaShared,
)
from paceline_node.listeners.kafka.coordinator import CoordinatorRequests
from paceline_node.listeners.kafka.fetch import KafkaFetch
from paceline_node.listeners.kafka.groups import KafkaGroups
from paceline_node.listeners.kafka.login import LOGIN_APIS
from paceline_node.listeners.kafka.offsets import KafkaOffsets
from paceline_node.listeners.kafka.produce import KafkaProduce
from paceline_node.listeners.kafka.topics import KafkaTopics
from paceline_node.listeners.kafka.transactions import KafkaTransactions
from paceline_node.listeners.kafka.trims import KafkaTrims
from paceline_node.listeners.kafka.users import KafkaUsers
from paceline_node.listeners.serving import Client
from paceline_node.observe.metrics import Metrics
from paceline_node.observe.rate_limited_log import RateLimitedLog
from paceline_node.security.authentication import Authenticator
from paceline_node.services.admin.topic_deletion import TopicDeletion
from paceline_node.services.broker_services import BrokerServices

_ALWAYS = frozenset({0, apis.API_VERSIONS}) | LOGIN_APIS
"""What a connection answers itself."""


class KafkaListener:
    """Serves Kafka connections."""

    def __init__(
        self,
        env: Env,
        services: BrokerServices,
        removal: TopicDeletion,
        limits: KafkaLimits,
        metrics: Metrics,
        coordinator: CoordinatorRequests,
        authenticator: Authenticator,
        *,
        after_append: Callable[[], None],
    ) -> None:
        handlers = _handlers(env, services, removal)
        names = {key: api.request.__name__.removesuffix("Request") for key, api in APIS.items()}
        self._shared = KafkaShared(
            produce=KafkaProduce(env, services.produce),
            handlers=handlers,
            versions=apis.advertised(_ALWAYS | handlers.keys()),
            limits=limits,
            meters=metrics.requests_by("kafka", {key: name.lower() for key, name in names.items()}),
            coordinator=coordinator,
            authenticator=authenticator,
            after_append=after_append,
            log=RateLimitedLog(),
            turns=services.turns,
            run_blocking=env.host.run_blocking,
        )

    async def serve(self, stream: trio.abc.Stream, client: Client) -> None:
        """Serve one connection to its end; owns and closes ``stream``."""
        async with stream:
            await KafkaConnection(self._shared, client).run(stream)


def _handlers(env: Env, services: BrokerServices, removal: TopicDeletion) -> Handlers:
    cluster = KafkaCluster(
        services.topics,
        services.groups,
        services.status,
        services.transactions,
        services.authorized,
    )
    fetch = KafkaFetch(env, services.fetch, services.offsets, services.turns)
    groups = KafkaGroups(services.groups, services.authorized)
    offsets = KafkaOffsets(services.groups)
    topics = KafkaTopics(services.topics, removal)
    transactions = KafkaTransactions(
        services.producer_ids,
        services.transactions,
        services.transaction_offsets,
        services.groups,
        services.produce,
    )
    trims = KafkaTrims(services.trimming)
    users = KafkaUsers(services.users)
    acls = KafkaAcls(services.acls)
    return {
        1: fetch.fetch,
        2: fetch.list_offsets,
        3: cluster.metadata,
        8: offsets.commit,
        9: offsets.fetch,
        10: cluster.find_coordinator,
        11: groups.join,
        12: groups.heartbeat,
        13: groups.leave,
        14: groups.sync,
        15: groups.describe,
        16: groups.list,
        19: topics.create,
        20: topics.delete,
        21: trims.delete_records,
        22: transactions.init_producer,
        23: fetch.end_of_epoch,
        24: transactions.add_partitions,
        25: transactions.add_offsets,
        26: transactions.end,
        28: transactions.commit_offsets,
        29: acls.describe,
        30: acls.create,
        31: acls.delete,
        32: topics.describe_configs,
        37: topics.grow,
        42: groups.delete,
        44: topics.alter_configs,
        47: offsets.delete,
        50: users.describe,
        51: users.alter,
        60: cluster.describe_cluster,
    }
