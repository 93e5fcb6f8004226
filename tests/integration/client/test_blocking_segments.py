"""What the blocking client does with segments, and with records it hands over together."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from paceline.client import blocking
from paceline.errors import Closed, UnknownTopicOrPartition
from tests.integration.node.nodes import lone_node

pytestmark = pytest.mark.timeout(120)

ALONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}


async def test_a_segment_is_written_read_sealed_and_deleted(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ALONE) as node:

        def work() -> None:
            with blocking.connect(node.native) as client, client.segments() as segments:
                segments.create("sc/st/0")
                with segments.writer("sc/st/0") as writer:
                    writer.append(b"one")
                    writer.append_all([b"two", b"three"])
                    writer.flush()
                    assert writer.level == writer.position > 0
                segments.seal("sc/st/0")
                reader = segments.reader("sc/st/0")
                assert list(reader) == [b"one", b"two", b"three"]
                info = segments.info("sc/st/0")
                assert info is not None
                assert (info.is_sealed, info.length) == (True, reader.position)
                segments.delete("sc/st/0")
                with pytest.raises(UnknownTopicOrPartition):
                    segments.reader("sc/st/0").read()

        await trio.to_thread.run_sync(work)


async def test_a_client_that_closes_flushes_its_segment_writers(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ALONE) as node:

        def work() -> None:
            client = blocking.connect(node.native)
            segments = client.segments()
            segments.create("sc/st/0")
            writer = segments.writer("sc/st/0")
            writer.append(b"kept")
            client.close()
            with pytest.raises(Closed):
                writer.append(b"too late")
            with blocking.connect(node.native) as again, again.segments() as found:
                assert found.reader("sc/st/0").events() == [b"kept"]

        await trio.to_thread.run_sync(work)


async def test_portions_say_where_their_records_are(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ALONE) as node:

        def work() -> None:
            with blocking.connect(node.native) as client, client.producer() as producer:
                client.admin.create_topic("orders", partitions=1, replication_factor=1)
                (portion,) = producer.submit_many("orders", [b"a", b"b"])
                producer.flush()
                assert portion.is_done
                assert list(portion.positions) == [0, 1]
                assert (portion.result().base_offset, portion.result().record_count) == (0, 2)

        await trio.to_thread.run_sync(work)


async def test_topics_of_a_group_are_set(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ALONE) as node:

        def work() -> None:
            with blocking.connect(node.native) as client:
                client.admin.groups.set_topics("team", ["orders"])
                assert client.admin.groups.topics("team") == ("orders",)

        await trio.to_thread.run_sync(work)
