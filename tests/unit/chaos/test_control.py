from __future__ import annotations

import errno
from pathlib import Path

import pytest

from paceline_cluster.faulty import world
from paceline_cluster.faulty.control import ControlPage


def test_both_sides_see_what_either_writes(tmp_path: Path) -> None:
    mine = ControlPage.create(tmp_path / "page")
    theirs = ControlPage(tmp_path / "page")
    assert (theirs.wall_offset_ms, theirs.write_errno, theirs.sync_failures) == (0, 0, 0)
    assert (theirs.sync_delay_s, theirs.free_bytes) == (0.0, None)
    mine.wall_offset_ms = -3_600_000
    mine.write_errno = errno.ENOSPC
    mine.sync_failures = 2
    mine.sync_delay_s = 0.25
    mine.free_bytes = 0
    mine.clock_rate = 0.95
    assert (theirs.wall_offset_ms, theirs.write_errno) == (-3_600_000, errno.ENOSPC)
    assert (theirs.sync_delay_s, theirs.free_bytes, theirs.clock_rate) == (0.25, 0, 0.95)
    theirs.sync_failures -= 1
    assert mine.sync_failures == 1
    mine.heal()
    assert (theirs.wall_offset_ms, theirs.write_errno, theirs.sync_failures) == (0, 0, 0)
    assert (theirs.free_bytes, theirs.clock_rate) == (None, 1.0)
    mine.close()
    theirs.close()


def test_another_file_is_no_page(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(bytes(64))
    with pytest.raises(ValueError, match="is no page of faults"):
        ControlPage(path)


def test_a_node_finds_its_world_beside_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "node-0"
    routes = {("127.0.0.1", 7401): ("127.0.0.1", 23456)}
    made = world.prepare(folder, routes)
    page, found = world.read_world(folder)
    made.sync_failures = 3
    assert found == routes
    assert page.sync_failures == 3
    assert not folder.exists(), "nothing of it lies in the folder that may be wiped"
    made.close()
    page.close()
