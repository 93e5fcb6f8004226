"""Whether this node has a session with a controller, for those who ask before it has one."""

from __future__ import annotations

from paceline_node.controller.lifecycle import Lifecycle


class ControllerSession:
    """Of one node. ``without_controller``: it needs none (``broker.without_controller``).
    ``lifecycle`` keeps the session, as soon as there is one."""

    def __init__(self, *, without_controller: bool) -> None:
        self._is_needed = not without_controller
        self.lifecycle: Lifecycle | None = None

    def is_valid(self) -> bool:
        """Whether the node may acknowledge and serve as what the controller has made it."""
        if not self._is_needed:
            return True
        return self.lifecycle is not None and self.lifecycle.session_valid
