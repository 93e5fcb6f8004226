"""How rough a run of the quorum is."""

from __future__ import annotations

import random
from dataclasses import field

from paceline.values import dataclass
from paceline_node.controller.raft_types import RaftLimits, RaftTiming


@dataclass(slots=True)
class Profile:
    """How rough a run is; drawn per seed."""

    nodes: int = 5
    voters: int = 3
    drop: float = 0.0
    duplicate: float = 0.0
    delay_ms: float = 2.0
    slow: float = 0.01
    sync_ms: float = 1.0
    fault_every_ms: float = 400.0
    propose_every_ms: float = 25.0
    snapshot_every: int = 40
    membership: bool = True
    refusals: bool = True
    limits: RaftLimits = field(default_factory=RaftLimits)
    timing: RaftTiming = field(default_factory=lambda: RaftTiming(0.05, 1, 6))

    @classmethod
    def draw(cls, rng: random.Random) -> Profile:
        """Swarm: each run leaves some faults out and exaggerates others."""
        nodes = rng.choice((3, 3, 4, 5, 5, 6))
        return cls(
            nodes=nodes,
            voters=rng.choice([count for count in (1, 2, 3, 3, 5) if count <= nodes]),
            drop=rng.choice((0.0, 0.0, 0.02, 0.2)),
            duplicate=rng.choice((0.0, 0.0, 0.05, 0.3)),
            delay_ms=rng.choice((1.0, 5.0, 40.0)),
            slow=rng.choice((0.0, 0.01, 0.1)),
            sync_ms=rng.choice((0.2, 2.0, 30.0)),
            fault_every_ms=rng.choice((150.0, 400.0, 1000.0)),
            propose_every_ms=rng.choice((5.0, 25.0, 200.0)),
            snapshot_every=rng.choice((10, 40, 1000)),
            membership=rng.random() < 0.7,
            refusals=rng.random() < 0.7,
            limits=RaftLimits(
                append_bytes=rng.choice((64, 65536)),
                append_entries=rng.choice((1, 4, 500)),
                inflight_appends=rng.choice((1, 3, 64)),
                chunk_bytes=rng.choice((64, 200, 262144)),
                keep_entries=rng.choice((0, 5, 1000)),
                learner_lag=rng.choice((5, 1000)),
            ),
            timing=RaftTiming(0.05, rng.choice((1, 2)), rng.choice((5, 8, 20))),
        )
