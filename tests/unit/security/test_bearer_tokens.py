"""Tokens of another issuer: which are good, and which keys are used (security/DESIGN 5.6)."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm
from trio.testing import MockClock

from paceline.errors import AuthenticationFailed
from paceline_node.security.attempts import Attempts
from paceline_node.security.bearer_tokens import BearerTokens, Expected
from paceline_node.security.key_set import ALGORITHMS, BadKeys, KeySet, read_keys
from paceline_node.security.key_source import fetch
from paceline_node.security.principals import Proof
from tests.authority import Authority
from tests.issuer import AUDIENCE, NAME, Issuer

T = TypeVar("T")
_PEM = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
HERE = "10.0.0.1"
HOUR_MS = 3_600_000


@dataclass
class World:
    """``read`` gives the JWKS, or raises; it is counted."""

    issuer: Issuer = field(default_factory=Issuer)
    claim: str = "sub"
    reads: int = 0
    now: float = 100.0
    failure: Exception | None = None

    def __post_init__(self) -> None:
        self.keys = KeySet(self.read, self.run, lambda: self.now, refresh_s=3600)
        self.tokens = BearerTokens(
            self.keys,
            Expected(NAME, [AUDIENCE, "other"], self.claim, 30_000),
            Attempts(lambda: self.now),
            lambda: int(time.time() * 1000),
        )

    def read(self) -> bytes:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return self.issuer.jwks

    async def run(self, work: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        return work()

    async def name(self, token: str) -> str:
        return (await self.tokens.login(token, HERE)).principal.name


@pytest.mark.parametrize("algorithm", sorted(frozenset().union(*ALGORITHMS.values())))
async def test_each_algorithm(algorithm: str) -> None:
    world = World(Issuer(algorithm))
    login = await world.tokens.login(world.issuer.token(), HERE)
    assert (login.principal.name, login.principal.proof) == ("alice", Proof.JWT)
    assert HOUR_MS - 60_000 < login.lifetime_ms <= HOUR_MS


async def test_an_algorithm_that_the_key_set_does_not_name() -> None:
    world = World(Issuer("RS256"))
    for algorithm in "PS256", "RS512":
        kid = world.issuer.add(algorithm, alg=None, use=None)
        assert await world.name(world.issuer.token(kid=kid)) == "alice"
        world.now += 60


NOW = int(time.time())


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"iss": "https://elsewhere.test"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"aud": "shop"}, "[Aa]udience"),
        ({"aud": None}, "aud"),
        ({"exp": NOW - 60}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"exp": float("inf")}, "not good"),
        ({"nbf": NOW + 3000}, "not yet valid"),
        ({"iat": NOW + 3000}, "not yet valid"),
        ({"sub": None}, "names nobody"),
        ({"sub": ""}, "names nobody"),
        ({"sub": "node:1"}, "names nobody"),
        ({"sub": "Anonymous"}, "names nobody"),
        ({"sub": "a\nb"}, "names nobody"),
        ({"sub": "x" * 256}, "names nobody"),
    ],
)
async def test_what_a_token_has_to_say(claims: dict[str, Any], words: str) -> None:
    world = World()
    with pytest.raises(AuthenticationFailed, match=words):
        await world.name(world.issuer.token(**claims))


async def test_who_is_named_by_another_claim() -> None:
    world = World(claim="email")
    token = world.issuer.token(email="alice@example.com", aud=["x", "other"])
    assert await world.name(token) == "alice@example.com"
    with pytest.raises(AuthenticationFailed, match="'email' names nobody"):
        await world.name(world.issuer.token(email=["alice"]))


async def test_within_the_leeway_a_second_is_left() -> None:
    world = World()
    late = world.issuer.token(exp=int(time.time()) - 2, nbf=int(time.time()) + 10)
    assert (await world.tokens.login(late, HERE)).lifetime_ms == 1000


async def test_a_lifetime_is_a_number_of_this_world() -> None:
    world = World()
    for exp in 10**18, str(int(time.time()) + 60):
        assert (await world.tokens.login(world.issuer.token(exp=exp), HERE)).lifetime_ms > 0
    assert (await world.tokens.login(world.issuer.token(exp=exp), HERE)).lifetime_ms <= 60_000


def unsigned(head: dict[str, object], claims: dict[str, object], tail: bytes = b"") -> str:
    parts = [json.dumps(each).encode() for each in (head, claims)]
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (*parts, tail))


CLAIMS: dict[str, object] = {"iss": NAME, "aud": AUDIENCE, "sub": "alice", "exp": NOW + 3600}


async def test_who_signs_with_what_is_public_proves_nothing() -> None:
    world = World(Issuer("RS256"))
    kid = "key-0"
    public = read_keys(world.issuer.jwks)[0].public
    pem = public.public_bytes(*_PEM)
    head = {"alg": "HS256", "kid": kid, "typ": "JWT"}
    text = unsigned(head, CLAIMS).rpartition(".")[0]
    forged = (
        base64.urlsafe_b64encode(hmac.digest(pem, text.encode(), "sha256")).rstrip(b"=").decode()
    )
    for token in (
        f"{text}.{forged}",
        unsigned({"alg": "none"}, CLAIMS),
        unsigned({"alg": "None", "kid": kid}, CLAIMS),
        unsigned({"alg": "RS256", "kid": kid}, CLAIMS, b"\0" * 256),
        unsigned({"alg": "ES256", "kid": kid}, CLAIMS, b"\0" * 64),
        unsigned({"alg": ["RS256"], "kid": kid}, CLAIMS),
        Issuer("RS256").token(),
    ):
        with pytest.raises(AuthenticationFailed):
            await world.name(token)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b",
        "...",
        "x" * 100_000,
        base64.urlsafe_b64encode(b"[" * 20_000).decode() + ".e30.",
        unsigned({"alg": "ES256", "kid": {"a": 1}}, {}),
        unsigned({"alg": "ES256", "crit": ["b64"], "b64": False}, {}),
        "\N{SNOWMAN}.e30.e30",
    ],
)
async def test_what_is_no_token(text: str) -> None:
    with pytest.raises(AuthenticationFailed):
        await World().name(text)


async def test_keys_are_read_once_and_again_for_an_unknown_one_now_and_then() -> None:
    world = World()
    assert world.reads == 0
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(world.name, world.issuer.token())
    assert world.reads == 1
    kid = world.issuer.add("ES384")
    with pytest.raises(AuthenticationFailed, match="no key"):
        await world.name(world.issuer.token(kid=kid))
    assert world.reads == 1, "not so soon"
    world.now += 11
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(world.name, world.issuer.token(kid=kid))
    assert world.reads == 2


async def test_a_key_that_is_withdrawn_is_not_used_for_long() -> None:
    world = World(Issuer("ES256", "ES256"))
    token = world.issuer.token()
    assert await world.name(token) == "alice"
    del world.issuer.published[0]
    assert await world.name(token) == "alice"
    world.now += 3601
    with pytest.raises(AuthenticationFailed, match="no key"):
        await world.name(token)


async def test_while_nobody_publishes_keys_the_former_ones_are_good_for_a_day() -> None:
    world = World(failure=OSError("no route"))
    with pytest.raises(AuthenticationFailed, match="cannot be read now"):
        await world.name(world.issuer.token())
    world.failure = None
    world.now += 11
    assert await world.name(world.issuer.token()) == "alice"
    world.failure = OSError("no route")
    world.now += 23 * 3600
    assert await world.name(world.issuer.token()) == "alice"
    world.now += 2 * 3600
    with pytest.raises(AuthenticationFailed, match="cannot be read now"):
        await world.name(world.issuer.token())


async def test_who_guesses_is_slowed_down_but_not_for_keys_that_are_not_there(
    autojump_clock: MockClock,
) -> None:
    world = World(failure=OSError("no route"))
    for _ in range(100):
        with pytest.raises(AuthenticationFailed, match="cannot be read now"):
            await world.name(world.issuer.token())
    world.failure, world.now = None, world.now + 11
    said = []
    for token in [world.issuer.token(aud="shop"), "x"] * 30:
        world.now += 0.001
        try:
            await world.name(token)
        except AuthenticationFailed as error:
            said.append(str(error).partition(":")[0])
    assert said[:2] == ["the token is not good here", "that is no token"]
    assert said[-1].startswith("too many failed log-ins")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [1, {"kty": "oct", "k": "c2VjcmV0"}, {"kty": "RSA"}, {"kty": ["RSA"]}]}',
        b'{"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]}',
        b'{"keys": [{"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_set_of_keys(data: bytes) -> None:
    with pytest.raises(BadKeys):
        read_keys(data)


def test_which_keys_are_used() -> None:
    issuer = Issuer("ES256", "RS256")
    issuer.add("ES256", use="enc")
    short = rsa.generate_private_key(65537, 1024).public_key()
    issuer.published.append({**RSAAlgorithm.to_jwk(short, as_dict=True), "kid": "short"})
    issuer.published.append({"kty": "oct", "k": "c2VjcmV0", "kid": "shared", "alg": "HS256"})
    assert [each.key_id for each in read_keys(issuer.jwks)] == ["key-0", "key-1"]


async def test_from_a_url() -> None:
    issuer = Issuer()
    with issuer.serving() as (url, asked):
        data = await trio.to_thread.run_sync(partial(fetch, url, ""))
        assert data == issuer.jwks
        with pytest.raises(HTTPError, match="302"):
            await trio.to_thread.run_sync(partial(fetch, url.replace("jwks", "elsewhere"), ""))
        assert asked == ["/jwks", "/elsewhere"], "no other place is asked"
        with pytest.raises(OSError, match="larger than"):
            await trio.to_thread.run_sync(partial(fetch, url.replace("jwks", "much"), ""))
    with pytest.raises(OSError):  # noqa: PT011  which one it is is the system's business
        await trio.to_thread.run_sync(partial(fetch, url, ""))


async def test_from_a_url_inside_tls(tmp_path: Path) -> None:
    issuer, authority = Issuer(), Authority(tmp_path)
    with issuer.serving(authority.issue("127.0.0.1")) as (url, asked):
        data = await trio.to_thread.run_sync(partial(fetch, url, authority.path))
        assert data == issuer.jwks
        stranger = Authority(tmp_path, "stranger")
        for trusted in stranger.path, "":
            with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
                await trio.to_thread.run_sync(partial(fetch, url, trusted))
        assert asked == ["/jwks"]
