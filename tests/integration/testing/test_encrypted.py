"""The fixture with ``tls=True``: its clients find their way, and nobody else does."""

from __future__ import annotations

import pytest

from paceline.client import ClientSettings, blocking
from paceline.errors import PacelineError
from paceline_cluster.testing import BlockingPaceline


@pytest.mark.paceline(nodes=1, tls=True)
def test_everything_is_encrypted(paceline: BlockingPaceline) -> None:
    paceline.create_topic("orders")
    with paceline.connect() as client, client.producer() as producer:
        assert producer.send("orders", b"value").offset == 0
    paceline.restart(0)
    with paceline.connect() as client, client.producer() as producer:
        assert producer.send("orders", b"value").offset == 1
    settings = ClientSettings(operation_timeout_s=5, first_contact_timeout_s=0)
    with pytest.raises(PacelineError), blocking.connect(paceline.addresses("native"), settings):
        pass
    assert paceline.tls is not None
