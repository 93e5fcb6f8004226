"""The policy, as services put requests to it (DESIGN 1), and what a topic itself says.

A service asks before it looks or does anything: a refusal tells nothing and changes nothing. A
topic's own rules (``access.policy``) hold whatever protocol it is used by; other nodes have judged
what they send on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paceline.errors import AuthorizationFailed
from paceline.wire.native.acls import ANY_NAME
from paceline_node.security.principals import (
    ANONYMOUS,
    CLUSTER,
    Operation,
    Policy,
    Principal,
    Proof,
    Resource,
    ResourceKind,
    refuse,
)
from paceline_node.settings.topic_config import ACCESS_POLICY, ACCESS_READERS, ACCESS_WRITERS

TopicConfigs = Callable[[str], Mapping[str, str]]
_GUARDED = {
    Operation.PRODUCE: ("deny_write", ACCESS_WRITERS),
    Operation.CONSUME: ("deny_read", ACCESS_READERS),
}
_ANYBODY_KNOWN = "*"


class Authorizer:
    """May a principal do something? Every method but ``allows`` returns, or raises
    AuthorizationFailed.

    ``configs`` gives a topic's configuration, empty for one that does not exist. Once the cluster
    ``is_guarded`` a topic's lists name only those whose names were proved: others may call
    themselves what they like.
    """

    def __init__(
        self,
        policy: Policy,
        configs: TopicConfigs,
        *,
        is_guarded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._policy = policy
        self._configs = configs
        self._is_guarded = is_guarded

    @property
    def is_guarded(self) -> bool:
        """Whether anything is refused that nothing allows."""
        return self._is_guarded()

    def topic(self, principal: Principal, operation: Operation, name: str) -> None:
        """To a topic, which need not exist."""
        resource = Resource(ResourceKind.TOPIC, name)
        self._policy.authorize(principal, operation, resource)
        guarded = _GUARDED.get(operation)
        if guarded is not None and principal.proof is not Proof.CLUSTER_SECRET:
            configs = self._configs(name)
            rule = configs.get(ACCESS_POLICY)
            if rule is None or rule == "open":
                return
            denied, listing = guarded
            if rule == denied or (
                rule == "acl" and not self._lists(configs.get(listing), principal)
            ):
                refuse(principal, operation, resource)

    def _lists(self, names: str | None, principal: Principal) -> bool:
        name = principal.name
        if principal.proof is Proof.NONE and self._is_guarded():
            name = ANONYMOUS.name
        listed = (names or "").split(",")
        return name in listed or (_ANYBODY_KNOWN in listed and name != ANONYMOUS.name)

    def cluster(self, principal: Principal, operation: Operation) -> None:
        """To the cluster as a whole."""
        self._policy.authorize(principal, operation, CLUSTER)

    def resource(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        """To anything."""
        self._policy.authorize(principal, operation, resource)

    def sees_all(self, principal: Principal, kind: ResourceKind) -> bool:
        """Whether a rule has it describe whatever there is of a kind, so that lists leave out
        at most what is denied by name."""
        return self.allows(principal, Operation.DESCRIBE, Resource(kind, ANY_NAME))

    def allows(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Whether it may, a topic's own rules included: for lists, which leave out what the caller
        may not know of."""
        try:
            if resource.kind is ResourceKind.TOPIC:
                self.topic(principal, operation, resource.name)
            else:
                self.resource(principal, operation, resource)
        except AuthorizationFailed:
            return False
        return True
