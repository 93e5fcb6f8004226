"""Rows as Spark's types: of records, stored batches, and replicas' offsets.

The Arrow side of the same columns is in ``arrow.py`` and ``views.py``; both must agree to the last
nullable (DESIGN 1.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from paceline.spark.options import View

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
RAW_HEADERS = ArrayType(
    StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
)


def records(columns: Sequence[str]) -> StructType:
    """Of the records view, in the order asked for."""
    types: dict[str, DataType] = {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        "headers": HEADERS,
        "leaderEpoch": IntegerType(),
        "timestampMs": LongType(),
        "rawHeaders": RAW_HEADERS,
    }
    never_null = ("topic", "partition", "offset")
    return StructType([StructField(name, types[name], name not in never_null) for name in columns])


def view(wanted: View) -> StructType:
    """Of the views over replicas."""
    place = [
        StructField("topic", StringType(), False),
        StructField("partition", IntegerType(), False),
        StructField("replica", IntegerType(), False),
    ]
    rest = _BATCHES if wanted is View.BATCHES else _OFFSETS
    return StructType(place + [StructField(name, kind) for name, kind in rest])


_BATCHES: tuple[tuple[str, DataType], ...] = (
    ("baseOffset", LongType()),
    ("lastOffset", LongType()),
    ("leaderEpoch", IntegerType()),
    ("recordCount", IntegerType()),
    ("sizeBytes", LongType()),
    ("storedCrc", LongType()),
    ("computedCrc", LongType()),
    ("contentHash", BinaryType()),
    ("codec", StringType()),
    ("producerId", LongType()),
    ("producerEpoch", IntegerType()),
    ("baseSequence", IntegerType()),
    ("isTransactional", BooleanType()),
    ("isControl", BooleanType()),
    ("isThinned", BooleanType()),
    ("minTimestamp", LongType()),
    ("maxTimestamp", LongType()),
    ("status", StringType()),
)
_OFFSETS: tuple[tuple[str, DataType], ...] = (
    ("isLeader", BooleanType()),
    ("inSync", BooleanType()),
    ("logStart", LongType()),
    ("highWatermark", LongType()),
    ("lastStable", LongType()),
    ("logEnd", LongType()),
    ("leaderEpoch", IntegerType()),
    ("sizeBytes", LongType()),
    ("status", StringType()),
)
