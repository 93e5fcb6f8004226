"""Which connections end when users change."""

from __future__ import annotations

import pytest

from paceline.errors import AuthenticationFailed
from paceline_node.controller.metadata_records import TokenKey, User
from paceline_node.security.principals import Principal, Proof
from paceline_node.security.sessions import Login, Session, Sessions
from tests.unit.security.test_scram import key_for

KEY, OTHER = key_for("a"), key_for("b")
FIRST, SECOND = (TokenKey(digit * 16, bytes(32), 0, 0, "") for digit in "12")
BY_PASSWORD = Login(Principal("ann", Proof.PASSWORD))
BY_TOKEN = Login(Principal("ann", Proof.TOKEN), token_id=FIRST.token_id)


class World:
    def __init__(self, user: User) -> None:
        self.users = {user.name: user}
        self.sessions = Sessions(lambda name: self.users.get(name))
        self.ended: list[str] = []

    def enter(self, login: Login, name: str) -> Session:
        return self.sessions.enter(login, lambda: self.ended.append(name))

    def become(self, *users: User) -> list[str]:
        self.users = {each.name: each for each in users}
        self.sessions.users_changed(self.users)
        return sorted(self.ended)


@pytest.mark.parametrize(
    ("after", "ended"),
    [
        ((), ["password", "token"]),
        ((User("ann", (OTHER,), (FIRST,)),), []),
        ((User("ann", (), (FIRST, SECOND)),), ["password"]),
        ((User("ann", (KEY,), (SECOND,)),), ["token"]),
        ((User("bob", (KEY,), (FIRST,)),), ["password", "token"]),
    ],
)
def test_those_end_whose_proof_is_gone(after: tuple[User, ...], ended: list[str]) -> None:
    world = World(User("ann", (KEY,), (FIRST,)))
    world.enter(BY_PASSWORD, "password")
    world.enter(BY_TOKEN, "token")
    assert world.become(*after, User("eve")) == ended
    assert world.become(*after) == ended, "each once"


def test_in_an_open_cluster_they_end_when_it_is_closed_again() -> None:
    """Even if the new user has the name of the one that is gone."""
    world = World(User("ann", (KEY,)))
    world.enter(BY_PASSWORD, "password")
    world.sessions.users_changed({}, is_guarded=False)
    assert world.ended == []
    assert world.become(User("ann", (OTHER,))) == ["password"]


def test_who_left_is_not_ended() -> None:
    world = World(User("ann", (KEY,)))
    session = world.enter(BY_PASSWORD, "password")
    for _ in range(2):
        world.sessions.leave(session)
    world.sessions.leave(None)
    assert world.become() == []


def test_nobody_enters_with_what_went_during_the_exchange() -> None:
    world = World(User("ann", (), (SECOND,)))
    for login in BY_PASSWORD, BY_TOKEN, Login(Principal("bob", Proof.PASSWORD)):
        with pytest.raises(AuthenticationFailed, match="was deleted"):
            world.enter(login, "")
