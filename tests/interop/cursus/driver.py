"""The published Cursus clients for Go and Java, each behind a small program of ours.

Both programs take ``MODE BROKERS TOPIC MORE...`` and say a line for whatever happens::

    produce  ACKS COUNT    acked N, again and again; ends when all are
    consume  GROUP MODE    got PAYLOAD, until standard input ends; polling or streaming
    transact ID COUNT      committed N or aborted N

The clients come from their registries, as any user gets them; what cannot be had is the reason of a
skip.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
GO_CLIENT = "github.com/cursus-io/cursus/sdk@4373c0a14a02"
JAVA_CLIENT = "io.github.cursus-io:cursus-client:0.1.0"
_BUILD_S = 900
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>paceline.interop</groupId><artifactId>cursus</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
  </dependency></dependencies>
</project>
"""


class NotHere(Exception):
    """A client or its language is not to be had; the text says why."""


@dataclass(frozen=True)
class Driver:
    """The command line of a program, without its arguments."""

    name: str
    command: tuple[str, ...]

    def start(self, *arguments: str) -> Running:
        return Running([*self.command, *arguments])


class Running:
    """A program under way; ``said`` counts its lines as they come."""

    def __init__(self, command: Sequence[str]) -> None:
        self.said: Counter[str] = Counter()
        self.last = ""
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._readers = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._mind, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last = line.strip()
            self.said[self.last] += 1

    def _mind(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)

    @property
    def acked(self) -> int:
        """What a producer has said last."""
        word, _, number = self.last.partition(" ")
        return int(number) if word == "acked" else 0

    @property
    def got(self) -> Counter[str]:
        """Payloads of a consumer."""
        return Counter(
            {line.removeprefix("got "): n for line, n in self.said.items() if line[:4] == "got "}
        )

    def finish(self, timeout_s: float = 120) -> None:
        """Wait for a program that ends by itself. Raises AssertionError with what it complained
        of."""
        code = self._process.wait(timeout_s)
        self.close()
        assert code == 0, f"exit code {code}\n{''.join(self._errors[-30:])}"

    def close(self) -> None:
        """End its input, and it, if it does not end then."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(10)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


def go(directory: Path) -> Driver:
    """The program for Go, built below ``directory``. Raises NotHere."""
    _need("go")
    shutil.copy(HERE / "go" / "main.go", directory)
    _run(directory, "go", "mod", "init", "paceline.invalid/interop")
    _run(directory, "go", "get", GO_CLIENT)
    _run(directory, "go", "build", "-mod=mod", "-o", "driver", ".")
    return Driver("go", (str(directory / "driver"),))


def java(directory: Path) -> Driver:
    """The program for Java, likewise."""
    _need("mvn", "javac", "java")
    (directory / "pom.xml").write_text(_POM.format(*JAVA_CLIENT.split(":")))
    _run(directory, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
    _run(directory, "javac", "-d", "classes", "-cp", "lib/*", str(HERE / "java" / "Driver.java"))
    path = f"{directory / 'classes'}:{directory / 'lib'}/*"
    return Driver("java", ("java", "-cp", path, "Driver"))


def _need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise NotHere(f"{program} is not installed")


def _run(directory: Path, *command: str) -> None:
    result = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=_BUILD_S, check=False
    )
    if result.returncode:
        lines = (result.stdout + result.stderr).strip().splitlines()
        told = next((line for line in lines if "ERROR" in line), lines[0] if lines else "")
        raise NotHere(f"{' '.join(command)}: {told[:300]}")
