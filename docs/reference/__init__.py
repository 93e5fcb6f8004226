"""The reference pages of the site, made from the code whenever the site is built.

Nothing that is made is stored. :data:`PAGES` is all of it; ``../hooks.py`` hands it to MkDocs, and
``tests/unit/docs`` holds each page against what it describes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docs.reference import (
    commands,
    errors,
    http,
    kafka_apis,
    limits,
    metrics,
    outputs,
    python_api,
    settings,
    topic_settings,
    units,
)

PAGES: Mapping[str, Callable[[], str]] = {
    "reference/cli.md": commands.page,
    "reference/json.md": outputs.page,
    "reference/settings.md": settings.page,
    "reference/topic-settings.md": topic_settings.page,
    "reference/units.md": units.page,
    "reference/limits.md": limits.page,
    "reference/metrics.md": metrics.page,
    "reference/errors.md": errors.page,
    "reference/http.md": http.page,
    "reference/kafka-apis.md": kafka_apis.page,
    "reference/python.md": python_api.page,
}
"""Path below ``pages`` -> what makes its Markdown."""
