"""Logging in with a password or a token, in no protocol's words."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import trio
import trio.testing

from paceline.errors import AuthenticationFailed
from paceline.scram import PLAIN, ScramClient
from paceline.tokens import RANDOM_BYTES, make_token, read_token
from paceline_node.controller.metadata_records import TokenKey, User
from paceline_node.security.attempts import TOO_MANY, Attempts
from paceline_node.security.authentication import Authenticator
from paceline_node.security.principals import Proof
from paceline_node.security.scram import REFUSED, Decoys
from paceline_node.security.sessions import Login
from tests.unit.security.test_scram import key_for

HERE = "10.0.0.1"


@dataclass
class World:
    users: dict[str, User] = field(default_factory=dict)
    wall_ms: int = 1000
    during_check: Callable[[], object] = lambda: None
    check_s: float = 0.0
    looked_at: int = 0
    most_at_once: int = 0

    def __post_init__(self) -> None:
        at_work: list[object] = []

        async def run(check: Callable[[], bool]) -> bool:
            self.looked_at += 1
            at_work.append(check)
            self.most_at_once = max(self.most_at_once, len(at_work))
            if self.check_s:
                await trio.sleep(self.check_s)
            at_work.remove(check)
            fits = check()
            self.during_check()
            return fits

        self.authenticator = Authenticator(
            self.users.get,
            run,
            Attempts(trio.current_time),
            Decoys(b"secret"),
            random=os.urandom,
            wall_ms=lambda: self.wall_ms,
            session_ms=5000,
        )

    def add(self, name: str, password: str | None = None) -> User:
        keys = () if password is None else (key_for(password),)
        self.users[name] = User(name, keys)
        return self.users[name]

    def token(self, name: str, expires_ms: int = 0) -> str:
        text, token = make_token(name, os.urandom(RANDOM_BYTES))
        user = self.users[name]
        key = TokenKey(token.token_id, token.digest, 0, expires_ms)
        self.users[name] = replace(user, tokens=(*user.tokens, key))
        return text

    async def plain(self, message: bytes) -> Login:
        exchange = self.authenticator.begin(PLAIN, HERE, is_encrypted=True)
        answer = await exchange.step(message)
        assert answer.data == b""
        assert answer.login is not None
        return answer.login


async def test_plain() -> None:
    world = World()
    world.add("alice", "wonder")
    for message in b"\0alice\0wonder", b"alice\0alice\0wonder":
        login = await world.plain(message)
        assert (login.principal.name, login.principal.proof) == ("alice", Proof.PASSWORD)
        assert login.lifetime_ms == 5000


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0alice\0Wonder",
        b"\0alice\0",
        b"\0\0wonder",
        b"\0nobody\0wonder",
        b"bob\0alice\0wonder",
        b"alice\0wonder",
        b"\0alice\0wonder\0",
        b"\0alice\0\xff",
        b"\0bob\0wonder",
        b"\0alice\0" + b"w" * 5000,
    ],
)
async def test_plain_refuses(message: bytes) -> None:
    world = World()
    world.add("alice", "wonder")
    world.add("bob")
    with pytest.raises(AuthenticationFailed):
        await world.plain(message)


async def test_an_address_has_one_password_looked_at_and_eleven_wrong_ones_at_most(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    world.add("alice", "wonder")
    world.check_s = 0.01
    said: list[str] = []

    async def guess() -> None:
        with pytest.raises(AuthenticationFailed) as refused:
            await world.plain(b"\0alice\0guess")
        said.append(str(refused.value))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(500):
            nursery.start_soon(guess)
        await trio.sleep(1)
        assert (world.looked_at, world.most_at_once) == (11, 1)
        login = await world.authenticator.password("alice", "wonder", "10.0.0.2")
        assert login.principal.name == "alice"
    assert trio.current_time() - began < 25
    assert said.count(REFUSED) <= 25
    assert said.count(TOO_MANY) == 500 - said.count(REFUSED)


async def test_many_behind_one_address_log_in_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    world.add("alice", "wonder")
    world.check_s = 0.005
    async with trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(world.plain, b"\0alice\0wonder")
    assert (world.looked_at, world.most_at_once) == (60, 1)


async def test_a_password_that_is_changed_while_it_is_checked() -> None:
    world = World()
    world.add("alice", "wonder")
    world.during_check = lambda: world.add("alice", "another")
    with pytest.raises(AuthenticationFailed):
        await world.plain(b"\0alice\0wonder")


async def test_tokens() -> None:
    world = World()
    world.add("alice", "wonder")
    world.add("bob")
    good, late = world.token("alice"), world.token("alice", expires_ms=4000)
    assert (await world.authenticator.token(good, HERE)).lifetime_ms == 5000
    login = await world.authenticator.token(late, HERE)
    assert (login.principal.name, login.principal.proof) == ("alice", Proof.TOKEN)
    assert login.lifetime_ms == 3000, "no longer than the token"
    assert (await world.plain(b"\0alice\0" + good.encode())).principal.name == "alice"
    world.wall_ms = 4000
    forged, _ = make_token("bob", os.urandom(RANDOM_BYTES))
    its = read_token(good)
    mixed = make_token("bob", bytes.fromhex(its.token_id) + os.urandom(32))[0]
    changed = good[:-1] + ("A" if good[-1] != "A" else "B")
    for bad in late, forged, mixed, changed, "", "plt_..", good + " ":
        with pytest.raises(AuthenticationFailed) as refused:
            await world.authenticator.token(bad, HERE)
        assert bad == "" or bad not in str(refused.value)
    with pytest.raises(AuthenticationFailed):
        await world.plain(b"\0bob\0" + good.encode())
    world.users.clear()
    with pytest.raises(AuthenticationFailed):
        await world.authenticator.token(good, HERE)


async def test_plain_needs_tls_and_what_is_not_offered_is_refused() -> None:
    it = World().authenticator
    assert it.offered(is_encrypted=False) == ("SCRAM-SHA-512", "SCRAM-SHA-256")
    assert it.offered(is_encrypted=True) == ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
    for mechanism, is_encrypted in (("PLAIN", False), ("GSSAPI", True), ("plain", True)):
        with pytest.raises(AuthenticationFailed):
            it.begin(mechanism, HERE, is_encrypted=is_encrypted)


async def test_scram_and_what_wrong_ones_cost() -> None:
    world = World()
    world.add("alice", "wonder")

    async def log_in(password: str) -> Login | None:
        exchange = world.authenticator.begin("SCRAM-SHA-256", HERE, is_encrypted=False)
        client = ScramClient("SCRAM-SHA-256", "alice", password, os.urandom(8))
        first = await exchange.step(client.first())
        assert first.login is None
        last = await exchange.step(client.final(first.data))
        client.finish(last.data)
        return last.login

    login = await log_in("wonder")
    assert login is not None
    assert login.principal.name == "alice"
    assert world.authenticator.attempts.owes_s(HERE) == 0
    with pytest.raises(AuthenticationFailed):
        await log_in("guess")
    assert world.authenticator.attempts.owes_s(HERE) > 0
    assert world.authenticator.attempts.owes_s("10.0.0.2") == 0
