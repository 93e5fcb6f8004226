"""SASL on the Kafka listener: clients as they are published, and those who should not get in."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
import pytest
import trio
from aiokafka.helpers import create_ssl_context
from confluent_kafka import admin as confluent_admin

import paceline.client
from paceline.client import ClientLogin, ClientSettings
from paceline.errors import ErrorCode
from paceline.scram import SCRAM_HASHES, ScramClient
from paceline.wire.kafka import cluster, sasl, topics
from paceline_node.security.principals import (
    AllowAll,
    Operation,
    Principal,
    Proof,
    Resource,
    refuse,
)
from tests.integration.node.certificates import Certificates
from tests.integration.node.kafka_client import HANG_S, KafkaClient
from tests.integration.node.machines import connect
from tests.integration.node.nodes import RunningNode, lone_node
from tests.integration.node.test_kafka import ONE
from tests.integration.node.through_asyncio import through_asyncio

COUNT = 50
PASSWORD = "wonder, land=1"
LOGIN = {"kafka": "login=required"}
SUPER_USERS = {"security.super_users": "alice,bob"}


class Listening(AllowAll):
    """Remembers who has produced, and lets nobody else do so than who has logged in."""

    def __init__(self) -> None:
        self.producers: set[Principal] = set()

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        super().authorize(principal, operation, resource)
        if operation is Operation.PRODUCE:
            self.producers.add(principal)
            if principal.proof is Proof.NONE:
                refuse(principal, operation, resource)


@asynccontextmanager
async def guarded(
    directory: Path, policy: Listening | None = None, **flags: str
) -> AsyncIterator[tuple[RunningNode, Certificates]]:
    """A node whose Kafka listener wants a log-in, inside TLS, and a user ``alice``."""
    certificates = Certificates(directory)
    async with (
        lone_node(
            directory,
            {**ONE, **SUPER_USERS, **certificates.settings, **flags},
            tls=("kafka?login=required",),
            policy=policy,
        ) as node,
        paceline.client.connect(node.native) as client,
    ):
        await client.admin.create_topic("t", partitions=1, replication_factor=1)
        await client.admin.users.create("alice", PASSWORD, iterations=4096)
        yield node, certificates


@asynccontextmanager
async def in_clear_text(directory: Path, **flags: str) -> AsyncIterator[RunningNode]:
    """The same without TLS."""
    async with (
        lone_node(directory, {**ONE, **SUPER_USERS, **flags}, options=LOGIN) as node,
        connect(node.native) as client,
    ):
        await client.admin.create_topic("t", partitions=1, replication_factor=1)
        await client.admin.users.create("alice", PASSWORD, iterations=4096)
        yield node


def as_alice(directory: Path) -> ClientSettings:
    """What a native client says to administer."""
    file = directory / "alice.password"
    file.write_text(PASSWORD + "\n")
    return ClientSettings(login=ClientLogin(username="alice", password_file=str(file)))


def address_of(node: RunningNode) -> str:
    host, port = node.addresses["kafka"]
    return f"{host}:{port}"


def rdkafka(
    address: str, mechanism: str, *, password: str = PASSWORD, authority: str = "", **more: Any
) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "sasl_ssl" if authority else "sasl_plaintext",
        **({"ssl.ca.location": authority} if authority else {}),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        **more,
    }


def rdkafka_writes(settings: dict[str, Any], count: int = COUNT) -> None:
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True})
    refused: list[object] = []
    for number in range(count):
        producer.produce(
            "t",
            value=b"%d" % number,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert producer.flush(HANG_S) == 0
    assert refused == []


def rdkafka_is_refused(settings: dict[str, Any]) -> list[confluent_kafka.KafkaError]:
    """What it hears until it knows that it cannot log in."""
    heard: list[confluent_kafka.KafkaError] = []
    client = confluent_kafka.Producer({**settings, "error_cb": heard.append})
    for _ in range(int(HANG_S * 10)):
        client.poll(0.1)
        if any(each.code() == confluent_kafka.KafkaError._AUTHENTICATION for each in heard):
            return heard
    raise AssertionError(f"not refused in {HANG_S} s, heard {heard}")


def of_kafka_python(address: str, mechanism: str, authority: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_SSL" if authority else "SASL_PLAINTEXT",
        **({"ssl_cafile": authority} if authority else {}),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


def kafka_python_reads(
    address: str, mechanism: str, authority: str = "", password: str = PASSWORD, **more: Any
) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        "t",
        **of_kafka_python(address, mechanism, authority, password),
        **more,
        group_id=f"g-{mechanism}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=HANG_S * 1000,
    )
    read = [next(consumer).value for _ in range(COUNT)]
    consumer.close()
    return read


async def aiokafka_reads(
    address: str, mechanism: str, authority: str = "", password: str = PASSWORD
) -> list[bytes]:
    settings = of_kafka_python(address, mechanism, authority, password)
    if authority:
        settings["ssl_context"] = create_ssl_context(cafile=settings.pop("ssl_cafile"))
    consumer = aiokafka.AIOKafkaConsumer("t", **settings, auto_offset_reset="earliest")
    try:
        await consumer.start()
        return [(await consumer.getone()).value for _ in range(COUNT)]
    finally:
        await consumer.stop()


def reads_through_asyncio(*arguments: Any) -> list[bytes]:
    return through_asyncio(aiokafka_reads(*arguments), HANG_S)


async def in_thread(work: Any, *arguments: Any, **more: Any) -> Any:
    return await trio.to_thread.run_sync(partial(work, *arguments, **more))


EXPECTED = [b"%d" % number for number in range(COUNT)]


async def test_clients_log_in_over_tls(tmp_path: Path) -> None:
    policy = Listening()
    async with guarded(tmp_path, policy) as (node, certificates):
        at, authority = address_of(node), certificates.authority
        await in_thread(rdkafka_writes, rdkafka(at, "PLAIN", authority=authority))
        assert {str(each) for each in policy.producers} == {"alice"}
        for mechanism in SCRAM_HASHES:
            settings = rdkafka(at, mechanism, authority=authority)
            await in_thread(rdkafka_writes, settings, 1)
        for mechanism in "PLAIN", *SCRAM_HASHES:
            assert await in_thread(kafka_python_reads, at, mechanism, authority) == EXPECTED
            arguments = at, mechanism, authority, PASSWORD
            assert await in_thread(reads_through_asyncio, *arguments) == EXPECTED


async def test_clients_log_in_in_clear_text_by_scram_alone(tmp_path: Path) -> None:
    async with in_clear_text(tmp_path) as node:
        at = address_of(node)
        for mechanism in SCRAM_HASHES:
            await in_thread(rdkafka_writes, rdkafka(at, mechanism))
        assert await in_thread(kafka_python_reads, at, "SCRAM-SHA-512") == EXPECTED
        arguments = at, "SCRAM-SHA-256", "", PASSWORD
        assert await in_thread(reads_through_asyncio, *arguments) == EXPECTED
        heard = await in_thread(rdkafka_is_refused, rdkafka(at, "PLAIN"))
        assert "PLAIN" in str(heard), heard
        async with KafkaClient(node.addresses["kafka"]) as client:
            answer = await client.ask(sasl.SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert answer.mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")
            assert await client.read_frame() is None


def kafka_python_is_refused(
    address: str, mechanism: str, authority: str, said: pytest.LogCaptureFixture
) -> None:
    """It tries again until its time is up, half a minute by default, and raises no more than that
    it is: why is in its log."""
    while "wrong user or password" not in said.text:
        with pytest.raises(kafka.errors.KafkaError):
            kafka_python_reads(address, mechanism, authority, "guess", bootstrap_timeout_ms=2000)


async def test_clients_with_a_wrong_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(tmp_path) as (node, certificates):
        at, authority = address_of(node), certificates.authority
        for mechanism in "PLAIN", "SCRAM-SHA-256":
            settings = rdkafka(at, mechanism, password="guess", authority=authority)
            heard = await in_thread(rdkafka_is_refused, settings)
            assert "wrong user or password" in str(heard), heard
        await in_thread(kafka_python_is_refused, at, "SCRAM-SHA-512", authority, caplog)
        with pytest.raises(aiokafka.errors.KafkaError):
            await in_thread(reads_through_asyncio, at, "SCRAM-SHA-512", authority, "guess")


# --- byte for byte --------------------------------------------------------------------------------


async def log_in(
    client: KafkaClient,
    name: str = "alice",
    password: str = PASSWORD,
    mechanism: str = "SCRAM-SHA-256",
    version: int = 2,
) -> sasl.SaslAuthenticateResponse:
    """By SCRAM; the last answer."""
    begun = await client.ask(sasl.SaslHandshakeRequest(mechanism=mechanism), 1)
    assert begun.error_code == 0
    scram = ScramClient(mechanism, name, password, os.urandom(8))
    asked = sasl.SaslAuthenticateRequest(auth_bytes=scram.first())
    answer = await client.ask(asked, version)
    assert answer.error_code == 0, answer.error_message
    asked = sasl.SaslAuthenticateRequest(auth_bytes=scram.final(bytes(answer.auth_bytes)))
    last: sasl.SaslAuthenticateResponse = await client.ask(asked, version)
    if last.error_code == 0:
        scram.finish(bytes(last.auth_bytes))
    return last


METADATA = cluster.MetadataRequest(topics=())


async def test_nothing_is_answered_before_the_log_in_but_what_leads_to_it(tmp_path: Path) -> None:
    async with in_clear_text(tmp_path) as node:
        at = node.addresses["kafka"]
        async with KafkaClient(at) as client:
            versions = await client.ask(cluster.ApiVersionsRequest(), 3)
            assert {17, 36} <= {each.api_key for each in versions.api_keys}
            await client.send(METADATA, 5)
            assert await client.read_frame() is None
        async with KafkaClient(at) as client:
            answer = await client.ask(sasl.SaslAuthenticateRequest(auth_bytes=b"x"), 1)
            assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await client.read_frame() is None
        async with KafkaClient(at) as client:  # in the middle of it
            await client.ask(sasl.SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            await client.send(METADATA, 5)
            assert await client.read_frame() is None
        async with KafkaClient(at) as client:  # a consumer that a coordinator drives
            await client.stream.send_all(b"\0\0\0\x0c\x03\xe8\0\0\0\0\0\x01\0\0\0\0")
            assert await client.read_frame() is None
        async with KafkaClient(at) as client:  # no room for large frames, either
            await client.stream.send_all((1024 * 1024).to_bytes(4, "big") + bytes(4096))
            assert await client.read_frame() is None
        async with KafkaClient(at) as client:
            assert (await log_in(client)).error_code == 0
            assert (await client.ask(METADATA, 5)).brokers


@pytest.mark.parametrize(("name", "password"), [("alice", "guess"), ("nobody", PASSWORD), ("", "")])
async def test_a_failed_log_in_ends_the_connection(
    tmp_path: Path, name: str, password: str
) -> None:
    async with in_clear_text(tmp_path) as node, KafkaClient(node.addresses["kafka"]) as client:
        answer = await log_in(client, name, password)
        assert answer.error_code == ErrorCode.AUTHENTICATION_FAILED
        assert answer.error_message == "wrong user or password"
        assert bytes(answer.auth_bytes) == b""
        assert await client.read_frame() is None


async def test_where_no_log_in_is_wanted_both_are_served(tmp_path: Path) -> None:
    policy = Listening()
    async with (
        lone_node(tmp_path, ONE, policy=policy) as node,
        paceline.client.connect(node.native) as client,
    ):
        await client.admin.users.create("alice", PASSWORD, iterations=4096)
        async with KafkaClient(node.addresses["kafka"]) as kafka_client:
            assert (await kafka_client.ask(METADATA, 5)).brokers
            assert (await log_in(kafka_client)).error_code == 0
            assert (await kafka_client.ask(METADATA, 5)).brokers
        await in_thread(rdkafka_writes, rdkafka(address_of(node), "SCRAM-SHA-512"), 1)
        assert {str(each) for each in policy.producers} == {"alice"}


async def test_the_exchange_of_old_clients_without_headers(tmp_path: Path) -> None:
    async with in_clear_text(tmp_path) as node:
        for password in PASSWORD, "guess":
            async with KafkaClient(node.addresses["kafka"]) as client:
                await client.ask(sasl.SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 0)
                scram = ScramClient("SCRAM-SHA-512", "alice", password, os.urandom(8))

                async def say(message: bytes, it: KafkaClient = client) -> bytes | None:
                    await it.stream.send_all(len(message).to_bytes(4, "big") + message)
                    return await it.read_frame()

                first = await say(scram.first())
                assert first is not None
                last = await say(scram.final(first))
                assert (last is None) == (password == "guess")
                if last is not None:
                    scram.finish(last)
                    assert (await client.ask(METADATA, 5)).brokers


async def test_a_log_in_is_repeated_on_the_connection_or_expires(tmp_path: Path) -> None:
    async with in_clear_text(tmp_path, **{"login.session_ms": "2000"}) as node:
        async with KafkaClient(node.addresses["kafka"]) as client:
            answer = await log_in(client)
            assert answer.session_lifetime_ms == 2000
            deadline = trio.current_time() + 2
            while trio.current_time() < deadline + 0.2:
                assert (await log_in(client)).session_lifetime_ms == 2000
                assert (await client.ask(METADATA, 5)).brokers
            with trio.fail_after(HANG_S):
                while True:  # and not repeated any more
                    await client.send(METADATA, 5)
                    if await client.read_frame() is None:
                        break
        async with KafkaClient(node.addresses["kafka"]) as client:
            await log_in(client)
            begun = await client.ask(sasl.SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
            assert begun.error_code == ErrorCode.ILLEGAL_SASL_STATE, "by the same mechanism only"
        await in_thread(rdkafka_stays, rdkafka(address_of(node), "SCRAM-SHA-256"))


def rdkafka_stays(settings: dict[str, Any]) -> None:
    """It writes for longer than a log-in holds, over connections that stay."""
    lost: list[object] = []
    producer = confluent_kafka.Producer({**settings, "error_cb": lost.append})
    for number in range(45):
        producer.produce("t", value=b"%d" % number)
        assert producer.flush(HANG_S) == 0
        producer.poll(0.1)
    assert [each for each in lost if "AUTH" in str(each)] == []


async def test_a_connection_stays_with_whom_it_was(tmp_path: Path) -> None:
    async with (
        in_clear_text(tmp_path) as node,
        paceline.client.connect(node.native, as_alice(tmp_path)) as admin,
        KafkaClient(node.addresses["kafka"]) as client,
    ):
        await admin.admin.users.create("bob", PASSWORD, iterations=4096)
        assert (await log_in(client)).error_code == 0
        answer = await log_in(client, "bob")
        assert answer.error_code == ErrorCode.AUTHENTICATION_FAILED
        assert await client.read_frame() is None


# In real time a busy machine took so long for 60 guesses that the address had room again.
@pytest.mark.virtual_time
async def test_who_guesses_is_slowed_down_and_others_are_not_kept_out(tmp_path: Path) -> None:
    async with in_clear_text(tmp_path) as node:
        codes: list[int] = []

        async def guess() -> None:
            async with KafkaClient(node.addresses["kafka"]) as client:
                answer = await log_in(client, password="guess")
                codes.append(answer.error_code)
                said.append(str(answer.error_message))

        said: list[str] = []
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(guess)
        assert set(codes) == {ErrorCode.AUTHENTICATION_FAILED}
        late = [each for each in said if "too many failed log-ins" in each]
        assert len(late) >= 20, "most were not even looked at"
        with trio.fail_after(HANG_S):
            while True:  # who knows the password waits behind them, and gets in
                async with KafkaClient(node.addresses["kafka"]) as client:
                    if (await log_in(client)).error_code == 0:
                        break


# --- users, by Kafka's own requests ---------------------------------------------------------------


def credentials_by_rdkafka(settings: dict[str, Any]) -> dict[str, list[tuple[str, int]]]:
    client = confluent_admin.AdminClient(settings)
    changes: Sequence[Any] = [
        confluent_kafka.admin.UserScramCredentialUpsertion(
            "bob",
            confluent_kafka.admin.ScramCredentialInfo(
                confluent_kafka.admin.ScramMechanism.SCRAM_SHA_256, 5000
            ),
            b"builder",
        ),
        confluent_kafka.admin.UserScramCredentialUpsertion(
            "carol",
            confluent_kafka.admin.ScramCredentialInfo(
                confluent_kafka.admin.ScramMechanism.SCRAM_SHA_512, 4096
            ),
            b"carol",
        ),
    ]
    for future in client.alter_user_scram_credentials(changes).values():
        future.result(HANG_S)
    gone = confluent_kafka.admin.UserScramCredentialDeletion(
        "carol", confluent_kafka.admin.ScramMechanism.SCRAM_SHA_512
    )
    for future in client.alter_user_scram_credentials([gone]).values():
        future.result(HANG_S)
    with pytest.raises(confluent_kafka.KafkaException, match="no such credential"):
        client.alter_user_scram_credentials([gone])["carol"].result(HANG_S)
    found = client.describe_user_scram_credentials().result(HANG_S)
    with pytest.raises(confluent_kafka.KafkaException, match="no SCRAM credentials"):
        client.describe_user_scram_credentials(["carol"])["carol"].result(HANG_S)
    return {
        name: [
            (each.mechanism.name, each.iterations) for each in description.scram_credential_infos
        ]
        for name, description in found.items()
    }


async def test_kafka_clients_administer_users(tmp_path: Path) -> None:
    async with in_clear_text(tmp_path) as node:
        settings = rdkafka(address_of(node), "SCRAM-SHA-256")
        found = await in_thread(credentials_by_rdkafka, settings)
        assert {name: sorted(each) for name, each in found.items()} == {
            "alice": [("SCRAM_SHA_256", 4096), ("SCRAM_SHA_512", 4096)],
            "bob": [("SCRAM_SHA_256", 5000)],
        }
        bobs = {**settings, "sasl.username": "bob", "sasl.password": "builder"}
        await in_thread(rdkafka_writes, bobs, 1)


async def test_wishes_of_users_that_cannot_be(tmp_path: Path) -> None:
    async with in_clear_text(tmp_path) as node, KafkaClient(node.addresses["kafka"]) as client:
        await log_in(client)

        def new(name: str, mechanism: int = 1, iterations: int = 4096) -> Any:
            return sasl.AlterUserScramCredentialsRequestUpsertion(
                name=name,
                mechanism=mechanism,
                iterations=iterations,
                salt=b"12345678",
                salted_password=b"x" * 32,
            )

        request = sasl.AlterUserScramCredentialsRequest(
            upsertions=(
                new("weak", iterations=100),
                new("strange", mechanism=7),
                new("twice"),
                new("twice"),
                new("anonymous"),
                new("good"),
            )
        )
        answer = await client.ask(request, 0)
        assert {each.user: each.error_code for each in answer.results} == {
            "weak": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "strange": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "twice": ErrorCode.USER_ALREADY_EXISTS,
            "anonymous": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "good": 0,
        }
        asked = sasl.DescribeUserScramCredentialsRequest()
        listed = await client.ask(asked, 0)
        assert [each.user for each in listed.results] == ["alice", "good"]


async def test_topics_are_made_by_who_has_logged_in(tmp_path: Path) -> None:
    """Handlers get the principal of the log-in, not of the connection's beginning."""
    policy = Creating()
    async with (
        lone_node(tmp_path, ONE, policy=policy) as node,
        paceline.client.connect(node.native) as client,
        KafkaClient(node.addresses["kafka"]) as kafka_client,
    ):
        await client.admin.users.create("alice", PASSWORD, iterations=4096)
        wanted = topics.CreateTopicsRequestTopic(
            name="mine", num_partitions=1, replication_factor=1
        )
        request = topics.CreateTopicsRequest(topics=(wanted,))
        [refused] = (await kafka_client.ask(request, 5)).topics
        assert refused.error_code != 0
        await log_in(kafka_client)
        [made] = (await kafka_client.ask(request, 5)).topics
        assert made.error_code == 0, made.error_message


class Creating(AllowAll):
    """Only ``alice`` may create topics."""

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        super().authorize(principal, operation, resource)
        if operation is Operation.CREATE and str(principal) != "alice":
            refuse(principal, operation, resource)
