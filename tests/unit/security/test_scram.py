"""SCRAM: the RFC's own exchange, ours against itself and against another implementation."""

from __future__ import annotations

import base64
import os

import pytest
from aiokafka.conn import ScramAuthenticator
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import AuthenticationFailed
from paceline.scram import (
    SALT_BYTES,
    SCRAM_HASHES,
    ScramClient,
    derived,
    escaped,
    salted,
    unescaped,
)
from paceline.wire.native.users import ScramKey
from paceline_node.controller.metadata_records import User
from paceline_node.security.scram import Decoys, ScramServer

DECOYS = Decoys(b"secret")
ITERATIONS = 4096


def key_for(password: str, mechanism: str = "SCRAM-SHA-256", salt: bytes = b"salt" * 4) -> ScramKey:
    keys = derived(mechanism, salted(mechanism, password, salt, ITERATIONS))
    return ScramKey(mechanism, salt, ITERATIONS, keys.stored_key, keys.server_key)


def server(*users: tuple[str, ScramKey], mechanism: str = "SCRAM-SHA-256") -> ScramServer:
    table = dict(users)
    return ScramServer(mechanism, lambda name, _: table.get(name), DECOYS, b"server")


def log_in(it: ScramServer, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    client = ScramClient(mechanism, name, password, b"client")
    client.finish(it.final(client.final(it.first(client.first()))))


def test_the_exchange_of_rfc_7677() -> None:
    client = ScramClient(
        "SCRAM-SHA-256", "user", "pencil", base64.b64decode("rOprNGfwEbeRWgbNEkqO")
    )
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    it = server(("user", key_for("pencil", salt=salt)))
    it._fresh = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"  # the RFC's is no base64
    first = it.first(client.first())
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = client.final(first)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    proof = it.final(final)
    assert proof == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.finish(proof)


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
@pytest.mark.parametrize("name", ["alice", "a,b=c", "=2C", "ålïce ☃"])
def test_who_knows_the_password_gets_in(mechanism: str, name: str) -> None:
    it = server((name, key_for("pässword", mechanism)), mechanism=mechanism)
    log_in(it, name, "pässword", mechanism)
    assert it.name == name


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_against_the_client_of_aiokafka(mechanism: str) -> None:
    it = server(("alice", key_for("wonder", mechanism)), mechanism=mechanism)
    other = ScramAuthenticator(
        loop=None,
        sasl_plain_username="alice",
        sasl_plain_password="wonder",
        sasl_mechanism=mechanism,
    )
    steps = other.authenticator_scram()
    first, _ = next(steps)
    final, _ = steps.send(it.first(first))
    with pytest.raises(StopIteration):
        steps.send(it.final(final))  # it checks our proof


def test_who_does_not_is_refused_at_the_end_whether_there_is_such_a_user_or_not() -> None:
    users = ("alice", key_for("wonder"))
    said = []
    for name in "alice", "nobody":
        with pytest.raises(AuthenticationFailed) as refused:
            log_in(server(users), name, "guess")
        said.append(str(refused.value))
    assert said[0] == said[1]
    firsts = [server(users).first(b"n,,n=nobody,r=abc") for _ in range(2)]
    assert firsts[0] == firsts[1], "a salt that changes tells that there is nobody"
    other = ScramServer("SCRAM-SHA-256", lambda *_: None, Decoys(b"other"), b"server")
    assert other.first(b"n,,n=nobody,r=abc") != firsts[0]


def seen_of(key: ScramKey) -> tuple[str, int, int, bool]:
    is_text = key.salt.isalnum()
    return key.mechanism, key.iterations, len(key.salt), is_text


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_who_is_not_there_looks_as_who_is(mechanism: str) -> None:
    """A user of Kafka's tools has other iterations, and a salt of another size, than who was
    made by ours: whoever was answered so was there."""
    ours = ScramKey(mechanism, os.urandom(16), 16_384, b"", b"")
    kafkas = ScramKey(mechanism, b"1dw9x1ugvonxwcdbqzlz6mpbk2", 4096, b"", b"")
    large = ScramKey(mechanism, os.urandom(120), 8192, b"", b"")
    users = {"a": User("a", (kafkas,))}
    decoys = Decoys(b"secret", lambda: users)
    names = [f"name-{each}" for each in range(2000)]

    def looks() -> dict[str, ScramKey]:
        return {name: decoys.key_of(name, mechanism) for name in names}

    def others(one: dict[str, ScramKey], other: dict[str, ScramKey]) -> int:
        return sum(one[name] != other[name] for name in names)

    alone = looks()
    assert {seen_of(key) for key in alone.values()} == {seen_of(kafkas)}
    assert {key.salt[:1] for key in alone.values()} == {b"1"}
    assert len({key.salt for key in alone.values()}) == len(names)
    assert {decoys.first_key_of(name) == alone[name] for name in names} == {True}
    users = {str(each): User(str(each), (ours if each % 4 else kafkas,)) for each in range(400)}
    many = looks()
    count = sum(seen_of(key) == seen_of(kafkas) for key in many.values())
    assert 400 < count < 600, "as often as users look so"
    users = {**users, "b": User("b", (kafkas,))}
    users.pop("0")
    assert others(many, looks()) < 20, "what one looks like stays"
    users = {**users, "c": User("c", (large,))}
    assert others(many, looks()) < 40
    assert decoys.key_of("x", "SCRAM-SHA-256") == decoys.key_of("x", "SCRAM-SHA-256")
    users = {"c": User("c", (large,))}
    assert {seen_of(key)[:3] for key in looks().values()} == {seen_of(large)[:3]}
    assert len({key.salt for key in looks().values()}) == len(names)
    users = {}
    assert {seen_of(key)[1:3] for key in looks().values()} == {(16_384, SALT_BYTES)}


def test_a_decoy_lets_nobody_in() -> None:
    key = DECOYS.key_of("nobody", "SCRAM-SHA-256")
    it = server()
    it.first(b"n,,n=nobody,r=abc")
    assert it._key == key
    for password in "", "nobody":
        with pytest.raises(AuthenticationFailed):
            log_in(server(), "nobody", password)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,m=ext,n=alice,r=abc",
        b"n,,r=abc,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=ali=ce,r=abc",
        b"n,,n=alice,r=a\x00c",
        b"\xff\xff",
        b"n,,n=alice",
    ],
)
def test_first_messages_that_are_none(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server(("alice", key_for("wonder"))).first(message)


def spoiled(final: bytes) -> list[bytes]:
    return [
        b"",
        final.replace(b"c=biws", b"c=eSws"),  # as if the client had offered channel binding
        final.replace(b"r=", b"r=0"),
        final.rpartition(b",p=")[0],
        final[:-8] + b"AAAAAAA=",
        final.rpartition(b",p=")[0] + b",p=AAAA",
        final.rpartition(b",p=")[0] + b",p=!",
        final + b",x=1",
    ]


@pytest.mark.parametrize("number", range(8))
def test_final_messages_that_prove_nothing(number: int) -> None:
    it = server(("alice", key_for("wonder")))
    client = ScramClient("SCRAM-SHA-256", "alice", "wonder", b"client")
    final = client.final(it.first(client.first()))
    with pytest.raises(AuthenticationFailed):
        it.final(spoiled(final)[number])


def test_a_log_in_that_is_replayed() -> None:
    users = ("alice", key_for("wonder"))
    it = server(users)
    client = ScramClient("SCRAM-SHA-256", "alice", "wonder", b"client")
    heard = client.first(), client.final(it.first(client.first()))
    other = ScramServer("SCRAM-SHA-256", lambda *_: users[1], DECOYS, b"another nonce")
    other.first(heard[0])
    with pytest.raises(AuthenticationFailed):
        other.final(heard[1])


@pytest.mark.parametrize("now", [key_for("new"), key_for("old", salt=b"pepper" * 3), None])
def test_an_exchange_begun_before_the_key_changed(now: ScramKey | None) -> None:
    users: dict[str, ScramKey | None] = {"alice": key_for("old")}
    it = ScramServer("SCRAM-SHA-256", lambda name, _: users.get(name), DECOYS, b"server")
    client = ScramClient("SCRAM-SHA-256", "alice", "old", b"client")
    final = client.final(it.first(client.first()))
    users["alice"] = now
    with pytest.raises(AuthenticationFailed):
        it.final(final)


@pytest.mark.parametrize(
    "answer",
    [
        b"r=Y2xpZW50x,s=c2FsdA==,i=1",  # so little work that a thief of the exchange guesses it
        b"r=Y2xpZW50x,s=c2FsdA==,i=99999999999",
        b"r=Y2xpZW50,s=c2FsdA==,i=4096",
        b"r=other,s=c2FsdA==,i=4096",
        b"e=other-error",
    ],
)
def test_servers_that_a_client_does_not_trust(answer: bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "wonder", b"client")
    with pytest.raises(AuthenticationFailed):
        client.final(answer)


def test_a_server_that_does_not_know_the_password() -> None:
    it = server(("alice", key_for("wonder")))
    client = ScramClient("SCRAM-SHA-256", "alice", "wonder", b"client")
    client.final(it.first(client.first()))
    for answer in b"v=" + base64.b64encode(b"0" * 32), b"", b"e=invalid-proof":
        with pytest.raises(AuthenticationFailed):
            client.finish(answer)


@given(name=st.text())
def test_names_survive_their_escapes(name: str) -> None:
    assert unescaped(escaped(name)) == name
    assert "," not in escaped(name)


@given(message=st.binary(max_size=60), final=st.binary(max_size=60))
def test_nonsense_is_refused_and_nothing_else(message: bytes, final: bytes) -> None:
    it = server(("alice", key_for("wonder")))
    with pytest.raises(AuthenticationFailed):
        it.first(message)
    it.first(b"n,,n=alice,r=abc")
    with pytest.raises(AuthenticationFailed):
        it.final(final)
