"""The client library: producers, consumers and administration of a Paceline cluster, on trio.

Programs import from here (or from ``paceline`` itself); scripts without an event loop from
``paceline.client.blocking``. See README.md.
"""

from paceline.assignors.registry import Assignor
from paceline.client.admin import Admin, ClusterDescription
from paceline.client.batch_portion import Portion
from paceline.client.batching import BatchMetadata, RecordMetadata
from paceline.client.client import Client, connect
from paceline.client.consumed import ConsumedBatch, ConsumedRecord
from paceline.client.consumer import Consumer
from paceline.client.coordinated_consumer import CoordinatedConsumer
from paceline.client.driven_membership import DrivenSettings
from paceline.client.endpoint import Endpoint
from paceline.client.fetcher import OutOfRange
from paceline.client.group_consumer import GroupConsumer
from paceline.client.group_settings import GroupSettings, RebalanceListener
from paceline.client.position import Position
from paceline.client.producer import Delivery, Producer
from paceline.client.segment_reader import SegmentReader
from paceline.client.segment_writer import BlockShape, SegmentWriter, SegmentWriterSettings
from paceline.client.segments import SegmentInfo, Segments
from paceline.client.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    TransactionalSettings,
)
from paceline.client.sinks import Sinks
from paceline.client.transactional import TransactionalProducer
from paceline.client.uncommitted_records import GroupMember
from paceline.login import ClientLogin
from paceline.tls import ClientTls
from paceline.wire.native.acls import (
    Acl,
    AclEffect,
    AclFilter,
    AclOperation,
    AclPattern,
    AclResource,
)

__all__ = [
    "Acl",
    "AclEffect",
    "AclFilter",
    "AclOperation",
    "AclPattern",
    "AclResource",
    "Admin",
    "Assignor",
    "BatchMetadata",
    "BlockShape",
    "Client",
    "ClientLogin",
    "ClientSettings",
    "ClientTls",
    "ClusterDescription",
    "ConsumedBatch",
    "ConsumedRecord",
    "Consumer",
    "ConsumerSettings",
    "CoordinatedConsumer",
    "Delivery",
    "DrivenSettings",
    "Endpoint",
    "GroupConsumer",
    "GroupMember",
    "GroupSettings",
    "OutOfRange",
    "Portion",
    "Position",
    "Producer",
    "ProducerSettings",
    "RebalanceListener",
    "RecordMetadata",
    "SegmentInfo",
    "SegmentReader",
    "SegmentWriter",
    "SegmentWriterSettings",
    "Segments",
    "Sinks",
    "TransactionalProducer",
    "TransactionalSettings",
    "connect",
]
