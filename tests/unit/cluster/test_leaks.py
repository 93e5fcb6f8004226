"""What counts as left open by a test."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from paceline_cluster.testing import leaks


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "_GRACE_S", 0.0)


def test_a_connection_is_a_leak(tmp_path: Path) -> None:
    before = leaks.Snapshot.take(tmp_path)
    with socket.create_server(("127.0.0.1", 0)), pytest.raises(leaks.Leak, match="socket:"):
        leaks.require_none(before, tmp_path)
    leaks.require_none(before, tmp_path)


def test_a_file_of_the_cluster_is_a_leak(tmp_path: Path) -> None:
    before = leaks.Snapshot.take(tmp_path)
    with (tmp_path / "it").open("w"), pytest.raises(leaks.Leak, match=str(tmp_path)):
        leaks.require_none(before, tmp_path)
