"""The query under test: copies a topic, each record with a header that says where it was."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from paceline.spark.jobs.restoring import Restore, rows
from paceline.spark.options import ARROW_COLUMNS
from paceline.spark.session import local_session
from paceline_cluster.pipeline_chaos import points
from paceline_cluster.pipeline_chaos.datasource import ChaosDataSource

# Tasks fetch and write in many small steps, so that one can be struck between two.
READ_STEP = {"maxPartitionFetchBytes": "2048", "arrow.batchRows": "50"}
WRITE_STEP = {"batchBytes": "1024"}
# A driver lives for seconds: it would spend most of them compiling what runs a few times.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def main(
    master: str,
    bootstrap: str,
    source: str,
    target: str,
    checkpoint: str,
    options: str,
    settings: str,
) -> None:
    """JSON are ``options``, where the source begins and how much a batch takes, and ``settings`` of
    Spark."""
    folder = {f"spark.executorEnv.{points.FOLDER_VARIABLE}": str(points.folder())}
    spark = local_session(
        "pipeline-chaos", master=master, conf={**SETTINGS, **folder, **json.loads(settings)}
    )
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a driver has a Java"
    points.tell(points.DRIVER, f"{os.getpid()} {gateway.proc.pid}")
    spark.dataSource.register(ChaosDataSource)
    records = (
        spark.readStream.format("paceline-chaos")
        .option("paceline.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("columns", ",".join(ARROW_COLUMNS))
        .options(**json.loads(options), **READ_STEP)
        .load()
    )
    wanted = Restore(root=Path(), topics={source: target})
    query = (
        rows(records, wanted, {source: target})
        .writeStream.format("paceline-chaos")
        .option("paceline.bootstrap.servers", bootstrap)
        .option("includeHeaders", "true")
        .options(**WRITE_STEP)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
