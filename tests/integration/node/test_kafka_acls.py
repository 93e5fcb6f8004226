"""ACLs as Kafka's clients make and see them, and what they are told where something is denied."""

from __future__ import annotations

from functools import partial
from typing import Any

import confluent_kafka
import pytest
import trio
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import ACL, ACLFilter, KafkaAdminClient, ResourcePattern, ResourcePatternFilter
from kafka.admin import ACLOperation as PythonOperation
from kafka.admin import ACLPermissionType as PythonPermission
from kafka.admin import ACLResourcePatternType as PythonPattern
from kafka.admin import ResourceType as PythonType
from kafka.errors import ClusterAuthorizationFailedError

from tests.integration.node.nodes import HANG_S
from tests.integration.node.secured import ROOT, Secured, secured

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
ANY = (None, None)


def binding(
    principal: str,
    operation: AclOperation,
    name: str,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: ResourcePatternType = LITERAL,
    permission: AclPermissionType = ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{principal}", "*", operation, permission)


EVERYTHING = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


async def admin(site: Secured, name: str) -> AdminClient:
    return await trio.to_thread.run_sync(AdminClient, site.librdkafka(name))


async def done(futures: Any) -> list[Any]:
    """The results of what an admin client was asked, in order."""
    each = futures.values() if isinstance(futures, dict) else [futures]
    return [await trio.to_thread.run_sync(partial(future.result, HANG_S)) for future in each]


def codes(error: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(error.value.args[0].code())


async def test_librdkafka_makes_describes_and_deletes_acls(tmp_path) -> None:
    async with secured(tmp_path) as site:
        root, ann = await admin(site, ROOT), await admin(site, "ann")
        bindings = [
            binding("ann", AclOperation.READ, "orders"),
            binding("ann", AclOperation.ALL, "pay", pattern=PREFIXED),
            binding("*", AclOperation.READ, "g", ResourceType.GROUP, permission=DENY),
            binding("ann", AclOperation.DESCRIBE, "kafka-cluster", ResourceType.BROKER),
        ]
        await done(root.create_acls(bindings))
        await done(root.create_acls(bindings[:1]))  # is there
        [found] = await done(root.describe_acls(EVERYTHING))
        assert set(found) == set(bindings)
        match = AclBindingFilter(
            ResourceType.TOPIC,
            "payments",
            ResourcePatternType.MATCH,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        assert (await done(root.describe_acls(match)))[0] == [bindings[1]]
        # Who may describe the cluster may see ACLs, and not change them.
        assert len((await done(ann.describe_acls(EVERYTHING)))[0]) == 4
        for refused in (ann.create_acls(bindings[:1]), ann.delete_acls([EVERYTHING])):
            with pytest.raises(KafkaException) as error:
                await done(refused)
            assert codes(error) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
        wrong = binding("ann", AclOperation.CLUSTER_ACTION, "orders")
        with pytest.raises(KafkaException, match="cluster_action of a topic") as error:
            await done(root.create_acls([wrong]))
        assert codes(error) == KafkaError.INVALID_REQUEST
        [deleted] = await done(root.delete_acls([match]))
        assert deleted == [bindings[1]]
        [deleted] = await done(root.delete_acls([EVERYTHING]))
        assert set(deleted) == {bindings[0], *bindings[2:]}
        assert (await done(root.describe_acls(EVERYTHING)))[0] == []


def python_admin(site: Secured, name: str) -> KafkaAdminClient:
    return KafkaAdminClient(**site.kafka_python(name))


def python_does_the_same(site: Secured) -> None:
    root = python_admin(site, ROOT)
    made = ACL(
        "User:ann",
        "*",
        PythonOperation.WRITE,
        PythonPermission.ALLOW,
        ResourcePattern(PythonType.TOPIC, "orders", PythonPattern.PREFIXED),
    )
    answer = root.create_acls([made])
    assert answer == {"succeeded": [made], "failed": []}
    anything = ACLFilter(
        None,
        None,
        PythonOperation.ANY,
        PythonPermission.ANY,
        ResourcePatternFilter(PythonType.ANY, None, PythonPattern.ANY),
    )
    found, _ = root.describe_acls(anything)
    assert found == [made]
    ann = python_admin(site, "ann")
    with pytest.raises(ClusterAuthorizationFailedError):
        ann.describe_acls(anything)
    [(_, deleted, _)] = root.delete_acls([anything])
    assert deleted == [made]
    root.close()
    ann.close()


async def test_kafka_python_does_the_same(tmp_path) -> None:
    async with secured(tmp_path) as site:
        await trio.to_thread.run_sync(python_does_the_same, site)


def told_of_a_write(config: dict[str, object], topic: str) -> int:
    """The error of one record, 0 if there is none."""
    producer = confluent_kafka.Producer(config)
    found: list[int] = []
    producer.produce(
        topic,
        value=b"v",
        on_delivery=lambda error, _: found.append(error.code() if error else 0),
    )
    assert producer.flush(HANG_S) == 0
    return found[0]


def told_of_a_read(config: dict[str, object], topic: str, group: str) -> object:
    """The first record, or error, that a consumer of a group is given."""
    consumer = confluent_kafka.Consumer(
        {**config, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(HANG_S)
    finally:
        consumer.close()
    assert message is not None
    return message.error().code() if message.error() else message.value()


async def test_what_is_denied_is_told_as_kafka_does(tmp_path) -> None:
    async with secured(tmp_path) as site:
        async with site.client(ROOT) as root:
            for name in ("orders", "payments"):
                await root.admin.create_topic(name, partitions=1, replication_factor=1)
        super_user = await admin(site, ROOT)
        bindings = [
            binding("ann", AclOperation.WRITE, "orders"),
            binding("bob", AclOperation.READ, "orders"),
            binding("bob", AclOperation.READ, "team", ResourceType.GROUP),
        ]
        await done(super_user.create_acls(bindings))
        ann, bob = site.librdkafka("ann"), site.librdkafka("bob")
        wrote = partial(trio.to_thread.run_sync, told_of_a_write)
        read = partial(trio.to_thread.run_sync, told_of_a_read)
        denied, of_group = (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        )
        assert await wrote(ann | {"enable.idempotence": True}, "orders") == 0
        assert await wrote(ann, "payments") == denied
        assert await wrote(ann, "nowhere") == denied
        assert await wrote(bob, "orders") == denied
        assert await read(bob, "orders", "team") == b"v"
        assert await read(bob, "orders", "others") == of_group
        assert await read(bob, "payments", "team") == denied
        assert await read(ann, "orders", "team") == of_group
        for name, seen in ((ROOT, {"orders", "payments"}), ("ann", {"orders"}), ("eve", set())):
            client = await admin(site, name)
            listed = await trio.to_thread.run_sync(partial(client.list_topics, timeout=HANG_S))
            assert {each for each in listed.topics if not each.startswith("__")} == seen
            assert len(listed.brokers) == 1, "where nodes are is no secret"
        client = await admin(site, "ann")
        [described] = await done(
            client.describe_topics(TopicCollection(["orders"]), include_authorized_operations=True)
        )
        assert {each.name for each in described.authorized_operations} == {"WRITE", "DESCRIBE"}
        [cluster] = await done(super_user.describe_cluster(include_authorized_operations=True))
        assert {"ALTER", "DESCRIBE", "CLUSTER_ACTION"} <= {
            each.name for each in cluster.authorized_operations
        }
