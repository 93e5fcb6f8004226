"""What can be set for a topic."""

from __future__ import annotations

from docs.reference.markdown import code, line, table, whole
from paceline_node.settings.topic_config import KEYS, ConfigKey

_INTRO = """
Made from the table by which the controller checks them. Set them with `paceline topic create NAME
--config KEY=VALUE` or `paceline topic alter NAME --config KEY=VALUE`, or with a Kafka admin
client. The command takes times and sizes [with units](units.md): `retention.ms=7d`,
`retention.bytes=10GiB`. The cluster keeps milliseconds and bytes, and other clients say those.

What is not set for a topic comes from the node's [settings](settings.md) where those have it, and
else is the default here. `paceline topic describe NAME` shows what holds, and where each setting is
from: `topic` (set for it), `node` (the nodes' settings) or `default`. `min.insync.replicas` is
written down when a topic is made, and does not follow the nodes' settings later: its source is
`topic` where these would give a new topic another value now.
"""


def page() -> str:
    """The page."""
    rows = [
        (code(key.name), code(key.default), _allowed(key), line(key.doc)) for key in KEYS.values()
    ]
    return whole("Topic settings", _INTRO, table(("key", "default", "allowed", "meaning"), rows))


def _allowed(key: ConfigKey) -> str:
    return ", ".join(map(code, key.choices)) or key.allowed
