from __future__ import annotations

import tomllib
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path

import pytest

from paceline.errors import ConfigurationError
from paceline.units import BYTES, MILLISECONDS
from paceline_node.settings import (
    BootstrapPeer,
    InvalidSettings,
    Listener,
    ListenerKind,
    Settings,
    Timing,
    load,
    print_config,
    topic_config,
)
from paceline_node.settings.flush_mode import FlushMode
from paceline_node.settings.loader import leaves


def problems(**given: object) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        load(**given)  # type: ignore[arg-type]
    assert isinstance(caught.value, ConfigurationError)
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    return list(caught.value.problems)


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "node.toml"
    file.write_text(text)
    return file


def test_nothing_given_is_the_defaults() -> None:
    assert load() == Settings()


def test_later_sources_win(tmp_path: Path) -> None:
    file = write(tmp_path, "[log]\nsegment_bytes = 2000\nsegment_ms = 2000\nretention_ms = 2000\n")
    environ = {"PACELINE_LOG__SEGMENT_MS": "3000", "PACELINE_LOG__RETENTION_MS": "3000"}
    log = load(file=file, environ=environ, flags=["log.retention_ms=4000"]).log
    assert (log.segment_bytes, log.segment_ms, log.retention_ms) == (2000, 3000, 4000)


def test_paceline_variables_win_over_flux_ones_and_those_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[topics]\npartitions = 5\nreplication_factor = 4\n")
    environ = {
        "FLUX_NUM_PARTITIONS": "6",
        "FLUX_REPLICATION_FACTOR": "5",
        "PACELINE_TOPICS__PARTITIONS": "7",
    }
    topics = load(file=file, environ=environ).topics
    assert (topics.partitions, topics.replication_factor) == (7, 5)


def test_everything_wrong_is_told_at_once_with_its_source(tmp_path: Path) -> None:
    file = write(tmp_path, '[log]\nsegment_bytes = "big"\nsegmnt_ms = 5\n[flsh]\nmode = "x"\n')
    found = problems(
        file=file,
        environ={"PACELINE_FLUSH__MODE": "sometimes", "FLUX_MIN_ISR": "x", "HOME": "/"},
        flags=["node.id=-1", "nonsense", "v1.ack_timeout_ms=99999"],
    )
    assert sorted(found) == sorted(
        [
            f"unknown setting log.segmnt_ms, did you mean log.segment_ms? ({file})",
            f"unknown setting flsh.mode, did you mean flush.mode? ({file})",
            f"invalid log.segment_bytes: expected {BYTES}, found 'big' ({file})",
            (
                "invalid PACELINE_FLUSH__MODE: expected one of group, batch, interval, none, "
                "found 'sometimes' (environment)"
            ),
            "invalid FLUX_MIN_ISR: expected a whole number, found 'x' (environment)",
            "invalid node.id: expected 0 to 2147483647, found -1 (command line)",
            "'nonsense' is not KEY=VALUE (command line)",
            "invalid v1.ack_timeout_ms: expected 1 to 3500, found 99999 (command line)",
        ]
    )


def test_a_setting_without_its_section_is_found_in_it() -> None:
    [problem] = problems(flags=["segment_bytes=1"])
    assert problem.startswith("unknown setting segment_bytes, did you mean log.segment_bytes?")
    [problem] = problems(flags=["foo.bar=1"])
    assert problem == "unknown setting foo.bar (command line)"


def test_unknown_variables_with_our_form_are_errors_and_others_are_not_ours() -> None:
    assert problems(environ={"PACELINE_LOG__SIZE": "1"})[0].startswith(
        "unknown setting PACELINE_LOG__SIZE"
    )
    assert load(environ={"PACELINE_DIR": "/x", "PACELINE_SEEDS": "3"}) == Settings()


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[log]\nsegment_bytes = true\n", "expected a whole number, found True"),
        ("[log]\nsegment_bytes = 1.5\n", "expected a whole number, found 1.5"),
        ("[flush]\nlinger_ms = 'nan'\n", f"expected {MILLISECONDS}, found 'nan'"),
        ("[metrics]\nper_partition = '5d'\n", "expected true or false, found '5d'"),
        ("[log]\nretention_ms = '7x'\n", f"expected {MILLISECONDS}, found '7x'"),
        ("[log]\nsegment_bytes = '1.5'\n", "expected a whole number, found '1.5'"),
        ("[log]\nretention_ms = '0.5ms'\n", "is no whole number of ms, found '0.5ms'"),
        ("[topics]\npartitions = '3k'\n", "expected a whole number, found '3k'"),
        ("[v1]\nforward_produce = 'perhaps'\n", "expected true or false, found 'perhaps'"),
        ("[node]\nrack = 7\n", "expected text, found int"),
        ("[node]\ndata_dir = []\n", "expected text, found list"),
        ("listeners = 7\n", "expected a list, found int"),
        ("[cluster]\nbootstrap = ['x']\n", "'x': expected HOST:PORT"),
        ("[log]\nsegment_bytes = {}\n", "expected a whole number, found {}"),
    ],
)
def test_values_of_the_wrong_kind(tmp_path: Path, toml: str, expected: str) -> None:
    (problem,) = problems(file=write(tmp_path, toml))
    assert expected in problem


def test_times_and_sizes_have_units_wherever_they_are_written(tmp_path: Path) -> None:
    """They were whole numbers in files, variables and --set, and had units in --config only."""
    file = write(tmp_path, "[log]\nretention_ms = '1w'\nsegment_bytes = '64 MiB'\n")
    environ = {
        "PACELINE_LOG__RETENTION_BYTES": "10GB",
        "PACELINE_LOG__COMPACTION_BYTES_PER_S": "1m",
    }
    found = load(file=file, environ=environ, flags=["log.segment_ms=1.5h", "flush.linger_ms=0.5"])
    assert (found.log.retention_ms, found.log.segment_bytes) == (7 * 86_400_000, 64 * 2**20)
    assert (found.log.retention_bytes, found.log.compaction_bytes_per_s) == (10**10, 2**20)
    assert (found.log.segment_ms, found.flush.linger_ms) == (5_400_000, 0.5)
    assert load(flags=["log.retention_ms=-1", "log.segment_bytes=1_048_576"]).log == replace(
        Settings().log, retention_ms=-1, segment_bytes=2**20
    )


def test_every_time_and_size_takes_units() -> None:
    for leaf in leaves():
        is_one = leaf.key.endswith(("_ms", "_bytes", "_bytes_max", "_bytes_per_s"))
        assert bool(leaf.unit) == is_one, leaf.key


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in problems(file=tmp_path / "missing.toml")[0]
    assert "is not TOML" in problems(file=write(tmp_path, "log = ["))[0]
    file = tmp_path / "node.toml"
    file.write_bytes(b"\xff\xfe")
    assert "is not TOML" in problems(file=file)[0]


def test_text_is_read_like_toml() -> None:
    settings = load(
        flags=[
            "log.segment_bytes=1_048_576",
            "v1.forward_produce=off",
            "flush.mode=interval",
            "flush.linger_ms=0.5",
            "node.data_dir=/var/lib/x",
            "cluster.bootstrap=0@a:7401, b:7401",
        ]
    )
    assert settings.log.segment_bytes == 1024**2
    assert settings.v1.forward_produce is False
    assert settings.flush.mode is FlushMode.INTERVAL
    assert settings.flush.linger_ms == 0.5
    assert settings.node.data_dir == Path("/var/lib/x")
    assert settings.cluster.bootstrap == (BootstrapPeer("a", 7401, 0), BootstrapPeer("b", 7401))


def test_values_that_contradict_each_other() -> None:
    (problem,) = problems(environ={"FLUX_MIN_ISR": "3"}, flags=["topics.replication_factor=2"])
    assert problem == (
        "invalid FLUX_MIN_ISR and topics.replication_factor: 3 in-sync replicas of 2 "
        "(environment, command line)"
    )
    assert "a session of 900 ms" in problems(flags=["broker.session_ms=900"])[0]
    assert "elections after 150 ms" in problems(flags=["raft.election_ms=150"])[0]
    assert (
        "a pause of at least 70"
        in problems(flags=["replication.backoff_min_ms=70", "replication.backoff_max_ms=60"])[0]
    )


def test_the_local_profile_is_quicker_and_explicit_values_still_win() -> None:
    local = load(flags=["cluster.timing=local", "broker.heartbeat_ms=300"])
    assert local.cluster.timing is Timing.LOCAL
    assert (local.broker.heartbeat_ms, local.broker.session_ms) == (300, 2000)
    assert (local.raft.heartbeat_ms, local.raft.election_ms) == (100, 500)
    production = load()
    assert (production.broker.heartbeat_ms, production.broker.session_ms) == (500, 4000)
    assert (production.raft.heartbeat_ms, production.raft.election_ms) == (100, 1000)
    assert local.log == production.log or local.log.segment_bytes == production.log.segment_bytes


def test_every_default_is_within_its_own_bounds_and_documented() -> None:
    from paceline_node.settings.fields import convert
    from paceline_node.settings.printing import toml

    count = 0
    for leaf in leaves():
        count += 1
        assert leaf.spec.doc.rstrip().endswith((".", "?")), leaf.key
        for value in (leaf.default, leaf.spec.local):
            written = tomllib.loads(f"x = {toml(value)}")["x"]
            assert convert(leaf.kind, leaf.spec, written) == value, leaf.key
    assert count > 50


@pytest.mark.parametrize("flags", [(), ("cluster.timing=local", 'node.rack=a "b" \\ é')])
def test_the_printed_configuration_reads_back_the_same(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    settings = load(
        flags=[
            *flags,
            "listeners=native://h:1?advertised=x:5,peer://[::1]:2",
            "cluster.bootstrap=3@h:4",
        ]
    )
    text = print_config(settings)
    assert load(file=write(tmp_path, text)) == settings
    for leaf in leaves():
        assert f"{leaf.key.rpartition('.')[2]} = " in text
    assert "reloadable" in text
    assert "local 200" in text


def test_the_tree_is_frozen_all_the_way_down() -> None:
    settings = Settings()
    for field in fields(settings):
        part = getattr(settings, field.name)
        if is_dataclass(part):
            with pytest.raises(FrozenInstanceError):
                setattr(part, fields(part)[0].name, 1)


def test_flux_names() -> None:
    settings = load(
        environ={
            "FLUX_LISTEN_ADDR": ":9093",
            "FLUX_ADVERTISED_HOST": "broker-1",
            "FLUX_BROKER_ID": "1",
            "FLUX_CLUSTER_PEERS": "0@broker-0:7401,1@broker-1:7401",
            "FLUX_DATA_DIR": "/app/data",
            "FLUX_REPLICA_MAX_LAG": "2",
            "FLUX_REPLICA_LAG_TIMEOUT_MS": "9000",
            "FLUX_ACK_ALL_TIMEOUT_MS": "1500",
            "FLUX_SEGMENT_MAX_BYTES": "1048576",
            "FLUX_RETENTION_MAX_BYTES": "52428800",
            "FLUX_RETENTION_MAX_AGE_SECONDS": "86400",
            "FLUX_FLUSH_INTERVAL_MS": "250",
            "FLUX_FLUSH_BYTES": "65536",
            "FLUX_FSYNC_MODE": "always",
        }
    )
    v1, native, peer, http, segment, cursus, kafka, pravega = settings.effective_listeners
    assert (v1.host, v1.port, v1.advertised(9093)) == ("0.0.0.0", 9093, ("broker-1", 9093))
    assert (native.port, peer.port, http.port) == (8400, 8401, 8480)
    assert (segment.port, cursus.port, kafka.port, pravega.port) == (13345, 10000, 10192, 10090)
    assert settings.node.id == 1
    assert settings.node.data_dir == Path("/app/data")
    assert settings.v1.simulated_max_lag == 2
    assert settings.log.retention_ms == 86_400_000
    assert settings.flush.mode is FlushMode.GROUP
    assert len(settings.cluster.bootstrap) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLUX_FSYNC_MODE", "perhaps"),
        ("FLUX_FLUSH_BYTES", "-1"),
        ("FLUX_RETENTION_MAX_AGE_SECONDS", "a day"),
        ("FLUX_ACK_ALL_TIMEOUT_MS", "0"),
        ("FLUX_LISTEN_ADDR", "nowhere"),
    ],
)
def test_bad_flux_values_name_their_variable(name: str, value: str) -> None:
    (problem,) = problems(environ={name: value})
    assert problem.startswith(f"invalid {name}: ")


# --- listeners ---


def test_default_listeners_are_on_loopback_and_step_by_node() -> None:
    settings = load(flags=["node.id=2"])
    ports = {item.kind: item.port for item in settings.effective_listeners}
    assert ports == {
        ListenerKind.V1: 11092,
        ListenerKind.NATIVE: 9400,
        ListenerKind.PEER: 9401,
        ListenerKind.HTTP: 9480,
        ListenerKind.SEGMENT: 14345,
        ListenerKind.CURSUS: 11000,
        ListenerKind.KAFKA: 11192,
        ListenerKind.PRAVEGA: 11090,
    }
    assert {item.host for item in settings.effective_listeners} == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("url", "bound", "advertised"),
    [
        ("v1://0.0.0.0:9092?advertised=broker-0:9192", ("0.0.0.0", 9092), ("broker-0", 9192)),
        ("native://10.0.0.1:7400", ("10.0.0.1", 7400), ("10.0.0.1", 7400)),
        ("peer://[::]:7401?advertised=host", ("::", 7401), ("host", 7401)),
        ("cursus+tls://h:1?advertised=x:2&tls=optional", ("h", 1), ("x", 2)),
        ("cursus+tls://h:1?tls=optional", ("h", 1), ("h", 1)),
        ("v1+tls://h:1?client_auth=required", ("h", 1), ("h", 1)),
        ("kafka://h:1?login=required", ("h", 1), ("h", 1)),
        ("kafka+tls://h:1?advertised=x&client_auth=optional&login=required", ("h", 1), ("x", 1)),
        ("peer+tls://h:1", ("h", 1), ("h", 1)),
        ("http://[::1]:80?advertised=[fe80::1]:81", ("::1", 80), ("fe80::1", 81)),
    ],
)
def test_listener_urls(url: str, bound: tuple[str, int], advertised: tuple[str, int]) -> None:
    listener = Listener.parse(url)
    assert (listener.host, listener.port) == bound
    assert listener.advertised(listener.port) == advertised
    assert Listener.parse(str(listener)) == listener


def test_port_zero_is_advertised_as_bound() -> None:
    assert Listener.parse("v1://127.0.0.1:0").advertised(4711) == ("127.0.0.1", 4711)


def test_coordinator_is_an_older_name_of_kafka() -> None:
    """Configurations that nodes have on disk are read; what is shown has the new name."""
    assert Listener.parse("coordinator://h:9192") == Listener.parse("kafka://h:9192")
    assert str(Listener.parse("coordinator+tls://h:9192")) == "kafka+tls://h:9192"
    with pytest.raises(ValueError, match="unknown scheme") as refused:
        Listener.parse("kafak://h:9192")
    assert " kafka, " in str(refused.value)
    assert "coordinator" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("v1://h:1?client_auth=required", "a scheme that ends in +tls"),
        ("kafka://h:1?login=yes", "expected login=optional|required"),
        (
            "v1://h:1?login=required",
            "expected login=optional|required, for kafka or native or cursus or http",
        ),
        ("v1+tls://h:1?client_auth=yes", "expected client_auth=none|optional|required"),
        ("v1+tls://h:1?client_auth=required&tls=optional", "who need not encrypt"),
        ("v1+ssl://h:1", "unknown scheme"),
        ("ftp://h:21", "unknown scheme, expected cursus, cursus-health"),
        ("h:9092", "unknown scheme"),
        ("v1://h", "expected HOST:PORT"),
        ("v1://h:x", "expected HOST:PORT"),
        ("v1://h:70000", "expected HOST:PORT"),
        ("v1://::1:9092", "in brackets"),
        ("v1://h:1/path", "expected v1://HOST:PORT"),
        ("v1://u@h:1", "expected v1://HOST:PORT"),
        ("v1://h:1?advertise=x:1", "the options are advertised"),
        ("v1://h:1?advertised=", "the options are advertised"),
        ("cursus://h:1?tls=optional", "a scheme that ends in +tls"),
        ("cursus+tls://h:1?tls=maybe", "expected tls=optional"),
        ("v1://h:1?advertised=0.0.0.0:1", "nobody can connect"),
        ("v1://h:1?advertised=x:0", "nobody can connect"),
        ("v1://0.0.0.0:9092", "say which one to tell others"),
        ("v1://[::1:9", "Invalid IPv6 URL"),
    ],
)
def test_bad_listener_urls(url: str, expected: str) -> None:
    found = problems(flags=[f"listeners=native://h:2,peer://h:3,{url}"])
    assert len(found) == 1
    assert expected in found[0]
    assert found[0].endswith("(command line)")


def test_listeners_as_a_set() -> None:
    assert "a node needs a peer:// listener" in problems(flags=["listeners=native://h:1"])[0]
    found = problems(flags=["listeners=native://h:1,native://h:2,peer://h:1"])
    assert found == [
        "invalid listeners: 2 of scheme native (command line)",
        "invalid listeners: native://h:1 and peer://h:1 share a port (command line)",
    ]


def test_where_the_secret_lies() -> None:
    assert load(flags=["node.data_dir=/c/node-0"]).secret_path == Path("/c/cluster.secret")
    assert load(flags=["cluster.secret_file=/run/secret"]).secret_path == Path("/run/secret")


def test_topics_may_have_what_is_the_default_for_them() -> None:
    assert topic_config.problems(Settings().topic_configs()) == []
