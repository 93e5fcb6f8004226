"""Targets: settings, scenarios and histories, files that people write or hand over."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from paceline_cluster.chaos import scenario
from paceline_cluster.checker import events
from paceline_cluster.checker.history import read_lines, to_line
from paceline_cluster.errors import ClusterError
from paceline_node.settings.loader import load
from tests.fuzz.engine import Target

_TOML = """\
listeners = ["peer://127.0.0.1:7401", "native://0.0.0.0:7400?advertised=host:7400"]

[node]
id = 3
data_dir = "/tmp/x"

[cluster]
bootstrap = ["0@127.0.0.1:7401"]
timing = "local"

[log]
segment_bytes = 1048576

[raft]
voters = 3
"""
_SCENARIO = """\
name = "mine"
seconds = 30

[settings]
"flush.mode" = "group"

[schedule]
pause_s = [1, 4]

[[fault]]
kind = "kill"
target = "leader of orders/*"
seconds = [0.5, 3]
at = 5
every = 10
"""


def _feed_settings(given: bytes, rng: random.Random) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        Path(file.name).write_bytes(given)
        load(file=Path(file.name))


def _feed_flags(given: bytes, rng: random.Random) -> None:
    flags = given.decode("utf-8", "replace").splitlines()
    load(flags=flags, environ={f"PACELINE_{line[:20]}": line[20:] for line in flags})


def _flags(rng: random.Random) -> bytes:
    some = (
        "node.id=1",
        "listeners=v1://0.0.0.0:1,native://h:2?advertised=[::1]:3",
        "cluster.bootstrap=0@host:1,host:2",
        "flush.mode=group",
        "raft.voters=3",
        "log.segment_bytes=1MiB",
    )
    return "\n".join(rng.sample(some, k=3)).encode()


def _feed_scenario(given: bytes, rng: random.Random) -> None:
    scenario.parse(given.decode("utf-8", "replace"), "mine.toml")


def _feed_history(given: bytes, rng: random.Random) -> None:
    list(read_lines(given.decode("utf-8", "replace").splitlines(keepends=True), "history"))


def _history(rng: random.Random) -> bytes:
    return (
        to_line(events.Healed(1.5, 3)) + to_line(events.Fault(1.0, 3, "kill", "any", (1,), ()))
    ).encode()


TARGETS = (
    Target("settings", lambda rng: _TOML.encode(), _feed_settings),
    Target("flags", _flags, _feed_flags),
    Target("scenario", lambda rng: _SCENARIO.encode(), _feed_scenario, (ClusterError,)),
    Target("history", _history, _feed_history, (ClusterError,)),
)
