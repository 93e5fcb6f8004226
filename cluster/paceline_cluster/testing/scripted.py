"""Errors that a test asks for: the next requests of a kind fail as they are told to."""

from __future__ import annotations

from paceline.errors import PacelineError
from paceline.values import dataclass
from paceline_node.security.principals import Operation, Principal, Resource


@dataclass(slots=True)
class _Script:
    operation: Operation
    resource: str | None
    error: PacelineError
    left: int


class ScriptedErrors:
    """A node's policy that allows everything but what a test wants to fail. Shared by all nodes, so
    that a request fails whichever node takes it; asked once a request and topic."""

    def __init__(self) -> None:
        self._scripts: list[_Script] = []

    def fail_next(
        self, operation: Operation, resource: str | None, error: PacelineError, count: int
    ) -> None:
        """Have the next ``count`` requests fail; ``resource`` None: whatever they are about."""
        self._scripts.append(_Script(operation, resource, error, count))

    def clear(self) -> None:
        """Forget what has not happened yet."""
        self._scripts.clear()

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        """As :meth:`paceline_node.security.principals.Policy.authorize`."""
        for script in self._scripts:
            if script.operation is operation and script.resource in (None, resource.name):
                script.left -= 1
                if script.left <= 0:
                    self._scripts.remove(script)
                raise type(script.error)(*script.error.args)


def operation_named(label: str) -> Operation:
    """``produce``, ``consume``, ``commit-offsets`` ... Raises ValueError naming them all."""
    for operation in Operation:
        if operation.label == label:
            return operation
    known = ", ".join(operation.label for operation in Operation)
    raise ValueError(f"unknown operation {label!r}; expected one of {known}")
