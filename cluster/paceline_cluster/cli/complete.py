"""Shell completion of names that only the cluster knows: topics and nodes, within a second."""

from __future__ import annotations

import click
import trio
from click.shell_completion import CompletionItem

from paceline.errors import PacelineError
from paceline.wire.native.data import MetadataReply
from paceline_cluster import profiles
from paceline_cluster.cli.find import find
from paceline_cluster.errors import ClusterError
from paceline_cluster.nodecalls import ask_metadata

LIMIT_S = 1.0


def complete_topics(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of topics that begin with what was typed."""
    reply = _metadata(ctx)
    names = [] if reply is None else [topic.name for topic in reply.topics]
    return _items(sorted(names), incomplete)


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
    try:
        ref = find(ctx.params.get("directory"), ctx.params.get("bootstrap") or ())
        addresses = ref.bootstrap()
    except ClusterError:
        return None
    return trio.run(_first_answer, addresses)


async def _first_answer(addresses: tuple[str, ...]) -> MetadataReply | None:
    with trio.move_on_after(LIMIT_S):
        for address in addresses:
            try:
                return await ask_metadata(address, None)
            except PacelineError:
                continue
    return None
