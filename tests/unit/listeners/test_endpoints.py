"""Addresses of listeners as nodes register them (paceline_node/DESIGN 3.3)."""

from __future__ import annotations

from paceline.types import KAFKA_ENDPOINT, NodeId
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import Endpoint, RegisterBroker, decode_record
from paceline_node.listeners.kafka.call import LISTENER
from paceline_node.settings import ListenerKind
from tests.unit.controller.bench import CLUSTER

REGISTERED = bytes.fromhex(
    "9302009a00ffc4100000000000000000000000000000000101c41000000000000000000000000000000002ffc39293"
    "a66e6174697665a831302e302e302e31cd1ce893ab636f6f7264696e61746f72a831302e302e302e31cd23e8a000"
)
"""Node 0 with listeners ``native`` and ``coordinator``, as written when that one had this name."""


def test_kafka_clients_find_nodes_that_registered_before_the_listener_was_called_kafka() -> None:
    record = decode_record(REGISTERED)
    assert isinstance(record, RegisterBroker)
    broker = Image.bootstrap(CLUSTER).apply(2, (record,)).brokers[NodeId(0)]
    assert broker.endpoint(LISTENER) == Endpoint("coordinator", "10.0.0.1", 9192)


def test_nodes_register_what_others_look_for() -> None:
    """Also nodes and clients that know the older name alone."""
    assert ListenerKind.KAFKA.endpoint == LISTENER == KAFKA_ENDPOINT == "coordinator"
    others = [kind for kind in ListenerKind if kind is not ListenerKind.KAFKA]
    assert [kind.endpoint for kind in others] == [kind.value for kind in others]
