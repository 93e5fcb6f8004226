"""How a master or worker is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import ConfigurationError
from paceline.spark.standalone import command


def test_what_follows_the_role_goes_to_the_program() -> None:
    home = Path("/spark")
    assert command(["worker", "--cores", "4", "spark://m:7077"], home) == [
        "/spark/bin/spark-class",
        "org.apache.spark.deploy.worker.Worker",
        *("--cores", "4", "spark://m:7077"),
    ]
    assert command(["master"], home)[1] == "org.apache.spark.deploy.master.Master"


@pytest.mark.parametrize("words", [[], ["history"]])
def test_another_role_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="expected master or worker"):
        command(words, Path("/spark"))
