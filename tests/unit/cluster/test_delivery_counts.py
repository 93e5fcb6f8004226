"""Produce's book-keeping: every line is acknowledged or failed, and the file says which."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from paceline.client import ProducerSettings
from paceline.errors import ErrorCode, PacelineError, PolicyViolation, RequestTimedOut
from paceline.wire.native.api import NativeApi
from paceline_cluster.cli.acknowledged_file import AckedFile
from paceline_cluster.cli.delivery_counts import Tally
from paceline_cluster.cli.failures import INTERRUPTED
from paceline_cluster.cli.produce import STUCK_S, ending, tell_when_stuck
from paceline_cluster.errors import Exit
from tests.unit.client.harness import cluster_and_client


async def test_lines_are_written_down_where_they_lie(
    autojump_clock: object, tmp_path: Path
) -> None:
    path = tmp_path / "acked"
    progress: list[int] = []
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders", 3)
        with AckedFile(path) as file:
            tally = Tally(file, progress.append)
            keys = [None if number % 4 == 0 else b"k%d" % (number % 5) for number in range(200)]
            values: list[bytes | None] = [b"%d" % number for number in range(200)]
            async with client.producer(ProducerSettings(batch_bytes=1024)) as producer:
                for portion in await producer.submit_many("orders", values, keys=keys):
                    tally.follow(portion, 1000, keys)
                single = await producer.submit("orders", b"last", key=b"\xff")
                tally.follow_one(single, 1200, b"\xff")
                await producer.flush()
        stored = {
            (number, offset): value
            for number, log in enumerate(cluster.topics["orders"])
            for offset, value in enumerate(log.values())
        }
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(line["line"] for line in lines) == list(range(1000, 1201))
    for line in lines[:200]:
        if line["line"] < 1200:
            value = stored[line["partition"], line["offset"]]
            assert value == b"%d" % (line["line"] - 1000)
    assert {"base64": "/w=="} in [line["key"] for line in lines]
    assert all(line["leader_epoch"] >= 0 for line in lines)
    assert (tally.acked, tally.failed) == (201, 0)
    assert progress[-1] == 201


async def test_first_failure_is_kept_with_its_line_and_outcome(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders", 1)
        cluster.fault(NativeApi.PRODUCE, error=ErrorCode.POLICY_VIOLATION)
        tally = Tally(None, lambda _done: None)
        told: list[bool] = []
        tally.on_failure = lambda: told.append(True)
        async with client.producer() as producer:
            [portion] = await producer.submit_many("orders", [b"a", b"b"])
            tally.follow(portion, 7, None)
            await producer.flush()
            [portion] = await producer.submit_many("orders", [b"c"])
            tally.follow(portion, 9, None)
            await producer.flush()
    assert (tally.acked, tally.failed, tally.first_failed_line) == (1, 2, 7)
    assert isinstance(tally.error, PolicyViolation)
    assert tally.outcome() == "they are not stored"
    assert told == [True]
    tally.error = RequestTimedOut("late")
    assert tally.outcome() == "they may be stored all the same"


async def test_progress_is_of_the_bytes_that_are_acknowledged(autojump_clock: object) -> None:
    done: list[int] = []
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders", 1)
        tally = Tally(None, done.append, in_bytes=True)
        tally.read_bytes = 1000
        async with client.producer() as producer:
            for _ in range(2):
                [portion] = await producer.submit_many("orders", [b"a", b"b"])
                tally.follow(portion, 1, None)
            await producer.flush()
    assert done[-1] == 1000
    assert done == sorted(done)


async def test_what_was_refused_is_told_at_an_interruption_too(autojump_clock: object) -> None:
    """Ctrl-C said only that it may be stored all the same."""
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders", 1)
        tally = Tally(None, lambda _done: None)
        async with client.producer() as producer:

            async def line(number: int) -> None:
                [portion] = await producer.submit_many("orders", [b"a", b"b"])
                tally.follow(portion, number, None)
                with contextlib.suppress(PacelineError):
                    await producer.flush()

            await line(1)
            cluster.fault(NativeApi.PRODUCE, error=ErrorCode.POLICY_VIOLATION)
            await line(3)
            tally.stop()
    failure = ending("orders", tally)
    assert failure is not None
    assert failure.message.startswith(
        "interrupted: 2 records are stored; orders: 2 records were refused, the first is that of "
        "line 3: "
    )
    assert failure.message.endswith(" (they are not stored)")
    assert (failure.code, failure.exit_code) == ("POLICY_VIOLATION", Exit.DATA)


async def test_only_what_nobody_knows_is_left_open(autojump_clock: object) -> None:
    """What had never been sent was counted as sent."""
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders", 1)
        tally = Tally(None, lambda _done: None)
        cluster.fault(NativeApi.PRODUCE, silent=True)
        with trio.move_on_after(1):
            async with client.producer(ProducerSettings(max_in_flight=1)) as producer:
                for first, values in ((1, [b"a"]), (2, [b"b", b"c"])):
                    for portion in await producer.submit_many("orders", values):
                        tally.follow(portion, first, None)
                    await trio.sleep(0.1)
                tally.stop()
                assert tally.unknown == 3
                await trio.sleep_forever()
    assert (tally.acked, tally.failed, tally.open, tally.unknown) == (0, 3, 0, 1)
    failure = ending("orders", tally)
    assert failure is not None
    said = (
        "interrupted: 0 records are stored; 1 more was sent and may be stored all the same; "
        "2 more were given up and not stored"
    )
    assert failure == replace(INTERRUPTED, message=said)


@pytest.mark.parametrize("is_moving", [False, True])
async def test_who_waits_is_told_once_that_nothing_is_acknowledged(
    autojump_clock: object, is_moving: bool
) -> None:
    """With two nodes of three dead 'produce' was silent for its whole time-out, two minutes."""
    tally = Tally(None, lambda _done: None)
    said: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_when_stuck, tally, said.append)
        await trio.sleep(3 * STUCK_S)  # slow typing is no trouble
        assert said == []
        tally.handed = 5
        for _ in range(5):
            await trio.sleep(0.9 * STUCK_S)
            tally.acked += is_moving
        nursery.cancel_scope.cancel()
    told = "nothing was acknowledged for 10 s, 5 records wait; 'paceline health' says what is wrong"
    assert said == ([] if is_moving else [told])
