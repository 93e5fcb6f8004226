"""The Kafka listener: the protocol that today's Kafka clients speak (DESIGN 6).

A thin driver: messages and versions are ``paceline/wire/kafka``'s, what is done is the services'.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from paceline.wire.kafka import apis
from paceline.wire.kafka.apis import APIS
from paceline_node.env import Env
from paceline_node.listeners.kafka.api_handlers import api_handlers
from paceline_node.listeners.kafka.connection import (
    KafkaConnection,
    KafkaLimits,
    KafkaShared,
)
from paceline_node.listeners.kafka.driven_requests import CoordinatorRequests
from paceline_node.listeners.kafka.login import LOGIN_APIS
from paceline_node.listeners.kafka.produce import KafkaProduce
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
        handlers = api_handlers(env, services, removal)
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
