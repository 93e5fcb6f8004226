"""The page on Spark, followed block by block in the tier's one session.

Programs and jobs run in this process, where ``local_session`` finds the session that is there: each
in a process of its own starts Java, which ``tests/e2e/test_docs.py`` does where time does not count
(slow). All other commands run in bash."""

from __future__ import annotations

import itertools
import os
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.reference.links import PLACE
from paceline.client import blocking
from paceline_cluster.cli.pipeline import pipeline
from tests.e2e.cluster import HANG_S, Cluster
from tests.e2e.forge import forge
from tests.e2e.pages import blocks, fits, steps, translated

PAGE = (PLACE / "how-to" / "spark").with_suffix(".md")
JOB = "paceline pipeline "


class Reader:
    """Somebody who does in a folder what the page says."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        programs = folder.with_name("programs")
        programs.mkdir()
        self._descriptor, variables = forge().scripted(programs)
        places = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        self._env = {
            **cluster.env,
            **variables,
            "PATH": os.pathsep.join(places),
            "PACELINE_DIR": str(cluster.dir),
        }
        self._folder = folder

    def do(self, text: str, capture: pytest.CaptureFixture[str]) -> str:
        """Run the commands of one block; what they print. Raises AssertionError for one that
        fails."""
        printed = ""
        for is_job, lines in itertools.groupby(
            text.splitlines(), lambda line: line.startswith(JOB)
        ):
            if not is_job:
                printed += self._bash("\n".join(lines))
                continue
            for line in lines:
                words = shlex.split(line.partition("#")[0])
                assert pipeline.main(words[2:], standalone_mode=False) == 0, line
            printed += capture.readouterr().out
        return printed

    def _bash(self, text: str) -> str:
        done = subprocess.run(
            ["bash", "-c", f"set -eE -o pipefail\n{text}"],
            cwd=self._folder,
            env=self._env,
            pass_fds=[self._descriptor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=HANG_S,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        return done.stdout


@pytest.fixture
def room(client: blocking.Client) -> Iterator[None]:
    """Removes what the page has made."""
    before = {each.name for each in client.admin.list_topics()}
    yield
    for name in {each.name for each in client.admin.list_topics()} - before:
        if not name.startswith("__"):
            client.admin.delete_topic(name)


@pytest.mark.timeout(900)  # bounds a hang; alone it takes less than a minute
@pytest.mark.usefixtures("spark", "room")
def test_the_page_does_what_it_says(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PACELINE_DIR", str(cluster.dir))  # of the jobs, which run here
    addresses = {
        "127.0.0.1:7400": cluster.node(0)["listeners"]["native"],
        "ck/": f"{folder}/ck/",  # Java is where the session began, not in the page's folder
    }
    found = blocks(PAGE.read_text(encoding="utf-8"))
    reader = Reader(cluster, folder)
    done = 0
    for block, text in steps(found, folder, addresses):
        if block.kind == "sh":
            printed = reader.do(text, capsys)
        else:
            runpy.run_path(text.split()[1], run_name="__main__")
            printed = capsys.readouterr().out
        if block.expected is not None:
            told = translated(block.expected, addresses)
            assert fits(told, printed), f"{PAGE.name}:{block.line} printed\n{printed}\nnot\n{told}"
        done += 1
    assert done == sum(block.is_run and not block.title for block in found) > 8
