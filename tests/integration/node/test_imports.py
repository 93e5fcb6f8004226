"""What a node's process leaves unloaded until somebody needs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

START = """
import json, sys
from paceline_node.__main__ import main
sys.argv = ["paceline-node", "--print-config"]
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """Modules of a process that has read its settings and is about to run."""
    done = subprocess.run(
        [sys.executable, "-c", START], capture_output=True, check=True, text=True, timeout=60
    )
    assert "[logging]" in done.stdout
    found: list[str] = json.loads(done.stderr)
    assert "paceline_node.app.node" in found
    assert "paceline_node.http.server" in found
    return found


@pytest.mark.parametrize("name", ["rich.console", "prometheus_client", "trio_websocket"])
def test_not_loaded_at_start(loaded: list[str], name: str) -> None:
    assert name not in loaded
