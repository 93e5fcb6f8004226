"""Which path of /api is which page, and how each is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from urllib.parse import unquote

from paceline.errors import AuthenticationFailed, InvalidRequest
from paceline.values import dataclass
from paceline_node.env import RunBlocking
from paceline_node.fair_places import FairPlaces
from paceline_node.http.api.call import Call, parameters
from paceline_node.http.api.documents import Document, encoded
from paceline_node.http.api.groups import GroupPages
from paceline_node.http.api.nodes import NodePages
from paceline_node.http.api.records import RecordPages
from paceline_node.http.api.topics import TopicPages
from paceline_node.http.api.transactions import TransactionPages
from paceline_node.http.lazy_imports import load
from paceline_node.http.page import Asked, Page
from paceline_node.http.problems import problem
from paceline_node.loop_turns import Turns
from paceline_node.security.principals import Principal, Proof

PREFIX = "/api/"
DESCRIPTION = "/api/openapi.json"
_JSON = "application/json"
_AT_ONCE = 8
"""Pages that are made at a time: each may take some megabytes until it is sent."""
_OF_ONE = 4
"""Of those who ask from one address: a page may wait for seconds for other nodes."""
Make = Callable[[Call], Awaitable[Document]]


@dataclass(frozen=True, slots=True)
class Route:
    """A page: its path, with names of things in braces, and the parameters it takes."""

    template: str
    make: Make
    parameters: frozenset[str] = frozenset()


def routes(
    topics: TopicPages,
    records: RecordPages,
    groups: GroupPages,
    transactions: TransactionPages,
    nodes: NodePages,
) -> tuple[Route, ...]:
    """All pages but the description of them."""
    paged = frozenset({"limit", "after"})
    of_partitions = paged | {"topic", "node", "trouble", "internal"}
    return (
        Route("/api/topics", topics.topics, paged | {"internal"}),
        Route("/api/topics/{topic}", topics.topic, paged),
        Route("/api/topics/{topic}/partitions/{partition}", topics.partition),
        Route(
            "/api/topics/{topic}/partitions/{partition}/records",
            records.records,
            frozenset({"limit", "offset", "time", "last", "contains"}),
        ),
        Route("/api/partitions", topics.partitions, of_partitions),
        Route("/api/groups", groups.groups, paged | {"family", "state"}),
        Route("/api/groups/{group}", groups.group, paged | {"family", "subject"}),
        Route("/api/transactions", transactions.transactions, paged | {"state"}),
        Route("/api/health", nodes.health),
        Route("/api/load", nodes.load),
        Route("/api/nodes", nodes.nodes),
        Route("/api/quorum", nodes.quorum),
        Route("/api/connections", nodes.connections, paged),
        Route("/api/tasks", nodes.tasks),
    )


class ApiPages:
    """All of them. With ``must_log_in`` nobody is answered who has not said who he is; what
    somebody may see the services say."""

    prefix = PREFIX

    def __init__(
        self,
        table: Iterable[Route],
        turns: Turns,
        run_blocking: RunBlocking,
        *,
        must_log_in: bool = False,
    ) -> None:
        self._routes = {tuple(each.template.split("/")): each for each in table}
        self._turns = turns
        self._run_blocking = run_blocking
        self._must_log_in = must_log_in
        self._places = FairPlaces(_AT_ONCE, of_one=_OF_ONE)
        self._description: Page | None = None

    @property
    def templates(self) -> tuple[str, ...]:
        """The paths of all pages."""
        return (DESCRIPTION, *(each.template for each in self._routes.values()))

    def counted_as(self, path: str) -> str:
        """The path with names of things in braces."""
        found = self._find(path)
        return path if found is None else found[0].template

    async def page(self, asked: Asked, principal: Principal) -> Page:
        """The page. Raises PacelineError."""
        if asked.path == DESCRIPTION:
            return await self._described()
        if self._find(asked.path) is None:
            return problem(
                HTTPStatus.NOT_FOUND, f"no page {asked.path}", f"{DESCRIPTION} describes those"
            )
        async with self._places.place():
            document = await self.document(asked, principal)
            return Page(await self._turns.run(encoded(document)), _JSON)

    async def document(self, asked: Asked, principal: Principal) -> Document:
        """The same for who has it written down himself. Raises PacelineError."""
        if self._must_log_in and principal.proof is Proof.NONE:
            raise AuthenticationFailed("this listener answers only those who log in")
        found = self._find(asked.path)
        if found is None:
            raise InvalidRequest(f"no page {asked.path}: {DESCRIPTION} describes those")
        route, names = found
        return await route.make(Call(principal, names, parameters(asked.query, route.parameters)))

    def _find(self, path: str) -> tuple[Route, Mapping[str, str]] | None:
        parts = path.split("/")
        for template, route in self._routes.items():
            if len(template) == len(parts):
                pairs = list(zip(template, parts, strict=True))
                names = {mask[1:-1]: unquote(part) for mask, part in pairs if mask[:1] == "{"}
                if all(mask[:1] == "{" or mask == part for mask, part in pairs) and all(
                    names.values()
                ):
                    return route, names
        return None

    async def _described(self) -> Page:
        """What all pages look like; made when somebody wants to know."""
        if self._description is None:
            await load("paceline_node.http.api.openapi")
            from paceline_node.http.api.openapi import text

            self._description = Page(await self._run_blocking(partial(text)), _JSON)
        return self._description


class ApiOfStarting:
    """Stands in their place until the node serves. ``reasons``: what it waits for."""

    prefix = PREFIX

    def __init__(self, reasons: Callable[[], Iterable[str]]) -> None:
        self._reasons = reasons

    def counted_as(self, path: str) -> str:
        """Nobody counts."""
        return path

    async def page(self, _asked: Asked, _principal: Principal) -> Page:
        """Why there is none."""
        text = f"this node is starting: {'; '.join(self._reasons())}"
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, text, "/ready says when it serves")
