"""PySpark reads and writes topics: ``format("paceline")``. See README.md.

Importing this package imports neither pyspark nor pyarrow; what needs them does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the formats known to ``spark``; only needed where their modules are not on the Python
    path at the driver's start, because Spark finds them there by itself."""
    from paceline.spark.archive import ArchiveDataSource
    from paceline.spark.source import PacelineDataSource

    spark.dataSource.register(PacelineDataSource)
    spark.dataSource.register(ArchiveDataSource)
