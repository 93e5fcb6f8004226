"""What a coordinator meets with is told so that every client asks again: each handler, each error.

What clients repeat is read off their sources (librdkafka, Java, kafka-python, aiokafka). Anything
else they take for the end of the transaction, or raise into the program.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paceline.errors import ErrorCode, PacelineError, error_for
from paceline.wire.kafka import cluster, groups, offsets
from paceline.wire.kafka import transactions as tx
from paceline_node.client_memory import Portion, unlimited
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.cluster import KafkaCluster
from paceline_node.listeners.kafka.coordinator_errors import CoordinatorApi, coordinator_code
from paceline_node.listeners.kafka.groups import KafkaGroupRequests
from paceline_node.listeners.kafka.offsets import KafkaOffsets
from paceline_node.listeners.kafka.transactions import KafkaTransactions
from paceline_node.loop_turns import Turns
from paceline_node.request_pace import Pace
from paceline_node.security.principals import ANONYMOUS
from paceline_node.services.groups.offsets_to_commit import OffsetsToCommit

LOADING, ABSENT, ELSEWHERE, CONCURRENT, REJOIN, UNKNOWN_TOPIC = 14, 15, 16, 51, 27, 3

ON_THE_WAY = [
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.LEADER_CHANGED_AFTER_APPEND,
    ErrorCode.CONNECTION_LOST,
    ErrorCode.CLOSED,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.STORAGE_FULL,
    ErrorCode.STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.CONTROLLER_UNAVAILABLE,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.THROTTLED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
]
"""Errors that say nothing about the request."""

TRANSACTIONAL = {
    "librdkafka": {LOADING, ABSENT, ELSEWHERE, CONCURRENT},
    "java": {LOADING, ABSENT, ELSEWHERE, CONCURRENT},
    "kafka-python": {LOADING, ABSENT, ELSEWHERE, CONCURRENT},
    "aiokafka": {LOADING, ABSENT, ELSEWHERE, CONCURRENT},
}
REPEATED: dict[CoordinatorApi, dict[str, set[int]]] = {
    CoordinatorApi.FIND_COORDINATOR: {"all": {ABSENT, LOADING, ELSEWHERE}},
    CoordinatorApi.JOIN_GROUP: {"all": {LOADING, ABSENT, ELSEWHERE, REJOIN}},
    # 14 is "unexpected" to Java, and raised into the program.
    CoordinatorApi.SYNC_GROUP: {"java": {ABSENT, ELSEWHERE, REJOIN}},
    CoordinatorApi.HEARTBEAT: {"java": {ABSENT, ELSEWHERE, REJOIN, 0}},
    CoordinatorApi.LEAVE_GROUP: {"all": {LOADING, ABSENT, ELSEWHERE}},
    CoordinatorApi.OFFSET_COMMIT: {"all": {LOADING, ABSENT, ELSEWHERE}},
    CoordinatorApi.OFFSET_FETCH: {"java before 2.4": {LOADING, ELSEWHERE}},
    CoordinatorApi.OFFSET_DELETE: {"java": {LOADING, ABSENT, ELSEWHERE}},
    CoordinatorApi.LIST_GROUPS: {"java": {LOADING, ABSENT, ELSEWHERE}},
    CoordinatorApi.DESCRIBE_GROUPS: {"java": {LOADING, ABSENT, ELSEWHERE}},
    CoordinatorApi.DELETE_GROUPS: {"java": {LOADING, ABSENT, ELSEWHERE}},
    CoordinatorApi.INIT_PRODUCER_ID: TRANSACTIONAL,
    # Java looks up a coordinator of no id at the others, and fails.
    CoordinatorApi.PRODUCER_ID_ALONE: {"java": {LOADING}},
    CoordinatorApi.ADD_PARTITIONS_TO_TXN: TRANSACTIONAL,
    CoordinatorApi.ADD_OFFSETS_TO_TXN: TRANSACTIONAL,
    CoordinatorApi.TXN_OFFSET_COMMIT: TRANSACTIONAL | {"aiokafka": {LOADING, ABSENT, ELSEWHERE}},
    CoordinatorApi.END_TXN: TRANSACTIONAL,
}


class Failing:
    """A service, and the group that it opens, of which every command fails, once permitted."""

    def __init__(self, error: PacelineError) -> None:
        self._error = error

    def open(self, *_: object) -> Failing:
        return self

    def open_kafka(self, *_: object) -> Failing:
        return self

    def asked_offsets(self, *_: object) -> OffsetsToCommit:
        return OffsetsToCommit(lambda topic: True, self.has_partition, 4096)

    def may_see_offsets(self, *_: object) -> Callable[[str], bool]:
        return lambda topic: True

    def permit(self, *_: object) -> None:
        pass

    def admit_producer(self, *_: object) -> None:
        pass

    def has_partition(self, *_: object) -> bool:
        return True

    def is_driven(self, *_: object) -> bool:
        return False

    def coordinator(self, *_: object) -> None:
        raise self._error

    def __getattr__(self, _name: str) -> Callable[..., Awaitable[None]]:
        async def fail(*_: object, **__: object) -> None:
            raise self._error

        return fail


def call(version: int) -> Call:
    room = Portion(unlimited())
    return Call(version, ANONYMOUS, "c", "h:1", room, Pace(Turns(), room))


async def of_groups(api: CoordinatorApi, failing: Any) -> Any:
    members = KafkaGroupRequests(failing, failing)
    match api:
        case CoordinatorApi.JOIN_GROUP:
            return await members.join(groups.JoinGroupRequest(group_id="g"), call(5))
        case CoordinatorApi.SYNC_GROUP:
            return await members.sync(groups.SyncGroupRequest(group_id="g"), call(5))
        case CoordinatorApi.HEARTBEAT:
            return await members.heartbeat(groups.HeartbeatRequest(group_id="g"), call(3))
        case CoordinatorApi.LEAVE_GROUP:
            return await members.leave(groups.LeaveGroupRequest(group_id="g"), call(3))
        case CoordinatorApi.LIST_GROUPS:
            return await members.list(groups.ListGroupsRequest(), call(3))
        case CoordinatorApi.DESCRIBE_GROUPS:
            asked = groups.DescribeGroupsRequest(groups=("g",))
            return (await members.describe(asked, call(3))).groups[0]
        case CoordinatorApi.DELETE_GROUPS:
            gone = groups.DeleteGroupsRequest(groups_names=("g",))
            return (await members.delete(gone, call(2))).results[0]
    return None


async def of_offsets(api: CoordinatorApi, failing: Any) -> Any:
    positions = KafkaOffsets(failing)
    match api:
        case CoordinatorApi.OFFSET_COMMIT:
            part = offsets.OffsetCommitRequestTopicPartition(partition_index=0, committed_offset=1)
            topic = offsets.OffsetCommitRequestTopic(name="o", partitions=(part,))
            commit = offsets.OffsetCommitRequest(group_id="g", topics=(topic,))
            return (await positions.commit(commit, call(7))).topics[0].partitions[0]
        case CoordinatorApi.OFFSET_FETCH:
            fetch = offsets.OffsetFetchRequest(group_id="g", topics=None)
            return await positions.fetch(fetch, call(5))
        case CoordinatorApi.OFFSET_DELETE:
            return await positions.delete(offsets.OffsetDeleteRequest(group_id="g"), call(0))
        case CoordinatorApi.FIND_COORDINATOR:
            find = cluster.FindCoordinatorRequest(key="t", key_type=1)
            places = KafkaCluster(failing, failing, failing, failing, failing)
            return await places.find_coordinator(find, call(3))
    return None


async def of_transactions(api: CoordinatorApi, failing: Any) -> Any:
    ends = KafkaTransactions(failing, failing, failing, failing, failing)
    who: dict[str, Any] = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
    match api:
        case CoordinatorApi.INIT_PRODUCER_ID:
            begin = tx.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
            return await ends.init_producer(begin, call(4))
        case CoordinatorApi.PRODUCER_ID_ALONE:
            alone = tx.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
            return await ends.init_producer(alone, call(4))
        case CoordinatorApi.ADD_PARTITIONS_TO_TXN:
            added = tx.AddPartitionsToTxnRequestTopic(name="o", partitions=(0,))
            adding = tx.AddPartitionsToTxnRequest(topics=(added,), **who)
            [told] = (await ends.add_partitions(adding, call(3))).results_by_topic
            code = told.results_by_partition[0].partition_error_code
            return SimpleNamespace(error_code=code)
        case CoordinatorApi.ADD_OFFSETS_TO_TXN:
            return await ends.add_offsets(tx.AddOffsetsToTxnRequest(group_id="g", **who), call(3))
        case CoordinatorApi.TXN_OFFSET_COMMIT:
            held = tx.TxnOffsetCommitRequestTopicPartition(partition_index=0, committed_offset=1)
            topics = (tx.TxnOffsetCommitRequestTopic(name="o", partitions=(held,)),)
            carry = tx.TxnOffsetCommitRequest(group_id="g", topics=topics, **who)
            return (await ends.commit_offsets(carry, call(3))).topics[0].partitions[0]
        case CoordinatorApi.END_TXN:
            return await ends.end(tx.EndTxnRequest(committed=True, **who), call(3))
    return None


async def answer(api: CoordinatorApi, error: PacelineError) -> int:
    """The number that a client finds in the answer to ``api`` when ``error`` comes in between."""
    failing = cast(Any, Failing(error))
    for of_kind in (of_groups, of_offsets, of_transactions):
        told = await of_kind(api, failing)
        if told is not None:
            return int(told.error_code)
    raise AssertionError(f"no request of {api}")


@pytest.mark.parametrize("error", ON_THE_WAY, ids=lambda each: each.name)
@pytest.mark.parametrize("api", list(CoordinatorApi), ids=lambda each: each.name)
async def test_every_client_asks_again(api: CoordinatorApi, error: ErrorCode) -> None:
    code = await answer(api, error_for(error, "on the way"))
    for client, repeated in REPEATED[api].items():
        assert code in repeated, (client, code)


@pytest.mark.parametrize("version", [1, 2, 7])
async def test_a_refused_fetch_of_offsets_says_so_at_each_partition(version: int) -> None:
    """aiokafka looks for errors there alone: without partitions it takes nothing for committed, and
    begins anew at the start of the topic."""
    failing = cast(Any, Failing(error_for(ErrorCode.NOT_COORDINATOR, "moved")))
    topic = offsets.OffsetFetchRequestTopic(name="o", partition_indexes=(0, 3))
    request = offsets.OffsetFetchRequest(group_id="g", topics=(topic,))
    told = await KafkaOffsets(failing).fetch(request, call(version))
    assert told.error_code == (ELSEWHERE if version > 1 else 0)
    [found] = told.topics
    assert [(each.partition_index, each.error_code) for each in found.partitions] == [
        (0, ELSEWHERE),
        (3, ELSEWHERE),
    ]


@pytest.mark.parametrize("api", list(CoordinatorApi), ids=lambda each: each.name)
def test_only_produce_tells_of_a_time_out(api: CoordinatorApi) -> None:
    """... nor of the replicas of a coordinator's own topic."""
    for error in ErrorCode:
        assert coordinator_code(error, api) not in (5, 6, 7, 19, 20, 56), error.name


@pytest.mark.parametrize("api", list(CoordinatorApi), ids=lambda each: each.name)
def test_what_is_about_the_request_is_told_as_it_is(api: CoordinatorApi) -> None:
    for error in (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_GROUP_ID,
    ):
        assert coordinator_code(error, api) == error
