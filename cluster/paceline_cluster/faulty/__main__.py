"""``python -m paceline_cluster.faulty --config FILE``: one production node in a faulty world."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run the node's own process with an Env that fails on command."""
    # As in paceline_node.__main__: structlog goes without rich, which is dear to load.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from paceline_cluster.faulty.clock import SkewedClock
    from paceline_cluster.faulty.world import crash_points, faulty_env, read_world
    from paceline_node.app.process import command
    from paceline_node.env import Env
    from paceline_node.settings import Settings

    # The launcher starts a node in the folder of its configuration.
    page, routes = read_world(Path.cwd())
    crashes = crash_points(Path.cwd())

    def make_env(settings: Settings) -> Env:
        return faulty_env(settings, page, routes, crashes)

    command(make_env, clock=SkewedClock(lambda: page.clock_rate))()


if __name__ == "__main__":
    main()
