"""``topic alter``: changes settings, and says what was changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import trio

from paceline.client import Client
from paceline.documents.topics import configs_of, is_of_topic
from paceline.wire.native.data import EffectiveSetting, TopicDescription
from paceline_cluster.cli.complete import complete_topics
from paceline_cluster.cli.complete_settings import complete_topic_settings
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client
from paceline_cluster.cli.units import UNITS_HELP, plain

LEADER_WAIT_S = 2.0
"""How long leaders are waited for that do not answer: the change is made without them."""
NEWS_WAIT_S = 5.0
"""How long leaders may take to hear of it."""
LOOK_S = 0.05


def _configs(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    configs = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is no NAME=VALUE")
        if name in configs:
            raise click.BadParameter(f"{name} is there twice")
        try:
            configs[name] = plain(name, value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return configs


config_option = click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_configs,
    shell_complete=complete_topic_settings,
    help=f"A setting of the topic. {UNITS_HELP}.",
)


@click.command()
@click.argument("name", shell_complete=complete_topics)
@client_options
@config_option
@click.option(
    "--unset",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_topic_settings,
    help="Back to the value for topics that do not set it.",
)
@output_option
def alter(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    configs: dict[str, str],
    unset: tuple[str, ...],
    printer: Printer,
) -> None:
    """Change settings of a topic, all or none. What was changed is shown, with the value before,
    the value now, and where that is from, as in 'topic describe'."""
    if not configs and not unset:
        raise click.UsageError("nothing to change: give --config or --unset")
    if both := sorted(configs.keys() & set(unset)):
        raise click.UsageError(f"{', '.join(both)}: both in --config and in --unset")
    changes: dict[str, str | None] = {**configs, **dict.fromkeys(unset)}

    async def work(client: Client) -> tuple[TopicDescription, TopicDescription]:
        before = await client.admin.describe_topic(name, settings=True, timeout_s=LEADER_WAIT_S)
        await client.admin.alter_topic(name, changes)
        return before, await _after(client, name, changes)

    before, after = with_client(find(directory, bootstrap), work)
    shown = []
    for each in sorted(changes):
        value, source = _held(after, each)
        former, _ = _held(before, each)
        shown.append({"name": each, "before": former, "after": value, "source": source})
    printer.result(
        {"name": name, "changes": shown, "configs": configs_of(after)},
        Table(("setting", "before", "after", "source"), [tuple(row.values()) for row in shown]),
    )


async def _after(client: Client, name: str, changes: Mapping[str, str | None]) -> TopicDescription:
    """The topic as all leaders that answer know it with the changes."""
    deadline = trio.current_time() + NEWS_WAIT_S
    while True:
        found = await client.admin.describe_topic(name, settings=True, timeout_s=LEADER_WAIT_S)
        late = any(
            each.name in changes and not _is_as_wanted(each, changes[each.name])
            for each in found.settings
        )
        if not late or trio.current_time() > deadline:
            return found
        await trio.sleep(LOOK_S)


def _is_as_wanted(held: EffectiveSetting, wanted: str | None) -> bool:
    return not is_of_topic(held) if wanted is None else held.value == wanted


def _held(topic: TopicDescription, name: str) -> tuple[str | None, str | None]:
    """What holds for a topic, and where that is from, of leaders that differ from each of them.
    Where no leader says it, what is set for the topic."""
    if not topic.settings:
        value = (topic.configs or {}).get(name)
        return value, None if value is None else "topic"
    found = [each for each in topic.settings if each.name == name]
    values = dict.fromkeys(each.value for each in found)
    sources = dict.fromkeys(each.source for each in found)
    return ", ".join(values), "; ".join(sources)
