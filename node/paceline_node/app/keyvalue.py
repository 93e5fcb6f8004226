"""The tables' machines of a node."""

from __future__ import annotations

from paceline_node.env import Env
from paceline_node.keyvalue.machine import TableLimits, TableMachine
from paceline_node.keyvalue.records import TABLES_TOPIC
from paceline_node.replication.manager import ReplicaManager
from paceline_node.settings.limits import LimitSettings
from paceline_node.state_machines.topic import StateTopic


def table_machines(
    env: Env, limits: LimitSettings, replicas: ReplicaManager
) -> StateTopic[TableMachine]:
    """The machines of ``__tables``; run them."""
    bounds = TableLimits(limits.tables, limits.table_keys, all_bytes=limits.table_bytes)
    return StateTopic(env, TABLES_TOPIC, replicas, lambda _: TableMachine(bounds))
