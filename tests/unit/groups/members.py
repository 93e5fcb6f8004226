"""Members of a Kafka group that do what the protocol asks of them, by hand."""

from __future__ import annotations

from paceline.errors import (
    ErrorCode,
    PacelineError,
)
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, Synced, SyncRequest
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.records import Protocol
from paceline_node.state_machines.machine import Deferred
from tests.unit.groups.desk import Desk

KEY = GroupKey(Family.KAFKA, "g")
RANGE = (Protocol("range", b"r"),)
DELAY_S = 0.3


def request(
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: tuple[Protocol, ...] = RANGE,
    session_ms: int = 10_000,
    rebalance_ms: int = 20_000,
    kind: str = "consumer",
    key: GroupKey = KEY,
) -> JoinRequest:
    return JoinRequest(key, member_id, instance, "app", session_ms, rebalance_ms, kind, protocols)


def value_of(answer: Joined | Synced | Deferred) -> object:
    """What was answered; None while the answer is due. Raises a refusal."""
    found = answer.value if isinstance(answer, Deferred) else answer
    if isinstance(found, PacelineError):
        raise found
    return found


class Client:
    """A member that does what the protocol asks of it, one request at a time."""

    def __init__(self, desk: Desk, *, instance: str | None = None, **request: object) -> None:
        self.desk = desk
        self.instance = instance
        self.request = request
        self.id = ""
        self.generation = -1
        self.leads = False
        self.members: tuple[str, ...] = ()
        self.answer: Joined | Deferred[Joined] | None = None

    def ask(self) -> None:
        """Send JOIN, with the id it is given where it needs one."""
        made = request(self.id, instance=self.instance, **self.request)
        answer = self.desk.engine.kafka.join(made)
        if isinstance(answer, Joined) and answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            self.ask()
            return
        self.answer = answer

    def is_answered(self) -> bool:
        assert self.answer is not None
        return value_of(self.answer) is not None

    def take(self) -> Joined:
        """The answer to JOIN, which must be there."""
        joined = value_of(self.answer)
        assert isinstance(joined, Joined), "JOIN is not answered yet"
        self.id, self.generation = joined.member_id, joined.generation
        self.leads = joined.leader == self.id
        self.members = tuple(each.member_id for each in joined.members)
        return joined

    def sync(self, *assigned: tuple[str, bytes]) -> Synced | Deferred[Synced]:
        return self.desk.engine.kafka.sync(
            SyncRequest(KEY, self.generation, self.id, self.instance, "", "", assigned)
        )

    def beat(self) -> None:
        self.desk.engine.kafka.heartbeat(KEY, self.generation, self.id, self.instance)

    def leave(self) -> tuple[ErrorCode, ...]:
        return self.desk.engine.kafka.leave(KEY, [(self.id, self.instance)])


def settle(*clients: Client) -> None:
    """All join, the leader assigns each its id's bytes, all sync."""
    for client in clients:
        client.ask()
    clients[0].desk.advance(DELAY_S + 0.01)
    for client in clients:
        client.take()
    leader = next(client for client in clients if client.leads)
    waiting = [client.sync() for client in clients if not client.leads]
    leader.sync(*[(each.id, each.id.encode()) for each in clients])
    for client, answer in zip([c for c in clients if not c.leads], waiting, strict=True):
        synced = value_of(answer)
        assert isinstance(synced, Synced)
        assert synced.assignment == client.id.encode()
