"""A read may give fewer bytes than there are. Nothing may take that for a file that ends there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline_node.storage import disk as real
from paceline_node.storage import epoch_file
from paceline_node.storage.disk import RealDisk
from tests.unit.storage.world import PATH, batch, content, new_log, reopen

_pread = os.pread


def half(descriptor: int, size: int, position: int) -> bytes:
    return _pread(descriptor, (size + 1) // 2, position)


@pytest.mark.parametrize("clean", [True, False])
async def test_reads_that_give_less_change_nothing(
    clean: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(str(tmp_path))
    log = await new_log(disk)
    for number in range(20):
        log.append_leader(batch(3, producer=(1, 0, 3 * number)), number // 5 + 1, 1_000)
    whole, epochs = content(log), log.epochs
    await log.close()
    monkeypatch.setattr(real.os, "pread", half)
    again = await reopen(disk, mark=60, clean=clean)
    assert content(again) == whole
    assert (again.epochs, again.damaged, again.recovery.rebuilt) == (epochs, (), ())
    assert await epoch_file.read(disk, PATH) == epochs
    found = again.locate(0, 1 << 20, 60)
    assert found is not None
    assert len(await found.read_async()) == found.size
    again.abandon()
    disk.close()
