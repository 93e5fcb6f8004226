"""Topics by name: look-up, creation on first use, administration through the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

from paceline.errors import (
    InvalidTopic,
    PolicyViolation,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from paceline.types import NO_NODE, TOPIC_NAMES, NodeId, is_internal_topic, is_valid_topic_name
from paceline.wire.message import Message
from paceline.wire.native import admin
from paceline_node.controller.client import ControllerClient
from paceline_node.controller.image import Image, TopicImage
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.security.principals import Operation, Principal, Resource, ResourceKind
from paceline_node.services.authorization.admin_permissions import permissions_for
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.topics.cluster_view import PartitionView, TopicView
from paceline_node.settings.topic_config import ConfigKey, Source, effective

M = TypeVar("M", bound=Message)

ADMIN_TIMEOUT_S = 10.0
"""How long one administrative request may take, unless its listener promises less."""


def _no_defaults() -> Mapping[str, str]:
    return {}


class TopicService:
    """What listeners ask about topics."""

    def __init__(
        self,
        env: Env,
        store: MetadataStore,
        controller: ControllerClient,
        access: Authorizer,
        *,
        auto_create: bool,
        is_cut_off: Callable[[NodeId], bool],
        defaults: Callable[[], Mapping[str, str]] = _no_defaults,
    ) -> None:
        """``is_cut_off``: whether a node is this one, without a session; ``defaults``: this node's
        values for what topics do not set, as they are now."""
        self._env = env
        self._store = store
        self._controller = controller
        self._access = access
        self._auto_create = auto_create
        self._is_cut_off = is_cut_off
        self._defaults = defaults

    @property
    def image(self) -> Image:
        """The newest committed metadata applied here."""
        return self._store.image

    def find(self, name: str) -> TopicImage | None:
        """The topic of that name, if this node knows it."""
        return self._store.image.find_topic(name)

    async def await_topic(self, name: str, *, timeout_s: float) -> TopicImage | None:
        """As :meth:`find`, for those that were told by another node that the topic was made and
        may be here before the news."""
        if (topic := self.find(name)) is not None:
            return topic
        with suppress(RequestTimedOut):
            await self._store.wait_for(
                lambda image: image.find_topic(name) is not None, timeout_s=timeout_s
            )
        return self.find(name)

    def settings(self, topic: TopicImage) -> Iterator[tuple[ConfigKey, str, Source]]:
        """What holds for a topic here, and where each setting is from."""
        factor = topic.replication_factor
        return effective(topic.configs, self._defaults(), replication_factor=factor)

    def partition(self, name: str, partition: int) -> PartitionRegistration:
        """The registration of a partition. Raises UnknownTopicOrPartition naming what exists."""
        topic = self.find(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        found = topic.partitions.get(partition)
        if found is None:
            raise UnknownTopicOrPartition(
                f"{name}/{partition}: the topic has partitions 0 to {max(topic.partitions)}"
            )
        return found

    def leader(self, partition: PartitionView) -> NodeId:
        """Where to send clients of a partition: to its leader as the metadata here have it, -1
        while there is none. Not to this node while it is cut off (replication/DESIGN 4.1): another
        may lead by now, and this one is the last to hear of it."""
        return NO_NODE if self._is_cut_off(partition.leader) else partition.leader

    def look_up(self, principal: Principal, operation: Operation, name: str) -> TopicImage | None:
        """As :meth:`find`, for ``principal`` to do this to the topic. Raises AuthorizationFailed,
        whether there is such a topic or not."""
        self._access.topic(principal, operation, name)
        return self.find(name)

    def visible(self, principal: Principal) -> list[TopicImage]:
        """All topics that ``principal`` may see."""
        topics = self._store.image.topics.values()
        return [topic for topic in topics if self.may_see(principal, topic)]

    def may_see(self, principal: Principal, topic: TopicView) -> bool:
        """Whether ``principal`` may know of a topic."""
        resource = Resource(ResourceKind.TOPIC, topic.name)
        return self._access.allows(principal, Operation.DESCRIBE, resource)

    def configs(self, principal: Principal, topic: TopicView) -> Mapping[str, str] | None:
        """What was set for a topic; None for who may not see that."""
        resource = Resource(ResourceKind.TOPIC, topic.name)
        may = self._access.allows(principal, Operation.DESCRIBE_CONFIGS, resource)
        return topic.configs if may else None

    def sees_all(self, principal: Principal) -> bool:
        """Whether lists of topics leave nothing out for ``principal``."""
        return self._access.sees_all(principal, ResourceKind.TOPIC)

    def may_read(self, principal: Principal, topic: TopicView) -> bool:
        """Whether ``principal`` may read a topic's records."""
        resource = Resource(ResourceKind.TOPIC, topic.name)
        return self._access.allows(principal, Operation.CONSUME, resource)

    def overview(self, principal: Principal) -> Image:
        """The whole cluster's metadata. Raises AuthorizationFailed."""
        self._access.cluster(principal, Operation.DESCRIBE)
        return self._store.image

    async def ensure(self, principal: Principal, name: str, *, timeout_s: float) -> TopicImage:
        """The topic, created with the cluster's defaults when it does not exist and the broker
        creates on first use. Internal names are never created (DESIGN 1.4).

        Raises AuthorizationFailed (creation only: what is done with it is asked apart),
        InvalidTopic, PolicyViolation, UnknownTopicOrPartition, or the controller's error.
        """
        topic = self.find(name)
        if topic is not None:
            return topic
        self._access.topic(principal, Operation.CREATE, name)
        if not is_valid_topic_name(name):
            raise InvalidTopic(f"{name!r}: expected {TOPIC_NAMES}")
        if is_internal_topic(name):
            raise PolicyViolation(f"{name!r}: names that begin with __ are the broker's own")
        if not self._auto_create:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist; create it first")
        request = admin.CreateTopic(name, auto_create=True)
        created = await self._controller.call(request, admin.TopicCreated, timeout_s=timeout_s)
        await self._store.wait_offset(created.metadata_offset, timeout_s=timeout_s)
        topic = self.find(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} was deleted while it was created")
        return topic

    def check(self, principal: Principal, request: Message) -> None:
        """Raise AuthorizationFailed unless ``principal`` may have an administrative request carried
        out: for who looks only whether that could be done."""
        for operation, resource in permissions_for(request):
            self._access.resource(principal, operation, resource)

    async def administer(
        self,
        principal: Principal,
        request: Message,
        response: type[M],
        *,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> M:
        """Send an administrative request to the active controller and return once this node has
        applied its result. Raises AuthorizationFailed or the controller's typed error."""
        self.check(principal, request)
        deadline = self._env.now() + timeout_s
        reply = await self._controller.call(request, response, timeout_s=timeout_s)
        offset = getattr(reply, "metadata_offset", None)
        if offset is not None:
            left_s = max(0.0, deadline - self._env.now())
            await self._store.wait_offset(offset, timeout_s=left_s)
        return reply

    async def appears(self, name: str, partition: int, *, timeout_s: float) -> bool:
        """Whether this node knows a partition, now or within ``timeout_s``."""

        def is_there(image: Image) -> bool:
            topic = image.find_topic(name)
            return topic is not None and partition in topic.partitions

        try:
            await self._store.wait_for(is_there, timeout_s)
        except RequestTimedOut:
            return False
        return True

    async def wait_offset(self, offset: int, *, timeout_s: float) -> None:
        """Return once this node has applied metadata record ``offset``; else RequestTimedOut."""
        await self._store.wait_offset(offset, timeout_s=timeout_s)
