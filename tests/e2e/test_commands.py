"""The command line against a real cluster: every command, its JSON, its exit codes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paceline_cluster.cli.main import COMMANDS
from tests.e2e.cluster import HANG_S, PACELINE, Cluster, wait_until

DESCRIBE_KEYS = {
    *("partition", "leader", "leader_epoch", "replicas", "isr"),
    *("log_start_offset", "high_watermark", "log_end_offset"),
}


def test_cluster_file_and_status(shared_cluster: Cluster) -> None:
    state = shared_cluster.state()
    assert [node["id"] for node in state["nodes"]] == [0, 1, 2]
    for node in state["nodes"]:
        assert Path(f"/proc/{node['pid']}").exists()
        assert Path(node["dir"]) == shared_cluster.dir / f"node-{node['id']}"
        assert {"v1", "native", "peer"} <= set(node["listeners"])
    assert (shared_cluster.dir / "cluster.secret").stat().st_mode & 0o777 == 0o600
    shared_cluster.run("health", "--exit-when-healthy")
    status = shared_cluster.json("status")
    assert status["cluster_id"] == state["cluster_id"]
    assert [node["state"] for node in status["nodes"]] == ["running"] * 3
    assert status["controller"] in (0, 1, 2)
    assert status["leaderless_partitions"] == 0
    assert status["under_replicated_partitions"] == 0


@pytest.mark.parametrize(
    ("listener", "protocol"),
    [
        ("v1", b"V1"),
        ("http", b"HTTP"),
        ("segment", b"the segment protocol"),
        ("cursus", b"Cursus"),
        ("kafka", b"Kafka"),
        ("pravega", b"HTTP/2, as a Pravega controller does"),
    ],
)
def test_a_listener_that_is_not_native_is_named_by_what_it_speaks(
    shared_cluster: Cluster, listener: str, protocol: bytes
) -> None:
    address = shared_cluster.state()["nodes"][0]["listeners"].get(listener)
    if address is None:
        pytest.skip(f"nodes have no {listener} listener here")
    refused = shared_cluster.run("topic", "list", "--bootstrap", address, exit_code=65)
    assert b" speaks " + protocol + b", not the native protocol\n" in refused.stderr


def test_up_again_shows_the_running_cluster(shared_cluster: Cluster) -> None:
    before = shared_cluster.state()
    again = shared_cluster.run("up", "--detach", "--dir", str(shared_cluster.dir))
    assert b"runs already" in again.stderr
    assert shared_cluster.state() == before
    other = shared_cluster.run(
        "up", "--detach", "--dir", str(shared_cluster.dir), "--nodes", "2", exit_code=69
    )
    assert b"has 3 nodes, not 2\n" in other.stderr
    assert b"'paceline node decommission NODE'" in other.stderr
    assert b"purge" not in other.stderr, "for one node less nobody throws records away"
    for words, said in (
        (("--voters", "1"), b"keeps 3 voters, not 1, and "),
        (("--port-offset", "50"), b" (v1 listener of node 0), not 9142; "),
    ):
        other = shared_cluster.run(
            "up", "--detach", "--dir", str(shared_cluster.dir), *words, exit_code=69
        )
        assert said in other.stderr
    shared_cluster.run(  # what is there already is no difference
        *("up", "--detach", "--any-port", "--nodes", "3", "--voters", "3"),
        *("--dir", str(shared_cluster.dir)),
    )


def test_topics(shared_cluster: Cluster) -> None:
    run, as_json = shared_cluster.run, shared_cluster.json
    run("topic", "create", "t1", "--partitions", "2", "--config", "retention.ms=60000")
    run("topic", "create", "t1", exit_code=65)
    run("topic", "create", "bad/name", exit_code=65)
    listed = {topic["name"]: topic for topic in as_json("topic", "list")["topics"]}
    assert listed["t1"]["partitions"] == 2
    assert "__groups" not in listed
    described = as_json("topic", "describe", "t1")
    assert described["configs"]["retention.ms"] == "60000"
    assert all(set(partition) >= DESCRIBE_KEYS for partition in described["partitions"])
    assert all(type(node) is int for p in described["partitions"] for node in p["isr"])
    run("topic", "alter", "t1", "--config", "retention.ms=120000")
    assert as_json("topic", "describe", "t1")["configs"]["retention.ms"] == "120000"
    run("topic", "add-partitions", "t1", "4")
    assert len(shared_cluster.describe("t1")) == 4
    run("topic", "add-partitions", "t1", "3", exit_code=65)
    run("produce", "t1", "--key", "k", stdin=b"one\ntwo\nthree\n")
    [written] = [p["partition"] for p in shared_cluster.describe("t1") if p["log_end_offset"]]
    trim = ("topic", "trim", "t1", "--partition", str(written), "--before", "2")
    run(*trim, exit_code=64)
    trimmed = as_json(*trim, "--yes")["partitions"]
    assert trimmed == [{"partition": written, "log_start_offset": 2}]
    run("topic", "delete", "t1", exit_code=64)
    run("topic", "delete", "t1", "--yes")
    run("topic", "describe", "t1", exit_code=65)


def test_records_with_keys_headers_and_bytes_round_trip(shared_cluster: Cluster) -> None:
    run = shared_cluster.run
    run("topic", "create", "r1", "--partitions", "1")
    run("produce", "r1", "--header", "trace=a1", "--key", "fixed", stdin=b"one\n\ntwo\n")
    run("produce", "r1", "--key-delimiter", ":", "--allow-keyless", stdin=b"k:v:w\nno key")
    raw = {"key": {"base64": "/w=="}, "value": None, "headers": [["h", {"base64": "gA=="}]]}
    run("produce", "r1", "--json", stdin=json.dumps(raw).encode())
    values = run("consume", "r1", "--exit-at-end").stdout
    assert values == b"one\n\ntwo\nv:w\nno key\n\n"
    exported = run("consume", "r1", "--exit-at-end", "--output", "json").stdout
    records = [json.loads(line) for line in exported.splitlines()]
    assert [record["offset"] for record in records] == list(range(6))
    assert records[0]["headers"] == [["trace", "a1"]]
    assert records[0]["key"] == "fixed"
    assert records[5]["key"] == raw["key"]
    assert records[5]["value"] is None
    run("topic", "create", "r2", "--partitions", "1")
    run("produce", "r2", "--json", stdin=exported)
    again = run("consume", "r2", "--exit-at-end", "--output", "json").stdout
    copies = [json.loads(line) for line in again.splitlines()]
    for record, copy in zip(records, copies, strict=True):
        assert {**record, "topic": "r2"} == copy


def test_consume_from_places(shared_cluster: Cluster) -> None:
    run = shared_cluster.run
    run("topic", "create", "p1", "--partitions", "1")
    run("produce", "p1", stdin=b"".join(b"%d\n" % number for number in range(100)))

    def read(*words: str) -> list[int]:
        return [int(line) for line in run("consume", "p1", *words).stdout.split()]

    end = "--exit-at-end"
    assert read("--from", "start", end) == list(range(100))
    assert read("--from", "end", end) == []
    assert read("--from", "97", end) == [97, 98, 99]
    assert read("--from", "-5", end) == [95, 96, 97, 98, 99]
    assert read("--from", "@0", end) == list(range(100))
    assert read("--from", "@2999-01-01T00:00:00Z", end) == []
    assert read("--count", "7") == list(range(7))
    assert read("--from", "50", "--count", "2") == [50, 51]
    out = run("consume", "p1", "--count", "1", "--format", "%t/%p@%o=%s;").stdout
    assert out == b"p1/0@0=0;"
    assert read("--from", "100", end) == []
    run("consume", "p1", "--from", "500", end, exit_code=65)
    run("consume", "p1", "--from", "soon", end, exit_code=64)
    run("consume", "nothing-here", end, exit_code=65)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_come_back(shared_cluster: Cluster, codec: str) -> None:
    topic = f"compressed-{codec}"
    lines = b"".join(b"the same words again and again %d\n" % number for number in range(2000))
    shared_cluster.run("topic", "create", topic, "--partitions", "1")
    shared_cluster.run("produce", topic, "--compression", codec, stdin=lines)
    assert shared_cluster.run("consume", topic, "--exit-at-end").stdout == lines
    assert shared_cluster.describe(topic)[0]["size_bytes"] < len(lines) / 2


def test_reader_that_has_seen_enough_is_no_failure(shared_cluster: Cluster) -> None:
    shared_cluster.run("topic", "create", "pipe", "--partitions", "1")
    lines = b"".join(b"%d\n" % number for number in range(200_000))
    shared_cluster.run("produce", "pipe", stdin=lines)
    command = " ".join([*PACELINE, "consume", "pipe", "--exit-at-end"])
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -n 1"],
        env=shared_cluster.env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"0\n", b"")


def test_acked_file_names_line_place_and_epoch(shared_cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "acked"
    shared_cluster.run("topic", "create", "a1", "--partitions", "1")
    before = shared_cluster.describe("a1")[0]["leader_epoch"]
    shared_cluster.run(
        *("produce", "a1", "--acks", "all", "--key-delimiter", ":", "--acked-file", str(path)),
        stdin=b"a:1\nb:2\n",
    )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    epoch = lines[0]["leader_epoch"]
    # It may be elected anew at any time, of itself.
    assert before <= epoch <= shared_cluster.describe("a1")[0]["leader_epoch"]
    assert lines == [
        {"line": 1, "partition": 0, "offset": 0, "leader_epoch": epoch, "key": "a"},
        {"line": 2, "partition": 0, "offset": 1, "leader_epoch": epoch, "key": "b"},
    ]


def test_bad_input_lines_are_named(shared_cluster: Cluster) -> None:
    shared_cluster.run("topic", "create", "b1", "--partitions", "1")
    result = shared_cluster.run(
        "produce", "b1", "--json", stdin=b'{"value": "fine"}\n{"value": 1}\n', exit_code=65
    )
    assert b"line 2" in result.stderr
    result = shared_cluster.run("produce", "b1", "missing-file", exit_code=64)
    assert b"missing-file" in result.stderr


LOADS_ALONE = """
import os, sys
from paceline_cluster.cli.main import COMMANDS, main

for name in COMMANDS:
    if os.fork() == 0:
        code = main([name, "--help"])
        sys.stdout.flush()
        os._exit(code)
    _, status = os.wait()
    if status:
        print("FAILED", name, os.waitstatus_to_exitcode(status), flush=True)
"""
"""Forked from a process that has loaded no command yet."""


def test_every_command_loads_alone() -> None:
    """In a process of its own, where no other command has loaded what this one forgot to."""
    result = subprocess.run([sys.executable, "-c", LOADS_ALONE], capture_output=True, check=False)
    assert result.returncode == 0, result.stderr
    assert b"FAILED" not in result.stdout, result.stdout + result.stderr
    assert result.stdout.count(b"Usage: paceline") == len(COMMANDS)


def test_exit_codes(shared_cluster: Cluster, tmp_path: Path) -> None:
    run = shared_cluster.run
    run("no-such-command", exit_code=64)
    run("topic", "create", exit_code=64)
    run("status", "--dir", str(tmp_path / "nothing"), exit_code=65)
    run("node", "kill", "7", exit_code=65)
    run("node", "kill", "leader-of:absent/0", exit_code=65)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        for command in (("topic", "list"), ("produce", "t"), ("consume", "t")):
            words = (*command, "--bootstrap", f"127.0.0.1:{port}", "--connect-timeout", "0.1")
            said = run(*words, exit_code=69).stderr
            assert b"connection refused (tried for 0.1 s)" in said
    directory = tmp_path / "bad"
    words = ("up", "--detach", "--any-port", "--dir", str(directory), "--set", "no.such=1")
    result = run(*words, exit_code=78)
    assert b"no.such" in result.stderr
    assert not (directory / "cluster.json").exists()


def test_what_is_absent_has_its_code_and_a_hint(shared_cluster: Cluster) -> None:
    run = shared_cluster.run
    for action in ("describe", "abort"):
        said = run("transaction", action, "absent", exit_code=65).stderr
        assert said.startswith(b"paceline: kafka/absent: no such transactional id\n")
    run("topic", "create", "hinted", "--partitions", "1")
    run("produce", "hinted", stdin=b"a\n")
    words = ("--group", "elsewhere", "--protocol", "coordinator", "--count", "1")
    run("consume", "hinted", *words)
    said = run("group", "describe", "elsewhere", exit_code=65).stderr
    assert b"does not exist; there is one with --family coordinator\n" in said
    run("group", "describe", "elsewhere", "--family", "coordinator")
    assert b"does not exist\n" in run("group", "describe", "absent", exit_code=65).stderr


def test_a_job_says_at_once_that_a_topic_is_absent(shared_cluster: Cluster, tmp_path: Path) -> None:
    shared_cluster.run("topic", "create", "audited", "--partitions", "1")
    at = ("--bootstrap", ":".join(map(str, shared_cluster.address(0, "native"))))
    checkpoint = ("--checkpoint", str(tmp_path / "ck"))
    for job, words in (
        ("archive", ("--to", str(tmp_path / "archive"), *checkpoint)),
        ("windows", ("--to", "audited", *checkpoint)),
        ("audit", ()),
        ("stats", ("--out", str(tmp_path / "out"))),
    ):
        words = ("pipeline", job, "--topics", "audited,absent", *words, *at)
        said = shared_cluster.run(*words, exit_code=65).stderr
        assert said.startswith(b"paceline: absent: no such topic\n")
    words = ("pipeline", "audit", "--topics", "audited", "--compare", "copy")
    said = shared_cluster.run(*words, *at, exit_code=65).stderr
    assert said.startswith(b"paceline: copy: no such topic\n")
    submitted = subprocess.run(
        [sys.executable, "deploy/spark/paceline_job.py", *words[1:], *at],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
    )
    assert (submitted.returncode, submitted.stderr) == (2, b"paceline: copy: no such topic\n")
    assert not (tmp_path / "archive").exists()


def test_port_in_use_is_named(shared_cluster: Cluster, tmp_path: Path) -> None:
    """The documented port of some node is taken: which one, and how to choose others."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        offset = taken.getsockname()[1] - 7400
        result = shared_cluster.run(
            *("up", "--detach", "--nodes", "1", "--port-offset", str(offset)),
            *("--dir", str(tmp_path / "second")),
            exit_code=78,
        )
    assert f"port {7400 + offset} (native listener of node 0) is in use" in result.stderr.decode()
    assert b"--any-port" in result.stderr


def test_other_ways_to_find_the_cluster(shared_cluster: Cluster) -> None:
    host, port = shared_cluster.address(1, "native")
    by_address = shared_cluster.json("status", "--bootstrap", f"{host}:{port}")
    assert by_address["cluster_id"] == shared_cluster.state()["cluster_id"]
    assert [node["state"] for node in by_address["nodes"]] == ["running"] * 3
    shared_cluster.json("health", "--exit-when-healthy", "--dir", str(shared_cluster.dir))


def test_completion_knows_topics_and_targets(shared_cluster: Cluster) -> None:
    shared_cluster.run("topic", "create", "completed-topic", "--partitions", "1")
    env = shared_cluster.env
    for words, expected in (
        ("paceline topic describe comp", "completed-topic"),
        ("paceline node kill leader-of:completed", "leader-of:completed-topic/0"),
        ("paceline node kill con", "controller"),
    ):
        count = len(words.split()) - 1
        asked = {"_PACELINE_COMPLETE": "bash_complete", "COMP_WORDS": words}
        asking = {**env, **asked, "COMP_CWORD": str(count)}

        def completes(asking: dict[str, str] = asking, expected: str = expected) -> bool:
            result = subprocess.run(
                [sys.executable, "-c", "from paceline_cluster.cli.main import main; main()"],
                env=asking,
                capture_output=True,
                timeout=HANG_S,
                check=False,
            )
            return expected.encode() in result.stdout

        # It gives up when no node answers within a second.
        wait_until(f"{words}: {expected}", completes)
    for shell in ("bash", "zsh", "fish"):
        assert b"_PACELINE_COMPLETE" in shared_cluster.run("completion", shell).stdout


def test_logs_show_each_node(shared_cluster: Cluster) -> None:
    lines = shared_cluster.run("logs").stdout.decode().splitlines()
    assert {line.split(" | ")[0] for line in lines} == {"node-0", "node-1", "node-2"}
    assert shared_cluster.run("logs", "1", "-n", "2").stdout.count(b"\n") == 2


def test_foreground_up_stops_in_order_on_interrupt(shared_cluster: Cluster, tmp_path: Path) -> None:
    directory = tmp_path / "front"
    words = ("up", "--any-port", "--nodes", "1", "--dir", str(directory), "--output", "json")
    process = shared_cluster.spawn(
        *words, stdin=Path("/dev/null"), stdout=tmp_path / "out", stderr=tmp_path / "err"
    )
    try:
        wait_until("up", lambda: b"Ctrl-C" in (tmp_path / "err").read_bytes())
        [node] = json.loads((directory / "cluster.json").read_text())["nodes"]
        assert Path(f"/proc/{node['pid']}").exists()
        process.send_signal(2)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    [node] = json.loads((directory / "cluster.json").read_text())["nodes"]
    assert node["pid"] is None


def test_cluster_comes_back_with_its_records(cluster: Cluster) -> None:
    """Stopped in order, then with every node killed at once (row 3 of tests/sim/README.md): all
    records stay."""
    cluster.run("topic", "create", "stay", "--partitions", "3")
    written: list[int] = []
    for stop in ([("down",)], [("node", "kill", str(node)) for node in range(3)]):
        more = range(len(written), len(written) + 3000)
        written += more
        lines = b"".join(b"%d\n" % number for number in more)
        cluster.run("produce", "stay", "--acks", "all", stdin=lines)
        for words in stop:
            cluster.run(*words)
        assert all(node["pid"] is None for node in cluster.state()["nodes"])
        cluster.run("up", "--detach", "--dir", str(cluster.dir))
        values = cluster.run("consume", "stay", "--exit-at-end").stdout.split()
        assert sorted(map(int, values)) == written
