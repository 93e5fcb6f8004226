"""Spark finds this module by its name and registers its source as ``format("paceline")``.

Anything that fails here would break every Python data source of that Spark application, so it does
nothing but name the class.
"""

from paceline.spark.source import PacelineDataSource as DefaultSource

__all__ = ["DefaultSource"]
