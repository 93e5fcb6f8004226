"""Of a cluster that is down a producer says that nothing was sent, only where that is sure."""

import pytest
import trio

from paceline.client import ProducerSettings
from paceline.client.single_error_nursery import open_scope
from paceline.errors import (
    ErrorCode,
    LeaderNotAvailable,
    Outcome,
    PacelineError,
    RequestTimedOut,
    Unreachable,
)
from paceline.wire.native.api import NativeApi
from tests.unit.client.broker import Cluster
from tests.unit.client.harness import cluster_and_client

SHORT = ProducerSettings(delivery_timeout_s=3)


def _kill_all(cluster: Cluster) -> None:
    for node in range(3):
        cluster.kill(node)


async def test_a_topic_that_nobody_could_be_asked_of(autojump_clock: object) -> None:
    """It said that the outcome was unknown, though no record had gone anywhere."""
    async with cluster_and_client() as (cluster, client), client.producer(SHORT) as producer:
        _kill_all(cluster)
        for send in (
            lambda: producer.send("orders", b"a"),
            lambda: producer.send_many("orders", [b"a", b"b"]),
        ):
            with pytest.raises(Unreachable, match=r"orders: nothing was sent: .*refused") as caught:
                await send()
            assert caught.value.outcome is Outcome.DEFINITE
            assert not caught.value.was_sent


async def test_a_question_that_nobody_answered_in_time(autojump_clock: object) -> None:
    """The question was sent, and may have made the topic; the record was not."""
    async with cluster_and_client() as (cluster, client), client.producer(SHORT) as producer:
        for node in cluster.nodes.values():
            node.is_deaf = True
        with pytest.raises(PacelineError, match=r"orders: nothing was sent: ") as caught:
            await producer.send("orders", b"a")
        assert caught.value.outcome is Outcome.DEFINITE
        assert caught.value.retriable


async def test_a_batch_that_no_connection_took(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer(SHORT) as producer:
        (log,) = cluster.create("orders")
        await producer.send("orders", b"a")
        _kill_all(cluster)
        await trio.sleep(0.1)  # the client learns that its connections are gone
        with pytest.raises(LeaderNotAvailable, match="nothing was sent") as caught:
            await producer.send("orders", b"b")
        assert caught.value.outcome is Outcome.DEFINITE
        assert log.values() == [b"a"]


async def test_a_batch_that_a_connection_took_may_be_stored(autojump_clock: object) -> None:
    """However many attempts were refused behind it."""
    async with cluster_and_client() as (cluster, client), client.producer(SHORT) as producer:
        (log,) = cluster.create("orders")
        fault = cluster.fault(NativeApi.PRODUCE, delay_s=100)

        async def kill_once_taken() -> None:
            while not fault.hits:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
            _kill_all(cluster)

        async with open_scope() as nursery:
            nursery.start_soon(kill_once_taken)
            with pytest.raises(RequestTimedOut, match="outcome unknown") as caught:
                await producer.send("orders", b"a")
        assert "nothing was sent" not in str(caught.value)
        assert caught.value.outcome is Outcome.UNKNOWN
        assert log.values() in ([], [b"a"])


async def test_a_batch_that_was_refused_was_sent(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer(SHORT) as producer:
        cluster.create("orders")
        cluster.fault(NativeApi.PRODUCE, count=10**6, error=ErrorCode.LEADER_NOT_AVAILABLE)
        with pytest.raises(LeaderNotAvailable) as caught:
            await producer.send("orders", b"a")
        assert "nothing was sent" not in str(caught.value)
