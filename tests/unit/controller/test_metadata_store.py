"""The store: subscribers and waiters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from paceline.errors import RequestTimedOut
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import Config, NoOp, encode_record
from paceline_node.controller.metadata_store import MetadataStore
from tests.unit.controller.bench import CLUSTER


def store() -> MetadataStore:
    result = MetadataStore(CLUSTER)
    result.install(Image.bootstrap(CLUSTER).to_snapshot(), 1)
    return result


def noop() -> list[bytes]:
    return [encode_record(NoOp(1))]


def test_applies_and_tells_subscribers_in_order() -> None:
    metadata = store()
    seen: list[tuple[str, int, int]] = []

    def note(name: str) -> Callable[[Image, Image], None]:
        return lambda old, new: seen.append((name, old.offset, new.offset))

    stop = metadata.subscribe(note("a"))
    metadata.subscribe(note("b"))
    metadata.apply(2, 1, noop())
    stop()
    metadata.apply(5, 1, [])
    assert seen == [("a", 1, 2), ("b", 1, 2), ("b", 2, 5)]
    assert metadata.image.offset == 5


def test_snapshot_of_one_store_brings_another_up() -> None:
    source, target = store(), store()
    source.apply(2, 1, [encode_record(Config("cluster", "", "a", "b"))])
    target.install(source.snapshot(), 4)
    assert (target.image.configs, target.image.offset) == ({"a": "b"}, 4)


def test_an_older_snapshot_changes_nothing() -> None:
    metadata = store()
    old = metadata.snapshot()
    metadata.apply(7, 1, noop())
    metadata.install(old, 3)
    assert metadata.image.offset == 7


async def test_wait_for_what_is_already_so() -> None:
    metadata = store()
    assert (await metadata.wait_offset(1)).offset == 1


async def test_wait_ends_with_the_image_that_fits() -> None:
    metadata = store()
    found: list[int] = []

    async def wait(offset: int) -> None:
        found.append((await metadata.wait_offset(offset)).offset)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 3)
        nursery.start_soon(wait, 2)
        await trio.testing.wait_all_tasks_blocked()
        metadata.apply(2, 1, noop())
        await trio.testing.wait_all_tasks_blocked()
        assert found == [2]
        metadata.apply(9, 1, noop())
    assert found == [2, 9]


async def test_wait_times_out(autojump_clock: trio.testing.MockClock) -> None:
    metadata = store()
    with pytest.raises(RequestTimedOut, match="offset 1 after 5 s"):
        await metadata.wait_for(lambda image: False, timeout_s=5)
    assert trio.current_time() == 5.0


async def test_cancelled_wait_leaves_nothing_behind() -> None:
    metadata = store()
    with trio.move_on_after(0):
        await metadata.wait_offset(99)
    metadata.apply(99, 1, noop())
    assert metadata.image.offset == 99


async def test_a_block_ends_with_the_first_image_that_does_not_fit() -> None:
    metadata = store()
    with metadata.as_long_as(lambda image: image.offset < 3) as scope:
        metadata.apply(2, 1, [])
        await trio.lowlevel.checkpoint()
        metadata.apply(3, 1, [])
        await trio.sleep_forever()
    assert scope.cancelled_caught
    with metadata.as_long_as(lambda image: image.offset < 3) as late:
        await trio.sleep_forever()
    assert late.cancelled_caught


async def test_a_block_that_ends_by_itself_is_left_alone() -> None:
    metadata = store()
    with metadata.as_long_as(lambda image: image.offset < 3) as scope:
        await trio.lowlevel.checkpoint()
    metadata.apply(3, 1, [])
    assert not scope.cancel_called, "whoever has left is not told any more"
    with pytest.raises(KeyError), metadata.as_long_as(lambda image: True):
        raise KeyError("its own errors pass")
