"""What a node that cannot start says, and the exit code it ends with: real processes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from uuid import uuid4

import pytest
import trio

from tests.integration.node.machines import data_dir, free_ports
from tests.integration.node.nodes import (
    HANG_S,
    cluster,
    format_nodes,
    format_to_join,
    lone_node,
    write_secret,
)

IN_USE = 3
DISK_FAILED = 69
CONFIGURATION = 78


async def start(directory: Path, number: int = 0, **flags: str) -> tuple[int, str]:
    """Run a node that is expected to end by itself: its exit code and what it says last."""
    ports = dict(zip(("v1", "native", "http", "peer"), free_ports(4), strict=True))
    settings = {
        "node.id": str(number),
        "node.data_dir": str(data_dir(directory, number)),
        "listeners": ",".join(f"{kind}://127.0.0.1:{port}" for kind, port in ports.items()),
        **{key.replace("__", "."): value for key, value in flags.items()},
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PACELINE_", "FLUX_"))}
    with trio.fail_after(HANG_S):
        done = await trio.run_process(
            [sys.executable, "-m", "paceline_node", *words],
            capture_stdout=True,
            capture_stderr=True,
            env=environ,
            check=False,
        )
    lines = done.stderr.decode().strip().splitlines()
    assert not any("Traceback" in line for line in lines), done.stderr.decode()
    return done.returncode, lines[-1]


async def test_a_directory_serves_one_process(tmp_path) -> None:
    async with lone_node(tmp_path) as node:
        code, said = await start(tmp_path)
        assert code == IN_USE
        assert said == (
            f"paceline-node: data directory {data_dir(tmp_path, 0)} "
            f"is in use by process {os.getpid()}"
        )
        assert not node.node.stopping


async def test_an_empty_directory_without_bootstrap(tmp_path) -> None:
    write_secret(tmp_path)
    code, said = await start(tmp_path)
    assert code == CONFIGURATION
    assert said == (
        f"paceline-node: data directory {data_dir(tmp_path, 0)} is empty and cluster.bootstrap "
        "names nobody to join; format it (paceline node format) or name a running node"
    )


async def test_a_port_in_use(tmp_path) -> None:
    await format_nodes(tmp_path, free_ports(1))
    for kind in ("v1", "peer"):
        (taken,) = free_ports(1)
        ports = {"v1": 0, "native": 0, "http": 0, "peer": 0, kind: taken}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        [socket] = await trio.open_tcp_listeners(taken, host="127.0.0.1")
        async with socket:
            code, said = await start(tmp_path, listeners=listeners)
        assert code == CONFIGURATION
        assert f"{kind}://127.0.0.1:{taken}" in said
        assert "Address already in use" in said
        assert "choose another port, or stop what uses it" in said


async def test_bad_settings_are_all_named(tmp_path) -> None:
    code, said = await start(
        tmp_path, v1__ack_timeout_ms="9999", nosuch__key="1", topics__min_insync_replicas="many"
    )
    assert code == CONFIGURATION
    for part in ("v1.ack_timeout_ms", "3500", "nosuch.key", "topics.min_insync_replicas", "many"):
        assert part in said, said


async def test_no_secret(tmp_path) -> None:
    await format_nodes(tmp_path, free_ports(1))
    (tmp_path / "cluster.secret").chmod(0o644)
    code, said = await start(tmp_path)
    assert code == CONFIGURATION
    assert "cluster.secret" in said
    assert "0600" in said or "600" in said, said
    (tmp_path / "cluster.secret").unlink()
    code, said = await start(tmp_path)
    assert code == CONFIGURATION
    assert "cluster.secret" in said


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", marks=pytest.mark.slow),
        "{",
        pytest.param("[]", marks=pytest.mark.slow),
        pytest.param(None, marks=pytest.mark.slow, id="of version 2"),
    ],
)
async def test_a_meta_file_that_makes_no_sense(tmp_path, text: str | None) -> None:
    await format_nodes(tmp_path, free_ports(1))
    meta = data_dir(tmp_path, 0) / "meta.json"
    if text is None:
        text = meta.read_text().replace('"version": 1', '"version": 2')
    meta.write_text(text)
    meta.with_name("meta.copy.json").write_text(text)
    code, said = await start(tmp_path)
    assert code == CONFIGURATION
    assert "meta.json" in said


async def test_a_meta_file_of_a_later_version_is_not_taken_for_damage(tmp_path) -> None:
    await format_nodes(tmp_path, free_ports(1))
    meta = data_dir(tmp_path, 0) / "meta.json"
    fields = json.loads(meta.read_text())
    del fields["checksum"]
    meta.write_text(json.dumps({**fields, "version": 2}))
    code, said = await start(tmp_path)
    assert code == CONFIGURATION
    assert "meta.json: version 2" in said


async def test_data_of_nobody_are_not_begun_anew(tmp_path) -> None:
    """A node that joined anew would forget what the one whose data these are has promised."""
    await format_nodes(tmp_path, free_ports(1))
    for name in ("meta.json", "meta.copy.json"):
        (data_dir(tmp_path, 0) / name).unlink()
    code, said = await start(tmp_path)
    assert code == CONFIGURATION
    assert "meta.json and meta.copy.json are missing" in said
    assert "paceline node format --replace" in said


@pytest.mark.parametrize("other", ["cluster", pytest.param("node", marks=pytest.mark.slow)])
async def test_a_stranger(tmp_path, other: str) -> None:
    async with cluster(tmp_path, 1) as nodes:
        stranger = tmp_path / "stranger"
        stranger.mkdir()
        write_secret(stranger)
        cluster_id = uuid4() if other == "cluster" else nodes.up[0].cluster_id
        await format_to_join(stranger, 7, cluster_id)
        if other == "node":
            data_dir(stranger, 7).rename(data_dir(stranger, 8))
            code, said = await start(stranger, 8, cluster__bootstrap=nodes.bootstrap)
            assert said == ("paceline-node: the data directory belongs to node 7, node.id is 8")
        else:
            code, said = await start(stranger, 7, cluster__bootstrap=nodes.bootstrap)
            assert str(cluster_id) in said
            assert str(nodes.up[0].cluster_id) in said
        assert code == CONFIGURATION
