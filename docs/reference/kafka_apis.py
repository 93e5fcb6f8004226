"""Which requests of Kafka's protocol are served, in which versions."""

from __future__ import annotations

from docs.reference.markdown import code, table, whole
from paceline.wire.kafka.apis import APIS

_INTRO = """
Made from the table by which requests are read; clients are told the same by ApiVersions, which is
answered in any version. A request that is not here closes the connection, as in Kafka. Fetch
sessions are declined, so each fetch names all its partitions.
"""


def page() -> str:
    """The page."""
    rows = [
        (
            str(api.key),
            code(api.request.__name__.removesuffix("Request")),
            f"{api.first} to {api.last}",
        )
        for api in sorted(APIS.values(), key=lambda api: api.key)
    ]
    return whole("Kafka requests", _INTRO, table(("key", "request", "versions"), rows))
