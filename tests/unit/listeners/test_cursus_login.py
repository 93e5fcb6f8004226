"""Credentials of Cursus clients: when they are looked at, how often, and for how long they hold."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
import trio.testing

from paceline.tokens import RANDOM_BYTES, make_token
from paceline.wire.cursus.errors import CursusError
from paceline.wire.cursus.frames import framed
from paceline.wire.cursus.requests import Credentials
from paceline_node.client_memory import unlimited
from paceline_node.controller.metadata_records import TokenKey, User
from paceline_node.listeners.cursus.login import LOGIN_S, CursusLogin
from paceline_node.listeners.cursus.session import FrameSource
from paceline_node.listeners.serving import Client
from paceline_node.security.attempts import Attempts
from paceline_node.security.authentication import Authenticator
from paceline_node.security.principals import Proof
from paceline_node.security.scram import Decoys
from tests.unit.security.test_scram import key_for

INSIDE_TLS = Client("10.0.0.1:50000", is_loopback=False, is_encrypted=True)
ALICE = Credentials("alice", "wonderland")


class World:
    def __init__(self) -> None:
        self.users = {"alice": User("alice", (key_for("wonderland"),))}
        self.checks = 0
        self.is_closed = True

        async def run(check: Callable[[], bool]) -> bool:
            self.checks += 1
            return check()

        self.authenticator = Authenticator(
            lambda name: self.users.get(name),
            run,
            Attempts(trio.current_time),
            Decoys(b"secret"),
            random=os.urandom,
            wall_ms=lambda: 1000,
            session_ms=5000,
        )

    def login(self, client: Client = INSIDE_TLS) -> CursusLogin:
        return CursusLogin(self.authenticator, lambda: self.is_closed, client)

    def token(self, *, expires_ms: int) -> Credentials:
        text, token = make_token("alice", os.urandom(RANDOM_BYTES))
        key = TokenKey(token.token_id, token.digest, 0, expires_ms, "")
        self.users["alice"] = replace(self.users["alice"], tokens=(key,))
        return Credentials("alice", text)


def refused(words: str) -> pytest.RaisesExc[CursusError]:
    return pytest.raises(CursusError, match=words)


async def test_what_every_command_shows_is_looked_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    login = world.login()
    for _ in range(3):
        await login.identify(ALICE)
    assert (str(login.client.principal), login.client.principal.proof) == ("alice", Proof.PASSWORD)
    assert login.client.principal.host == "10.0.0.1"
    assert world.checks == 1
    with refused("authentication_failed mechanism=PLAIN$"):
        await login.identify(Credentials("alice", "guess"))
    assert str(login.client.principal) == "alice"
    await trio.sleep(5)
    login.require("CONSUME")
    assert str(login.client.principal) == "anonymous", "the log-in has expired"
    await login.identify(ALICE)
    assert str(login.client.principal) == "alice"


async def test_a_token_holds_until_it_expires(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    login = world.login()
    await login.identify(world.token(expires_ms=4000))
    await trio.sleep(2.9)
    login.require("CONSUME")
    assert login.client.principal.proof is Proof.TOKEN
    await trio.sleep(0.2)
    login.require("CONSUME")
    assert login.client.principal.proof is Proof.NONE
    with refused("token has expired"):
        await login.identify(world.token(expires_ms=900))


async def test_in_clear_text_only_from_this_machine() -> None:
    world = World()
    with refused("needs TLS"):
        await world.login(replace(INSIDE_TLS, is_encrypted=False)).identify(ALICE)
    assert world.checks == 0
    here = Client("127.0.0.1:50000", is_loopback=True)
    await world.login(here).identify(ALICE)


async def test_who_guesses_waits_and_then_is_not_looked_at(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    said: list[str] = []

    async def guess() -> None:
        with refused("authentication_failed") as error:
            await world.login().identify(Credentials("alice", "guess"))
        said.append(str(error.value))

    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(guess)
    late = [each for each in said if "too many failed log-ins" in each]
    assert len(late) == 40 - world.checks
    assert world.checks < 15
    assert trio.current_time() < 5, "clients give up after that"


async def test_who_has_to_log_in_has_half_a_minute(autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    stranger = Client("10.0.0.1:1", False, is_encrypted=True, must_log_in=True)
    login = World().login(stranger)
    source = FrameSource(ours, unlimited(), max_frame_bytes=1000, stall_s=5, login=login)
    begun = trio.current_time()
    assert await source.next() is None
    assert trio.current_time() - begun == LOGIN_S
    login = World().login(stranger)
    await login.identify(ALICE)
    source = FrameSource(ours, unlimited(), max_frame_bytes=1000, stall_s=5, login=login)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.next)
        await trio.sleep(4 * LOGIN_S)
        await theirs.send_all(framed(b"HELP"))
