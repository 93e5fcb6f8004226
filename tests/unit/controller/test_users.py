"""Users in the metadata: made, changed, forgotten (controller/DESIGN 15)."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import (
    PacelineError,
    PolicyViolation,
    UnacceptableCredential,
    UserAlreadyExists,
    UserNotFound,
)
from paceline.wire.native.users import AlterUser, DeleteUser, NewToken, ScramKey
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import User
from paceline_node.settings.counts import USER_TOKENS, USERS
from tests.unit.controller.bench import CLUSTER, Bench

SHA_256 = ScramKey("SCRAM-SHA-256", b"s" * 16, 4096, b"k" * 32, b"v" * 32)
SHA_512 = ScramKey("SCRAM-SHA-512", b"t" * 16, 16_384, b"k" * 64, b"v" * 64)


def created(name: str, *keys: ScramKey) -> AlterUser:
    return AlterUser(name, may_create=True, may_exist=False, keys=keys)


def changed(name: str, **what: object) -> AlterUser:
    return AlterUser(name, may_create=False, may_exist=True, **what)  # type: ignore[arg-type]


def token(number: int, **what: object) -> NewToken:
    return NewToken(f"{number:016x}", sha256(b"%d" % number).digest(), **what)  # type: ignore[arg-type]


def test_life_of_a_user() -> None:
    bench = Bench()
    bench.ask(created("alice", SHA_256))
    bench.ask(changed("alice", keys=(SHA_512,), tokens=(token(1, note="spark"), token(2))))
    stronger = replace(SHA_256, iterations=8192)
    bench.ask(changed("alice", keys=(stronger,), revoked=(token(2).token_id,)))
    alice = bench.image.users["alice"]
    assert {key.mechanism: key for key in alice.keys} == {
        "SCRAM-SHA-256": stronger,
        "SCRAM-SHA-512": SHA_512,
    }
    assert [(each.note, each.created_ms) for each in alice.tokens] == [
        ("spark", bench.context().wall_ms)
    ]
    bench.ask(changed("alice", without=("SCRAM-SHA-256",)))
    assert bench.image.users["alice"].keys == (SHA_512,)
    bench.ask(DeleteUser("alice"))
    assert bench.image.users == {}


def test_the_same_wish_again_is_done_once() -> None:
    bench = Bench()
    bench.ask(created("alice", SHA_256))
    before = bench.image.users
    bench.ask(created("alice", SHA_256))  # its answer was lost
    assert bench.image.users is before
    with pytest.raises(UserAlreadyExists):
        bench.ask(created("alice", replace(SHA_256, salt=b"another salt")))


def test_who_is_not_there() -> None:
    bench = Bench()
    for request in (changed("bob", keys=(SHA_256,)), DeleteUser("bob")):
        with pytest.raises(UserNotFound):
            bench.ask(request)
    assert bench.image.users == {}


@pytest.mark.parametrize(
    "request_",
    [
        created("anonymous", SHA_256),
        created("Node:1", SHA_256),
        created("", SHA_256),
        created("a\nb", SHA_256),
        created("a" * 256, SHA_256),
        created("alice", replace(SHA_256, mechanism="PLAIN")),
        created("alice", replace(SHA_256, iterations=4095)),
        created("alice", replace(SHA_256, iterations=16_385)),
        created("alice", replace(SHA_256, stored_key=b"k" * 31)),
        created("alice", replace(SHA_512, server_key=b"")),
        created("alice", replace(SHA_256, salt=b"short")),
        replace(created("alice"), tokens=(replace(token(1), digest=b"password"),)),
        replace(created("alice"), tokens=(replace(token(1), token_id="g" * 16),)),
        replace(created("alice"), tokens=(token(1, note="two\nlines"),)),
        replace(created("alice"), tokens=(token(1, expires_ms=-1),)),
    ],
    ids=str,
)
def test_what_is_no_credential(request_: AlterUser) -> None:
    bench = Bench()
    with pytest.raises(UnacceptableCredential):
        bench.ask(request_)
    assert bench.image.users == {}


def test_bounds() -> None:
    bench = Bench()
    bench.commit(tuple(User(f"user{number}") for number in range(USERS.bound)))
    with pytest.raises(PolicyViolation):
        bench.ask(created("one-more", SHA_256))
    most = tuple(token(number) for number in range(USER_TOKENS.bound))
    bench.ask(changed("user0", tokens=most))
    with pytest.raises(PolicyViolation):
        bench.ask(changed("user0", tokens=(token(USER_TOKENS.bound),)))
    bench.ask(changed("user0", tokens=(token(USER_TOKENS.bound),), revoked=(most[0].token_id,)))


def test_users_are_in_snapshots_and_cost_nothing_where_there_are_none() -> None:
    bench = Bench()
    empty = msgpack.unpackb(bench.image.to_snapshot())
    bench.ask(created("alice", SHA_256, SHA_512))
    bench.ask(changed("alice", tokens=(token(1, note="spark", expires_ms=5),)))
    assert Image.from_snapshot(bench.image.to_snapshot()) == bench.image
    bench.ask(DeleteUser("alice"))
    assert len(msgpack.unpackb(bench.image.to_snapshot())[1]) == len(empty[1]) == 10
    assert Image.bootstrap(CLUSTER).users == {}


@given(steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=60))
def test_any_order_of_wishes_leaves_what_a_table_says(steps: list[tuple[int, int]]) -> None:
    bench = Bench()
    table: dict[str, set[str]] = {}
    for number, what in steps:
        name = f"user{number}"
        requests = (
            created(name, SHA_256),
            changed(name, keys=(SHA_512,)),
            changed(name, without=("SCRAM-SHA-512",)),
            DeleteUser(name),
        )
        exists = name in table
        try:
            bench.ask(requests[what])
        except PacelineError:
            assert exists == (what == 0)
            continue
        assert exists or what == 0
        if what == 3:
            del table[name]
        elif what == 2:
            table[name] -= {"SCRAM-SHA-512"}
        else:
            table.setdefault(name, set()).update(key.mechanism for key in requests[what].keys)  # type: ignore[union-attr]
    users = bench.image.users.items()
    assert {name: {key.mechanism for key in user.keys} for name, user in users} == table
