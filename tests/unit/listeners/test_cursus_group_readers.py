"""Who reads for a group may act on it: streams end others of the same group."""

from __future__ import annotations

import trio

from paceline.wire.cursus.batch import parse_batch
from paceline_node.security.principals import AllowAll, Operation, Principal, Resource, refuse
from tests.unit.listeners.lone import lone_node

REFUSED = "ERROR: NOT_AUTHORIZED_FOR_OPERATION command={} permission=group"


class Strangers:
    """Who calls himself a stranger may read topics, and do nothing to groups."""

    def __init__(self) -> None:
        self._allow = AllowAll()

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        self._allow.authorize(principal, operation, resource)
        if principal.name == "stranger" and operation is Operation.JOIN_GROUP:
            refuse(principal, operation, resource)


async def test_a_stranger_ends_no_stream_of_a_group(tmp_path, autojump_clock) -> None:
    async with lone_node(tmp_path, policy=Strangers()) as node:
        v1 = await node.v1()
        assert (await v1.say("PRODUCE", "orders k:v acks=all")).startswith("OK")
        read = "topic=orders partition=0 offset=0 group=team member=m"
        member, stranger = await node.cursus(), await node.cursus()
        first = parse_batch(await member.ask(f"STREAM {read}".encode()))
        assert [record.payload for record in first.records] == [b"v"]

        await stranger.say("AUTH principal=stranger auth_token=x")
        assert (await stranger.say(f"STREAM {read}")).startswith(REFUSED.format("STREAM"))
        assert (await stranger.say(f"CONSUME {read}")).startswith(REFUSED.format("CONSUME"))
        unnamed = await stranger.ask(b"CONSUME topic=orders partition=0 offset=0")
        assert len(parse_batch(unnamed).records) == 1, "nobody's group"

        assert (await v1.say("PRODUCE", "orders k:w acks=all")).startswith("OK")
        with trio.fail_after(60):
            while not (frame := await member.next()):
                pass  # keepalives
        assert [record.payload for record in parse_batch(frame).records] == [b"w"]
