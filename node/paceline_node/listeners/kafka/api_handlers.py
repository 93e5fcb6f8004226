"""Which handler answers which Kafka request: one row an API key."""

from __future__ import annotations

from paceline_node.env import Env
from paceline_node.listeners.kafka.acls import KafkaAcls
from paceline_node.listeners.kafka.call import Handlers
from paceline_node.listeners.kafka.cluster import KafkaCluster
from paceline_node.listeners.kafka.delete_records import KafkaDeleteRecords
from paceline_node.listeners.kafka.fetch import KafkaFetch
from paceline_node.listeners.kafka.groups import KafkaGroupRequests
from paceline_node.listeners.kafka.offsets import KafkaOffsets
from paceline_node.listeners.kafka.quotas import KafkaQuotas
from paceline_node.listeners.kafka.reassignments import KafkaReassignments
from paceline_node.listeners.kafka.topics import KafkaTopics
from paceline_node.listeners.kafka.transactions import KafkaTransactions
from paceline_node.listeners.kafka.users import KafkaUsers
from paceline_node.services.admin.topic_deletion import TopicDeletion
from paceline_node.services.broker_services import BrokerServices


def api_handlers(env: Env, services: BrokerServices, removal: TopicDeletion) -> Handlers:
    """By API key; PRODUCE (0), and what a connection answers by itself, are ``connection.py``'s."""
    cluster = KafkaCluster(
        services.topics,
        services.groups,
        services.status,
        services.transactions,
        services.authorized,
    )
    fetch = KafkaFetch(env, services.fetch, services.offsets, services.turns)
    groups = KafkaGroupRequests(services.groups, services.authorized)
    offsets = KafkaOffsets(services.groups)
    topics = KafkaTopics(services.topics, removal)
    transactions = KafkaTransactions(
        services.producer_ids,
        services.transactions,
        services.transaction_offsets,
        services.groups,
        services.produce,
    )
    trims = KafkaDeleteRecords(services.trimming)
    moves = KafkaReassignments(services.topics)
    users = KafkaUsers(services.users)
    acls = KafkaAcls(services.acls)
    quotas = KafkaQuotas(services.quotas)
    return {
        1: fetch.fetch,
        2: fetch.list_offsets,
        3: cluster.metadata,
        8: offsets.commit,
        9: offsets.fetch,
        10: cluster.find_coordinator,
        11: groups.join,
        12: groups.heartbeat,
        13: groups.leave,
        14: groups.sync,
        15: groups.describe,
        16: groups.list,
        19: topics.create,
        20: topics.delete,
        21: trims.delete_records,
        22: transactions.init_producer,
        23: fetch.end_of_epoch,
        24: transactions.add_partitions,
        25: transactions.add_offsets,
        26: transactions.end,
        28: transactions.commit_offsets,
        29: acls.describe,
        30: acls.create,
        31: acls.delete,
        32: topics.describe_configs,
        37: topics.grow,
        42: groups.delete,
        44: topics.alter_configs,
        45: moves.alter,
        46: moves.list,
        47: offsets.delete,
        48: quotas.describe,
        49: quotas.alter,
        50: users.describe,
        51: users.alter,
        60: cluster.describe_cluster,
    }
