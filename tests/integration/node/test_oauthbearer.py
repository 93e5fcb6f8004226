"""Tokens of another issuer (JWT) at the listeners: SASL OAUTHBEARER, and http's header
(security/DESIGN 5.6)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
import trio
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from aiokafka.helpers import create_ssl_context
from kafka.net.sasl.oauth import AbstractTokenProvider

import paceline.client
from paceline.client import ClientLogin, ClientSettings, ClientTls
from paceline.errors import AuthenticationFailed, ConfigurationError, ErrorCode
from paceline.oauthbearer import OAUTHBEARER, first_message
from paceline.wire.kafka import sasl
from paceline_node.security.principals import Proof
from tests.integration.node.certificates import Certificates
from tests.integration.node.kafka_client import HANG_S, KafkaClient
from tests.integration.node.nodes import RunningNode, lone_node, make_node
from tests.integration.node.test_kafka import ONE
from tests.integration.node.test_kafka_login import METADATA, Listening, in_thread, rdkafka_writes
from tests.integration.node.through_asyncio import through_asyncio
from tests.issuer import Issuer

COUNT = 20
REQUIRED = "login=required"


@asynccontextmanager
async def trusting(
    directory: Path, issuer: Issuer, jwks: str = "", policy: Listening | None = None, **flags: str
) -> AsyncIterator[tuple[RunningNode, Certificates]]:
    """A node that takes the issuer's tokens, and nobody without on its encrypted listeners."""
    certificates = Certificates(directory)
    async with lone_node(
        directory,
        {
            **ONE,
            **certificates.settings,
            **issuer.settings(jwks or issuer.file(directory)),
            **flags,
        },
        tls=(f"kafka?{REQUIRED}", f"native?{REQUIRED}"),
        policy=policy,
    ) as node:
        host, port = node.addresses["http"]
        async with paceline.client.connect(f"ws://{host}:{port}") as client:
            await client.admin.create_topic("t", partitions=1, replication_factor=1)
        yield node, certificates


def rdkafka(
    node: RunningNode, certificates: Certificates, token: Any, lifetime_s: int = 3600
) -> dict[str, Any]:
    """``token`` makes one, given when it expires, whenever the client asks for one."""

    def fresh(_: str) -> tuple[str, float]:
        expires = int(time.time()) + lifetime_s
        return token(exp=expires), float(expires)

    host, port = node.addresses["kafka"]
    return {
        "bootstrap.servers": f"{host}:{port}",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": certificates.authority,
        "sasl.mechanism": OAUTHBEARER,
        "oauth_cb": fresh,
    }


class Tokens(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class AsyncTokens(AsyncTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def kafka_python_reads(settings: dict[str, Any], token: str) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        "t",
        **settings,
        sasl_oauth_token_provider=Tokens(token),
        auto_offset_reset="earliest",
        consumer_timeout_ms=HANG_S * 1000,
    )
    read = [next(consumer).value for _ in range(COUNT)]
    consumer.close()
    return read


def aiokafka_reads(settings: dict[str, Any], token: str) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            "t",
            **settings,
            sasl_oauth_token_provider=AsyncTokens(token),
            auto_offset_reset="earliest",
        )
        try:
            await consumer.start()
            return [(await consumer.getone()).value for _ in range(COUNT)]
        finally:
            await consumer.stop()

    return through_asyncio(read(), HANG_S)


async def test_published_kafka_clients(tmp_path: Path) -> None:
    issuer, policy = Issuer("RS256"), Listening()
    async with trusting(tmp_path, issuer, policy=policy) as (node, certificates):
        await in_thread(rdkafka_writes, rdkafka(node, certificates, issuer.token), COUNT)
        assert {(str(each), each.proof) for each in policy.producers} == {("alice", Proof.JWT)}
        host, port = node.addresses["kafka"]
        settings: dict[str, Any] = {
            "bootstrap_servers": f"{host}:{port}",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": OAUTHBEARER,
        }
        expected = [b"%d" % number for number in range(COUNT)]
        for_python = {**settings, "ssl_cafile": certificates.authority}
        assert await in_thread(kafka_python_reads, for_python, issuer.token()) == expected
        settings["ssl_context"] = create_ssl_context(cafile=certificates.authority)
        assert await in_thread(aiokafka_reads, settings, issuer.token()) == expected


async def test_published_kafka_clients_with_tokens_of_nobody(tmp_path: Path) -> None:
    issuer = Issuer()
    async with trusting(tmp_path, issuer) as (node, certificates):
        heard: list[confluent_kafka.KafkaError] = []
        settings = rdkafka(node, certificates, partial(issuer.token, aud="shop"))

        def is_refused() -> None:
            client = confluent_kafka.Producer({**settings, "error_cb": heard.append})
            for _ in range(int(HANG_S * 10)):
                client.poll(0.1)
                if any("udience" in str(each) for each in heard):
                    return
            raise AssertionError(f"not refused in {HANG_S} s, heard {heard}")

        await in_thread(is_refused)


@pytest.mark.slow
async def test_the_session_ends_with_the_token_unless_the_log_in_is_repeated(
    tmp_path: Path,
) -> None:
    """KIP-368, with librdkafka, which gets another token in time."""
    issuer = Issuer()
    flags = {"oauth.leeway_ms": "0"}
    async with trusting(tmp_path, issuer, **flags) as (node, certificates):
        lost: list[object] = []
        made: list[str] = []

        def short(exp: int) -> str:
            made.append(issuer.token(exp=exp))
            return made[-1]

        def stays() -> None:
            settings = rdkafka(node, certificates, short, lifetime_s=6)
            producer = confluent_kafka.Producer({**settings, "error_cb": lost.append})
            until = time.monotonic() + HANG_S
            while len(made) < 3 and time.monotonic() < until:
                producer.produce("t", value=b"v")
                assert producer.flush(HANG_S) == 0
                producer.poll(0.1)

        await in_thread(stays)
        assert len(made) == 3
        assert [each for each in lost if "AUTH" in str(each)] == []


async def test_a_session_that_is_not_renewed(tmp_path: Path) -> None:
    issuer = Issuer()
    flags = {"oauth.leeway_ms": "0"}
    async with (
        trusting(tmp_path, issuer, **flags) as (node, certificates),
        KafkaOverTls(node, certificates) as client,
    ):
        answer = await say(client, issuer.token(exp=int(time.time()) + 3))
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime_ms <= 3000
        assert (await client.ask(METADATA, 5)).brokers
        again = await say(client, issuer.token(exp=int(time.time()) + 4))
        assert 0 < again.session_lifetime_ms <= 4000, "repeated on the connection"
        with trio.fail_after(HANG_S):
            while True:
                await client.send(METADATA, 5)
                if await client.read_frame() is None:
                    break


class KafkaOverTls(KafkaClient):
    """The bytes of a Kafka client, inside TLS."""

    def __init__(self, node: RunningNode, certificates: Certificates) -> None:
        super().__init__(node.addresses["kafka"])
        self._context = certificates.issuer.client()

    async def __aenter__(self) -> KafkaOverTls:
        await super().__aenter__()
        inner = self.stream
        self.stream = trio.SSLStream(inner, self._context, server_hostname="localhost")  # type: ignore[assignment]
        return self


async def say(client: KafkaClient, token: str) -> sasl.SaslAuthenticateResponse:
    begun = await client.ask(sasl.SaslHandshakeRequest(mechanism=OAUTHBEARER), 1)
    assert begun.error_code == 0
    asked = sasl.SaslAuthenticateRequest(auth_bytes=first_message(token))
    answer: sasl.SaslAuthenticateResponse = await client.ask(asked, 2)
    return answer


async def test_byte_for_byte(tmp_path: Path) -> None:
    issuer = Issuer()
    async with trusting(tmp_path, issuer) as (node, certificates):
        async with KafkaOverTls(node, certificates) as client:  # RFC 7628, 3.2.2
            answer = await say(client, issuer.token(aud="shop"))
            assert (answer.error_code, bytes(answer.auth_bytes)) == (
                0,
                b'{"status": "invalid_token"}',
            )
            asked = sasl.SaslAuthenticateRequest(auth_bytes=b"\x01")
            last = await client.ask(asked, 2)
            assert last.error_code == ErrorCode.AUTHENTICATION_FAILED
            assert "udience" in str(last.error_message)
            assert await client.read_frame() is None
        async with KafkaOverTls(node, certificates) as client:  # nothing else between the two
            await say(client, "x.y.z")
            await client.send(METADATA, 5)
            assert await client.read_frame() is None
        for message in (
            b"",
            b"n,,\x01\x01",
            b"n,,\x01auth=Basic eA==\x01\x01",
            b"\xff",
            b"x" * 99_999,
        ):
            async with KafkaOverTls(node, certificates) as client:
                await client.ask(sasl.SaslHandshakeRequest(mechanism=OAUTHBEARER), 1)
                asked = sasl.SaslAuthenticateRequest(auth_bytes=message)
                refused = await client.ask(asked, 2)
                assert refused.error_code == ErrorCode.AUTHENTICATION_FAILED
                assert await client.read_frame() is None
        async with KafkaOverTls(node, certificates) as client:  # another one's name
            await client.ask(sasl.SaslHandshakeRequest(mechanism=OAUTHBEARER), 1)
            message = first_message(issuer.token()).replace(b"n,,", b"n,a=bob,")
            answer = await client.ask(sasl.SaslAuthenticateRequest(auth_bytes=message), 2)
            assert answer.error_code == 0
            assert bytes(answer.auth_bytes)
        async with KafkaOverTls(node, certificates) as client:  # one connection, one principal
            assert (await say(client, issuer.token())).error_code == 0
            answer = await say(client, issuer.token("bob"))
            assert answer.error_code == ErrorCode.AUTHENTICATION_FAILED
            assert await client.read_frame() is None


async def test_not_in_clear_text(tmp_path: Path) -> None:
    issuer = Issuer()
    flags = {**ONE, **issuer.settings(issuer.file(tmp_path))}
    options = {"kafka": REQUIRED}
    async with (
        lone_node(tmp_path, flags, options=options) as node,
        KafkaClient(node.addresses["kafka"]) as client,
    ):
        begun = await client.ask(sasl.SaslHandshakeRequest(mechanism=OAUTHBEARER), 1)
        assert begun.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert OAUTHBEARER not in begun.mechanisms


async def test_our_own_client_and_a_url(tmp_path: Path) -> None:
    issuer, policy = Issuer(), Listening()
    token = tmp_path / "token"
    login = ClientLogin(password_file=str(token), mechanism=OAUTHBEARER)
    with issuer.serving() as (url, asked):
        async with trusting(tmp_path, issuer, url, policy) as (node, certificates):
            settings = ClientSettings(login=login, tls=ClientTls(authority=certificates.authority))
            token.write_text(issuer.token() + "\n")
            for _ in range(2):
                async with (
                    paceline.client.connect(node.native, settings) as client,
                    client.producer() as producer,
                ):
                    await producer.send("t", b"v")
            assert {str(each) for each in policy.producers} == {"alice"}
            assert asked == ["/jwks"]
            token.write_text(issuer.token(iss="https://elsewhere.test"))
            with pytest.raises(AuthenticationFailed, match="issuer"):
                async with paceline.client.connect(node.native, settings):
                    pass


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"oauth.jwks": "none.json"}, "none.json"),
        ({"oauth.jwks_authority": "none.pem"}, "none.pem"),
        ({"oauth.jwks": "http://issuer.test/jwks"}, "expected https://"),
        ({"oauth.jwks": "file:///etc/passwd"}, "expected https://"),
        ({"oauth.audience": ""}, "oauth.audience"),
        ({"oauth.issuer": ""}, "oauth.issuer"),
    ],
)
async def test_settings_that_cannot_be_used_keep_a_node_from_starting(
    tmp_path: Path, flags: dict[str, str], words: str
) -> None:
    issuer = Issuer()
    given = {**issuer.settings(issuer.file(tmp_path)), **flags}
    with pytest.raises(ConfigurationError, match=words):
        make_node(tmp_path, 0, {"native": 0, "peer": 0}, given)
