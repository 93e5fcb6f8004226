"""As ``pyspark_paceline.py``, for ``format("paceline-archive")``."""

from paceline.spark.archive import ArchiveDataSource as DefaultSource

__all__ = ["DefaultSource"]
