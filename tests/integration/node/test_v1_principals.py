"""Clients of V1 who are somebody by their address: ACLs and rules of topics hold for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.client import connect
from paceline.wire.native.acls import AclOperation
from tests.integration.node.nodes import lone_node
from tests.integration.node.secured import CLUSTER, ONE, acl
from tests.integration.node.v1_client import V1Client

WRITE, ALTER = AclOperation.WRITE, AclOperation.ALTER
NOBODY = "anonymous may not"


@pytest.mark.parametrize(
    ("rules", "refusal"),
    [
        ("127.0.0.1=meter", ""),
        ("10.0.0.0/8=other,127.0.0.0/8=meter,127.0.0.1=other", ""),
        ("127.0.0.1=other", "other may not"),
        ("10.0.0.0/8=meter", NOBODY),
        ("127.0.0.1=root", "root may not"),
        ("", NOBODY),
    ],
)
async def test_who_an_address_is(tmp_path: Path, rules: str, refusal: str) -> None:
    flags = {**ONE, "security.super_users": "root", "v1.principals": rules}
    async with lone_node(tmp_path, flags) as node:
        async with connect(node.native) as anybody:
            for name, writers in (("orders", "meter"), ("hidden", "other")):
                configs = {"access.policy": "acl", "access.writers": writers}
                await anybody.admin.create_topic(
                    name, partitions=1, replication_factor=1, configs=configs
                )
            way_back = acl("anonymous", ALTER, resource=CLUSTER)
            rights = [acl("meter", WRITE, name) for name in ("orders", "hidden")]
            await anybody.admin.acls.create([way_back, *rights])
        async with V1Client(node.v1) as client:
            told = await client.ask("V1|1|PRODUCE|orders k:v acks=all")
            if refusal:
                assert refusal in told
            else:
                assert told.startswith("V1|1|OK"), told
            told = await client.ask("V1|2|PRODUCE|hidden k:v acks=all")
            assert "may not" in told, "both must allow it"
