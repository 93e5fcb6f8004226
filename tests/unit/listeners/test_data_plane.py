"""The fake data plane is called as the services are: what they change, it follows."""

from __future__ import annotations

import inspect

import pytest

from paceline_node.services.groups.group_service import GroupService
from paceline_node.services.groups.open_kafka_group import OpenKafkaGroup
from paceline_node.services.records.fetch import FetchService
from paceline_node.services.records.list_offsets import OffsetService
from paceline_node.services.records.produce import ProduceService
from paceline_node.services.records.trim import TrimService
from tests.unit.listeners.data_plane import FakeFetch, FakeOffsets, FakeProduce, FakeTrimming
from tests.unit.listeners.fake_groups import FakeGroup, FakeGroups

ONLY_FAKES = {"settle"}
"""What tests call."""


@pytest.mark.parametrize(
    ("fake", "real"),
    [
        (FakeProduce, ProduceService),
        (FakeFetch, FetchService),
        (FakeOffsets, OffsetService),
        (FakeTrimming, TrimService),
        (FakeGroups, GroupService),
        (FakeGroup, OpenKafkaGroup),
    ],
    ids=lambda each: each.__name__,
)
def test_its_methods_are_those_of_the_services(fake: type, real: type) -> None:
    methods = inspect.getmembers(fake, inspect.isfunction)
    public = {name for name, _ in methods if not name.startswith("_")} - ONLY_FAKES
    assert public
    for name in public:
        ours, theirs = getattr(fake, name), getattr(real, name)
        asked = [
            [(each.name, each.kind, each.default) for each in signature.parameters.values()]
            for signature in map(inspect.signature, (ours, theirs))
        ]
        assert asked[0] == asked[1], name
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs), name
