"""The daemon that forks Spark's Python workers."""

from __future__ import annotations

import socket

import pytest
from pyspark.serializers import write_with_length

from paceline.spark import workers


# Spark's worker leaves its two files open, and ends its process then.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_worker_whose_rows_nobody_wants_any_more_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "secret")
    ours, sparks = socket.socketpair()
    with ours:
        with sparks, sparks.makefile("wb") as out:
            write_with_length(b"secret", out)
        assert workers.worker(ours, False) == 1
