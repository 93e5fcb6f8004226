"""Which ACLs each request takes: found by granting what it was refused for, until it is not.

Then every single ACL that there is is tried alone: one lets the request pass exactly where it is
all that the request takes. So the table below is what ``security/DESIGN.md`` 4.1 says, request by
request; a new request has no place in it, and fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest
import trio

from paceline.types import NodeId
from paceline.wire.cursus.batch import CursusBatch, CursusRecord, Dialect, encode_batch
from paceline.wire.kafka.apis import APIS
from paceline.wire.message import Message
from paceline.wire.native import admin
from paceline.wire.native.acls import OPERATIONS, Acl, AclPattern, AclResource
from paceline.wire.native.api import NativeApi
from paceline.wire.segment import messages as seed
from paceline_node.security.acls import AclRules, Asker, Needed, needed
from paceline_node.security.principals import Operation, Principal, Resource, refuse
from tests.integration.node.test_authorization import BY_PARTITION, V1, WHOLE
from tests.unit.listeners.lone import LoneNode, batch, lone_node
from tests.unit.listeners.test_refusals import CURSUS, NAME, NOT_JUDGED, PRAVEGA, SEED, filled

EVERY_ACL = tuple(
    Needed(resource, operation) for resource, known in OPERATIONS.items() for operation in known
)
Send = Callable[[LoneNode], Awaitable[object]]
LIMIT_S = 300


def named(acls: Iterator[Needed] | list[Needed]) -> str:
    """As the table says it."""
    return " + ".join(
        sorted(
            f"{resource.name} {operation.name}".lower().replace("_", "-")
            for resource, operation in acls
        )
    )


class Granting:
    """Allows what some ACLs do, of resources of any name; notes what it refused."""

    def __init__(self) -> None:
        self.is_open = True
        self.is_prepared = False
        """Nothing was let pass since all was there."""
        self.refused: list[Needed] = []
        self._rules = AclRules(())

    def grant(self, acls: list[Needed]) -> None:
        self.is_open = False
        self.refused.clear()
        self._rules = AclRules(
            Acl(
                "ann",
                resource,
                AclPattern.LITERAL,
                "" if resource is AclResource.CLUSTER else "*",
                operation,
            )
            for resource, operation in acls
        )

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        if self.is_open:
            return
        wanted = needed(operation, resource.kind)
        if not self._rules.allows(Asker("ann", ""), wanted, resource.name):
            self.refused.append(wanted)
            refuse(principal, operation, resource)


@pytest.fixture
def policy() -> Granting:
    return Granting()


@pytest.fixture
async def node(tmp_path, autojump_clock, policy):
    async with lone_node(tmp_path, policy=policy) as node:
        await prepare(node)
        yield node
        policy.is_open = True


async def prepare(node: LoneNode) -> None:
    """A topic, a group of V1 and a segment, where they are not there any more."""
    v1 = await node.v1()
    for command, args in (("PRODUCE", f"{NAME} k:v acks=all"), ("JOIN", f"{NAME} {NAME} c")):
        await v1.say(command, args)
    await (await node.segment()).ask(seed.CreateSegment("sc/st/0"))


async def taken(node: LoneNode, policy: Granting, send: Send) -> list[Needed]:
    """What a request takes."""
    granted: list[Needed] = []
    while (refused := await refusals(node, policy, send, granted)) is not None:
        assert refused not in granted
        granted.append(refused)
    return granted


async def refusals(
    node: LoneNode, policy: Granting, send: Send, granted: list[Needed]
) -> Needed | None:
    """What a request is refused for that has been granted these."""
    if not policy.is_prepared:
        policy.is_open = True
        await prepare(node)
    policy.grant(granted)
    with trio.fail_after(LIMIT_S):
        await send(node)
    policy.is_prepared = bool(policy.refused)
    return policy.refused[0] if policy.refused else None


async def walk(
    node: LoneNode, policy: Granting, requests: Mapping[str, Send]
) -> tuple[dict[str, str], list[str]]:
    """What each takes, and what single ACLs let pass, or keep out, against that."""
    table, wrong = {}, []
    for name, send in requests.items():
        takes = await taken(node, policy, send)
        table[name] = named(takes)
        for each in EVERY_ACL:
            alone = AclRules(
                [
                    Acl(
                        "ann",
                        each.resource,
                        AclPattern.LITERAL,
                        "" if each.resource is AclResource.CLUSTER else "*",
                        each.operation,
                    )
                ]
            )
            expected = all(
                alone.allows(
                    Asker("ann", ""),
                    wanted,
                    "" if wanted.resource is AclResource.CLUSTER else NAME,
                )
                for wanted in takes
            )
            passes = await refusals(node, policy, send, [each]) is None
            if passes is not expected:
                wrong.append(f"{name}: {named([each])} lets it pass: {passes}")
    return table, wrong


def native(api: NativeApi, body: Message, payload: bytes = b"") -> Send:
    async def send(node: LoneNode) -> object:
        client = await node.native()
        if api in BY_PARTITION:
            return await client.ask(api, body, BY_PARTITION[api][2], payload)
        return await client.code(api, body)

    return send


def line(protocol: str, *words: str) -> Send:
    async def send(node: LoneNode) -> object:
        client: Any = await (node.v1() if protocol == "v1" else node.cursus())
        return await client.say(*words)

    return send


def bytes_of(protocol: str, request: Any) -> Send:
    async def send(node: LoneNode) -> object:
        client: Any = await getattr(node, protocol)()
        return await client.ask(request)

    return send


def kafka(key: int) -> Send:
    api = APIS[key]

    async def send(node: LoneNode) -> object:
        return await (await node.kafka()).ask(filled(api.request), api.last)

    return send


NATIVE: dict[str, Send] = {
    api.name: native(api, body)
    for api, (body, _, _) in WHOLE.items()
    if api not in (NativeApi.STOP_CLUSTER, NativeApi.FENCE_BROKER)
}
NATIVE |= {
    api.name: native(api, body, batch() if api is NativeApi.PRODUCE else b"")
    for api, (_, body, _) in BY_PARTITION.items()
}
NATIVE[NativeApi.FENCE_BROKER.name] = native(
    NativeApi.FENCE_BROKER, admin.FenceBroker(NodeId(0), fenced=False)
)
V1_LINES = {
    command: line("v1", command, args)
    for command, (args, _, _) in V1.items()
    if command not in ("ADMIN_FENCE_BROKER", "SET_PARTITION_ROLE")
}
"""What is left out would end the node's leaderships."""
CURSUS_LINES = {
    word: bytes_of("cursus", f"{word} {rest}".strip().encode()) for word, rest in CURSUS.items()
}
_RECORD = CursusRecord(sequence=1, producer_id=b"p", epoch=1, payload=b"v")
CURSUS_LINES["BATCH"] = bytes_of(
    "cursus", encode_batch(CursusBatch(Dialect.REAL, NAME, 0, 1, False, [_RECORD]))
)
CURSUS_LINES["STREAM"] = CURSUS_LINES.pop("STREAM")  # goes on, and asks, beside the next ones
KAFKA = {
    api.request.__name__.removesuffix("Request"): kafka(key)
    for key, api in APIS.items()
    if api.request.__name__ not in NOT_JUDGED | {"ListGroupsRequest"}
}
SEGMENTS = {type(each).__name__: bytes_of("segment", each) for each in SEED}
PRAVEGA_SEGMENTS = {type(each).__name__: bytes_of("pravega", each) for each in PRAVEGA}
WRITER = UUID(int=1)

TAKES: dict[str, dict[str, str]] = {
    "native": {
        "TRIM_PARTITION": "topic delete",
        "REPORT_CORRUPT": "topic read",
        "INIT_PRODUCER": "cluster idempotent-write",
        "CREATE_TOPIC": "topic create",
        "DELETE_TOPIC": "topic delete",
        "ALTER_TOPIC": "topic alter-configs",
        "ADD_PARTITIONS": "topic alter",
        "ALTER_GROUP": "group delete + topic describe",
        "DESCRIBE_TOPIC": "topic describe + topic describe-configs",
        "ELECT_LEADER": "topic alter",
        "SET_ROLE": "topic alter",
        "REGISTER_EXTERNAL": "cluster alter",
        "RECONCILE_EXTERNAL": "cluster alter",
        "REASSIGN_PARTITION": "cluster alter",
        "LIST_REASSIGNMENTS": "cluster describe",
        "ADD_VOTER": "cluster alter",
        "REMOVE_VOTER": "cluster alter",
        "CREATE_ACLS": "cluster alter",
        "DELETE_ACLS": "cluster alter",
        "LIST_ACLS": "cluster describe",
        "ALTER_QUOTAS": "cluster alter",
        "LIST_QUOTAS": "cluster describe",
        "UNREGISTER_BROKER": "cluster alter",
        "ALTER_USER": "cluster alter",
        "DELETE_USER": "cluster alter",
        "LIST_USERS": "cluster describe",
        "STATUS": "cluster describe",
        "LOAD": "cluster describe",
        "FIND_COORDINATOR": "group describe",
        "JOIN_GROUP": "group read",
        "SYNC_GROUP": "group read",
        "HEARTBEAT_GROUP": "group read",
        "LEAVE_GROUP": "group read",
        "COMMIT_OFFSETS": "group read + topic read",
        "FETCH_OFFSETS": "group describe + topic describe",
        "DESCRIBE_GROUP": "group describe",
        "DELETE_GROUP": "group delete",
        "DELETE_OFFSETS": "group delete + topic read",
        "RESET_OFFSETS": "group delete + topic read",
        "FIND_TRANSACTION_COORDINATOR": "transactional-id describe",
        "END_TRANSACTION": "transactional-id write",
        "COMMIT_TRANSACTION_OFFSETS": "group read + topic read + transactional-id write",
        "DESCRIBE_TRANSACTION": "transactional-id describe",
        "ABORT_TRANSACTION": "transactional-id write",
        "BEGIN_ATTEMPT": "transactional-id write",
        "TOUCH_BATCH": "transactional-id write",
        "COMMIT_GROUP": "transactional-id write",
        "ABORT_GROUP": "transactional-id write",
        "SINK_STATE": "transactional-id describe",
        "PRODUCE": "topic write",
        "FETCH": "topic read",
        "LIST_OFFSETS": "topic describe",
        "FENCE_BROKER": "cluster alter",
    },
    "v1": {
        "PRODUCE": "topic write",
        "CONSUME": "topic read",
        "JOIN": "group read + topic read",
        "SYNC": "group read + topic read",
        "HEARTBEAT": "group read + topic read",
        "LEAVE": "group read",
        "COMMIT": "group read + topic read",
        "OFFSET": "group describe + topic describe",
        "REPLICA_FETCH": "cluster cluster-action",
        "BROKER_FETCH": "topic read",
        "BROKER_REPLICA_ACK": "cluster cluster-action",
        "ADMIN_CREATE_TOPIC": "topic create",
        "ADMIN_REGISTER_BROKER": "cluster alter",
        "ADMIN_BROKER_HEARTBEAT": "cluster alter",
        "ADMIN_SET_PARTITION_LEADER": "topic alter",
        "ADMIN_UNFENCE_BROKER": "cluster alter",
        "ADMIN_RECONCILE_BROKER_HEALTH": "cluster alter",
        "ADMIN_ELECT_TOPIC_LEADERS": "topic alter",
        "ADMIN_GET_METADATA": "cluster describe + topic describe",
    },
    "cursus": {
        "CREATE": "topic create + topic describe-configs",
        "DELETE": "topic delete",
        "DESCRIBE": "topic describe + topic describe-configs",
        "METADATA": "topic describe + topic describe-configs",
        "LIST_OFFSETS": "topic describe",
        "PUBLISH": "topic write",
        "CONSUME": "topic read",
        "FIND_COORDINATOR": "group describe",
        "LIST_CLUSTER": "cluster describe",
        "CLUSTER_STATUS": "cluster describe + topic describe",
        "ELECT_LEADER": "topic alter",
        "REGISTER_GROUP": "group read + topic read",
        "SUBSCRIBE": "group read + topic read",
        "JOIN_GROUP": "group read + topic read",
        "SYNC_GROUP": "group read + topic read",
        "HEARTBEAT": "group read + topic read",
        "LEAVE_GROUP": "group read + topic read",
        "FETCH_OFFSET": "group describe + topic describe",
        "COMMIT_OFFSET": "group read + topic read",
        "COMMIT": "group read + topic read",
        "BATCH_COMMIT": "group read + topic read",
        "GROUP_STATUS": "group describe",
        "APPEND_STREAM": "topic write",
        "STREAM_VERSION": "topic read",
        "SAVE_SNAPSHOT": "topic write",
        "READ_SNAPSHOT": "topic read",
        "READ_STREAM": "topic read",
        "INIT_PRODUCER_ID": "transactional-id write",
        "BEGIN_TXN": "transactional-id describe",
        "TXN_PUBLISH": "topic write + transactional-id describe",
        "SEND_OFFSETS_TO_TXN": "transactional-id describe",
        "END_TXN": "transactional-id describe",
        "TXN_STATUS": "transactional-id describe",
        "BATCH": "topic write",
        "STREAM": "group read + topic read",
    },
    "kafka": {
        "Produce": "topic write + transactional-id write",
        "Fetch": "topic read",
        "ListOffsets": "topic describe",
        "Metadata": "topic describe",
        "OffsetCommit": "group read + topic read",
        "OffsetFetch": "group describe + topic describe",
        "FindCoordinator": "group describe",
        "JoinGroup": "group read",
        "Heartbeat": "group read",
        "LeaveGroup": "group read",
        "SyncGroup": "group read",
        "DescribeGroups": "group describe",
        "CreateTopics": "topic create",
        "DeleteTopics": "topic delete",
        "DeleteRecords": "topic delete",
        "InitProducerId": "transactional-id write",
        "OffsetForLeaderEpoch": "topic describe",
        "AddPartitionsToTxn": "topic write + transactional-id write",
        "AddOffsetsToTxn": "group read + transactional-id write",
        "EndTxn": "transactional-id write",
        "TxnOffsetCommit": "group read + topic read + transactional-id write",
        "DescribeAcls": "cluster describe",
        "CreateAcls": "cluster alter",
        "DeleteAcls": "cluster alter",
        "DescribeConfigs": "topic describe-configs",
        "CreatePartitions": "topic alter",
        "DeleteGroups": "group delete",
        "IncrementalAlterConfigs": "topic alter-configs",
        "AlterPartitionReassignments": "cluster alter",
        "ListPartitionReassignments": "cluster describe",
        "OffsetDelete": "group delete + topic read",
        "DescribeClientQuotas": "cluster describe",
        "AlterClientQuotas": "cluster alter",
        "DescribeUserScramCredentials": "cluster describe",
        "AlterUserScramCredentials": "cluster alter",
    },
    "segment": {
        "SetupAppend": "topic write",
        "ReadSegment": "topic read",
        "GetStreamSegmentInfo": "topic describe",
        "CreateSegment": "topic create",
        "SealSegment": "topic alter",
        "DeleteSegment": "topic delete",
        "TruncateSegment": "topic alter",
    },
    "pravega": {
        "SetupAppend": "topic write",
        "ReadSegment": "topic read",
        "GetStreamSegmentInfo": "topic describe",
        "CreateSegment": "topic create",
        "SealSegment": "topic alter",
        "DeleteSegment": "topic delete",
        "TruncateSegment": "topic alter",
        "CreateTransientSegment": "topic write",
        "MergeSegments": "topic write",
        "CreateTableSegment": "topic create",
        "DeleteTableSegment": "topic delete",
        "UpdateTableEntries": "topic write",
        "RemoveTableKeys": "topic write",
        "ReadTable": "topic read",
        "ReadTableKeys": "topic read",
        "ReadTableEntries": "topic read",
        "ReadTableEntriesDelta": "topic read",
    },
}
"""Without describe-configs what was set is left out of answers about topics.

Of Cursus's transactions what is asked first: there is none, as whoever may see it is told."""


@pytest.mark.parametrize(
    ("protocol", "requests"),
    [
        ("native", NATIVE),
        ("v1", V1_LINES),
        ("cursus", CURSUS_LINES),
        ("kafka", KAFKA),
        ("segment", SEGMENTS),
        ("pravega", PRAVEGA_SEGMENTS),
    ],
)
async def test_what_each_request_takes(
    node: LoneNode, policy: Granting, protocol: str, requests: Mapping[str, Send]
) -> None:
    table, wrong = await walk(node, policy, requests)
    assert not wrong
    assert table == TAKES[protocol]
