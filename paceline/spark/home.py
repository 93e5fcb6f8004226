"""A Spark home whose Python workers start quickly.

Spark puts the zip of its home's ``python/lib`` first on the path of its workers. As a zip keeps no
byte code, each of a query's half dozen workers would compile all it imports, which takes four
times as long as the import of the same modules from the installed package. Its daemon, which forks
them, is one that has imported the client before (``workers.py``).
"""

from __future__ import annotations

import atexit
import importlib.util
import shlex
import shutil
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

VARIABLE = "SPARK_HOME"
WORKER_VARIABLE = "PYSPARK_PYTHON"
_PARTS = ("bin", "jars", "conf")


def set_quick_home(environment: MutableMapping[str, str]) -> None:
    """Let Spark run from the installed package without its zip, by a directory of links that goes
    when this process ends, and its workers be forked by our daemon. Does nothing where a home is
    chosen, or another Python for workers."""
    if VARIABLE in environment:
        return
    if environment.get(WORKER_VARIABLE, sys.executable) != sys.executable:
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
    environment[WORKER_VARIABLE] = str(_worker_python(home))


def _worker_python(home: Path) -> Path:
    """A Python that is this one, but for two things. It takes no jar onto its path, where Spark
    puts one that holds no Python: its directory would be read anew for each task. And the daemon is
    ours; Spark's setting for that counts for tasks only, not for planners and writers."""
    script = home / "python-worker"
    script.write_text(_SCRIPT.replace("PYTHON_HERE", shlex.quote(sys.executable)))
    script.chmod(0o755)
    return script


_SCRIPT = """\
#!/bin/sh
kept=
IFS=:
for part in $PYTHONPATH; do
    case $part in
        *.jar) ;;
        *) kept=$kept${kept:+:}$part ;;
    esac
done
unset IFS
export PYTHONPATH="$kept"
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m paceline.spark.workers "$@"
fi
exec PYTHON_HERE "$@"
"""
