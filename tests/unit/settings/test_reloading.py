from __future__ import annotations

from paceline_node.settings import LiveSettings, load
from paceline_node.settings.loader import leaves
from paceline_node.settings.reloading import Reload
from paceline_node.settings.tree import AdminCommands, LogLevel

RELOADABLE = ("v1.admin_commands", "logging.level")
FILES = (
    "certificate",
    "key",
    "client_authorities",
    "principal_rules",
    "peer_certificate",
    "peer_key",
    "peer_authority",
)


def test_what_may_change_is_put_in_force_and_the_rest_is_named() -> None:
    running = load(flags=["v1.admin_commands=loopback", "limits.connections=100"])
    live = LiveSettings(running)
    wanted = load(
        flags=[
            "v1.admin_commands=deny",
            "logging.level=debug",
            "limits.connections=200",
            "listeners=native://127.0.0.1:1,peer://127.0.0.1:2",
        ]
    )
    change = live.take(wanted)
    assert change == Reload(RELOADABLE, ("listeners", "limits.connections"))
    assert live.current.v1.admin_commands is AdminCommands.DENY
    assert live.current.logging.level is LogLevel.DEBUG
    assert live.current.limits.connections == 100
    assert live.current.listeners == ()
    # What was refused is still different, and told again.
    assert live.take(wanted) == Reload((), ("listeners", "limits.connections"))


def test_nothing_changed() -> None:
    live = LiveSettings(load())
    assert live.take(load()) == Reload((), ())
    assert live.current == load()


def test_back_to_the_default() -> None:
    live = LiveSettings(load(flags=["v1.admin_commands=deny"]))
    assert live.take(load()).applied == ("v1.admin_commands",)
    assert live.current == load()


def test_every_reloadable_setting_is_known_here() -> None:
    assert {leaf.key for leaf in leaves() if leaf.spec.reloadable} == {
        *RELOADABLE,
        "replication.catchup_bytes_per_s",
        "security.super_users",
        *(f"topics.{name}" for name in ("partitions", "replication_factor", "min_insync_replicas")),
        *(f"tls.{name}" for name in FILES),
    }
