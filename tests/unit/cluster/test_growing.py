"""Adding nodes to a cluster's directory: configured as the others, whole or not at all."""

from __future__ import annotations

import contextlib
from pathlib import Path
from uuid import UUID

import pytest

from paceline_cluster import certificate_authority, create, growing, node_config, ports, state
from paceline_cluster.errors import BadSetting, Refused
from paceline_cluster.growing import Growth, Wish
from paceline_cluster.state import ClusterState
from paceline_node.storage import layout
from paceline_node.storage.disk import RealDisk


async def make(directory: Path, count: int, settings: dict[str, str] | None = None) -> ClusterState:
    plan = ports.fixed_ports(range(count), offset=7)
    spec = create.local_spec(plan, settings=settings or {}, voters=None)
    return await create.create(directory, spec)


async def grow(directory: Path, wish: Wish) -> Growth:
    async with growing.adding(directory, wish) as growth:
        return growth


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "are_free", lambda _ports: True)


@pytest.mark.usefixtures("free")
async def test_new_nodes_are_configured_as_the_first_one_is(tmp_path: Path) -> None:
    made = await make(tmp_path / "c", 3, {"log.segment_bytes": "1048576"})
    config = made.nodes[0].config_path
    by_hand = {"security.super_users": '["ops"]', "node.rack": '"r0"', "listeners": LOGIN}
    state.write_file(config, node_config.with_settings(config.read_text(), by_hand))
    growth = await grow(tmp_path / "c", Wish(2, rack="r1"))
    assert (growth.numbers, growth.changed) == ((3, 4), {})
    now = state.load(tmp_path / "c")
    assert [node.id for node in now.nodes] == [0, 1, 2, 3, 4]
    for node in now.nodes[3:]:
        settings = create.check_config(node.config_path)
        assert settings.node.id == node.id
        assert settings.node.data_dir == node.dir
        assert settings.node.rack == "r1"
        assert settings.log.segment_bytes == 1048576
        assert settings.security.super_users == ("ops",)
        assert settings.secret_path == tmp_path / "c" / "cluster.secret"
        assert len(settings.cluster.bootstrap) == 5
        assert [str(each) for each in settings.listeners] == [
            f"native://127.0.0.1:{7407 + 1000 * node.id}?login=required",
            f"peer://127.0.0.1:{7408 + 1000 * node.id}",
        ]
        assert node.dir.stat().st_mode & 0o777 == 0o700
        disk = RealDisk(str(node.dir))
        meta = await layout.read_meta(disk)
        disk.close()
        assert meta is not None
        assert (meta.cluster_id, meta.node_id) == (UUID(now.cluster_id), node.id)
        assert not list(node.dir.glob("metadata/*.snapshot")), "it votes on nothing yet"


LOGIN = '["native://127.0.0.1:7407?login=required", "peer://127.0.0.1:7408"]'


async def test_ports_that_are_taken_are_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(tmp_path / "c", 1)
    monkeypatch.setattr(ports, "are_free", lambda _ports: False)
    await grow(tmp_path / "c", Wish(1))
    [_, new] = state.load(tmp_path / "c").nodes
    numbers = {int(address.rpartition(":")[2]) for address in new.listeners.values()}
    assert len(numbers) == len(ports.BASE_PORTS)
    assert 8407 not in numbers


@pytest.mark.usefixtures("free")
async def test_a_number_is_not_given_twice(tmp_path: Path) -> None:
    await make(tmp_path / "c", 3)
    await grow(tmp_path / "c", Wish(1))
    state.remove_node(tmp_path / "c", 3)
    assert (await grow(tmp_path / "c", Wish(1))).numbers == (4,), "node-3 is there still"
    growth = await grow(tmp_path / "c", Wish(1, taken=frozenset({0, 1, 2, 7})))
    assert growth.numbers == (8,), "somebody started a node 7 himself"


@pytest.mark.usefixtures("free")
async def test_what_nobody_chose_grows_with_the_cluster(tmp_path: Path) -> None:
    await make(tmp_path / "c", 1)
    growth = await grow(tmp_path / "c", Wish(2))
    assert growth.changed == {"topics.replication_factor": "3", "topics.min_insync_replicas": "2"}
    chosen = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
    await make(tmp_path / "chosen", 1, chosen)
    growth = await grow(tmp_path / "chosen", Wish(1))
    assert growth.changed == {}
    for directory, factor, least in (("c", 3, 2), ("chosen", 1, 1)):
        for node in state.load(tmp_path / directory).nodes:
            topics = create.check_config(node.config_path).topics
            assert (topics.replication_factor, topics.min_insync_replicas) == (factor, least)


@pytest.mark.usefixtures("free")
async def test_what_was_killed_in_between_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(tmp_path / "c", 3)

    class Killed(BaseException):
        """The launcher ends here."""

    async def die(*_args: object, **_more: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(create, "format_directory", die)
        with contextlib.suppress(Killed):
            await grow(tmp_path / "c", Wish(2))
    assert (tmp_path / "c" / "node-3" / "node.toml").exists()
    assert len(state.load(tmp_path / "c").nodes) == 3
    assert (await grow(tmp_path / "c", Wish(1))).numbers == (3,)
    assert sorted(each.name for each in (tmp_path / "c").glob("node-*")) == [
        f"node-{number}" for number in range(4)
    ]
    assert not (tmp_path / "c" / growing.MARKER).exists()


@pytest.mark.usefixtures("free")
async def test_what_a_node_would_not_take_changes_nothing(tmp_path: Path) -> None:
    await make(tmp_path / "c", 3)
    before = state.load(tmp_path / "c")
    with pytest.raises(BadSetting, match=r"raft\.voters"):
        await grow(tmp_path / "c", Wish(1, settings={"raft.voters": "many"}))
    assert state.load(tmp_path / "c") == before
    assert not (tmp_path / "c" / "node-3").exists()


async def test_a_node_for_another_machine_is_prepared(tmp_path: Path) -> None:
    spec = create.hosts_spec(
        ["broker-0", "broker-1", "broker-2"],
        bind="0.0.0.0",
        data_dir=Path("/var/lib/paceline"),
        settings={},
        voters=None,
    ).encrypted(tmp_path / "new")
    await create.create(tmp_path / "new", spec)
    growth = await grow(tmp_path / "new", Wish(1, hosts=("broker-3",)))
    assert (growth.numbers, growth.changed) == ((3,), {})
    node = state.load(tmp_path / "new").node(3)
    assert node.listeners["native"] == "broker-3:7400"
    text = node.config_path.read_text()
    assert '"native+tls://0.0.0.0:7400?advertised=broker-3:7400"' in text
    assert '"3@broker-3:7401"' in text
    assert "broker-0:7400" not in text
    assert 'data_dir = "/var/lib/paceline"' in text
    assert 'certificate = "/var/lib/paceline/tls/server.pem"' in text
    assert (node.dir / "cluster.secret").stat().st_mode & 0o777 == 0o600
    assert (node.dir / "tls" / "peer.pem").exists()
    with pytest.raises(Refused, match="say on which one"):
        await grow(tmp_path / "new", Wish(1))


@pytest.mark.usefixtures("free")
async def test_certificates_of_a_cluster_on_this_machine(tmp_path: Path) -> None:
    plan = ports.fixed_ports(range(1))
    spec = create.local_spec(plan, settings={}, voters=None).encrypted(tmp_path / "c")
    await create.create(tmp_path / "c", spec)
    await grow(tmp_path / "c", Wish(1))
    node = state.load(tmp_path / "c").node(1)
    tls = create.check_config(node.config_path).tls
    assert tls.certificate == str(node.dir / "tls" / "server.pem")
    assert tls.peer_key == str(node.dir / "tls" / "peer.key")
    assert (node.dir / "tls" / "peer.key").exists()
    with pytest.raises(Refused, match="none can be on another machine"):
        await grow(tmp_path / "c", Wish(1, hosts=("broker-1",)))


@pytest.mark.usefixtures("free")
async def test_certificates_of_somebody_elses_are_not_made(tmp_path: Path) -> None:
    made = await make(tmp_path / "c", 1)
    config = made.nodes[0].config_path
    certificate_authority.make(tmp_path)
    certificate_authority.certify(tmp_path, tmp_path / "own", 0, ("localhost",))
    own = {
        "listeners": '["native+tls://127.0.0.1:7407", "peer://127.0.0.1:7408"]',
        "tls.certificate": str(tmp_path / "own" / "server.pem"),
        "tls.key": str(tmp_path / "own" / "server.key"),
    }
    state.write_file(config, node_config.with_settings(config.read_text(), own))
    with pytest.raises(Refused, match="certificates were not made by Paceline"):
        await grow(tmp_path / "c", Wish(1))
