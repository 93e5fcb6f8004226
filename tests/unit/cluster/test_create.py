"""Making a cluster's directories: whole or not at all, repeatable, with the node's own loader."""

import os
import tomllib
from pathlib import Path
from uuid import UUID

import pytest

from paceline_cluster import create, ports, state
from paceline_cluster.cli import main as cli
from paceline_cluster.cli.log import segments_in
from paceline_cluster.errors import BadInput, BadSetting, Exit, Refused
from paceline_cluster.first_user import PASSWORD_FILE, FirstUser
from paceline_node.settings import ClientAuth, ListenerKind
from paceline_node.settings.addresses import is_loopback
from paceline_node.storage import layout
from paceline_node.storage.disk import RealDisk


def _spec(count: int, settings: dict[str, str] | None = None) -> create.ClusterSpec:
    return create.local_spec(ports.fixed_ports(range(count)), settings=settings or {}, voters=None)


async def test_directories_of_a_new_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "cluster"
    made = await create.create(directory, _spec(3, {"log.segment_bytes": "1048576"}))
    assert state.load(directory) == made
    assert [node.listeners["v1"] for node in made.nodes] == [
        "127.0.0.1:9092",
        "127.0.0.1:10092",
        "127.0.0.1:11092",
    ]
    secret = directory / "cluster.secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(secret.read_text())) == 32
    seen = set()
    for node in made.nodes:
        assert node.dir.stat().st_mode & 0o777 == 0o700
        settings = create.check_config(node.config_path)
        assert settings.log.segment_bytes == 1048576
        assert settings.secret_path == secret
        disk = RealDisk(str(node.dir))
        meta = await layout.read_meta(disk)
        disk.close()
        assert meta is not None
        assert (meta.cluster_id, meta.node_id) == (UUID(made.cluster_id), node.id)
        seen.add(meta.directory_id)
        assert list((node.dir / "metadata").glob("*.snapshot"))
    assert len(seen) == 3
    assert not (directory / create.MARKER).exists()


async def test_nodes_beyond_the_voters_hold_no_quorum_state(tmp_path: Path) -> None:
    made = await create.create(tmp_path / "c", _spec(4))
    quorum = [bool(list(node.dir.glob("metadata/*.snapshot"))) for node in made.nodes]
    assert quorum == [True, True, True, False]


async def test_the_number_of_voters_that_was_asked_for_is_kept(tmp_path: Path) -> None:
    for nodes, wanted, kept in ((5, None, 3), (5, 5, 5), (3, 1, 1), (3, 3, 3), (2, None, 1)):
        plan = ports.fixed_ports(range(nodes))
        spec = create.local_spec(plan, settings={}, voters=wanted)
        made = await create.create(tmp_path / f"{nodes}-{wanted}", spec)
        assert create.voters_of(made) == kept
        told = {create.check_config(node.config_path).raft.voters for node in made.nodes}
        assert told == {kept if nodes > 2 else 3}  # two nodes have one voter, and grow to three
    with pytest.raises(BadSetting, match=r"raft\.voters.*4 voters bear no more losses"):
        await create.create(tmp_path / "even", _spec(5, {"raft.voters": "4"}))


async def test_unknown_setting_leaves_no_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    with pytest.raises(BadSetting, match=r"no\.such.*") as refused:
        await create.create(directory, _spec(1, {"no.such": "1", "log.segment_bytes": "x"}))
    assert "log.segment_bytes" in str(refused.value)
    assert str(refused.value).count("(command line)") == 2  # where it was said
    assert not directory.exists()  # there was a secret, a node's directory and a half-made mark
    with pytest.raises(BadSetting, match=r"2 in-sync replicas of 1 \(command line, for this"):
        await create.create(directory, _spec(1, {"topics.min_insync_replicas": "2"}))
    assert not directory.exists()


async def test_what_was_left_half_made_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / create.MARKER).touch()
    (tmp_path / "node-0").mkdir()
    (tmp_path / "node-0" / "half").touch()
    await create.create(tmp_path, _spec(1))
    assert state.exists(tmp_path)
    assert not (tmp_path / "node-0" / "half").exists()


async def test_a_cluster_is_never_made_over_another(tmp_path: Path) -> None:
    made = await create.create(tmp_path, _spec(1))
    with pytest.raises(Refused, match=f"{tmp_path} holds a cluster already") as refused:
        await create.create(tmp_path, _spec(1))
    assert f"'paceline up --dir {tmp_path}' starts it" in refused.value.hint
    assert state.load(tmp_path) == made


async def test_a_place_where_nothing_can_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.touch()
    with pytest.raises(Refused, match=f"in {file}/c \\({file} is a file\\); choose another --dir"):
        await create.create(file / "c", _spec(1))
    with pytest.raises(Refused, match=r"\(/proc/nope: no such file or directory\)"):
        await create.create(Path("/proc/nope/c"), _spec(1))


async def test_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("important")
    with pytest.raises(Refused, match="not empty and holds no cluster"):
        await create.create(tmp_path, _spec(1))
    assert os.listdir(tmp_path) == ["thesis.txt"]


@pytest.mark.parametrize(
    ("nodes", "wanted", "expected"),
    [(1, None, 1), (2, None, 1), (3, None, 3), (7, None, 3), (5, 5, 5)],
)
def test_voters(nodes: int, wanted: int | None, expected: int) -> None:
    assert create.voter_count(nodes, wanted) == expected


def test_too_many_voters() -> None:
    with pytest.raises(BadSetting, match="5 voters need at least 5 nodes, not 3"):
        create.voter_count(3, 5)


async def test_settings_change_in_all_files_or_none(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    made = await create.create(directory, _spec(2))
    before = [node.config_path.read_text() for node in made.nodes]
    with pytest.raises(BadSetting, match=r"retention_ms.*\(command line\)"):
        create.change_settings(directory, {"log.retention_ms": "soon"})
    assert [node.config_path.read_text() for node in made.nodes] == before
    changed = create.change_settings(directory, {"log.retention_ms": "5000"})
    assert state.load(directory) == changed
    for node in changed.nodes:
        assert tomllib.loads(node.config_path.read_text())["log"]["retention_ms"] == 5000


async def test_formatting_anew_keeps_the_cluster_and_changes_the_directory_id(
    tmp_path: Path,
) -> None:
    made = await create.create(tmp_path / "c", _spec(1))
    [node] = made.nodes
    (node.dir / "topics" / "t-0.abcd").mkdir()
    with pytest.raises(Refused, match="holds data of a node already"):
        await create.format_for_joining(node.config_path, cluster_id=None, replace=False)
    first = await create.format_for_joining(node.config_path, cluster_id=None, replace=True)
    second = await create.format_for_joining(node.config_path, cluster_id=None, replace=True)
    assert first["cluster_id"] == second["cluster_id"] == made.cluster_id
    assert first["directory_id"] != second["directory_id"]
    assert node.config_path.exists()
    assert not list(node.dir.glob("topics/*"))
    assert [path.name for path in (node.dir / "metadata").iterdir()] == ["hardstate"]


async def test_directory_in_use_is_not_formatted(tmp_path: Path) -> None:
    made = await create.create(tmp_path / "c", _spec(1))
    [node] = made.nodes
    disk = RealDisk(str(node.dir))
    disk.lock()
    try:
        with pytest.raises(Refused, match="in use by a running node"):
            await create.format_for_joining(node.config_path, cluster_id=None, replace=True)
    finally:
        disk.close()


async def test_new_node_must_be_told_its_cluster(tmp_path: Path) -> None:
    made = await create.create(tmp_path / "c", _spec(1))
    text = made.nodes[0].config_path.read_text()
    config = tmp_path / "node.toml"
    config.write_text(text.replace(str(made.nodes[0].dir), str(tmp_path / "joiner")))
    with pytest.raises(Refused, match="--cluster-id"):
        await create.format_for_joining(config, cluster_id=None, replace=False)
    wanted = UUID(made.cluster_id)
    done = await create.format_for_joining(config, cluster_id=wanted, replace=False)
    assert done["cluster_id"] == made.cluster_id


async def test_directories_for_other_machines(tmp_path: Path) -> None:
    spec = create.hosts_spec(
        ["a", "b", "c"],
        bind="0.0.0.0",
        data_dir=Path("/var/lib/paceline"),
        settings={},
        voters=None,
    )
    made = await create.create(tmp_path / "c", spec)
    assert [node.listeners["native"] for node in made.nodes] == ["a:7400", "b:7400", "c:7400"]
    for node in made.nodes:
        assert (node.dir / "cluster.secret").stat().st_mode & 0o777 == 0o600
        settings = create.check_config(node.config_path)
        assert str(settings.node.data_dir) == "/var/lib/paceline"
        assert str(settings.secret_path) == "/var/lib/paceline/cluster.secret"


async def test_a_directory_above_is_told_where_segment_files_lie(tmp_path: Path) -> None:
    """A node's directory was dumped by its log of events: 'byte 0: magic 58, expected 2'."""
    made = await create.create(tmp_path / "c", _spec(2))
    node = made.nodes[1].dir
    (node / "node.log").write_text("2026-01-01 started\n")
    with pytest.raises(BadInput, match=r"is a cluster's directory; .* there is none yet"):
        segments_in(tmp_path / "c")
    for name in ("__groups-0.11111111", "orders-3.22222222"):
        (node / "topics" / name).mkdir(parents=True)
    for above, kind in ((tmp_path / "c", "cluster's"), (node, "node's data")):
        with pytest.raises(BadInput, match=f"{kind} directory; .* such as {node}/topics/orders-3"):
            segments_in(above)
    with pytest.raises(BadInput, match="holds no segment files"):
        segments_in(node / "topics" / "orders-3.22222222")
    segment = node / "topics" / "orders-3.22222222" / f"{17:020d}.log"
    segment.touch()
    assert segments_in(segment.parent) == [segment]


def test_a_file_of_something_else_is_no_segment_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes.log"
    file.write_text("2026-01-01 something else altogether, longer than any header of a batch is\n")
    assert cli.main(["log", "dump", str(file)]) == Exit.DATA
    assert f"paceline: {file} is no segment file: byte 0: magic" in capsys.readouterr().err
    segment = tmp_path / f"{0:020d}.log"
    segment.write_bytes(file.read_bytes())
    assert cli.main(["log", "dump", str(segment)]) == Exit.DATA
    assert f"{segment}: byte 0: magic" in capsys.readouterr().err


async def test_a_closed_cluster_begins_with_its_administrator(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    plan = ports.fixed_ports(range(4))
    spec = create.local_spec(plan, settings={}, voters=None)
    made = await create.create(directory, spec.closed(directory, FirstUser("ops", "secret")))
    for node in made.nodes:
        settings = create.check_config(node.config_path)
        assert settings.security.super_users == ("ops",)
        proved = {each.kind.value: each.login.value for each in settings.listeners}
        assert {name for name, login in proved.items() if login == "optional"} == {"v1", "peer"}
        [v1] = [each for each in settings.listeners if each.kind is ListenerKind.V1]
        assert settings.client_auth(v1) is ClientAuth.REQUIRED
    images = set()
    for node in made.nodes[:3]:
        [snapshot] = node.dir.glob("metadata/*.snapshot")
        images.add(snapshot.read_bytes()[-200:])
        assert b"ops" in snapshot.read_bytes()
    assert len(images) == 1, "all voters begin with the same state"
    assert not (directory / PASSWORD_FILE).exists(), "somebody has it already"


def test_who_may_be_reached_by_others() -> None:
    for host in ("localhost", "127.0.0.1", "127.8.8.8", "::1"):
        assert is_loopback(host), host
    for host in ("broker-0", "0.0.0.0", "::", "10.0.0.1", ""):
        assert not is_loopback(host), host
