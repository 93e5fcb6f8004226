"""Decoding keys and values: each helper gives a column and a column that says what was wrong.

No pandas, no jars: Spark's own functions, and Arrow functions of Python where Spark has none.

    good, bad = split_bad(df, *json(df.value, "id bigint, name string"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

NOT_UTF8 = "not utf-8"
NOT_JSON = "not json"
NOT_MSGPACK = "not msgpack"


class Decoded(NamedTuple):
    """``value`` is null where ``error`` is not; both are null where the input is."""

    value: Column
    error: Column


def utf8(column: Column) -> Decoded:
    """Text. A plain cast would put U+FFFD in silence."""
    text = column.cast("string")
    return _judged(text, F.is_valid_utf8(text), column, NOT_UTF8)


def json(column: Column, schema: str) -> Decoded:
    """A struct of ``schema`` (DDL); fields that are missing are null, text that is no JSON object
    is an error."""
    text = column.cast("string")
    parsed = F.from_json(
        text, f"{schema}, _corrupt string", {"columnNameOfCorruptRecord": "_corrupt"}
    )
    is_good = F.is_valid_utf8(text) & parsed["_corrupt"].isNull()
    return _judged(parsed.dropFields("_corrupt"), is_good, column, NOT_JSON)


def variant(column: Column) -> Decoded:
    """Any JSON, as a VARIANT."""
    text = column.cast("string")
    parsed = F.try_parse_json(text)
    return _judged(parsed, parsed.isNotNull(), column, NOT_JSON)


def msgpack(column: Column, schema: str) -> Decoded:
    """A struct of ``schema`` (DDL) from a msgpack map, by way of JSON; binary becomes text."""
    text = F.arrow_udf(_msgpack_to_json, returnType="string")(column)
    return Decoded(F.from_json(text, schema), _error(text.isNotNull(), column, NOT_MSGPACK))


def header(column: Column, name: str) -> Column:
    """The value of the last header of that name, null when there is none."""
    named = F.filter(column, lambda each: each["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"]


def split_bad(frame: DataFrame, decoded: Column, error: Column) -> tuple[DataFrame, DataFrame]:
    """Two frames: ``frame`` with ``decoded`` where all is well, and the others as rows for a
    dead-letter topic: topic, partition, offset, key, value, error."""
    marked = frame.withColumn("decoded", decoded).withColumn("error", error)
    good = marked.where(F.col("error").isNull()).drop("error")
    bad = marked.where(F.col("error").isNotNull())
    return good, bad.select("topic", "partition", "offset", "key", "value", "error")


def _judged(value: Column, is_good: Column, source: Column, problem: str) -> Decoded:
    return Decoded(F.when(is_good, value), _error(is_good, source, problem))


def _error(is_good: Column, source: Column, problem: str) -> Column:
    wrong = source.isNotNull() & ~F.coalesce(is_good, F.lit(False))
    return F.when(wrong, F.lit(problem))


def _msgpack_to_json(column: pa.Array) -> pa.Array:
    import json as text

    import msgpack as packed
    import pyarrow as pa

    found: list[str | None] = []
    for value in column.to_pylist():
        try:
            read = None if value is None else packed.unpackb(value, strict_map_key=False)
            found.append(text.dumps(read, default=_shown) if isinstance(read, dict) else None)
        except (ValueError, TypeError, packed.exceptions.UnpackException):
            found.append(None)
    return pa.array(found, pa.string())


def _shown(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
