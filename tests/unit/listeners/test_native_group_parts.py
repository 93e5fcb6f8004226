"""Native requests about several offsets or members: each part has its own outcome."""

from __future__ import annotations

import pytest

from paceline.errors import ErrorCode, IllegalGeneration, NotCoordinator, PacelineError
from paceline.wire.native import groups as wire
from paceline.wire.native.api import NativeApi
from paceline_node.groups.committed_offsets import Commit
from paceline_node.services.groups.open_group import Position
from tests.unit.listeners.data_plane import DataPlane, native_client, native_listener
from tests.unit.listeners.fake_groups import FakeGroup, FakeGroups
from tests.unit.listeners.lone import NativeClient

ORDERS = [("orders", number) for number in range(4)]
FORBIDDEN = ErrorCode.AUTHORIZATION_FAILED
OFFSETS = (
    wire.OffsetToCommit("orders", 0, 5, 2, "here"),
    wire.OffsetToCommit("orders", 9, 5),
    wire.OffsetToCommit("orders", 1, -7),
    wire.OffsetToCommit("orders", 2, 8, -1, "x" * 11),
    wire.OffsetToCommit("secret", 0, 5),
    wire.OffsetToCommit("orders", 3, 6),
)
ERRORS = [
    *(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE),
    *(ErrorCode.OFFSET_METADATA_TOO_LARGE, FORBIDDEN, 0),
]


def client_of(*found: FakeGroup):  # type: ignore[no-untyped-def]
    known = FakeGroups(*found, partitions=ORDERS)
    return native_client(native_listener(DataPlane(), groups=known))


@pytest.mark.parametrize(
    ("api", "wish"),
    [
        (NativeApi.COMMIT_OFFSETS, wire.CommitOffsets("team", 1, "m", OFFSETS)),
        (NativeApi.RESET_OFFSETS, wire.ResetOffsets("team", OFFSETS)),
    ],
    ids=["commit", "reset"],
)
async def test_offsets_that_may_be_stored_are_beside_others(
    api: NativeApi, wish: wire.CommitOffsets | wire.ResetOffsets
) -> None:
    team = FakeGroup("team")
    async with client_of(team) as client:
        told = await client.ask(api, wish, wire.OffsetResults)
    assert [each.error for each in told.partitions] == ERRORS
    assert [(each.topic, each.partition) for each in told.partitions] == [
        (each.topic, each.partition) for each in OFFSETS
    ]
    assert team.committed == [Commit("orders", 0, 5, 2, "here"), Commit("orders", 3, 6, -1, "")]


@pytest.mark.parametrize("error", [IllegalGeneration("old"), NotCoordinator("moved")])
async def test_an_error_of_the_member_or_the_group_is_that_of_the_request(
    error: PacelineError,
) -> None:
    team = FakeGroup("team", error)
    async with client_of(team) as client:
        for api, wish in (
            (NativeApi.COMMIT_OFFSETS, wire.CommitOffsets("team", 1, "m", OFFSETS)),
            (NativeApi.FETCH_OFFSETS, wire.FetchOffsets("team")),
            (NativeApi.LEAVE_GROUP, wire.LeaveGroup("team", (wire.LeavingMember("a"),))),
        ):
            with pytest.raises(type(error), match=str(error)):
                await client.ask(api, wish, wire.GroupDone)
    assert team.committed == []


STORED = {
    ("orders", 0): Position(5, 2, b"here", 77),
    ("orders", 1): Position(is_pending=True),
    ("secret", 0): Position(7),
}


async def positions(
    client: NativeClient, topics: tuple[wire.TopicPartitions, ...] | None
) -> list[tuple[str, int, int, int]]:
    wish = wire.FetchOffsets("team", topics, require_stable=True)
    told = await client.ask(NativeApi.FETCH_OFFSETS, wish, wire.OffsetsFetched)
    return [(each.topic, each.partition, each.error, each.offset) for each in told.partitions]


async def test_positions_are_told_pending_hidden_and_missing_ones_too() -> None:
    named = (wire.TopicPartitions("orders", (0, 1, 2)), wire.TopicPartitions("secret", (0,)))
    async with client_of(FakeGroup("team", positions_of=STORED)) as client:
        assert await positions(client, named) == [
            ("orders", 0, 0, 5),
            ("orders", 1, ErrorCode.UNSTABLE_OFFSET_COMMIT, -1),
            ("orders", 2, 0, -1),
            ("secret", 0, FORBIDDEN, -1),
        ]


async def test_of_all_positions_those_of_hidden_topics_are_left_out() -> None:
    """As what is pending is: nobody named it."""
    async with client_of(FakeGroup("team", positions_of=STORED)) as client:
        assert await positions(client, None) == [("orders", 0, 0, 5)]


async def test_offsets_that_members_read_stay_when_others_are_deleted() -> None:
    topics = (wire.TopicPartitions("orders", (0, 1)), wire.TopicPartitions("secret", (0,)))
    async with client_of(FakeGroup("team", kept={("orders", 1)})) as client:
        told = await client.ask(
            NativeApi.DELETE_OFFSETS, wire.DeleteOffsets("team", topics), wire.OffsetResults
        )
    assert [each.error for each in told.partitions] == [
        *(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, FORBIDDEN)
    ]


async def test_of_members_who_leave_each_is_told_its_own() -> None:
    team = FakeGroup("team", leaving={"b": ErrorCode.UNKNOWN_MEMBER_ID})
    members = tuple(wire.LeavingMember(name) for name in "abc")
    async with client_of(team) as client:
        told = await client.ask(
            NativeApi.LEAVE_GROUP, wire.LeaveGroup("team", members), wire.GroupLeft
        )
    assert [(each.member_id, each.error) for each in told.members] == [
        ("a", 0),
        ("b", ErrorCode.UNKNOWN_MEMBER_ID),
        ("c", 0),
    ]


async def test_only_groups_that_may_be_seen_are_listed() -> None:
    async with client_of(FakeGroup("secret"), FakeGroup("team")) as client:
        told = await client.ask(NativeApi.LIST_GROUPS, wire.ListGroups(), wire.GroupsListed)
    assert [each.group for each in told.groups] == ["team"]
