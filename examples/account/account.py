"""Bank accounts as streams of events: what happened is stored, and the balance follows from it.

Each event of an account has a version, and an append says which one it expects to write. So of two
tellers that have read the same balance only one can withdraw: the other is told of a conflict,
reads again, and decides anew. This is the published Cursus client (`pip install cursus-client`).
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Self

from cursus import Event, EventStore
from cursus.errors import ConnectionError as Refused  # whatever a broker says no with

TOPIC = "accounts"
SNAPSHOT_EVERY = 10


class Overdrawn(Exception):
    """The account has less than that."""


@dataclass
class Account:
    """An account as its events up to ``version`` have made it. ``done`` are their ids."""

    version: int = 0
    euro: int = 0
    done: list[str] = field(default_factory=list)


class Accounts:
    """Reads and changes accounts. It goes on with another broker when one is gone."""

    def __init__(self, brokers: list[str], name: str, tries: int = 20) -> None:
        self._brokers = brokers
        self._name = name
        self._tries = tries
        self._store = EventStore(brokers, TOPIC, name)

    def create_topic(self) -> None:
        self._store.create_topic(2)

    def balance(self, key: str) -> Account:
        """From the last snapshot, and the events behind it."""
        for attempt in count(1):
            try:
                stream = self._store.read_stream(key)
            except (Refused, OSError):
                if attempt == self._tries:
                    raise
                self._next_broker()
                continue
            account = Account()
            if stream.snapshot is not None:
                account = Account(stream.snapshot.version, **json.loads(stream.snapshot.payload))
            for event in stream.events:
                change = json.loads(event.payload)
                account.version = event.version
                account.euro += change["euro"]
                account.done.append(change["id"])
            return account
        raise AssertionError("unreachable")

    def book(self, key: str, euro: int) -> Account:
        """Deposit, or withdraw where ``euro`` is negative, once. Raises Overdrawn.

        When an append fails, its event may be stored all the same: reading tells, by its id.
        """
        change = {"id": str(uuid.uuid4()), "euro": euro}
        for attempt in count(1):
            account = self.balance(key)
            if change["id"] in account.done:
                return account
            if account.euro + euro < 0:
                raise Overdrawn(f"{key} has {account.euro} euro, not {-euro}")
            kind = "Deposited" if euro >= 0 else "Withdrawn"
            try:
                self._store.append(key, account.version + 1, Event(kind, json.dumps(change)))
            except (Refused, OSError) as error:
                if attempt == self._tries:
                    raise
                if "version_conflict" not in str(error):
                    self._next_broker()
                continue
            account = Account(account.version + 1, account.euro + euro, account.done)
            account.done.append(str(change["id"]))
            if account.version % SNAPSHOT_EVERY == 0:
                self._remember(key, account)
            return account
        raise AssertionError("unreachable")

    def _remember(self, key: str, account: Account) -> None:
        """A snapshot spares readers the events before it; without it they read more."""
        payload = json.dumps({"euro": account.euro, "done": account.done[-SNAPSHOT_EVERY:]})
        try:
            self._store.save_snapshot(key, account.version, payload)
        except (Refused, OSError):
            self._next_broker()

    def _next_broker(self) -> None:
        self._store.close()
        self._brokers = [*self._brokers[1:], self._brokers[0]]
        self._store = EventStore(self._brokers, TOPIC, self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._store.close()
