"""The soak of ``scripts/show-repair``, with a log as small as can be: it still tells its story."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import show_repair
from tests.e2e.cluster import Cluster

SEGMENT_BYTES = 8 * 2**20


@pytest.mark.slow
def test_the_oldest_segment_is_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(tmp_path)
    try:
        show_repair.make(cluster, 3, SEGMENT_BYTES)
        show_repair.watch(cluster, SEGMENT_BYTES, after_s=1.0)
    finally:
        cluster.purge()
    said = capsys.readouterr().out
    assert "repaired after" in said
    assert "longest steps:" in said
