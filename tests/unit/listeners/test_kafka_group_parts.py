"""Kafka requests about several offsets, members or groups: each part has its own outcome."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from paceline.errors import ErrorCode, NotCoordinator, error_for
from paceline.types import KAFKA_ENDPOINT, NodeId
from paceline.wire.kafka import cluster, groups
from paceline.wire.kafka import offsets as wire
from paceline_node.services.groups.open_group import Position
from tests.unit.listeners.data_plane import DataPlane, kafka_client, kafka_listener
from tests.unit.listeners.fake_groups import FakeGroup, FakeGroups, Node
from tests.unit.listeners.lone import KafkaClient

FORBIDDEN_TOPIC, NOT_COORDINATOR = 29, 16
ORDERS = [("orders", number) for number in range(4)]


@dataclass
class Address:
    host: str
    port: int


def served(*found: FakeGroup) -> FakeGroups:
    return FakeGroups(*found, partitions=ORDERS)


def client_of(known: FakeGroups):  # type: ignore[no-untyped-def]
    return kafka_client(kafka_listener(DataPlane(), groups=known))


# --- offsets --------------------------------------------------------------------------------------


def offset(number: int, at: int, text: str | None = None) -> wire.OffsetCommitRequestTopicPartition:
    return wire.OffsetCommitRequestTopicPartition(
        partition_index=number, committed_offset=at, committed_metadata=text
    )


COMMIT = wire.OffsetCommitRequest(
    group_id="team",
    generation_id=1,
    member_id="m",
    topics=(
        wire.OffsetCommitRequestTopic(
            name="orders",
            partitions=(offset(0, 5, "here"), offset(9, 5), offset(1, -7), offset(2, 8, "x" * 11)),
        ),
        wire.OffsetCommitRequestTopic(name="secret", partitions=(offset(0, 5),)),
        wire.OffsetCommitRequestTopic(name="orders", partitions=(offset(3, 6),)),
    ),
)


async def told(client: KafkaClient) -> list[list[int]]:
    answer = await client.ask(COMMIT, 7)
    return [[each.error_code for each in topic.partitions] for topic in answer.topics]


async def test_offsets_that_may_be_stored_are_beside_others() -> None:
    team = FakeGroup("team")
    async with client_of(served(team)) as client:
        assert await told(client) == [
            [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE, 12],
            [FORBIDDEN_TOPIC],
            [0],
        ]
    assert [
        (each.topic, each.partition, each.offset, each.metadata) for each in team.committed
    ] == [
        ("orders", 0, 5, "here"),
        ("orders", 3, 6, ""),
    ]


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS])
async def test_an_error_of_the_member_is_told_at_every_offset(code: ErrorCode) -> None:
    async with client_of(served(FakeGroup("team", error_for(code, "why")))) as client:
        assert await told(client) == [[code] * 4, [code], [code]]


STORED = {
    ("orders", 0): Position(5, 2, b"here"),
    ("orders", 1): Position(is_pending=True),
    ("secret", 0): Position(7),
}


async def test_positions_are_told_pending_hidden_and_missing_ones_too() -> None:
    named = (
        wire.OffsetFetchRequestTopic(name="orders", partition_indexes=(0, 1, 2)),
        wire.OffsetFetchRequestTopic(name="secret", partition_indexes=(0,)),
    )
    async with client_of(served(FakeGroup("team", positions_of=STORED))) as client:
        asked = wire.OffsetFetchRequest(group_id="team", topics=named, require_stable=True)
        answer = await client.ask(asked, 7)
    assert answer.error_code == 0
    found = [
        (topic.name, each.error_code, each.committed_offset, each.committed_leader_epoch)
        for topic in answer.topics
        for each in topic.partitions
    ]
    assert found == [
        ("orders", 0, 5, 2),
        ("orders", ErrorCode.UNSTABLE_OFFSET_COMMIT, -1, -1),
        ("orders", 0, -1, -1),
        ("secret", FORBIDDEN_TOPIC, -1, -1),
    ]


async def test_of_all_positions_those_of_hidden_topics_are_left_out() -> None:
    async with client_of(served(FakeGroup("team", positions_of=STORED))) as client:
        answer = await client.ask(wire.OffsetFetchRequest(group_id="team", topics=None), 7)
    [topic] = answer.topics
    assert (topic.name, [each.partition_index for each in topic.partitions]) == ("orders", [0, 1])


async def test_one_group_that_is_elsewhere_keeps_no_other_from_being_told() -> None:
    here, gone = FakeGroup("here", positions_of=STORED), FakeGroup("gone", NotCoordinator("moved"))
    topics = (wire.OffsetFetchRequestGroupTopic(name="orders", partition_indexes=(0,)),)
    asked = wire.OffsetFetchRequest(
        groups=tuple(
            wire.OffsetFetchRequestGroup(group_id=name, topics=topics)
            for name in ("gone", "here", "gone")
        )
    )
    async with client_of(served(here, gone)) as client:
        answer = await client.ask(asked, 8)
    assert [(each.group_id, each.error_code, len(each.topics)) for each in answer.groups] == [
        ("gone", NOT_COORDINATOR, 0),
        ("here", 0, 1),
    ], "each once"


@pytest.mark.parametrize(
    ("version", "number", "code"), [(0, 2, 3), (1, 2, 0), (1, 9, 3), (2, 9, 0), (5, 9, 0)]
)
async def test_what_is_not_stored_is_told_as_the_version_has_it(
    version: int, number: int, code: int
) -> None:
    named = (wire.OffsetFetchRequestTopic(name="orders", partition_indexes=(number,)),)
    async with client_of(served(FakeGroup("team"))) as client:
        answer = await client.ask(wire.OffsetFetchRequest(group_id="team", topics=named), version)
    [[found]] = [topic.partitions for topic in answer.topics]
    assert (found.error_code, found.committed_offset) == (code, -1)


async def test_offsets_that_members_read_stay_when_others_are_deleted() -> None:
    parts = tuple(wire.OffsetDeleteRequestTopicPartition(partition_index=n) for n in (0, 1))
    asked = wire.OffsetDeleteRequest(
        group_id="team",
        topics=(
            wire.OffsetDeleteRequestTopic(name="orders", partitions=parts),
            wire.OffsetDeleteRequestTopic(name="secret", partitions=parts[:1]),
        ),
    )
    async with client_of(served(FakeGroup("team", kept={("orders", 1)}))) as client:
        answer = await client.ask(asked, 0)
    found = [[each.error_code for each in topic.partitions] for topic in answer.topics]
    assert (answer.error_code, found) == (
        0,
        [[0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC], [FORBIDDEN_TOPIC]],
    )


# --- members and groups ---------------------------------------------------------------------------


async def test_of_members_who_leave_each_is_told_its_own() -> None:
    team = FakeGroup("team", leaving={"b": ErrorCode.UNKNOWN_MEMBER_ID})
    members = tuple(
        groups.LeaveGroupRequestMember(member_id=name, group_instance_id=None) for name in "abc"
    )
    async with client_of(served(team)) as client:
        answer = await client.ask(groups.LeaveGroupRequest(group_id="team", members=members), 4)
        assert answer.error_code == 0
        assert [(each.member_id, each.error_code) for each in answer.members] == [
            ("a", 0),
            ("b", ErrorCode.UNKNOWN_MEMBER_ID),
            ("c", 0),
        ]
        for name, code in (("a", 0), ("b", ErrorCode.UNKNOWN_MEMBER_ID)):
            alone = groups.LeaveGroupRequest(group_id="team", member_id=name)
            assert (await client.ask(alone, 2)).error_code == code


async def test_groups_are_deleted_and_described_one_beside_the_other() -> None:
    """Whoever names one twice is told once."""
    busy = FakeGroup("busy", error_for(ErrorCode.NON_EMPTY_GROUP, "members"))
    idle = FakeGroup("idle")
    async with client_of(served(busy, idle)) as client:
        names = ("busy", "idle", "busy")
        described = await client.ask(groups.DescribeGroupsRequest(groups=names), 5)
        assert [(each.group_id, each.error_code) for each in described.groups] == [
            ("busy", ErrorCode.NON_EMPTY_GROUP),
            ("idle", 0),
        ]
        deleted = await client.ask(groups.DeleteGroupsRequest(groups_names=names), 2)
    assert [(each.group_id, each.error_code) for each in deleted.results] == [
        ("busy", ErrorCode.NON_EMPTY_GROUP),
        ("idle", 0),
    ]
    assert idle.is_deleted
    assert not busy.is_deleted


async def test_only_groups_that_may_be_seen_are_listed() -> None:
    async with client_of(served(FakeGroup("secret"), FakeGroup("team"))) as client:
        answer = await client.ask(groups.ListGroupsRequest(), 4)
    assert [each.group_id for each in answer.groups] == ["team"]


async def test_coordinators_are_found_one_beside_the_other() -> None:
    """One that has no listener of this kind is none that these clients could go to."""
    here = Node(NodeId(1), {KAFKA_ENDPOINT: Address("one.example", 9192)})
    mute = Node(NodeId(2), {"native": Address("two.example", 7400)})
    found = served(
        FakeGroup("lost", NotCoordinator("nobody")),
        FakeGroup("here", node=here),
        FakeGroup("mute", node=mute),
    )
    async with client_of(found) as client:
        asked = cluster.FindCoordinatorRequest(
            key_type=0, coordinator_keys=("lost", "here", "mute")
        )
        answer = await client.ask(asked, 4)
    assert [(each.key, each.error_code, each.host, each.port) for each in answer.coordinators] == [
        ("lost", NOT_COORDINATOR, "", -1),
        ("here", 0, "one.example", 9192),
        ("mute", ErrorCode.COORDINATOR_NOT_AVAILABLE, "", -1),
    ]
