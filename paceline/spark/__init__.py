"""PySpark reads and writes topics: ``format("paceline")``. See README.md.

Importing this package imports neither pyspark nor pyarrow; what needs them does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the formats known to ``spark``.

    Spark finds them by itself where it asks this Python. A session that was not told which one to
    ask takes the first ``python3`` of the ``PATH``, which may be another than that of a virtual
    environment. One that runs here alone asks this one from now on; ``PYSPARK_PYTHON`` says
    otherwise, and is the way to say it to the workers of a cluster.
    """
    from paceline.spark.archive import ArchiveDataSource
    from paceline.spark.session import ask_this_python
    from paceline.spark.source import PacelineDataSource

    ask_this_python(spark)
    spark.dataSource.register(PacelineDataSource)
    spark.dataSource.register(ArchiveDataSource)
