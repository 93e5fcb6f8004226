"""A Kafka broker of one node on this machine, from jars, for as long as it is measured."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paceline.spark.java import program
from paceline.spark.session import prepare_environment
from paceline_cluster import ports
from paceline_cluster.bench.kafka_jars import Jars
from paceline_cluster.errors import NodeEnded, TooLate

START_S, STOP_S = 180.0, 60.0
"""No broker takes this long; they bound a hang."""
_LOOK_AGAIN_S = 0.1
_HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""As in the script that Kafka comes with."""
_TOLD = 2000


@contextmanager
def running(jars: Jars, directory: Path, *, partitions: int) -> Iterator[str]:
    """The ``host:port`` of a broker that keeps all it has in ``directory`` (created). Topics come
    to be at the first write, with so many partitions. Raises NodeEnded, TooLate."""
    prepare_environment(os.environ)
    directory.mkdir()
    port, controller = ports.free_numbers(2)
    properties = directory / "server.properties"
    properties.write_text(_properties(port, controller, directory / "logs", partitions))
    log = directory / "broker.log"
    words = [program(os.environ), *_HEAP, "-cp", jars.joined(os.pathsep)]
    identity = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "A")
    _format([*words, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(properties)])
    with log.open("wb") as out:
        broker = subprocess.Popen(  # noqa: S603 - Java, as Spark finds it
            [*words, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "kafka.Kafka", properties],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us, who then end it in order
        )
    try:
        _await(broker, port, log)
        yield f"{ports.HOST}:{port}"
    finally:
        _end(broker)


def _properties(port: int, controller: int, logs: Path, partitions: int) -> str:
    """Kafka's own defaults, but for one node that is all there is."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{ports.HOST}:{controller}",
        "listeners": f"PLAINTEXT://{ports.HOST}:{port},CONTROLLER://{ports.HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": logs,
        "num.partitions": partitions,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _format(words: list[str]) -> None:
    done = subprocess.run(  # noqa: S603 - Java, as Spark finds it
        words, capture_output=True, check=False, timeout=START_S
    )
    if done.returncode:
        told = (done.stdout + done.stderr).decode(errors="replace")[-_TOLD:]
        raise NodeEnded(f"kafka.tools.StorageTool: exit code {done.returncode}\n{told}")


def _await(broker: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until it takes connections; clients themselves wait for the rest."""
    deadline = time.monotonic() + START_S
    while True:
        code = broker.poll()
        if code is not None:
            told = log.read_text(errors="replace")[-_TOLD:]
            raise NodeEnded(f"the Kafka broker ended with exit code {code} at its start\n{told}")
        with suppress(OSError), socket.create_connection((ports.HOST, port)):
            return
        if time.monotonic() > deadline:
            raise TooLate(f"the Kafka broker took no connection within {START_S:g} s")
        time.sleep(_LOOK_AGAIN_S)


def _end(broker: subprocess.Popen[bytes]) -> None:
    broker.terminate()
    try:
        broker.wait(STOP_S)
    except subprocess.TimeoutExpired:
        broker.kill()
        broker.wait()
