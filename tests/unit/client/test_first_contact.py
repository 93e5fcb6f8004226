"""How long connect() tries: refusals by every address end it early, nothing else does."""

from __future__ import annotations

import errno
import socket

import pytest
import trio

from paceline.client import ClientSettings, connect
from paceline.client.endpoint import Endpoint
from paceline.errors import ConnectionLost, Outcome, Unreachable
from tests.unit.client.broker import Cluster

IMPATIENT = ClientSettings(operation_timeout_s=20, first_contact_timeout_s=1)


async def start_late(cluster: Cluster, node: int, after_s: float) -> None:
    await trio.sleep(after_s)
    cluster.start(node)


async def test_connect_gives_up_soon_where_every_address_refuses(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, 2)
        cluster.kill(0)
        cluster.kill(1)
        begin = trio.current_time()
        with pytest.raises(
            Unreachable, match=r"node-\d:7400: .* refused; node-\d:7400: .* refused"
        ):
            async with connect(cluster.bootstrap(), IMPATIENT, dial=cluster.dial):
                pass
        assert trio.current_time() - begin == pytest.approx(1, abs=0.3)


async def test_nothing_has_happened_where_connect_fails(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, 2)
        cluster.kill(0)
        cluster.nodes[1].is_deaf = True
        for bootstrap, kind in (("node-0:7400", Unreachable), ("node-1:7400", ConnectionLost)):
            with pytest.raises(kind) as raised:
                async with connect(bootstrap, IMPATIENT, dial=cluster.dial):
                    pass
            assert raised.value.outcome is Outcome.DEFINITE
        nursery.cancel_scope.cancel()


async def test_a_cluster_that_comes_up_during_the_first_contact_is_reached(
    autojump_clock: object,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, 2)
        cluster.kill(0)
        cluster.kill(1)

        nursery.start_soon(start_late, cluster, 1, 0.5)
        async with connect(cluster.bootstrap(), IMPATIENT, dial=cluster.dial) as client:
            assert (await client.admin.describe_cluster()).brokers
        nursery.cancel_scope.cancel()


async def test_whoever_is_ready_to_wait_longer_than_for_an_operation_may(
    autojump_clock: object,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, 1)
        cluster.kill(0)

        nursery.start_soon(start_late, cluster, 0, 50)
        patient = ClientSettings(operation_timeout_s=20, first_contact_timeout_s=60)
        async with connect(cluster.bootstrap(), patient, dial=cluster.dial) as client:
            assert (await client.admin.describe_cluster()).brokers
        nursery.cancel_scope.cancel()


def tried(*numbers: int) -> OSError:
    """What trio raises when it has tried several addresses of a host."""
    error = OSError("all attempts to connect to localhost:7400 failed")
    causes = [OSError(number, "") for number in numbers]
    error.__cause__ = ExceptionGroup("all attempts to connect to localhost:7400 failed", causes)
    return error


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (OSError(errno.ECONNREFUSED, ""), Unreachable),
        (OSError(errno.EHOSTUNREACH, ""), Unreachable),
        (socket.gaierror(socket.EAI_NONAME, "name or service not known"), Unreachable),
        (socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution"), ConnectionLost),
        (OSError(errno.EMFILE, ""), ConnectionLost),
        (tried(errno.ECONNREFUSED, errno.ECONNREFUSED), Unreachable),
        # ::1 of localhost where IPv6 is switched off
        (tried(errno.EADDRNOTAVAIL, errno.ECONNREFUSED), Unreachable),
        (tried(errno.EAFNOSUPPORT, errno.EMFILE), ConnectionLost),
        (tried(errno.ECONNREFUSED, errno.EMFILE), ConnectionLost),
        (tried(errno.EADDRNOTAVAIL), ConnectionLost),
    ],
)
async def test_only_what_means_that_nobody_is_there_ends_it_early(
    autojump_clock: object, failure: OSError, kind: type[ConnectionLost]
) -> None:
    async def dial(endpoint: Endpoint) -> trio.abc.Stream:
        raise failure

    begin = trio.current_time()
    with pytest.raises(ConnectionLost) as raised:
        async with connect("nowhere:7400", IMPATIENT, dial=dial):
            pass
    assert type(raised.value) is kind
    took_s = trio.current_time() - begin
    assert took_s == pytest.approx(1 if kind is Unreachable else 20, abs=0.3)


async def test_an_address_that_is_silent_gets_the_whole_operation_timeout(
    autojump_clock: object,
) -> None:
    """A busy node may be slow to greet; only refusals are sure to mean that nobody is there."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, 2)
        cluster.kill(0)
        cluster.nodes[1].is_deaf = True
        begin = trio.current_time()
        with pytest.raises(ConnectionLost, match=r"no greeting in 3.0 s"):
            async with connect(cluster.bootstrap(), IMPATIENT, dial=cluster.dial):
                pass
        assert trio.current_time() - begin == pytest.approx(20, abs=3.1)
        nursery.cancel_scope.cancel()


async def test_a_cluster_once_reached_may_be_gone_for_longer(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, 2)
        async with connect(cluster.bootstrap(), IMPATIENT, dial=cluster.dial) as client:
            cluster.kill(0)
            cluster.kill(1)

            async def restart() -> None:
                await trio.sleep(10)
                cluster.start(0)

            nursery.start_soon(restart)
            assert (await client.admin.describe_cluster()).brokers
            await client.admin.refresh_brokers()
        nursery.cancel_scope.cancel()
