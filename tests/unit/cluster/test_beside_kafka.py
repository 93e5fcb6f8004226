"""``bench --beside-kafka``: what it refuses, and the arithmetic of its table."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline_cluster.bench import kafka_jars
from paceline_cluster.bench.__main__ import main
from paceline_cluster.bench.beside import RATE, TIME, Row, table
from paceline_cluster.bench.figures import Aim
from paceline_cluster.errors import BadSetting

CONNECTOR = (
    "spark-sql-kafka-0-10_2.13-4.2.0",
    "spark-token-provider-kafka-0-10_2.13-4.2.0",
    "kafka-clients-3.9.2",
    "commons-pool2-2.13.1",
)


def _fill(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / f"{name}.jar").touch()
    return folder


@pytest.mark.parametrize("below", ["", kafka_jars.CONNECTOR])
def test_jars_lie_in_the_folder_or_in_one_below(tmp_path: Path, below: str) -> None:
    _fill(tmp_path / below, *CONNECTOR, "snappy-java-1.1.10.5")
    found = kafka_jars.find(tmp_path, kafka_jars.CONNECTOR)
    assert found.version == "4.2.0"
    assert len(found.joined(",").split(",")) == 5


def test_missing_jars_are_named(tmp_path: Path) -> None:
    _fill(tmp_path, *CONNECTOR[:2], "kafka-clients-extra-3.9.2")
    with pytest.raises(BadSetting, match=r"kafka-clients-\*\.jar, commons-pool2-\*\.jar.*3 jars"):
        kafka_jars.find(tmp_path, kafka_jars.CONNECTOR)
    with pytest.raises(BadSetting, match="no such folder"):
        kafka_jars.find(tmp_path / "other", kafka_jars.CONNECTOR)


def test_two_versions_of_one_jar_are_refused(tmp_path: Path) -> None:
    _fill(tmp_path, *CONNECTOR, "kafka-clients-4.4.0")
    with pytest.raises(
        BadSetting, match=r"kafka-clients is there in the versions 3\.9\.2, 4\.4\.0"
    ):
        kafka_jars.find(tmp_path, kafka_jars.CONNECTOR)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--beside-kafka", "DIR"], "add --only spark"),
        (["--only", "spark", "--only", "kafka", "--beside-kafka", "DIR"], "add --only spark"),
        (["--only", "spark", "--beside-kafka", "DIR"], "scripts/beside-kafka/README.md"),
    ],
)
def test_wrong_words_begin_nothing(tmp_path: Path, words: list[str], said: str) -> None:
    given = [str(tmp_path) if word == "DIR" else word for word in words]
    result = CliRunner().invoke(main, [*given, "--dir", str(tmp_path / "base")])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not (tmp_path / "base").exists()


def test_more_rows_and_less_time_are_ahead() -> None:
    rate = Row("read", RATE, 1000, 600, 400, Aim(0.6, at_least=True))
    time = Row("batch", TIME, 100, 150, 120, Aim(1.3, at_least=False))
    assert (rate.to_ceiling, rate.kafka_to_ceiling, rate.to_kafka) == (0.6, 0.4, 1.5)
    assert rate.is_ahead
    assert not time.is_ahead
    assert (rate.to_json()["met"], time.to_json()["met"]) == (True, False)
    unaimed = Row("value", RATE, 1000, 400, 400)
    assert not unaimed.is_ahead
    assert unaimed.to_json()["met"] is None
    shown = table([rate, time, unaimed]).cells()
    assert [each[0] for each in shown] == ["read", "batch", "value"]
    assert shown[0][2:9] == ["1,000", "600", "400", "0.60", "0.40", "1.50", "yes"]
