"""The policy, as services put requests to it (SETTLED P11).

A service asks before it looks or does anything: a refusal tells nothing and changes nothing.
"""

from __future__ import annotations

from paceline_node.security.principals import (
    CLUSTER,
    Operation,
    Policy,
    Principal,
    Resource,
    ResourceKind,
)


class Access:
    """May a principal do something? Both methods return, or raise AuthorizationFailed."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def topic(self, principal: Principal, operation: Operation, name: str) -> None:
        """To a topic, which need not exist."""
        self._policy.authorize(principal, operation, Resource(ResourceKind.TOPIC, name))

    def cluster(self, principal: Principal, operation: Operation) -> None:
        """To the cluster as a whole."""
        self._policy.authorize(principal, operation, CLUSTER)

    def resource(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        """To anything."""
        self._policy.authorize(principal, operation, resource)
