"""A node that asks its clients for certificates, and clients that show some."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from paceline.client import Client, ClientSettings, ClientTls, connect
from paceline.wire.native.acls import (
    Acl,
    AclEffect,
    AclOperation,
    AclPattern,
    AclResource,
)
from tests.authority import Authority, KeyPair
from tests.integration.node.nodes import RunningNode, lone_node

LISTENERS = ("v1", "native", "http", "segment", "cursus", "kafka", "pravega")
ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
ROOT = "root"
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER


def acl(
    principal: str,
    operation: AclOperation,
    name: str = "",
    resource: AclResource = TOPIC,
    *,
    pattern: AclPattern = AclPattern.LITERAL,
    host: str = "*",
    effect: AclEffect = AclEffect.ALLOW,
) -> Acl:
    return Acl(principal, resource, pattern, name, operation, host, effect)


class Secured:
    """The running node, and certificates of whoever there is to be."""

    def __init__(self, directory: Path) -> None:
        self._authority = Authority(directory)
        self._pairs: dict[str, KeyPair] = {}
        server = self._authority.issue("localhost", "127.0.0.1")
        self.settings = {
            **ONE,
            "tls.certificate": server.certificate,
            "tls.key": server.key,
            "tls.client_auth": "optional",
            "tls.client_authorities": self._authority.path,
            "security.super_users": ROOT,
        }
        self.node: RunningNode

    def pair(self, name: str) -> KeyPair:
        """The certificate of somebody."""
        if name not in self._pairs:
            self._pairs[name] = self._authority.issue("laptop.example", common_name=name)
        return self._pairs[name]

    @property
    def authority(self) -> str:
        """Whom clients trust: a file in PEM form."""
        return self._authority.path

    def tls(self, name: str | None) -> ClientTls:
        """What a client of that name says; None: without a certificate."""
        if name is None:
            return ClientTls(authority=self.authority, server_name="localhost")
        pair = self.pair(name)
        return ClientTls(
            authority=self.authority,
            certificate=pair.certificate,
            key=pair.key,
            server_name="localhost",
        )

    def address(self, name: str | None) -> str:
        """The native listener, as the command line takes it, for somebody."""
        host, port = self.node.addresses["native"]
        return f"tls://{host}:{port}?{self.tls(name).query()}"

    @asynccontextmanager
    async def client(self, name: str | None) -> AsyncIterator[Client]:
        """A native client of that name."""
        host, port = self.node.addresses["native"]
        settings = ClientSettings(tls=self.tls(name), operation_timeout_s=20)
        async with connect(f"tls://{host}:{port}", settings) as client:
            yield client

    def librdkafka(self, name: str | None) -> dict[str, object]:
        """What librdkafka's clients are configured with."""
        host, port = self.node.addresses["kafka"]
        found: dict[str, object] = {
            "bootstrap.servers": f"{host}:{port}",
            "security.protocol": "ssl",
            "ssl.ca.location": self.authority,
        }
        if name is not None:
            pair = self.pair(name)
            found |= {
                "ssl.certificate.location": pair.certificate,
                "ssl.key.location": pair.key,
            }
        return found

    def kafka_python(self, name: str) -> dict[str, object]:
        """What kafka-python's clients are configured with."""
        host, port = self.node.addresses["kafka"]
        pair = self.pair(name)
        return {
            "bootstrap_servers": f"{host}:{port}",
            "security_protocol": "SSL",
            "ssl_cafile": self.authority,
            "ssl_certfile": pair.certificate,
            "ssl_keyfile": pair.key,
        }


@asynccontextmanager
async def secured(
    directory: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Secured]:
    """One node, all of whose listeners are encrypted; ``root`` is its super user."""
    found = Secured(directory)
    flags = {**found.settings, **(settings or {})}
    async with lone_node(directory, flags, tls=LISTENERS) as node:
        found.node = node
        yield found
