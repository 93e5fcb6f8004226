"""What a session of our own decides before any Java runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.spark.home import set_quick_home
from paceline.spark.java import find_java, java_home
from paceline.spark.session import local_threads, set_address


@pytest.mark.parametrize(
    ("master", "threads"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,4]", 3),
        ("local[*]", os.cpu_count()),
        ("local[*, 2]", os.cpu_count()),
        ("local-cluster[2,1,1024]", None),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_how_many_tasks_a_local_master_runs(master: str, threads: int | None) -> None:
    assert local_threads(master) == threads


def test_the_java_that_came_along_is_for_machines_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/some/java")
    assert find_java() is None
    monkeypatch.delenv("JAVA_HOME")
    runtime = find_java()
    assert runtime is not None
    home = java_home(runtime)
    try:
        # As Spark starts it; the runtime alone refuses for want of the first module.
        words = ["--add-modules=jdk.incubator.vector", "-Dspaced=a  b", "-XshowSettings:properties"]
        said = subprocess.run(
            [home / "bin" / "java", *words, "-version"],
            env={"PATH": os.defpath},
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    finally:
        shutil.rmtree(home)
    assert "spaced = a  b" in said
    assert f"java.home = {runtime}" in said


def test_a_home_without_the_zip_that_workers_would_compile() -> None:
    environment: dict[str, str] = {}
    set_quick_home(environment)
    home = Path(environment["SPARK_HOME"])
    try:
        assert (home / "bin" / "spark-submit").is_file()
        assert not (home / "python").exists()
        check_worker_python(environment["PYSPARK_PYTHON"])
    finally:
        shutil.rmtree(home)
    for chosen in ({"SPARK_HOME": "/opt/spark"}, {"PYSPARK_PYTHON": f"{sys.executable}-other"}):
        given = dict(chosen)
        set_quick_home(given)
        assert given == chosen


def check_worker_python(worker: str) -> None:
    """It leaves out jars, and knows which daemon is meant."""
    told = {**os.environ, "PYTHONPATH": "/a dir:/core.jar:/b", "PYTHONPROFILEIMPORTTIME": "1"}

    def run(*words: str) -> tuple[str, str]:
        done = subprocess.run([worker, *words], env=told, input=b"", capture_output=True)
        return done.stdout.decode("latin-1"), done.stderr.decode()

    said, _ = run("-c", "import sys; print(sys.path[1:3], sys.argv)", "x  y")
    assert said == "['/a dir', '/b'] ['-c', 'x  y']\n"
    port, imported = run("-m", "pyspark.daemon", "pyspark.worker")  # ends with its input
    assert len(port) == 4
    assert "paceline.spark.planner" in imported


def test_the_daemon_of_workers_imports_nothing_that_starts_a_thread() -> None:
    """What it forks would not have them."""
    code = (
        "import os, sys, paceline.spark.workers; "
        "print('pyarrow' in sys.modules, len(os.listdir('/proc/self/task')))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert said.split() == ["False", "1"]


def test_workers_of_other_machines_can_reach_the_driver() -> None:
    """Its address was 127.0.0.1 under every master."""
    told: list[dict[str, str]] = [{}, {}, {"SPARK_LOCAL_IP": "10.0.0.1"}]
    for environment, master in zip(told, ("local[2]", "spark://m:7077", "local[*]"), strict=True):
        set_address(environment, master)
    assert [each.get("SPARK_LOCAL_IP") for each in told] == ["127.0.0.1", None, "10.0.0.1"]
