"""Time, chance, threads and sockets reach the node through its Env alone, so that it can run in the
simulation (paceline_node/DESIGN 1.1). Drivers are what Env is made of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import paceline_node

ROOT = Path(paceline_node.__file__).parent
DRIVERS = frozenset(
    (
        "app/freed_memory.py",  # of the process, not of its node
        "env.py",
        "http/lazy_imports.py",  # imports of what is hardly ever needed
        "net/network.py",
        "net/tls_handshake.py",  # handshakes of TLS, each step in a thread
        "security/key_source.py",  # reads from a URL, in a thread
        "storage/disk.py",
        "storage/sync_threads.py",
        "threads.py",  # what drivers have done in a thread
    )
)
FORBIDDEN = frozenset(
    (
        "datetime.now",
        "os.urandom",
        "random.choice",
        "random.random",
        "random.randrange",
        "random.uniform",
        "time.monotonic",
        "time.sleep",
        "time.time",
        "trio.from_thread",
        "trio.open_tcp_listeners",
        "trio.open_tcp_stream",
        "trio.socket",
        "trio.to_thread",
        "uuid.uuid4",
    )
)


def uses(tree: ast.AST) -> Iterator[str]:
    """What of the forbidden a module names, by whatever way it was imported."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name(module), name):
                yield f"{module}.{name}"
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{each.name}" for each in names)
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name == "secrets")


def test_only_drivers_touch_the_world() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(ROOT.rglob("*.py"))
        if str(path.relative_to(ROOT)) not in DRIVERS
        for name in uses(ast.parse(path.read_text()))
        if name in FORBIDDEN or name == "secrets"
    ]
    assert not found
