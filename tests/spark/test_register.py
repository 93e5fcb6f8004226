"""What users meet first with a session of their own: the Python that Spark asks, a wrong port, and
no word on how to save."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from paceline.spark import register
from tests.spark.queries import Topics, values_of


@pytest.fixture
def closed() -> Iterator[str]:
    """An address where nobody listens, and nobody else can meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        host, port = held.getsockname()
        yield f"{host}:{port}"


def test_a_session_that_asks_another_python_asks_this_one_once_registered(
    spark: SparkSession, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.make(partitions=1)
    topics.write(topic, ["a"], partition=0)
    # As Spark chooses it where nobody has named one: the first python3 of the PATH.
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/usr/bin/false")
    register(spark)
    assert values_of(spark.read.format("paceline").options(**topics.options(topic)).load()) == ["a"]


def test_a_python_that_the_user_has_named_stays(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/opt/python")
    try:
        register(spark)
        assert spark.sparkContext.pythonExec == "/opt/python"
    finally:
        monkeypatch.undo()
        register(spark)


@pytest.mark.slow
def test_a_wrong_port_is_told_in_one_line(
    spark: SparkSession, topics: Topics, closed: str, tmp_path: Path
) -> None:
    """Each tries for a while before it says so: the stream does beside the others."""
    address = {"paceline.bootstrap.servers": closed}
    stream = spark.readStream.format("paceline").options(**topics.options(topics.make())).load()
    writer = stream.select("value").writeStream.format("paceline")
    writer = writer.options(**address, topic="orders")
    writer = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True)
    query = writer.start()
    source = spark.read.format("paceline").options(**address, subscribe="orders")
    with pytest.raises(AnalysisException) as read:
        source.load().count()
    rows = spark.createDataFrame([("a",)], ["value"])
    sink = rows.write.format("paceline").options(**address, topic="orders").mode("append")
    with pytest.raises(AnalysisException) as written:
        sink.save()
    with pytest.raises(PySparkException) as streamed:
        query.awaitTermination()
    for error in (read, written, streamed):
        assert f"paceline.errors.Unreachable: {closed}: connection refused" in str(error.value)
        assert "Traceback" not in str(error.value)


def test_a_write_that_does_not_say_append_is_told_to(spark: SparkSession, topics: Topics) -> None:
    topic = topics.make("out", partitions=1)
    rows = spark.createDataFrame([("a",)], ["value"])
    address = {"paceline.bootstrap.servers": topics.bootstrap, "topic": topic}
    with pytest.raises(AnalysisException, match='use either the "Append" or'):
        rows.write.format("paceline").options(**address).save()
    with pytest.raises(PySparkException, match=r"use mode\('append'\)"):
        rows.write.format("paceline").options(**address).mode("overwrite").save()
    assert topics.read(topic) == []
