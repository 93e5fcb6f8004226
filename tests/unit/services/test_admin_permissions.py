from __future__ import annotations

from paceline.wire.native import acls, admin, users
from paceline.wire.peer.control import CreateSegmentRequest, DeleteSegmentRequest
from paceline_node.controller.client import EXCHANGES
from paceline_node.security.principals import Operation, Resource, ResourceKind
from paceline_node.services.admin_permissions import PERMISSIONS, permission_for


def test_every_administrative_request_says_what_it_needs() -> None:
    modules = {acls.__name__, admin.__name__, users.__name__}
    asked = {each.request for each in EXCHANGES if each.request.__module__ in modules}
    assert set(PERMISSIONS) == asked | {CreateSegmentRequest, DeleteSegmentRequest}


def test_needs_make_sense_and_name_the_topic() -> None:
    values = {"str": "orders", "int": 0, "NodeId": 0, "bool": False}
    for kind in PERMISSIONS:
        fields = kind.__annotations__
        request = kind(*[values.get(str(fields[name]), {}) for name in fields])  # type: ignore[call-arg]
        operation, resource = permission_for(request)
        assert resource.kind in operation.kinds, kind
        assert resource.name == ("" if resource.kind is ResourceKind.CLUSTER else "orders"), kind
    moved = permission_for(admin.CreateTopic("t"))
    assert moved == (Operation.CREATE, Resource(ResourceKind.TOPIC, "t"))
