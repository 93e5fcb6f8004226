"""What a node may believe of its own files when it starts: one disk lies, all processes die.

Each story has a topic on two nodes. Everything is killed, the files of one of the two are spoilt,
and it comes back first, with a node that has no replica: whoever believes such files leads now, and
the other one cuts off what it alone still has.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline.types import NO_NODE
from paceline.wire.batch import iter_batches
from paceline_node.storage.layout import Offsets
from tests.e2e.cluster import Cluster, wait_until

COUNT = 400


@pytest.fixture
def dying_cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster of which a story kills all, and in which all run again after it."""
    yield shared_cluster
    shared_cluster.run("up", "--detach", "--dir", str(shared_cluster.dir), exit_code=None)


class Story:
    """A topic with ``COUNT`` acknowledged records on two of three nodes, all of which are dead."""

    def __init__(self, cluster: Cluster, topic: str, *configs: str) -> None:
        self.cluster = cluster
        self.topic = topic
        options = [word for config in configs for word in ("--config", config)]
        cluster.run(
            *("topic", "create", topic, "--partitions", "1", "--replication-factor", "2"), *options
        )
        self.values = [f"{topic} {number}" for number in range(COUNT)]
        # One after the other in small batches: many segments where those are small.
        for start in range(0, COUNT, COUNT // 4):
            part = "\n".join(self.values[start : start + COUNT // 4]) + "\n"
            cluster.run("produce", topic, "--acks", "all", stdin=part.encode())
        replicas = cluster.describe(topic)[0]["replicas"]
        self.liar, self.other = replicas
        (self.third,) = {0, 1, 2} - set(replicas)
        for node in (self.liar, self.other, self.third):
            cluster.run("node", "kill", str(node))

    @property
    def directory(self) -> Path:
        return self.cluster.partition_dir(self.liar, self.topic, 0)

    @property
    def data(self) -> Path:
        return Path(self.cluster.node(self.liar)["dir"])

    def start_liar_first(self) -> None:
        """Until both it and the third node serve: neither does without the other."""
        started = []
        for node in (self.third, self.liar):
            said = self.cluster.base / f"restart-{node}.txt"
            words = ("node", "restart", str(node), "--dir", str(self.cluster.dir))
            started.append((self.cluster.start(*words, stderr=said), said))
        for process, said in started:
            with process:
                self.cluster.wait(process, stderr=said)

    def leader(self) -> int:
        leader: int = self.cluster.describe(self.topic)[0]["leader"]
        return leader

    def finish(self) -> None:
        """The other one comes back: everything is there, on both."""
        self.cluster.run("node", "restart", str(self.other))
        wait_until("both in sync", lambda: len(self.cluster.describe(self.topic)[0]["isr"]) == 2)
        read = self.cluster.run("consume", self.topic, "--from", "start", "--exit-at-end")
        assert read.stdout.decode().splitlines() == self.values
        self.cluster.run("health", "--exit-when-healthy")


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def flip_the_newest_record(story: Story) -> None:
    """Which a checkpoint, seconds old, may not speak of yet."""
    newest = sorted(story.directory.glob("*.log"))[-1]
    _flip(newest, newest.stat().st_size - 3)


def cut_the_newest_batches(story: Story) -> None:
    """The newest file as it was some time ago: whole batches, and too few of them."""
    newest = sorted(story.directory.glob("*.log"))[-1]
    data = newest.read_bytes()
    last = [position for position, _ in iter_batches(data)][-1]
    newest.write_bytes(data[:last])


def remove_the_directory(story: Story) -> None:
    shutil.rmtree(story.directory)


def remove_the_directory_and_the_list(story: Story) -> None:
    shutil.rmtree(story.directory)
    for name in (*(name for which in Offsets for name in which.files), "durable.marks"):
        (story.data / name).unlink(missing_ok=True)


def remove_the_newest_segment(story: Story) -> None:
    sorted(story.directory.glob("*.log"))[-1].unlink()


def remove_the_oldest_segment(story: Story) -> None:
    sorted(story.directory.glob("*.log"))[0].unlink()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(flip_the_newest_record, marks=pytest.mark.slow),
        pytest.param(cut_the_newest_batches, marks=pytest.mark.slow),
        pytest.param(remove_the_directory, marks=pytest.mark.slow),
        remove_the_directory_and_the_list,
        pytest.param(remove_the_newest_segment, marks=pytest.mark.slow),
        remove_the_oldest_segment,
    ],
)
def test_what_one_disk_lost_comes_from_the_other(
    dying_cluster: Cluster, spoil: Callable[[Story], None]
) -> None:
    story = Story(dying_cluster, spoil.__name__.replace("_", "-"), "segment.bytes=2048")
    spoil(story)
    story.start_liar_first()
    wait_until("nobody leads", lambda: story.leader() == NO_NODE)
    story.finish()


@pytest.mark.slow
@pytest.mark.parametrize("rotten", [True, False])
def test_a_log_that_does_not_say_whose_it_is_goes_by_its_name(
    dying_cluster: Cluster, rotten: bool
) -> None:
    story = Story(dying_cluster, f"nameless-{rotten}".lower())
    metadata = story.directory / "partition.metadata"
    if rotten:
        _flip(metadata, 20)
    else:
        metadata.unlink()
    story.start_liar_first()
    wait_until("it leads", lambda: story.leader() == story.liar)
    story.finish()


@pytest.mark.slow
@pytest.mark.parametrize(
    "which",
    [Offsets.RECOVERY, Offsets.LOG_START],
    ids=lambda which: which.value,
)
def test_without_a_checkpoint_nobody_is_sure(dying_cluster: Cluster, which: Offsets) -> None:
    story = Story(dying_cluster, f"unsure-{which.value.partition('.')[0]}")
    for name in which.files:
        _flip(story.data / name, 20)
    story.start_liar_first()
    wait_until("nobody leads", lambda: story.leader() == NO_NODE)
    story.finish()
