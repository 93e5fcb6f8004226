"""Archive, restore and audit of a random history, with crashes; ``scripts/show-round-trip`` runs
many."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from paceline.client import blocking
from paceline_cluster.round_trip.world import Shape, world

SMALL = Shape(topics=2, rounds=1, changes=3, strikes=("workers",))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_every_copy_is_right(
    spark: SparkSession, client: blocking.Client, bootstrap: str, tmp_path: Path, seed: int
) -> None:
    with world(client, bootstrap, tmp_path / "world", f"rt{seed}", seed, SMALL) as made:
        outcome = made.run()
    assert outcome.problems == [], "\n".join(outcome.story)
    assert any("killed" in line for line in outcome.story), "something was struck"
