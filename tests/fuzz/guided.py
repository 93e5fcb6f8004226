"""Inputs that are bred for the code they reach, by atheris (libFuzzer): the five largest parsers.

Run by ``scripts/fuzz --guided``, a process for each parser, since atheris ends its process. The
first bytes of an input are the seed of what the engine's targets draw by chance.
"""

from __future__ import annotations

import importlib
import random
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

GUIDED = ("kafka", "cursus", "native", "segment-pravega", "batch")
_SEED_BYTES = 4
_VALID = 300
_LIMITS = ("-timeout=20", "-rss_limit_mb=2048", "-max_len=65536", "-print_final_stats=1")


def breed(name: str, seconds: int, folder: Path) -> bool:
    """Breed inputs for a parser; True when it misbehaved. The input is left in ``folder``."""
    command = [sys.executable, "-m", "tests.fuzz.guided", name, str(folder), str(seconds)]
    return subprocess.run(command, check=False).returncode != 0


def main() -> None:
    """``TARGET FOLDER SECONDS``."""
    name, folder, seconds = sys.argv[1:]
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["paceline.wire"]):
        targets = importlib.import_module("tests.fuzz.targets").TARGETS
        refused = importlib.import_module("paceline.errors").PacelineError
    target = targets[name]
    allowed = (refused, *target.refusals)

    def one(data: bytes) -> None:
        with suppress(*allowed):
            target.feed(data[_SEED_BYTES:], random.Random(data[:_SEED_BYTES]))

    with tempfile.TemporaryDirectory() as corpus:
        for number in range(_VALID):
            rng = random.Random(f"{name}/{number}")
            path = Path(corpus, str(number))
            path.write_bytes(rng.randbytes(_SEED_BYTES) + target.make(rng))
        until = f"-max_total_time={seconds}"
        found = f"-artifact_prefix={folder}/{name}-"
        atheris.Setup([sys.argv[0], corpus, until, found, *_LIMITS], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
