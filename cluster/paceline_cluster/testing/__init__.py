"""Clusters for tests: the ``paceline`` fixture and what it is made of. See README.md.

Names are loaded on first use: pytest loads this package in every run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline_cluster.testing.blocking import BlockingPaceline, running_cluster
    from paceline_cluster.testing.bridge import Paceline
    from paceline_cluster.testing.nodes import Unsupported

__all__ = ["BlockingPaceline", "Paceline", "Unsupported", "running_cluster"]

_HOMES = {
    "BlockingPaceline": "blocking",
    "running_cluster": "blocking",
    "Paceline": "bridge",
    "Unsupported": "nodes",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
