"""A node on the backup of a disk that it has outlived (row 30 of tests/sim/README.md)."""

from __future__ import annotations

import copy
import json
from contextlib import suppress

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from paceline.types import NO_NODE, BrokerEpoch, NodeId
from paceline.wire.native.admin import CreateTopic, TopicCreated
from paceline.wire.native.api import NativeApi
from paceline_node.controller.image import Image
from paceline_node.controller.lifecycle import Lifecycle
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.storage.memory_disk import MemoryDisk
from tests.integration.node.machines import MemoryMachines
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import Cluster, cluster, first_error

pytestmark = pytest.mark.virtual_time


def _disks(nodes: Cluster) -> dict[int, MemoryDisk]:
    assert isinstance(nodes.machines, MemoryMachines)
    return nodes.machines.disks


def _backup(nodes: Cluster, number: int) -> MemoryDisk:
    """All that a node has now, whether it runs or not; on a disk that nobody uses."""
    found = copy.deepcopy(_disks(nodes)[number])
    found.kill()
    return found


def _put_back(disk: MemoryDisk, backup: MemoryDisk, *names: str) -> None:
    """Have files and directories as they were."""
    for name in names:
        disk.lose(name)
    for path, node in backup.files():
        above, _, _ = path.rpartition("/")
        if path.partition("/")[0] in names:
            disk.mkdir(above)
            disk.create(path).append([node.content])


def _put_back_data(disk: MemoryDisk, backup: MemoryDisk) -> None:
    """Have the logs as they were, and all that is written down of them beside them."""
    paths = {path for each in (disk, backup) for path, _ in each.files()}
    tops = {path.partition("/")[0] for path in paths}
    _put_back(disk, backup, *(tops - {"incarnation", "LOCK"} - _beside(tops)))


def _beside(tops: set[str]) -> set[str]:
    """What is of the metadata, and who the node is."""
    return {name for name in tops if name.startswith(("metadata", "meta."))}


async def _write(nodes: Cluster, first: int, end: int) -> None:
    leader = await nodes.leader("orders", 0)
    async with nodes.v1(leader) as client:
        for number in range(first, end):
            await client.ok("PRODUCE", f"orders k:{number} acks=all")


async def _two_and_a_third(nodes: Cluster) -> tuple[int, int, int]:
    """Leader and follower of ``orders``, which holds 20 records, and the node without a replica."""
    async with NativeConnection(nodes.up[0].addresses["native"]) as connection:
        wish = CreateTopic("orders", 1, 2, {"min.insync.replicas": "2"})
        await connection.call(NativeApi.CREATE_TOPIC, wish, TopicCreated)
    leader = await nodes.leader("orders", 0)
    (follower,) = {*(await nodes.partition("orders", 0)).replicas} - {leader}
    (third,) = {0, 1, 2} - {leader, follower}
    await nodes.in_sync("orders", 0, leader, follower)
    await _write(nodes, 0, 20)
    return leader, follower, third


def _image(nodes: Cluster, number: int) -> Image:
    """The metadata as a node has them now."""
    broker = nodes.up[number].node.broker
    assert broker is not None
    return broker.metadata.image_store.image


def _registrations(nodes: Cluster, number: int) -> list[PartitionRegistration]:
    """The partition's registrations from now on, as a node learns of them."""
    broker = nodes.up[number].node.broker
    assert broker is not None
    seen: list[PartitionRegistration] = []
    broker.metadata.image_store.subscribe(
        lambda _, image: seen.append(image.partition("orders", 0))
    )
    return seen


async def test_a_restored_backup_counts_for_nothing_until_it_has_caught_up(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        async with NativeConnection(nodes.up[0].addresses["native"]) as connection:
            wish = CreateTopic("orders", 1, 3, {"min.insync.replicas": "3"})
            await connection.call(NativeApi.CREATE_TOPIC, wish, TopicCreated)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await _write(nodes, 0, 20)
        leader = await nodes.leader("orders", 0)
        node, other = (number for number in range(3) if number != leader)
        await nodes.stop(node)
        backup = _backup(nodes, node)
        seen = _registrations(nodes, leader)
        await nodes.start(node)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        assert any(node in each.elr for each in seen), "below the minimum it stays eligible"
        assert not any(node in each.lkelr for each in seen), "and is trusted when it is back"
        await _write(nodes, 20, 40)

        await nodes.stop(node)
        _disks(nodes)[node] = backup
        seen = _registrations(nodes, leader)
        with pytest.raises(BaseExceptionGroup) as refused:
            await nodes.start(node)
        assert "an old copy of the disk" in str(first_error(refused.value))
        await nodes.start(node)  # as a supervisor would: its second start is one not seen before
        await nodes.in_sync("orders", 0, 0, 1, 2)
        assert any(node in each.lkelr for each in seen), "it had registered since: not eligible"

        async with nodes.v1(node) as client:
            await client.ok("SET_PARTITION_ROLE", "orders 0 leader")
        await nodes.crash(leader, other)
        async with nodes.v1(node) as client:
            shown = await client.ok("CONSUME", "orders 0 0 max=100")
        assert shown["messages"] == ",".join(f"{n}:{n}" for n in range(40))


async def test_an_old_incarnation_file_is_refused_and_removing_it_loses_nothing(tmp_path) -> None:
    """Only this file is as it was many starts ago. The cluster cannot know that the rest is not;
    the node says what to do, and then it has everything that it had, its sole replicas too."""
    async with cluster(tmp_path) as nodes:
        async with NativeConnection(nodes.up[0].addresses["native"]) as connection:
            for wish in (CreateTopic("orders", 1, 3, {}), CreateTopic("sole", 1, 1, {})):
                await connection.call(NativeApi.CREATE_TOPIC, wish, TopicCreated)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        node = await nodes.leader("sole", 0)
        disk = _disks(nodes)[node]
        old = disk.content("incarnation")
        for _ in range(3):
            await nodes.stop(node)
            await nodes.start(node)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await _write(nodes, 0, 20)
        async with nodes.v1(node) as client:
            for number in range(20):
                await client.ok("PRODUCE", f"sole k:{number} acks=all")
        await nodes.stop(node)
        disk.overwrite("incarnation", old)

        with pytest.raises(BaseExceptionGroup) as refused:
            await nodes.start(node)
        assert "remove its file 'incarnation'" in str(first_error(refused.value))
        disk.lose("incarnation")
        await nodes.start(node)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await nodes.in_sync("sole", 0, node)
        async with nodes.v1(node) as client:
            await client.ok("SET_PARTITION_ROLE", "orders 0 leader")
            for topic in ("orders", "sole"):
                shown = await client.ok("CONSUME", f"{topic} 0 0 max=100")
                assert shown["messages"] == ",".join(f"{n}:{n}" for n in range(20))
        await nodes.stop(node)
        await nodes.start(node)  # counts on from there
        await nodes.in_sync("orders", 0, 0, 1, 2)

        other = next(each for each in nodes.up if each != node)
        foreign = _disks(nodes)[other].content("incarnation")
        await nodes.stop(node)
        disk.overwrite("incarnation", foreign)
        await nodes.start(node)  # as if there were none: nobody needs to remove it
        await nodes.in_sync("orders", 0, 0, 1, 2)


async def test_older_metadata_is_told_by_the_incarnation_and_nobody_votes_by_it(tmp_path) -> None:
    """Both copies and their mark are of a backup, all else is new: with such a voter the quorum
    lost what it had committed, and wrote other entries under terms that had been used."""
    async with cluster(tmp_path) as nodes:
        node, disk = 2, _disks(nodes)[2]
        await nodes.stop(node)
        backup = _backup(nodes, node)
        await nodes.start(node)
        async with NativeConnection(nodes.up[0].addresses["native"]) as connection:
            wish = CreateTopic("later", 1, 3, {})
            await connection.call(NativeApi.CREATE_TOPIC, wish, TopicCreated)
        await nodes.in_sync("later", 0, 0, 1, 2)
        before = json.loads(disk.content("meta.json"))["directory_id"]
        await nodes.stop(node)
        _put_back(disk, backup, "metadata", "metadata.copy", "metadata.mark")

        await nodes.start(node)
        after = json.loads(disk.content("meta.json"))["directory_id"]
        assert after != before, "taken in as a new member"
        await nodes.in_sync("later", 0, 0, 1, 2)


async def _hears_of_newer_metadata(
    nodes: Cluster, number: int, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends before it has registered."""

    async def start() -> None:
        with suppress(RuntimeError):  # it never comes to serve
            await nodes.start(number)

    async def has_heard() -> bool:
        broker = nodes.process(number).broker
        return broker is not None and broker.metadata.durable_offset() > offset

    async def never(*_: object) -> BrokerEpoch:
        await trio.sleep_forever()

    with monkeypatch.context() as patch:
        patch.setattr(Lifecycle, "register", never)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            await trio.testing.wait_all_tasks_blocked()
            await nodes.wait_for("newer metadata", has_heard)
            await nodes.crash(number)


async def _noted_beyond_a_copy(nodes: Cluster, old: int, third: int) -> int:
    """20 more records, and the disk of one that has crashed from before them. How much of the
    metadata it has said to hold since."""
    backup = _backup(nodes, old)
    copied_at = _image(nodes, old).offset
    await _write(nodes, 20, 40)

    async def is_noted() -> bool:
        return _image(nodes, third).durable_offsets.get(NodeId(old), -1) > copied_at

    await nodes.wait_for("what the old one holds is noted", is_noted)
    await nodes.crash(old)
    _disks(nodes)[old] = backup
    return _image(nodes, third).durable_offsets[NodeId(old)]


async def _all_are_there(nodes: Cluster, *replicas: int) -> None:
    await nodes.in_sync("orders", 0, *replicas)
    async with nodes.v1(await nodes.leader("orders", 0)) as client:
        shown = await client.ok("CONSUME", "orders 0 0 max=100")
    assert shown["messages"] == ",".join(f"{n}:{n}" for n in range(40))


async def test_an_older_copy_of_a_disk_elects_nobody_while_the_whole_one_is_away(tmp_path) -> None:
    """Everything in it is right, and no start lies between: only the metadata tell."""
    async with cluster(tmp_path) as nodes:
        old, whole, third = await _two_and_a_third(nodes)
        await _noted_beyond_a_copy(nodes, old, third)
        await nodes.crash(whole, third)

        async def is_told() -> bool:
            return any("its vote does not count" in each["event"] for each in logs)

        with capture_logs() as logs:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(nodes.start_all, (old, third))
                await nodes.wait_for("the third says that it is old", is_told)
                await trio.sleep(30)
                assert not any("became the active controller" in each["event"] for each in logs)
                await nodes.start(whole)
        await _all_are_there(nodes, old, whole)


async def test_an_older_copy_of_a_disk_does_not_lead_while_the_whole_one_is_away(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata have caught up, its logs have not."""
    async with cluster(tmp_path) as nodes:
        old, whole, third = await _two_and_a_third(nodes)
        noted = await _noted_beyond_a_copy(nodes, old, third)
        await _hears_of_newer_metadata(nodes, old, noted, monkeypatch)
        await nodes.crash(whole, third)

        async def is_alone() -> bool:
            image = _image(nodes, third)
            return image.brokers[NodeId(whole)].fenced and not image.brokers[NodeId(old)].fenced

        await nodes.start_all((old, third))
        await nodes.wait_for("the whole one is known to be away", is_alone)
        image = _image(nodes, third)
        assert not image.brokers[NodeId(old)].trusted
        assert image.partition("orders", 0).leader == NO_NODE
        await nodes.start(whole)
        await _all_are_there(nodes, old, whole)


@pytest.mark.parametrize(
    "ends_early",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["at once", "in its second start"],
)
async def test_older_logs_beside_new_metadata_do_not_lead_while_the_whole_ones_are_away(
    tmp_path, ends_early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a node keeps of its logs is of some time ago, and agrees; its metadata are new."""
    async with cluster(tmp_path) as nodes:
        async with NativeConnection(nodes.up[0].addresses["native"]) as connection:
            wish = CreateTopic("orders", 1, 3, {"min.insync.replicas": "2"})
            await connection.call(NativeApi.CREATE_TOPIC, wish, TopicCreated)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await _write(nodes, 0, 20)
        whole = await nodes.leader("orders", 0)
        old, third = (number for number in range(3) if number != whole)
        backup = _backup(nodes, old)
        copied_at = _image(nodes, old).offset

        async def is_outlived() -> bool:
            return _image(nodes, old).durable_offsets.get(NodeId(old), -1) > copied_at

        await nodes.wait_for("some time has passed", is_outlived)
        await nodes.crash(third)
        await nodes.in_sync("orders", 0, whole, old)
        await _write(nodes, 20, 40)
        noted = _image(nodes, old).offset
        await nodes.crash(whole, old)
        _put_back_data(_disks(nodes)[old], backup)
        if ends_early:
            await _hears_of_newer_metadata(nodes, old, -1, monkeypatch)

        async def is_alone() -> bool:
            brokers = _image(nodes, third).brokers
            return brokers[NodeId(whole)].fenced and not brokers[NodeId(old)].fenced

        with capture_logs() as logs:
            await nodes.start_all((old, third))
        await nodes.wait_for("the whole one is known to be away", is_alone)
        assert _image(nodes, third).offset >= noted
        assert not _image(nodes, third).brokers[NodeId(old)].trusted
        assert _image(nodes, third).partition("orders", 0).leader == NO_NODE
        told = [each for each in logs if "what the logs must hold" in each["event"]]
        assert any("older copy" in reason for each in told for reason in each["reasons"])
        await nodes.start(whole)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        async with nodes.v1(await nodes.leader("orders", 0)) as client:
            shown = await client.ok("CONSUME", "orders 0 0 max=100")
        assert shown["messages"] == ",".join(f"{n}:{n}" for n in range(40))
        await nodes.crash(0, 1, 2)
        await nodes.start_all((0, 1, 2))
        await nodes.in_sync("orders", 0, 0, 1, 2)
        assert all(each.trusted for each in _image(nodes, old).brokers.values())


async def test_what_an_old_copy_wrote_alone_makes_it_no_longer_than_the_whole_one(tmp_path) -> None:
    """After everybody went down it leads, without what was committed last, and takes a write for
    which only it is asked. When the other replica is there that one has the longer log still."""
    settings = {"controller.noop_interval_ms": "3600000"}  # so young a copy nobody can tell
    async with cluster(tmp_path, flags=settings) as nodes:
        old, whole, third = await _two_and_a_third(nodes)
        backup = _backup(nodes, old)
        await _write(nodes, 20, 40)
        await nodes.crash(0, 1, 2)
        _disks(nodes)[old] = backup

        await nodes.start_all((old, third))
        assert await nodes.leader("orders", 0) == old
        async with nodes.v1(old) as client:
            await client.ok("PRODUCE", "orders k:alone acks=1")
        await nodes.crash(old, third)
        await nodes.start_all((old, whole, third))
        await nodes.in_sync("orders", 0, old, whole)
        async with nodes.v1(await nodes.leader("orders", 0)) as client:
            shown = await client.ok("CONSUME", "orders 0 0 max=100")
        assert shown["messages"] == ",".join(f"{n}:{n}" for n in range(40))
