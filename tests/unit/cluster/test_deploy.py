"""deploy/node.toml is what its first lines say it is."""

from pathlib import Path

from paceline_cluster import create
from paceline_cluster.first_user import FirstUser

DEPLOY = Path(__file__).parents[3] / "deploy"


async def test_the_example_listens_where_nodes_of_cluster_init_do(tmp_path: Path) -> None:
    spec = create.hosts_spec(
        ["broker-0", "broker-1", "broker-2"],
        bind="0.0.0.0",
        data_dir=Path("/var/lib/paceline"),
        settings={},
        voters=None,
    )
    spec = spec.closed(Path("/var/lib/paceline"), FirstUser("admin", "secret"))
    made = await create.create(tmp_path / "new", spec)
    written = create.check_config(made.nodes[0].config_path)
    example = create.check_config(DEPLOY / "node.toml")
    # Pravega's controller needs an extra, and is written where it is installed.
    told = [each for each in written.listeners if each.kind.value != "pravega"]
    assert list(example.listeners) == told
    assert (example.node, example.cluster) == (written.node, written.cluster)
    assert (example.tls, example.security) == (written.tls, written.security)
    exposed = next(
        line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if "EXPOSE" in line
    )
    assert {int(word) for word in exposed.split()[1:]} == {each.port for each in told}
