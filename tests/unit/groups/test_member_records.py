"""What a change of a group writes: members lie apart, and only what changed is written."""

from __future__ import annotations

from paceline_node.groups.records import (
    Group,
    Member,
    Phase,
    Protocol,
    Seat,
    decode,
    group_entry,
    seat_entry,
)
from tests.unit.groups.desk import Desk
from tests.unit.groups.members import KEY, Client, settle

MEMBERS = 40
SAYS = 50_000


def crowd(desk: Desk) -> list[Client]:
    """Static members that say much of themselves."""
    protocols = (Protocol("range", bytes(SAYS)),)
    clients = [
        Client(desk, instance=f"i{number}", protocols=protocols) for number in range(MEMBERS)
    ]
    settle(*clients)
    return clients


def bytes_written(desk: Desk, since: int) -> int:
    return sum(len(key) + len(value or b"") for key, value in desk.log[since:])


def test_a_member_that_comes_back_writes_no_more_than_itself() -> None:
    desk = Desk()
    clients = crowd(desk)
    before = len(desk.log)
    for client in clients:
        client.id = ""
        client.ask()
        client.take()
    assert bytes_written(desk, before) < 2 * MEMBERS * SAYS
    desk.check_fold()
    order = [each.instance_id for each in desk.engine.store.groups[KEY].members]
    assert order == [f"i{number}" for number in range(MEMBERS)]


def test_a_member_that_leaves_writes_nobody_else() -> None:
    desk = Desk()
    clients = crowd(desk)
    before = len(desk.log)
    clients[3].leave()
    assert bytes_written(desk, before) < 1000
    desk.check_fold()
    assert len(desk.engine.store.groups[KEY].members) == MEMBERS - 1
    desk.fail_over()
    assert len(desk.engine.store.groups[KEY].members) == MEMBERS - 1


def whole(*names: str) -> Group:
    members = tuple([Member(name, name, session_timeout_ms=10_000) for name in names])
    return Group(3, Phase.STABLE, "consumer", "range", names[0], members=members)


def test_a_group_that_an_older_version_stored_is_read_and_stored_apart_when_it_changes() -> None:
    desk = Desk()
    desk.log.append(group_entry(KEY, whole("a", "b", "c")))
    desk.fail_over()
    assert [each.member_id for each in desk.engine.store.groups[KEY].members] == ["a", "b", "c"]
    before = len(desk.log)
    desk.engine.kafka.leave(KEY, [("b", "b")])
    changes = [decode(entry) for entry in desk.log[before:]]
    assert [type(each.value) for each in changes if each] == [Seat, Seat, Group]
    assert [each.member_id for each in desk.engine.store.groups[KEY].members] == ["a", "c"]
    desk.check_fold()


def test_members_apart_from_before_an_older_version_wrote_come_not_back() -> None:
    """A node that was put back to the older version wrote the group as a whole for a while."""
    desk = Desk()
    desk.log += [
        seat_entry(KEY, "x", Seat(0, Member("x", "x"))),
        group_entry(KEY, Group(2, Phase.STABLE, "consumer", "range", "x", is_head=True)),
        group_entry(KEY, whole("a", "b")),
    ]
    desk.fail_over()
    assert [each.member_id for each in desk.engine.store.groups[KEY].members] == ["a", "b"]
    desk.engine.kafka.leave(KEY, [("b", "b")])
    assert [each.member_id for each in desk.engine.store.groups[KEY].members] == ["a"]
    desk.check_fold()


def test_a_forgotten_group_leaves_no_member_in_the_log() -> None:
    desk = Desk()
    settle(Client(desk), Client(desk))
    desk.engine.offsets.forget_group(KEY)
    left = {entry.key: entry.value for entry in desk.log}
    assert [key for key, value in left.items() if value is not None and key[1] in (1, 5)] == []
    desk.check_fold()
