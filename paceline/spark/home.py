"""A Spark home whose Python workers start quickly.

Spark puts the zip of its home's ``python/lib`` first on the path of its workers. As a zip keeps no
byte code, each of a query's half dozen workers would compile all it imports, which takes four
times as long as the import of the same modules from the installed package.
"""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

VARIABLE = "SPARK_HOME"
_PARTS = ("bin", "jars", "conf")


def set_quick_home(environment: MutableMapping[str, str]) -> None:
    """Let Spark run from the installed package without its zip, by a directory of links that goes
    when this process ends. Does nothing where a home is chosen, or another Python for workers."""
    if VARIABLE in environment:
        return
    if environment.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return  # it may have no package to take them from
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return
    installed = Path(spec.origin).parent
    if not (installed / "jars").is_dir():
        return
    home = Path(tempfile.mkdtemp(prefix="paceline-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in _PARTS:
        if (installed / part).exists():
            (home / part).symlink_to(installed / part)
    environment[VARIABLE] = str(home)
