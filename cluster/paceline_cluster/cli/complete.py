"""Shell completion of names that only the cluster knows, within a second."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import click
import trio
from click.shell_completion import CompletionItem

from paceline.errors import PacelineError
from paceline.types import is_internal_topic
from paceline.wire.native.data import MetadataReply
from paceline_cluster import profiles
from paceline_cluster.cli.find_cluster import find
from paceline_cluster.errors import ClusterError
from paceline_cluster.node_calls import ask_metadata

T = TypeVar("T")
LIMIT_S = 1.0


def complete_topics(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of topics that begin with what was typed; the cluster's own ones only if that begins
    as they do."""
    reply = _metadata(ctx)
    names = [] if reply is None else [topic.name for topic in reply.topics]
    asked = is_internal_topic(incomplete)
    return _items(sorted(n for n in names if asked or not is_internal_topic(n)), incomplete)


def complete_groups(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of groups, of the family that the line so far names if it does."""
    family = ctx.params.get("family")
    found = _asked(ctx, lambda addresses: _groups(addresses, family)) or []
    return _items(sorted(set(found)), incomplete)


def complete_nodes(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Nodes by number."""
    reply = _metadata(ctx)
    numbers = [] if reply is None else sorted(broker.node_id for broker in reply.brokers)
    return _items([str(number) for number in numbers], incomplete)


def complete_members(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Members of the group that the line so far names."""
    group = ctx.params.get("name")
    return [] if group is None else _items(_asked(ctx, partial(_members, group)) or [], incomplete)


def complete_clusters(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of the clusters that are known on this machine."""
    try:
        names = [each.name for each in profiles.known()]
    except ClusterError:
        names = []
    return _items(names, incomplete)


def complete_targets(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Nodes by number, ``controller``, and leaders of partitions."""
    reply = _metadata(ctx)
    names = ["controller"]
    if reply is not None:
        names += [str(broker.node_id) for broker in reply.brokers]
        names += [
            f"leader-of:{topic.name}/{partition.partition}"
            for topic in reply.topics
            for partition in topic.partitions
        ]
    return _items(names, incomplete)


def _items(names: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _metadata(ctx: click.Context) -> MetadataReply | None:
    """What the cluster that the line so far means knows; None when it does not say in time."""
    return _asked(ctx, _first_answer)


def _asked(ctx: click.Context, ask: Callable[[tuple[str, ...]], Awaitable[T | None]]) -> T | None:
    """None also at Ctrl-C: whatever is said would stand in the middle of the line."""
    try:
        ref = find(ctx.params.get("directory"), ctx.params.get("bootstrap") or ())
        return trio.run(ask, ref.bootstrap())
    except (ClusterError, KeyboardInterrupt):
        return None


async def _groups(addresses: tuple[str, ...], family: str | None) -> list[str] | None:
    from paceline.client import connect  # the rest of completion does without

    with trio.move_on_after(LIMIT_S):
        try:
            async with connect(addresses) as client:
                listed = await client.admin.groups.list(families=[family] if family else ())
                return [each.group for each in listed]
        except PacelineError:
            return None
    return None


async def _members(group: str, addresses: tuple[str, ...]) -> list[str] | None:
    from paceline.client import connect

    with trio.move_on_after(LIMIT_S):
        try:
            async with connect(addresses) as client:
                found = await client.admin.groups.describe(group)
                return [each.instance_id or each.member_id for each in found.members]
        except PacelineError:
            return None
    return None


async def _first_answer(addresses: tuple[str, ...]) -> MetadataReply | None:
    with trio.move_on_after(LIMIT_S):
        for address in addresses:
            try:
                return await ask_metadata(address, None)
            except PacelineError:
                continue
    return None
