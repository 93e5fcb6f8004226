"""A short form of ``scripts/show-exactly-once``: too short for every blow, but all of it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.exactly_once.show import Plan, Run

CLIENTS = ("native", "confluent-kafka", "aiokafka", "kafka-python", "cursus")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_what_clients_were_told_is_there(tmp_path: Path) -> None:
    outcome = await Run(Plan(300, 1, CLIENTS, 20, 7, 2, tmp_path)).whole()
    assert outcome.word in ("ok", "vacuous"), outcome
    assert {each["records"] for each in outcome.clients.values()} == {300}
    assert outcome.struck
