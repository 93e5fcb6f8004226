"""One node, V1: what values survive, how replies are cut into pages, how connections behave."""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.client import ProducerSettings
from paceline.types import Compression
from paceline.wire.v1.partitioner import partition_for
from paceline.wire.v1.text import is_plain_safe
from tests.integration.node.machines import connect
from tests.integration.node.nodes import RunningNode, V1Client, lone_node
from tests.integration.node.v1_client import fields

pytestmark = pytest.mark.virtual_time

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
REFUSED = "ERR|BAD_REQUEST|value cannot be carried in plain form; use enc=pct"
AMBIGUOUS = "ERR|BAD_REQUEST|ambiguous whitespace around message; use enc=pct"


def escape(data: bytes) -> str:
    return quote(data, safe="")


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_any_key_and_value_round_trip_with_percent_encoding(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, V1Client(node.v1) as client:

        async def round_trip(key: bytes, value: bytes) -> None:
            message = f"{escape(key)}:{escape(value)}"
            stored = await client.ok("PRODUCE", f"orders {message} enc=pct acks=all")
            assert stored["partition"] == str(partition_for(key, 3))
            where = f"orders {stored['partition']} {stored['offset']}"
            told = await client.call("CONSUME", f"{where} keys=1 enc=pct max=1")
            facts = fields(told)
            offset, shown_key, shown_value = facts["messages"].split(":")
            assert offset == stored["offset"]
            assert (unquote_to_bytes(shown_key), unquote_to_bytes(shown_value)) == (key, value)
            assert (escape(key), escape(value)) == (shown_key, shown_value), "one form only"
            plain = await client.call("CONSUME", f"{where}")
            if is_plain_safe(value):
                assert plain.encode().startswith(b"OK|messages=%b:%b" % (offset.encode(), value))
            else:
                assert plain == f"ERR|UNREPRESENTABLE|offset={offset}; use enc=pct"

        @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.binary(max_size=40), st.binary(max_size=200))
        def check(key: bytes, value: bytes) -> None:
            trio.from_thread.run(round_trip, key, value)

        await trio.to_thread.run_sync(check)


async def test_plain_values_come_back_as_they_are_or_are_refused(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, V1Client(node.v1) as client:

        async def round_trip(value: str) -> None:
            data = value.encode("utf-8", "surrogateescape")
            await client.send(b"V1|9|PRODUCE|orders k:" + data + b" acks=1\n")
            told = await client.read_line()
            assert told is not None
            if told.startswith("V1|9|ERR|"):
                return
            facts = fields(told)
            where = f"orders {facts['partition']} {facts['offset']}"
            shown = await client.call("CONSUME", where)
            assert shown == f"OK|messages={facts['offset']}:{value} hw={facts['hw']}"

        @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=30))
        def check(value: str) -> None:
            trio.from_thread.run(round_trip, value)

        await trio.to_thread.run_sync(check)


PLAIN = (
    (b"orders k:a,b", REFUSED),
    (b"orders k:,", REFUSED),
    (b"orders k:messages=1", REFUSED),
    (b"orders k:\xff", REFUSED),
    (b"orders k:a\x1c", REFUSED),
    (b"orders k:a\xef\xbb\xbf", REFUSED),
    (b"orders  k:a", AMBIGUOUS),
    (b"orders\tk:a acks=1", AMBIGUOUS),
    (b"orders k:a  acks=1", AMBIGUOUS),
    (b"orders k:a%zz enc=pct", "ERR|BAD_REQUEST|malformed percent escape"),
    (b"orders k:a% enc=pct", "ERR|BAD_REQUEST|malformed percent escape"),
    (b"a]b k:a", "ERR|BAD_REQUEST|invalid topic"),
    (b"role=x k:a", "ERR|BAD_REQUEST|invalid topic"),
    (b".. k:a", "ERR|BAD_REQUEST|invalid topic"),
    (b"orders k:", "OK|partition=0 offset=0 hw=0"),
    (b"orders :v", "OK|partition=1 offset=0 hw=0"),
    (b"orders k:a|b|c ACKS=ALL", "OK|partition=0 offset=0 hw=0"),
)
"""What plain PRODUCE takes, and how it refuses the rest; each on a topic of its own."""


async def test_what_plain_produce_takes(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node:
        for number, (args, answer) in enumerate(PLAIN):
            line = args.replace(b"orders", b"orders%d" % number)
            told = await V1Client.ask_once(node.v1, b"V1|1|PRODUCE|" + line + b"\n")
            assert told == f"V1|1|{answer}", line


async def test_records_of_other_protocols_are_shown_or_named(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, V1Client(node.v1) as client:
        async with (
            connect(node.native) as other,
            other.producer(ProducerSettings(compression=Compression.ZSTD)) as producer,
        ):
            for value in (b"plain", None, b"a,b", b"z" * 200_000):
                await producer.send("mixed", value, key=b"k", headers=[("h", b"1")], partition=0)
        assert await client.call("CONSUME", "mixed 0 0") == "OK|messages=0:plain,1: hw=3"
        assert await client.call("CONSUME", "mixed 0 2") == (
            "ERR|UNREPRESENTABLE|offset=2; use enc=pct"
        )
        shown = await client.ok("CONSUME", "mixed 0 0 enc=pct max=3")
        assert shown["messages"] == "0:plain,1:,2:a%2Cb"
        shown = await client.ok("CONSUME", "mixed 0 3")
        assert shown["messages"] == "3:" + "z" * 200_000


# --- pages ----------------------------------------------------------------------------------------


async def test_long_replies_are_cut_and_read_on_from_the_last_offset(tmp_path) -> None:
    limit = 200
    async with lone_node(tmp_path, {**ONE, "v1.consume_max_bytes": str(limit)}) as node:
        values = ["x" * size for size in (0, 1, 50, 199, 500, 3, 3, 3, 150, 40)] * 3
        async with connect(node.native) as other, other.producer() as producer:
            for value in values:
                await producer.submit("orders", value.encode(), partition=0)
        async with V1Client(node.v1) as client:
            for encoding in ("", " enc=pct"):
                assert await _read_all(client, encoding, limit) == values
            shown = await client.ok("CONSUME", "orders 0 5 enc=pct max=2")
            assert shown["messages"] == "5:xxx,6:xxx"
            end = len(values)
            for offset in (end, end + 1, 2**62):
                told = await client.call("CONSUME", f"orders 0 {offset}")
                assert told == f"OK|messages= hw={end - 1}"
            for offset in ("-1", "x", str(2**63), ""):
                told = await client.call("CONSUME", f"orders 0 {offset}")
                assert told.startswith("ERR|BAD_REQUEST|"), told


async def _read_all(client: V1Client, encoding: str, limit: int) -> list[str]:
    found: list[str] = []
    while True:
        shown = await client.ok("CONSUME", f"orders 0 {len(found)}{encoding}")
        items = [item for item in shown["messages"].split(",") if item]
        if not items:
            return found
        assert len(items) == 1 or len(shown["messages"]) <= limit
        for item in items:
            offset, _, value = item.partition(":")
            assert int(offset) == len(found)
            found.append(value)


# --- connections ----------------------------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, V1Client(node.v1) as client:
        lines = []
        expected = []
        for number in range(300):
            match number % 3:
                case 0:
                    lines.append(f"V1|{number}|PRODUCE|orders k:{number} acks=all")
                    at = number // 3
                    expected.append(f"V1|{number}|OK|partition=0 offset={at} hw={at}")
                case 1:
                    lines.append(f"V1|{number}|PING|")
                    expected.append(f"V1|{number}|ERR|UNKNOWN_COMMAND|unsupported command")
                case _:
                    lines.append(f"V1|{number}|CONSUME|orders 0 {number // 3}\r")
                    at = number // 3
                    expected.append(f"V1|{number}|OK|messages={at}:{number - 2} hw={at}")
        await client.send("".join(f"{line}\n" for line in lines).encode())
        assert [await client.read_line() for _ in expected] == expected


async def test_requests_may_arrive_in_any_pieces(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node:
        produce = "V1|a b|produce|orders k:\u043a\u043b\u044e\u0447 acks=1\n".encode()
        data = produce + b"V1|2|CONSUME|orders 0 0\n"
        for step in (1, 2, 3, 7):
            async with V1Client(node.v1) as client:
                for start in range(0, len(data), step):
                    await client.send(data[start : start + step])
                    await trio.lowlevel.checkpoint()
                stored = await client.read_line()
                assert stored is not None
                assert stored.startswith("V1|a b|OK|partition=0 offset=")
                shown = await client.read_line()
                assert shown is not None
                assert "0:\u043a\u043b\u044e\u0447" in shown


async def test_a_waiting_request_holds_back_its_own_connection_only(tmp_path) -> None:
    flags = {"v1.ack_timeout_ms": "3500"}
    async with (
        lone_node(tmp_path, flags) as node,
        V1Client(node.v1) as waiting,
        V1Client(node.v1) as other,
    ):
        await other.ok("PRODUCE", "orders k:0")
        await waiting.send(b"V1|1|PRODUCE|orders k:1 acks=all\nV1|2|CONSUME|orders 0 0\n")
        # Not answered before its acknowledgement comes, from another connection.
        while "hw=1" not in await other.call("CONSUME", "orders 0 0"):
            pass
        await other.ok("REPLICA_FETCH", "orders 0 1 1")
        assert await waiting.read_line() == "V1|1|OK|partition=0 offset=1 hw=1"
        assert await waiting.read_line() == "V1|2|OK|messages=0:0,1:1 hw=1"


async def test_the_end_of_the_requests_is_the_end_of_the_connection(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node:
        async with V1Client(node.v1) as client:
            await client.send(b"V1|1|PRODUCE|orders k:a\nV1|2|PRODUCE|orders k:b acks=all\n")
            await client.send(b"V1|3|CONSUME|orders 0 0")
            await client.finish_sending()
            assert await client.read_line() == "V1|1|OK|partition=0 offset=0 hw=0"
            assert await client.read_line() == "V1|2|OK|partition=0 offset=1 hw=1"
            assert await client.read_line() == "V1|3|OK|messages=0:a,1:b hw=1"
            assert await client.read_line() is None
        async with V1Client(node.v1) as client:
            await client.finish_sending()
            assert await client.read_line() is None


@pytest.mark.virtual_time(False)  # a socket can be reset
async def test_idle_and_broken_connections_harm_nobody(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        V1Client(node.v1) as idle,
        V1Client(node.v1) as used,
    ):
        await idle.send(b"V1|1|CONS")
        await used.ok("PRODUCE", "orders k:0")
        for _ in range(20):
            await _break_off(node)
        await trio.sleep(1.5)  # longer than any pause in which a server would tidy up
        assert (await used.ok("CONSUME", "orders 0 0"))["messages"].startswith("0:0")
        await idle.send(b"UME|orders 0 0\n")
        shown = await idle.read_line()
        assert shown is not None
        assert shown.startswith("V1|1|OK|messages=0:0")


async def _break_off(node: RunningNode) -> None:
    """A client that goes away without reading its answers, by a reset."""
    async with V1Client(node.v1) as client:
        await client.send(b"V1|1|PRODUCE|orders k:x acks=all\n" * 20)
        await client.reset()
