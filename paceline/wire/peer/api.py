"""Numbers of the peer protocol's requests, as they stand in a frame's ``api`` field."""

from __future__ import annotations

import enum


class PeerApi(enum.IntEnum):
    """Requests between nodes; numbers below 100 are the native protocol's (``wire/native``),
    which the peer port serves as well, for forwarding."""

    HELLO = 100
    PROVE = 101
    PING = 102
    RAFT = 110
    REPLICA_FETCH = 120
    REPLICA_ACK = 121
    SUSPECT_CORRUPT = 122
    FETCH_RANGE = 123
    FETCH_STATE = 124
    REGISTER_BROKER = 130
    HEARTBEAT = 131
    ALTER_PARTITION = 132
    REPORT_DAMAGED = 133
    ALLOCATE_PRODUCER_IDS = 134
    CONTROLLER_REQUEST = 135
    CLUSTER_STOPPING = 136
    JOIN_CLUSTER = 137
    V1_LINE = 140
    CURSUS_FRAME = 141
    PARTITION_BOUNDS = 142
    CURSUS_GROUPS = 143
    CURSUS_ENDS = 144
    CURSUS_POSITION = 145
    CURSUS_MEMBER = 146
    CURSUS_RECORDS = 147
    CREATE_SEGMENT = 150
    DELETE_SEGMENT = 151
    CREATE_INTERNAL_TOPIC = 152
    TABLE = 153
    SEGMENT = 154
    VERIFY_TRANSACTION = 160
    WRITE_MARKERS = 161
    SETTLE_OFFSETS = 162
    APPEND_STAGED = 163
    STAGE_OFFSETS = 164
    FIND_HANGING = 165
    DESCRIBE_PARTITIONS = 170
    NODE_STATUS = 171
    LIST_GROUPS = 172
    DESCRIBE_GROUP = 173
    NODE_LOAD = 174
    LIST_TRANSACTIONS = 175
    LOOK_AT_RECORDS = 176
