"""One question to one node, named by address: status, and that the whole cluster stops.

The client's Admin asks whichever node can answer; a survey needs exactly this one.
"""

from __future__ import annotations

from typing import TypeVar

import trio

from paceline.client.connection import Connection
from paceline.client.endpoint import Endpoint
from paceline.client.settings import ClientSettings
from paceline.client.tls_connection import dial_for
from paceline.client.transport import dial_tcp
from paceline.errors import ErrorCode, PacelineError
from paceline.types import INTERNAL_TOPICS
from paceline.wire.message import Message
from paceline.wire.native.admin import Done
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import (
    MetadataReply,
    MetadataRequest,
    Status,
    StatusReply,
    StopCluster,
)

M = TypeVar("M", bound=Message)

_TIMEOUT_S = 2.0


async def ask_status(address: str) -> StatusReply:
    """What a node says of itself. Raises PacelineError within about four seconds."""
    return await _ask(address, NativeApi.STATUS, Status(), StatusReply)


async def ask_to_stop(address: str) -> Done:
    """Tell a node that the whole cluster stops (paceline_node/DESIGN 2.4). Raises PacelineError."""
    return await _ask(address, NativeApi.STOP_CLUSTER, StopCluster(), Done)


async def ask_metadata(address: str, topic: str | None) -> MetadataReply:
    """What a node knows of one topic, or of all (None). Raises PacelineError."""
    body = MetadataRequest(None if topic is None else (topic,))
    return await _ask(address, NativeApi.METADATA, body, MetadataReply)


async def count_internal_topics(address: str) -> int | None:
    """How many topics of the brokers' own there are; None where who asks is not told. Raises
    PacelineError."""
    reply = await _ask(address, NativeApi.METADATA, MetadataRequest(INTERNAL_TOPICS), MetadataReply)
    if any(topic.error == ErrorCode.AUTHORIZATION_FAILED for topic in reply.topics):
        return None
    return sum(not topic.error for topic in reply.topics)


async def _ask(address: str, api: NativeApi, body: Message, reply: type[M]) -> M:
    settings = ClientSettings(
        client_id="paceline-cli", connect_timeout_s=_TIMEOUT_S, request_timeout_s=_TIMEOUT_S
    )
    endpoint = Endpoint.parse(address)
    dial = dial_for(endpoint, None, dial_tcp)
    connection = Connection(endpoint, settings, dial, cluster_id=None, on_change=_ignore_change)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(connection.run)
            try:
                answer = await connection.call(api, body, reply)
            finally:
                connection.close()
    except BaseExceptionGroup as group:
        raise only(group) from None
    return answer


def _ignore_change() -> None:
    """A single question has no use for a connection's changes."""


def only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one typed error of a group, or the group itself when it holds anything else."""
    known, other = group.split(PacelineError)
    if other is None and known is not None:
        first: BaseException = known
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        return first
    return group
