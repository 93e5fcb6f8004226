"""What a node says that others may do to it."""

from __future__ import annotations

import pytest

from paceline_node.app.exposure import exposures
from paceline_node.settings import Listener, Settings

AWAY = "?advertised=broker-0:1"


def told(*urls: str, is_guarded: bool = False) -> list[str]:
    settings = Settings(listeners=tuple(map(Listener.parse, urls)))
    return [each.sentence for each in exposures(settings, is_guarded=is_guarded)]


def test_a_laptop_hears_nothing() -> None:
    assert not exposures(Settings(), is_guarded=False)
    assert not told("native://127.0.0.1:7400", "peer://localhost:7401", "http://[::1]:7480")


def test_what_is_open_and_what_is_not_encrypted_is_named() -> None:
    everything = told(
        f"native://0.0.0.0:7400{AWAY}",
        "kafka+tls://10.0.0.1:9192?tls=optional",
        f"http+tls://0.0.0.0:7480{AWAY}",
        f"peer://0.0.0.0:7401{AWAY}",
        f"cursus-health://0.0.0.0:9080{AWAY}",
        "v1://127.0.0.1:9092",
    )
    [who, what] = everything
    assert who.startswith("whoever reaches native, kafka and http may do everything")
    assert what.startswith("what native, kafka and peer of this node")


def test_without_users_a_log_in_keeps_nobody_out_who_shows_something_else() -> None:
    """Whoever had a certificate, whatever for, might do everything, and nothing said so."""
    for url in (
        f"native+tls://0.0.0.0:7400{AWAY}&login=required&client_auth=optional",
        f"native+tls://0.0.0.0:7400{AWAY}&login=required&client_auth=required",
    ):
        [who] = told(url)
        assert who.startswith("whoever shows native a certificate may do everything")
        assert not told(url, is_guarded=True)


@pytest.mark.parametrize("proof", ["login=required", "client_auth=required"])
def test_who_has_to_prove_who_he_is_may_not_do_everything(proof: str) -> None:
    assert not told(f"native+tls://0.0.0.0:7400{AWAY}&{proof}")


def test_rules_close_what_is_open() -> None:
    assert not told(f"native+tls://0.0.0.0:7400{AWAY}", is_guarded=True)
    [what] = told(f"native://0.0.0.0:7400{AWAY}", is_guarded=True)
    assert what.startswith("what native of this node")
