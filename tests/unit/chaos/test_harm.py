"""What a bad disk does to real files."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from paceline_cluster.faulty import harm
from paceline_cluster.faulty.control import ControlPage
from paceline_cluster.faulty.disk import FaultyDisk

LOG = "00000000000000000000.log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(9):
        partition = tmp_path / "topics" / f"orders-{number}.abc"
        partition.mkdir(parents=True)
        (partition / LOG).write_bytes(bytes(range(200)) * 10)
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "hardstate").write_bytes(b"term")
    (tmp_path / "hw.ckpt").write_bytes(b"marks")
    (tmp_path / "LOCK").write_bytes(b"17")
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_rot_strikes_every_kind_and_flips_some_bits_of_one_file(folder: Path) -> None:
    rng, struck = random.Random(1), set()
    for _ in range(60):
        before = contents(folder)
        assert harm.rot(folder, rng) is not None
        after = contents(folder)
        assert {path: len(data) for path, data in after.items()} == {
            path: len(data) for path, data in before.items()
        }
        changed = [path for path in before if before[path] != after[path]]
        assert len(changed) <= 1
        struck |= {path.name for path in changed}
    # Nine logs are one kind of three.
    assert struck == {LOG, "hardstate", "hw.ckpt"}


def test_files_and_directories_are_gone(folder: Path) -> None:
    rng = random.Random(2)
    before = contents(folder)
    assert harm.lose_file(folder, rng) is not None
    assert len(contents(folder)) == len(before) - 1
    harm.lose_metadata(folder, rng)
    assert not (folder / "metadata").exists()
    harm.lose_partition(folder, rng)
    assert len(list((folder / "topics").iterdir())) == 8
    assert (folder / "LOCK").exists()


def test_a_file_becomes_what_it_was(folder: Path) -> None:
    rng = random.Random(3)
    before = harm.remember(folder)
    assert harm.age(folder, before, rng) is None
    (folder / "hw.ckpt").write_bytes(b"later marks")
    (folder / "new.ckpt").write_bytes(b"not there then")
    assert harm.age(folder, before, rng) == "hw.ckpt is as it was"
    assert (folder / "hw.ckpt").read_bytes() == b"marks"


async def test_a_range_of_logs_that_are_there_cannot_be_read(tmp_path: Path) -> None:
    page = ControlPage()
    disk = FaultyDisk(str(tmp_path), page)
    disk.create(LOG).append([bytes(1000)])
    file = await disk.open(LOG)
    page.unreadable = (100, 200)
    for size, position in ((50, 80), (1, 100), (10, 195), (1000, 0)):
        with pytest.raises(OSError, match=LOG) as caught:
            file.pread(size, position)
        assert caught.value.errno == errno.EIO
    assert file.pread(20, 80) == bytes(20)
    assert len(await file.read(2000, 200)) == 800
    assert file.fileno() is None
    new = disk.create("1" + LOG)
    new.append([bytes(1000)])
    assert len(new.pread(1000, 0)) == 1000
    page.unreadable = None
    assert len(file.pread(1000, 0)) == 1000
    assert file.fileno() is not None
    disk.close()


def test_what_the_operator_wrote_is_not_struck(folder: Path) -> None:
    config = folder / "node.toml"
    config.write_bytes(b"id = 0\n")
    assert config not in harm.files_of(folder)
