"""Certificates that are replaced while a node runs."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest
import trio

from tests.authority import Authority, KeyPair
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import lone_node
from tests.integration.node.test_tls import EncryptedV1, Site, encrypted, get, site

__all__ = ["site"]


def put(pair: KeyPair, flags: dict[str, str]) -> None:
    """In the place of what the settings name."""
    Path(flags["tls.certificate"]).write_bytes(Path(pair.certificate).read_bytes())
    Path(flags["tls.key"]).write_bytes(Path(pair.key).read_bytes())


def write(flags: dict[str, str], text: str) -> None:
    Path(flags["tls.certificate"]).write_text(text)


async def shown(address: tuple[str, int], context: ssl.SSLContext) -> int:
    """The serial number of what a listener shows."""
    stream = await encrypted(address, context)
    certificate = stream.getpeercert()
    await trio.aclose_forcefully(stream)
    return int(certificate["serialNumber"], 16)


async def test_new_certificates_are_for_new_connections(tmp_path: Path, site: Site) -> None:
    flags = site.flags
    other = Authority(tmp_path, "other")
    old, new = site.authority.client(), other.client()
    async with lone_node(tmp_path, flags, tls=("v1", "http")) as node:
        async with EncryptedV1(node.v1, old) as standing:
            first = await shown(node.v1, old)
            put(other.issue("localhost"), flags)
            await node.node.reload_certificates()
            with pytest.raises(trio.BrokenResourceError):
                await encrypted(node.v1, old)
            second = await shown(node.v1, new)
            assert second != first
            assert (await standing.call("PRODUCE", "orders k:v acks=1")) is not None
        # One that cannot be used: the former one stays, and everybody says so.
        for harm in (
            lambda: write(flags, "hello"),
            lambda: put(other.issue("localhost", is_expired=True), flags),
        ):
            harm()
            await node.node.reload_certificates()
            assert await shown(node.v1, new) == second
            status, body = await get(node.addresses["http"], "/ready", new)
            told = json.loads(body)["tls"]
            assert told["until"].keys() == {"tls.certificate"}
            assert "tls.certificate" in told["refused"]
            assert status == 200 or json.loads(body)["failed"]
        async with NativeConnection(node.addresses["native"]) as connection:
            reply = await connection.status()
            assert any("new certificates are not in force" in each for each in reply.damaged)
            assert [each.setting for each in reply.certificates] == ["tls.certificate"]
        _, text = await get(node.addresses["http"], "/metrics", new)
        assert b"paceline_tls_reload_failed 1.0" in text
        assert (
            b'paceline_tls_certificate_expiry_timestamp_seconds{setting="tls.certificate"}' in text
        )
        # Mended.
        put(other.issue("localhost"), flags)
        await node.node.reload_certificates()
        assert await shown(node.v1, new) not in (first, second)
        async with NativeConnection(node.addresses["native"]) as connection:
            assert not (await connection.status()).damaged
