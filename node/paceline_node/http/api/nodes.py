"""Nodes, the quorum, and what this node's process is busy with."""

from __future__ import annotations

from paceline.documents.nodes import (
    NodeAnswer,
    controller_of,
    load_document,
    newest_of,
    node_document,
    quorum_document,
)
from paceline.documents.survey import SeenNode, Survey, health_document
from paceline.errors import ControllerUnavailable
from paceline_node.client_connections import Connection
from paceline_node.http.api.call import Call
from paceline_node.http.api.documents import Document, listed
from paceline_node.loop_turns import Turns
from paceline_node.services.admin.node_loads import LoadViews
from paceline_node.services.admin.node_views import NodeViews
from paceline_node.services.admin.process_views import ProcessViews, TaskView


class NodePages:
    """Nodes of the cluster, and this one."""

    def __init__(
        self, views: NodeViews, loads: LoadViews, process: ProcessViews, turns: Turns
    ) -> None:
        self._loads = loads
        self._views = views
        self._process = process
        self._turns = turns

    async def nodes(self, call: Call) -> Document:
        """All of them, each as it says itself."""
        seen = await self._views.all(call.principal)
        controller = controller_of(each.status for each in seen.answers if each.status is not None)
        nodes = [
            node_document(each, controller=controller, listeners=seen.listeners[each.node])
            for each in seen.answers
        ]
        return {"cluster_id": str(seen.cluster_id), "controller": controller, "nodes": nodes}

    async def load(self, call: Call) -> Document:
        """What all have done since their processes began."""
        found = await self._loads.all(call.principal)
        return {"nodes": [load_document(*each) for each in found]}

    async def health(self, call: Call) -> Document:
        """As ``health``."""
        seen = await self._views.all(call.principal)
        return health_document(Survey(tuple(map(_seen, seen.answers))))

    async def quorum(self, call: Call) -> Document:
        """As ``quorum describe``."""
        seen = await self._views.all(call.principal)
        newest = newest_of(each.status for each in seen.answers if each.status is not None)
        if newest is None:
            raise ControllerUnavailable("this node is registered nowhere yet")
        return quorum_document(seen.answers, newest)

    async def connections(self, call: Call) -> Document:
        """Those of this node's clients."""
        page = await self._process.connections(
            call.principal, after=call.after_number(), limit=call.limit
        )
        connections = await self._turns.run(listed(page.items, _connection))
        return {
            "node": self._process.node_id,
            "connections": connections,
            "next": str(connections[-1]["id"]) if page.has_more else None,
        }

    async def tasks(self, call: Call) -> Document:
        """Those of this node's process."""
        found = await self._process.tasks(call.principal)
        return {
            "node": self._process.node_id,
            "loop_delay_ms": int(self._process.loop_delay_s * 1000),
            "tasks": await self._turns.run(listed(found, _task)),
        }


def _seen(found: NodeAnswer) -> SeenNode:
    return SeenNode(found.node, "", None, found.status, error=found.reason)


def _connection(found: Connection) -> Document:
    return {
        "id": found.number,
        "protocol": found.protocol,
        "address": found.address,
        "principal": found.principal or None,
        "encrypted": found.is_encrypted,
        "age_ms": int(found.age_s * 1000),
        "held_bytes": found.held_bytes,
    }


def _task(found: TaskView) -> Document:
    return {
        "name": found.name,
        "count": found.count,
        "long_slices": found.long_slices,
        "longest_slice_ms": round(found.longest_slice_s * 1000, 3),
    }
