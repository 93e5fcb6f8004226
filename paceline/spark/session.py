"""A Spark session of our own, for jobs and tests: local by default, with a Java that is found."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from paceline.errors import ConfigurationError
from paceline.spark.home import set_quick_home
from paceline.spark.java import find_java, java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_LOCAL_MASTER = re.compile(r"local(?:\[(\*|\d+)(?:, *\d+)?\])?\Z")
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}


def prepare_environment(environment: MutableMapping[str, str]) -> None:
    """Set what Spark's processes need: Java, this Python for the workers, a local address."""
    runtime = find_java()
    if runtime is not None:
        environment["JAVA_HOME"] = str(java_home(runtime))
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def local_threads(master: str) -> int | None:
    """How many tasks run at once under a master such as ``local[*]``; None unless it is local."""
    match = _LOCAL_MASTER.match(master)
    if match is None:
        return None
    threads = match[1] or "1"
    return (os.cpu_count() or 1) if threads == "*" else int(threads)


def _defaults(master: str) -> dict[str, str]:
    """What a session starts with unless its caller says otherwise. Spark's 200 shuffle partitions
    are for clusters: here each one is a task of some 10 ms, and of a stream's state a store."""
    threads = local_threads(master)
    if threads is None:
        return _DEFAULTS
    return {**_DEFAULTS, "spark.sql.shuffle.partitions": str(threads)}


def set_address(environment: MutableMapping[str, str], master: str) -> None:
    """Let a Spark that runs here alone ask for no name of this machine. Workers elsewhere have to
    reach the driver: Spark chooses its address then, unless the user has."""
    if local_threads(master) is not None:
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def ask_this_python(spark: SparkSession) -> None:
    """Let a session that runs here alone start its Python workers with this Python, unless
    ``PYSPARK_PYTHON`` names one. Spark Connect has its workers elsewhere."""
    context = getattr(spark, "sparkContext", None)
    if context is None or local_threads(context.master) is None:
        return
    if not os.environ.get("PYSPARK_PYTHON"):
        context.pythonExec = sys.executable


def _start_java(settings: Mapping[str, str]) -> None:
    """Start Java in a session of its own: Ctrl-C, or a signal to all our process group, is for this
    process alone, which then stops its queries in order. Java ends with us, however we end: the
    pipe that is its standard input closes."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf().setAll(list(settings.items()))
    gateway = launch_gateway(conf, {"start_new_session": True})
    SparkContext._ensure_initialized(gateway=gateway)


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

    prepare_environment(os.environ)
    settings = dict(conf or {})
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        where = master or LOCAL
        set_address(os.environ, where)
        settings = {"spark.master": where, **_defaults(where), **settings}
        if local_threads(where) is not None:
            set_quick_home(os.environ)
        _start_java(settings)
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark
