"""Profiles that are asked for by name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from paceline_cluster.sim.__main__ import main


@pytest.mark.parametrize("how", [("--seeds", "1"), ("--replay", "1")])
@pytest.mark.parametrize(
    ("tier", "profile", "told"),
    [
        ("node", "mixd", "tier node has no profile 'mixd'; did you mean mixed?"),
        ("raft", "mixed", "tier raft has no profile 'mixed'; known are swarm"),
        ("replicas", "mixed@6", "'mixed@6': expected a number of seconds after @, of tier node"),
        ("node", "mixed@soon", "'mixed@soon': expected a number of seconds after @, of tier node"),
    ],
)
def test_an_unknown_profile_is_told(tier: str, profile: str, told: str, how: Sequence[str]) -> None:
    """It ended in a KeyError, in each worker."""
    said = CliRunner().invoke(main, ["--tier", tier, "--profile", profile, *how])
    assert said.exit_code == 2, said.exception
    assert told in " ".join(said.output.split())
