"""The table of the API's pages, for those who ask none of them."""

from __future__ import annotations

from typing import Any

from paceline_node.http.api.pages import Route, routes


class _Pages:
    """Has a page of any name."""

    def __getattr__(self, name: str) -> object:
        return name


def table() -> tuple[Route, ...]:
    pages: Any = _Pages()
    return routes(pages, pages, pages, pages, pages)
