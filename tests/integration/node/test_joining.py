"""Nodes join, come back wiped, copied or killed; and what keeps a wrong one out."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

import pytest
import trio

from paceline.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InconsistentClusterId,
    InvalidRequest,
    PacelineError,
)
from paceline.types import NodeId
from paceline.wire.native.admin import Done, UnregisterBroker
from paceline.wire.native.api import NativeApi
from paceline_node.app.boot import DirectoryInUse
from paceline_node.app.node import Node
from tests.integration.node.machines import data_dir, free_ports
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import (
    HANG_S,
    Cluster,
    cluster,
    format_nodes,
    format_to_join,
    listener_ports,
    make_node,
    refusal,
    write_secret,
)
from tests.integration.node.test_v1_cluster import create, others


async def voters(nodes: Cluster, *expected: int) -> None:
    """Wait until every node that serves knows these voters."""

    async def agreed() -> bool:
        seen = {(await nodes.status(number)).voters for number in nodes.up}
        return seen == {expected}

    await nodes.wait_for(f"voters are {expected}", agreed)


async def write(nodes: Cluster, topic: str, *values: str) -> None:
    async with nodes.v1(min(nodes.up)) as client:
        for value in values:
            await client.ok("PRODUCE", f"{topic} k:{value} acks=all")


async def stored(nodes: Cluster, topic: str, via: int) -> list[str]:
    """The values of the topic's only partition."""
    async with nodes.v1(via) as client:
        shown = await client.ok("CONSUME", f"{topic} 0 0")
    return [item.split(":", 1)[1] for item in shown["messages"].split(",") if item]


# --- joining --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", ["with ids", pytest.param("addresses only", marks=pytest.mark.slow)]
)
async def test_a_lone_node_grows_to_three_voters(tmp_path, form: str) -> None:
    async with cluster(tmp_path, 1) as nodes:
        await create(nodes, "old", factor=1)
        await write(nodes, "old", "a")
        async with nodes.v1(0) as client:
            # An id that somebody registered from outside is no obstacle to the real node.
            await client.ok("ADMIN_REGISTER_BROKER", "1 elsewhere.example 1")
        bootstrap = nodes.bootstrap
        if form == "addresses only":
            bootstrap = bootstrap.partition("@")[2]
        await nodes.start(1, cluster__bootstrap=bootstrap)
        assert (await nodes.status(1)).role == "learner"
        await voters(nodes, 0)
        await nodes.start(2, cluster__bootstrap=bootstrap)
        await voters(nodes, 0, 1, 2)
        async with nodes.v1(2) as client:
            told = await client.call("ADMIN_GET_METADATA")
            assert told == "OK|topics=[old] brokers=[0 1 2] fenced=[]"
        await nodes.in_sync("__groups", 0, 0, 1, 2)
        await create(nodes, "new")
        await write(nodes, "new", "b")
        assert await stored(nodes, "old", via=2) == ["a"]
        await nodes.crash(0)
        await nodes.in_sync("new", 0, 1, 2)
        await write(nodes, "new", "c")
        assert await stored(nodes, "new", via=1) == ["b", "c"]
        await nodes.start(0)
        await nodes.in_sync("new", 0, 0, 1, 2)


async def test_a_node_that_is_gone_for_good_is_forgotten(tmp_path) -> None:
    """As a broker, and as a member of the quorum; its directory does not come back."""
    async with cluster(tmp_path) as nodes:
        await nodes.start(3, cluster__bootstrap=nodes.bootstrap)

        async def listed() -> bool:
            return (await nodes.status(0)).learners == (3,)

        await nodes.wait_for("node 0 knows of node 3", listed)
        async with NativeConnection(nodes.up[0].addresses["native"]) as native:

            async def unregister(number: int) -> None:
                body = UnregisterBroker(NodeId(number))
                await native.call(NativeApi.UNREGISTER_BROKER, body, Done)

            for number in (3, 2):
                with pytest.raises(InvalidRequest, match=f"node {number} is alive"):
                    await unregister(number)
                await nodes.crash(number)
                await nodes.wait_for("fenced", partial(is_fenced, nodes, number))
                await unregister(number)

        async def alone() -> bool:
            status = await nodes.status(0)
            return (status.voters, status.learners) == ((0, 1), ())

        await nodes.wait_for("the others are forgotten", alone)
        await create(nodes, "t", factor=2)
        await write(nodes, "t", "a")


async def is_fenced(nodes: Cluster, number: int) -> bool:
    brokers = (await nodes.status(0)).brokers
    return any(each.node_id == number and each.fenced for each in brokers)


# --- coming back ----------------------------------------------------------------------------------


async def test_a_wiped_voter_votes_again_and_holds_everything_again(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        await write(nodes, "orders", "a", "b")
        leader, (kept, other) = await others(nodes, "orders")
        await nodes.crash(leader)
        await nodes.in_sync("orders", 0, kept, other)
        await write(nodes, "orders", "c")
        directory_id = await nodes.wipe(leader)
        await write(nodes, "orders", "d")
        await nodes.start(leader)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await voters(nodes, 0, 1, 2)
        async with nodes.v1(leader) as client:
            await client.ok("SET_PARTITION_ROLE", "orders 0 leader")
        # The other copies away: what is shown now stands on the new disk.
        await nodes.stop(kept)
        assert await nodes.leader("orders", 0) == leader
        assert await stored(nodes, "orders", via=leader) == ["a", "b", "c", "d"]
        await write(nodes, "orders", "e")
        assert str(directory_id) in (data_dir(tmp_path, leader) / "meta.json").read_text()


async def test_a_node_comes_back_at_another_address(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        for number in range(3):
            await nodes.crash(number)
            nodes.move(number)
            await nodes.in_sync("orders", 0, *nodes.up)
            await write(nodes, "orders", f"without-{number}")
            await nodes.start(number)
            await nodes.in_sync("orders", 0, 0, 1, 2)
            await voters(nodes, 0, 1, 2)
        await nodes.crash(0, 1, 2)
        for number in range(3):
            nodes.move(number)
        for number in range(3):
            nodes.ports(number)  # the settings of all name the new addresses of all
        await nodes.start_all(range(3))
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await write(nodes, "orders", "all")
        kept = [f"without-{number}" for number in range(3)]
        assert await stored(nodes, "orders", via=0) == [*kept, "all"]


async def test_a_lone_node_comes_back_at_another_address(tmp_path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        await create(nodes, "orders", factor=1)
        await write(nodes, "orders", "a")
        await nodes.crash(0)
        nodes.move(0)
        await nodes.start(0)
        await nodes.start(1)
        assert await stored(nodes, "orders", via=1) == ["a"]


async def test_three_nodes_killed_at_once_come_back_with_everything(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        await write(nodes, "orders", *"abc")
        before = await nodes.partition("orders", 0)
        for _ in range(2):
            await nodes.crash(0, 1, 2)
            await nodes.start_all(range(3))
            after = await nodes.in_sync("orders", 0, 0, 1, 2)
            assert after.leader_epoch > before.leader_epoch
            before = after
        assert await stored(nodes, "orders", via=0) == ["a", "b", "c"]
        await write(nodes, "orders", "d")
        await voters(nodes, 0, 1, 2)


@asynccontextmanager
async def second_node_2(nodes: Cluster, made_by: str) -> AsyncIterator[trio.Event]:
    """Run another process as node 2 for the length of the block: on a copy of its directory, or
    on a fresh one. The event tells that it came to serve."""
    elsewhere = nodes.directory / "elsewhere"
    elsewhere.mkdir()
    write_secret(elsewhere)
    if made_by == "copy":
        shutil.copytree(data_dir(nodes.directory, 2), data_dir(elsewhere, 2))
    else:
        await format_to_join(elsewhere, 2, nodes.up[0].cluster_id)
    # Not by way of the first one itself, which would notice at once.
    others = ",".join(f"127.0.0.1:{nodes.ports(number)['peer']}" for number in (0, 1))
    flags = {**nodes.flags, "cluster.bootstrap": others}
    async with _starting(make_node(elsewhere, 2, listener_ports(), flags)) as served:
        yield served


@asynccontextmanager
async def _starting(node: Node) -> AsyncIterator[trio.Event]:
    """Run a node for the length of the block; the event tells that it came to serve."""
    served = trio.Event()

    async def run() -> None:
        try:
            async with trio.open_nursery() as inner:
                await inner.start(node.run)
                served.set()
        except* PacelineError:
            pass  # it refuses to start, which does no harm either

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield served
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("made_by", ["copy", pytest.param("format", marks=pytest.mark.slow)])
async def test_a_second_process_of_a_live_node_does_no_harm(tmp_path, made_by: str) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        async with second_node_2(nodes, made_by) as served:
            for number in range(20):
                await write(nodes, "orders", f"v{number}")
                await trio.sleep(0.1)  # time in which the second one would do its harm
            assert not served.is_set()
        await nodes.in_sync("orders", 0, 0, 1, 2)
        assert await stored(nodes, "orders", via=2) == [f"v{number}" for number in range(20)]
        assert not nodes.exits, "the first one goes on"
        # It also still has its vote: with it, another voter may go.
        await nodes.crash(1)
        await nodes.in_sync("orders", 0, 0, 2)
        await write(nodes, "orders", "without-1")


async def test_of_two_copies_the_first_to_come_wins(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        await nodes.crash(2)
        await nodes.in_sync("orders", 0, 0, 1)
        async with second_node_2(nodes, "copy") as served:
            with trio.fail_after(HANG_S):
                await served.wait()
            await nodes.in_sync("orders", 0, 0, 1, 2)
            await write(nodes, "orders", "a")
            async with _starting(make_node(tmp_path, 2, nodes.ports(2), nodes.flags)) as original:
                await write(nodes, "orders", "b")
                await trio.sleep(1)  # time in which the original would push the copy away
                assert not original.is_set()
            await nodes.in_sync("orders", 0, 0, 1, 2)
            await write(nodes, "orders", "c")


async def test_a_node_that_waits_for_others_can_be_stopped(tmp_path) -> None:
    nowhere = {"cluster.bootstrap": f"0@127.0.0.1:{free_ports(1)[0]}"}
    for directory, formatted in ((tmp_path / "empty", False), (tmp_path / "member", True)):
        directory.mkdir()
        write_secret(directory)
        if formatted:
            await format_nodes(directory, free_ports(3))
        node = make_node(directory, 1, listener_ports(), nowhere)
        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.run)
                await trio.sleep(0.3)  # it looks for the others, or waits for a quorum
                node.stop()


# --- who is kept out ------------------------------------------------------------------------------


async def test_wrong_identities_are_refused_in_one_sentence(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        flags = {"cluster.bootstrap": nodes.bootstrap}

        stranger = tmp_path / "stranger"
        stranger.mkdir()
        write_secret(stranger)
        await format_to_join(stranger, 3, uuid4())
        error = await refusal(make_node(stranger, 3, listener_ports(), flags))
        assert isinstance(error, InconsistentClusterId)
        assert str(nodes.up[0].cluster_id) in str(error), error

        spy = tmp_path / "spy"
        spy.mkdir()
        write_secret(spy, "f" * 64)
        error = await refusal(make_node(spy, 3, listener_ports(), flags))
        assert isinstance(error, AuthenticationFailed)
        assert "secret" in str(error), error

        nobody = tmp_path / "nobody"
        nobody.mkdir()
        write_secret(nobody)
        error = await refusal(make_node(nobody, 3, listener_ports(), {}))
        assert isinstance(error, ConfigurationError)
        assert str(data_dir(nobody, 3)) in str(error)
        assert "cluster.bootstrap" in str(error)
        assert "paceline node format" in str(error)

        await nodes.stop(2)
        error = await refusal(
            make_node(tmp_path, 5, listener_ports(), {}, data=data_dir(tmp_path, 2))
        )
        assert isinstance(error, ConfigurationError)
        assert str(error) == "the data directory belongs to node 2, node.id is 5"

        error = await refusal(make_node(tmp_path, 0, listener_ports(), {}))
        assert isinstance(error, DirectoryInUse)
        assert str(data_dir(tmp_path, 0)) in str(error)

        with pytest.raises(ConfigurationError, match="in use"):
            await format_to_join(tmp_path, 2, nodes.up[0].cluster_id)
        await nodes.start(2)
        await voters(nodes, 0, 1, 2)
