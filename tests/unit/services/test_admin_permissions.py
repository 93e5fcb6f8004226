from __future__ import annotations

import pytest

from paceline.types import NodeId
from paceline.wire.message import Message
from paceline.wire.native import acls, admin, quotas, users
from paceline.wire.peer.control import CreateSegmentRequest, DeleteSegmentRequest
from paceline_node.controller.client import EXCHANGES
from paceline_node.security.principals import CLUSTER, Operation, Resource, ResourceKind
from paceline_node.services.authorization.admin_permissions import PERMISSIONS, permissions_for

ORDERS = Resource(ResourceKind.TOPIC, "orders")
ADMINISTER = (Operation.ADMINISTER, CLUSTER)


def test_every_administrative_request_says_what_it_needs() -> None:
    modules = {each.__name__ for each in (acls, admin, quotas, users)}
    asked = {each.request for each in EXCHANGES if each.request.__module__ in modules}
    assert set(PERMISSIONS) == asked | {CreateSegmentRequest, DeleteSegmentRequest}


def test_needs_make_sense_and_name_the_topic() -> None:
    values = {"str": "orders", "int": 0, "NodeId": 0, "bool": False}
    for kind in PERMISSIONS:
        fields = kind.__annotations__
        request = kind(*[values.get(str(fields[name]), {}) for name in fields])  # type: ignore[call-arg]
        for operation, resource in permissions_for(request):
            assert resource.kind in operation.kinds, kind
            name = "" if resource.kind is ResourceKind.CLUSTER else "orders"
            assert resource.name == name, kind
    moved = permissions_for(admin.CreateTopic("t"))
    assert moved == ((Operation.CREATE, Resource(ResourceKind.TOPIC, "t")),)


@pytest.mark.parametrize(
    ("request_", "needs"),
    [
        (
            admin.AlterTopic("orders", {"retention.ms": "1"}),
            ((Operation.ALTER_CONFIGS, ORDERS),),
        ),
        (
            admin.AlterTopic("orders", {"retention.ms": "1", "access.readers": None}),
            ((Operation.ALTER_CONFIGS, ORDERS), ADMINISTER),
        ),
        (admin.ElectLeader("orders", 0, NodeId(1)), ((Operation.MOVE_LEADER, ORDERS),)),
        (admin.ElectLeader("orders", 0, NodeId(1), unclean=True), (ADMINISTER,)),
        (
            admin.AlterGroup("team", ("orders",)),
            (
                (Operation.ALTER, Resource(ResourceKind.GROUP, "team")),
                (Operation.DESCRIBE, ORDERS),
            ),
        ),
    ],
)
def test_what_takes_more(request_: Message, needs: tuple[tuple[Operation, Resource], ...]) -> None:
    assert permissions_for(request_) == needs
