"""Batches of seeds: resumed where they were left, summed up."""

from __future__ import annotations

import json
from pathlib import Path

from paceline_cluster.sim.seed_sweep import SeedSweep, jobs_of, read_results, summary
from paceline_cluster.sim.simulators import REPLICAS, plan_of, run_seed


def test_a_batch_goes_on_where_it_was_left(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"

    def run(seeds: int) -> set[int]:
        batch = SeedSweep(jobs_of(REPLICAS, ("mixed",), 0), 1, file, seeds=seeds)
        return {result.seed for result in batch.run()}

    assert run(2) == {0, 1}
    with file.open("a") as half_written:
        half_written.write('{"tier": "repl')
    assert run(1) == {0, 1, 2}
    results = read_results(file)
    assert [result.violation for result in results] == [None, None, None]
    told = json.loads(json.dumps(summary(results)))
    assert told["tiers"]["replicas"]["seeds"] == 3
    assert told["tiers"]["replicas"]["faults"] > 0
    assert told["failing"] == []


def test_a_seed_run_again_gives_the_same_trace() -> None:
    assert run_seed("raft", "swarm", 3).trace == run_seed("raft", "swarm", 3).trace
    assert run_seed("raft", "swarm", 3).trace != run_seed("raft", "swarm", 4).trace


def test_a_profile_s_seconds_of_faults_can_be_chosen() -> None:
    whole, short = plan_of("mixed", 3), plan_of("mixed@6", 3)
    assert short.seconds == 6.0 < whole.seconds
    assert (short.profile, short.nodes, short.writers) == ("mixed", whole.nodes, whole.writers)
