"""Spark's own cluster of what pip brought: ``python -m paceline.spark.standalone master|worker``.

``pyspark`` holds the programs of a standalone cluster, but no scripts that start them. What follows
the role goes to the program: ``master --host H --port 7077``, ``worker --cores 4 spark://H:7077``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from paceline.errors import ConfigurationError
from paceline.spark.home import VARIABLE
from paceline.spark.session import prepare_environment

_MAINS = {
    "master": "org.apache.spark.deploy.master.Master",
    "worker": "org.apache.spark.deploy.worker.Worker",
}


def command(words: Sequence[str], home: Path) -> list[str]:
    """The program to run in the place of this one. Raises ConfigurationError for another role."""
    if not words or words[0] not in _MAINS:
        found = words[0] if words else "nothing"
        raise ConfigurationError(f"{found}: expected {' or '.join(_MAINS)}, and what it takes")
    return [str(home / "bin" / "spark-class"), _MAINS[words[0]], *words[1:]]


def _home() -> Path:
    """Spark as it is installed here."""
    if VARIABLE in os.environ:
        return Path(os.environ[VARIABLE])
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError("pyspark is missing: pip install 'paceline[spark]'")
    return Path(spec.origin).parent


def main() -> None:
    """Becomes the master or worker, so that a signal is for it."""
    try:
        home = _home()
        words = command(sys.argv[1:], home)
        prepare_environment(os.environ)
    except ConfigurationError as error:
        sys.exit(f"paceline: {error}")
    os.environ[VARIABLE] = str(home)
    os.execv(words[0], words)  # noqa: S606 - Spark's own program


if __name__ == "__main__":
    main()
