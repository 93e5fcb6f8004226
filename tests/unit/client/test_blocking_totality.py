"""The blocking client can do what the trio client can: nothing is added there and forgotten."""

from __future__ import annotations

import inspect

import pytest

import paceline.client as trio_client
from paceline.client import (
    acl_admin,
    blocking,
    group_admin,
    quota_admin,
    sequenced,
    transaction_admin,
    user_admin,
)

THEIR_TASKS = {"run", "take", "tell", "give_up", "asked_again", "commit_named", "commit_reached"}
"""What a member's own tasks call of it."""

TWINS: list[tuple[type, type, set[str]]] = [
    (trio_client.Client, blocking.Client, {"reach"}),  # connect has made the first contact
    (trio_client.Admin, blocking.Admin, {"refresh_brokers"}),  # every call does as needed
    (group_admin.GroupAdmin, blocking.GroupAdmin, set()),
    (acl_admin.AclAdmin, blocking.AclAdmin, set()),
    (transaction_admin.TransactionAdmin, blocking.TransactionAdmin, set()),
    (user_admin.UserAdmin, blocking.UserAdmin, set()),
    (quota_admin.QuotaAdmin, blocking.QuotaAdmin, set()),
    (trio_client.Producer, blocking.Producer, set()),
    # Opening and closing one do the rest.
    (trio_client.TransactionalProducer, blocking.TransactionalProducer, {"init", "leave", "run"}),
    (trio_client.Delivery, blocking.Delivery, set()),
    (trio_client.Portion, blocking.Portion, set()),
    (trio_client.Consumer, blocking.Consumer, {"run"}),
    (trio_client.GroupConsumer, blocking.GroupConsumer, THEIR_TASKS),
    (
        trio_client.CoordinatedConsumer,
        blocking.CoordinatedConsumer,
        THEIR_TASKS - {"tell"} | {"finish", "hand_back"},
    ),
    (trio_client.RebalanceListener, blocking.RebalanceListener, set()),
    (trio_client.Sinks, blocking.Sinks, set()),
    (sequenced.SequencedWriter, blocking.SequencedWriter, set()),
    (trio_client.Segments, blocking.Segments, {"serve"}),  # what readers and writers ask of it
    (trio_client.SegmentWriter, blocking.SegmentWriter, {"run"}),
    (trio_client.SegmentReader, blocking.SegmentReader, set()),
]
OTHER_PARAMETERS = {
    ("Client", "consumer"): {"group", "membership", "listener"},  # group_consumer has them
    ("GroupConsumer", "close"): {"finished"},  # of the group's tasks
}
PAIRS = [pytest.param(*each, id=each[0].__name__) for each in TWINS]


def public(cls: type) -> dict[str, object]:
    return {name: value for name, value in inspect.getmembers(cls) if not name.startswith("_")}


def is_awaited(value: object) -> bool:
    """A coroutine function, or an async context manager."""
    if not callable(value):
        return False
    return inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(inspect.unwrap(value))


@pytest.mark.parametrize(("theirs", "ours", "left_out"), PAIRS)
def test_every_awaited_method_has_a_twin(theirs: type, ours: type, left_out: set[str]) -> None:
    awaited = {name for name, value in public(theirs).items() if is_awaited(value)}
    assert awaited - set(public(ours)) == left_out


@pytest.mark.parametrize(("theirs", "ours", "left_out"), PAIRS)
def test_twins_take_the_same_arguments(theirs: type, ours: type, left_out: set[str]) -> None:
    for name, value in public(theirs).items():
        twin = public(ours).get(name)
        if inspect.isfunction(value) and inspect.isfunction(twin):
            missing = set(inspect.signature(value).parameters) - set(
                inspect.signature(twin).parameters
            )
            assert missing == OTHER_PARAMETERS.get((theirs.__name__, name), set()), name


def test_every_class_of_the_client_with_awaited_methods_is_compared() -> None:
    classes = [each for each in vars(trio_client).values() if inspect.isclass(each)]
    awaiting = {each for each in classes if any(map(is_awaited, public(each).values()))}
    assert awaiting <= {theirs for theirs, _, _ in TWINS}
