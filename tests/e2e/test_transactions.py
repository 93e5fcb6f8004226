"""SIGKILL at steps of a transaction's end: readers see all of each transaction or nothing.

``scripts/show-transactions`` strikes every point, 20 times each.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.transaction_kills import Report, open_proof

QUICK = {
    "native": (
        "transaction.partly-marked",
        "transaction.marker-appended",
    ),
    "cursus": (
        "transaction.offsets-pending",
        "transaction.deciding",
        "transaction.staged-received",
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["native", "cursus"])
async def test_kills_at_steps_of_the_end(tmp_path: Path, protocol: str) -> None:
    blows: Counter[str] = Counter()

    def note(report: Report) -> None:
        blows[str(report["point"])] += 1

    async with open_proof(tmp_path / "fleet", protocol) as proof:
        for site in QUICK[protocol]:
            await proof.strike(site, 1, note)
        assert proof.ledger.aborted
    assert blows == dict.fromkeys(QUICK[protocol], 1)
