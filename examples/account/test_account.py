"""No account is overdrawn and nothing is booked twice, though tellers compete and a broker dies."""

from __future__ import annotations

import threading

import pytest
from account import TOPIC, Accounts, Overdrawn


def test_what_happened_makes_the_balance(paceline):
    with Accounts(paceline.addresses("cursus"), "teller") as accounts:
        accounts.create_topic()
        for euro in (50, -20, 5):
            accounts.book("alice", euro)
        assert accounts.balance("alice").euro == 35
        with pytest.raises(Overdrawn, match="alice has 35 euro, not 36"):
            accounts.book("alice", -36)
        for _ in range(12):
            accounts.book("bob", 1)
        found = accounts.balance("bob")
        assert (found.version, found.euro) == (12, 12), "from a snapshot and what came behind it"


def test_tellers_compete_while_a_broker_dies(paceline):
    brokers = paceline.addresses("cursus")
    with Accounts(brokers, "bank") as bank:
        bank.create_topic()
        bank.book("alice", 10)
    refused: list[str] = []
    taken: list[int] = []

    def withdraw(teller: int) -> None:
        with Accounts(brokers[teller:] + brokers[:teller], f"teller-{teller}") as accounts:
            for _ in range(8):
                try:
                    accounts.book("alice", -1)
                    taken.append(1)
                except Overdrawn as error:
                    refused.append(str(error))

    tellers = [threading.Thread(target=withdraw, args=[number]) for number in range(2)]
    for teller in tellers:
        teller.start()
    paceline.kill(f"leader of {TOPIC}/0")
    for teller in tellers:
        teller.join()
    assert sum(taken) == 10, "each euro once"
    assert len(refused) == 6
    with Accounts(brokers[::-1], "auditor") as accounts:
        found = accounts.balance("alice")
    assert (found.version, found.euro) == (11, 0)
