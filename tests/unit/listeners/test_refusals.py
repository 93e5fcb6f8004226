"""Whatever a protocol's table of messages names is refused by a policy that refuses everything.

The tables themselves say what there is to try, so that a new request cannot be forgotten: a Kafka
request is made from its own description, and the other lists must be as long as their tables. For
the native protocol and V1 see ``tests/integration/node/test_authorization.py``, which also looks
for traces.
"""

from __future__ import annotations

from dataclasses import fields
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
import trio

from paceline.types import Acks
from paceline.wire.cursus.batch import CursusBatch, CursusRecord, Dialect, encode_batch
from paceline.wire.cursus.commands import COMMANDS
from paceline.wire.kafka.apis import APIS
from paceline.wire.kafka.layout import Struct
from paceline.wire.native import groups
from paceline.wire.native.api import NativeApi
from paceline.wire.segment import messages as seed
from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.framing import Direction, SegmentMessage
from paceline_node.listeners.kafka.errors import FORBIDDEN
from paceline_node.security.principals import AllowAll, Operation, Principal, Resource, refuse
from tests.unit.listeners.lone import LoneNode, batch, lone_node

NAME = "orders"


class Guard:
    """Allows everything, or refuses everything; notes what it refused."""

    def __init__(self) -> None:
        self.is_shut = False
        self.refused: list[tuple[Operation, Resource]] = []
        self._allow = AllowAll()

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        self._allow.authorize(principal, operation, resource)
        if self.is_shut:
            self.refused.append((operation, resource))
            refuse(principal, operation, resource)


@pytest.fixture
def guard() -> Guard:
    return Guard()


async def _make_groups(node: LoneNode) -> None:
    """Of the families that list them."""
    kept = groups.CommitOffsets(NAME, -1, "", (groups.OffsetToCommit(NAME, 0, 1),))
    assert not await (await node.native()).code(NativeApi.COMMIT_OFFSETS, kept)
    answer = await (await node.cursus()).say(f"REGISTER_GROUP topic={NAME} group={NAME}")
    assert answer.startswith("OK"), answer


@pytest.fixture
async def node(tmp_path, autojump_clock, guard):
    """With a topic, a group and a segment, all of which may be used until the guard shuts."""
    async with lone_node(tmp_path, policy=guard) as node:
        v1 = await node.v1()
        for command, args in (("PRODUCE", f"{NAME} k:v acks=all"), ("JOIN", f"{NAME} {NAME} c")):
            answer = await v1.say(command, args)
            assert answer.startswith("OK"), answer
        await _make_groups(node)
        made = await (await node.segment()).ask(seed.CreateSegment("sc/st/0"))
        assert isinstance(made, seed.SegmentCreated), made
        guard.is_shut = True
        yield node
        guard.is_shut = False


# --- Kafka ----------------------------------------------------------------------------------------

NOT_JUDGED = {
    "ApiVersionsRequest",
    "DescribeClusterRequest",
    "SaslAuthenticateRequest",
    "SaslHandshakeRequest",
}
"""What clients ask before they have said who they are, and where the nodes are, which they must
know to ask anything."""
LISTS = {"ListGroupsRequest": "groups"}
"""Answered with a list that leaves out what may not be seen."""
VALUES = {
    "states_filter": (),
    "num_partitions": 1,
    "replication_factor": 1,
    "assignments": (),
    "records": batch(),
    "resource_type": 2,
    "operation": 3,
    "permission_type": 3,
    "acks": -1,
    "count": 9,
    "max_wait_ms": 0,
    "entity_type": "user",
    "match_type": 2,
}
"""What a field must hold for its request to be one; FETCH waits for nothing."""


def filled(cls: type[Struct]) -> Any:
    """A request whose names are all ``NAME`` and whose lists have one entry."""
    hints = get_type_hints(cls)
    given: dict[str, Any] = {}
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name in VALUES:
            given[field.name] = VALUES[field.name]
        elif field.name not in ("member_id", "group_instance_id", "rack_id", "cluster_id"):
            value = _value(hints[field.name])
            if value is not None:
                given[field.name] = value
    return cls(**given)


def _value(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        hint = next(each for each in get_args(hint) if each is not type(None))
    if hint is str:
        return NAME
    if hint is float:
        return 1.0
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        if isinstance(inner, type) and issubclass(inner, Struct):
            return (filled(inner),)
        return (NAME,) if inner is str else (0,) if inner is int else None
    return None


def codes(response: Any) -> list[int]:
    """The errors of all parts: a whole's own, or, where that says that there is none, those of what
    it holds."""
    values = [(name, getattr(response, name)) for name in type(response).__slots__]
    own = [value for name, value in values if name in ("error_code", "partition_error_code")]
    if any(own):
        return own
    parts = [each for _, value in values if isinstance(value, tuple) for each in value]
    inner = [code for each in parts if hasattr(each, "__slots__") for code in codes(each)]
    return inner or own


async def test_kafka(node: LoneNode, guard: Guard, autojump_clock) -> None:
    client, wrong = await node.kafka(), []
    for api in APIS.values():
        name = api.request.__name__
        if name in NOT_JUDGED:
            continue
        guard.refused.clear()
        response = await client.ask(filled(api.request), api.last)
        if name in LISTS:
            is_refused = not getattr(response, LISTS[name])
        else:
            told = set(codes(response))
            kinds = {resource.kind for _, resource in guard.refused}
            is_refused = bool(told) and told <= {FORBIDDEN[kind] for kind in kinds}
        if not (guard.refused and is_refused):
            wrong.append((response, guard.refused[:]))
    assert not wrong


# --- Cursus ---------------------------------------------------------------------------------------

_GROUP = f"topic={NAME} group={NAME}"
_MEMBER = f"{_GROUP} member=c"
_FENCE = f"transactional_id={NAME} producerId=txn-x epoch=0"
CURSUS = {
    "CREATE": "topic=new partitions=1",
    "DELETE": f"topic={NAME}",
    "DESCRIBE": f"topic={NAME}",
    "METADATA": f"topic={NAME}",
    "LIST_OFFSETS": f"topic={NAME} partition=0",
    "PUBLISH": f"topic={NAME} acks=1 producerId=p message=v",
    "CONSUME": f"topic={NAME} partition=0 offset=0",
    "STREAM": f"topic={NAME} partition=0 offset=0 group={NAME}",
    "FIND_COORDINATOR": f"group={NAME}",
    "LIST_CLUSTER": "",
    "CLUSTER_STATUS": "",
    "ELECT_LEADER": f"topic={NAME} partition=0 broker=0",
    "REGISTER_GROUP": _GROUP,
    "SUBSCRIBE": _GROUP,
    "JOIN_GROUP": _MEMBER,
    "SYNC_GROUP": f"{_MEMBER} generation=1",
    "HEARTBEAT": f"{_MEMBER} generation=1",
    "LEAVE_GROUP": _MEMBER,
    "FETCH_OFFSET": f"{_GROUP} partition=0",
    "COMMIT_OFFSET": f"{_MEMBER} generation=1 partition=0 offset=1",
    "COMMIT": f"{_MEMBER} generation=1 partition=0 offset=1",
    "BATCH_COMMIT": f"{_MEMBER} generation=1 P0:1",
    "GROUP_STATUS": f"group={NAME}",
    "APPEND_STREAM": f"topic={NAME} key=k version=1 event_type=e message=v",
    "STREAM_VERSION": f"topic={NAME} key=k",
    "SAVE_SNAPSHOT": f"topic={NAME} key=k version=1 message=v",
    "READ_SNAPSHOT": f"topic={NAME} key=k",
    "READ_STREAM": f"topic={NAME} key=k",
    "INIT_PRODUCER_ID": f"transactional_id={NAME}",
    "BEGIN_TXN": _FENCE,
    "TXN_PUBLISH": f"{_FENCE} topic={NAME} seqNum=1 message=v",
    "SEND_OFFSETS_TO_TXN": f"{_FENCE} {_MEMBER} generation=1 P0:1",
    "END_TXN": f"{_FENCE} result=commit",
    "TXN_STATUS": f"transactional_id={NAME}",
}
REFUSAL = "NOT_AUTHORIZED_FOR_"
CURSUS_LISTS = {"LIST": "", "LIST_GROUPS": ""}
CURSUS_SESSION = {"PROTOCOL_INFO", "NEGOTIATE", "AUTH", "HELP", "EXIT"}


async def test_cursus(node: LoneNode, guard: Guard, autojump_clock) -> None:
    assert set(CURSUS) | set(CURSUS_LISTS) | CURSUS_SESSION == set(COMMANDS)
    client, wrong = await node.cursus(), []
    for word, rest in {**CURSUS, **CURSUS_LISTS}.items():
        guard.refused.clear()
        answer = await client.say(f"{word} {rest}".strip())
        is_refused = REFUSAL in answer if word in CURSUS else NAME not in answer
        if not (guard.refused and is_refused):
            wrong.append((word, answer, guard.refused[:]))
    assert not wrong
    record = CursusRecord(sequence=1, producer_id=b"p", epoch=1, payload=b"v")
    whole = CursusBatch(Dialect.REAL, NAME, 0, Acks.ALL, False, [record])
    answer = (await client.ask(encode_batch(whole))).decode()
    assert REFUSAL in answer, answer


# --- segments -------------------------------------------------------------------------------------

WRITER = UUID(int=1)
SEGMENT, TABLE = "sc/st/0", "sc/rg_kvtable/0"
SEED: tuple[seed.SegmentMessage, ...] = (
    seed.SetupAppend(WRITER, SEGMENT),
    seed.ReadSegment(SEGMENT, 0, 1),
    seed.GetStreamSegmentInfo(SEGMENT),
    seed.CreateSegment("sc/new/0"),
    seed.SealSegment(SEGMENT),
    seed.DeleteSegment(SEGMENT),
    seed.TruncateSegment(SEGMENT, 0),
)
SEED_REST = {"Hello", "KeepAlive", "PartialMessage", "Padding", "Event"} | {
    "BeginAppendBlock",  # of a writer, whose set-up was judged
    "EndAppendBlock",
    "CreateBatch",  # not served
    "MergeBatch",
}
PRAVEGA: tuple[seed.SegmentMessage, ...] = (
    pravega.SetupAppend(2, WRITER, SEGMENT, ""),
    pravega.ReadSegment(SEGMENT, 0, 1, "", 4),
    pravega.GetStreamSegmentInfo(5, SEGMENT, ""),
    pravega.CreateSegment(1, "sc/new/0", 0, 0, ""),
    pravega.SealSegment(6, SEGMENT, ""),
    pravega.DeleteSegment(8, SEGMENT, ""),
    pravega.TruncateSegment(7, SEGMENT, 0, ""),
    pravega.CreateTransientSegment(7, WRITER, SEGMENT, ""),
    pravega.MergeSegments(3, SEGMENT, "none", ""),
    pravega.CreateTableSegment(9, TABLE, ""),
    pravega.DeleteTableSegment(16, TABLE, False, ""),
    pravega.UpdateTableEntries(10, TABLE, "", (), -1),
    pravega.RemoveTableKeys(11, TABLE, "", (), -1),
    pravega.ReadTable(12, TABLE, "", ()),
    pravega.ReadTableKeys(13, TABLE, "", 1, b""),
    pravega.ReadTableEntries(14, TABLE, "", 1, b""),
    pravega.ReadTableEntriesDelta(15, TABLE, "", 0, 1),
)
PRAVEGA_REST = {"Hello", "KeepAlive"} | {
    "AppendBlockEnd",  # of a writer, whose set-up was judged
    "ConditionalAppend",
    "ConditionalBlockEnd",
}


def _of_clients(table: Any) -> set[str]:
    found: list[type[SegmentMessage]] = list(table.values())
    return {each.__name__ for each in found if Direction.CLIENT & each.FROM}


async def test_segments(node: LoneNode, guard: Guard, autojump_clock) -> None:
    assert {type(each).__name__ for each in SEED} | SEED_REST == _of_clients(seed.MESSAGES)
    for request in SEED:
        await _refused(await node.segment(), request, "ErrorMessage", guard)


async def test_pravega_segments(node: LoneNode, guard: Guard, autojump_clock) -> None:
    assert {type(each).__name__ for each in PRAVEGA} | PRAVEGA_REST == _of_clients(pravega.MESSAGES)
    for request in PRAVEGA:
        await _refused(await node.pravega(), request, "ErrorMessage", guard)


async def _refused(client: Any, request: seed.SegmentMessage, answer: str, guard: Guard) -> None:
    guard.refused.clear()
    with trio.fail_after(60):
        reply = await client.ask(request)
    assert type(reply).__name__ == answer, (request, reply)
    assert guard.refused, request
