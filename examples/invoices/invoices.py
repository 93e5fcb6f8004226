"""From orders to invoices, exactly once, and to a table of what each customer has to pay.

Orders come in as JSON. A stream makes an invoice of each and sets apart what is no order; each run
takes what is new and ends, and whatever dies meanwhile, no invoice is left out or sent twice.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions

from paceline.spark import decode

ORDERS, INVOICES, REFUSED = "orders", "invoices", "orders-refused"
SCHEMA = "order string, customer string, euro bigint"


def run(spark: SparkSession, bootstrap: str, checkpoints: Path) -> None:
    """Make invoices of the orders that have come since the last run."""
    cluster = {"paceline.bootstrap.servers": bootstrap}
    orders = (
        spark.readStream.format("paceline")
        .options(**cluster, subscribe=ORDERS, startingOffsets="earliest")
        .load()
    )
    good, bad = decode.split_bad(orders, *decode.json(orders.value, SCHEMA))
    customer = functions.col("decoded.customer").alias("key")
    invoice = functions.to_json(functions.struct("decoded.order", "decoded.euro")).alias("value")
    sinks = {
        INVOICES: good.select(customer, invoice),
        REFUSED: bad.select("key", "value"),
    }
    queries = [
        rows.writeStream.format("paceline")
        .options(**cluster, topic=topic)
        .option("checkpointLocation", str(checkpoints / topic))
        .trigger(availableNow=True)
        .start()
        for topic, rows in sinks.items()
    ]
    for query in queries:
        query.awaitTermination()


def to_pay(spark: SparkSession, bootstrap: str) -> DataFrame:
    """What each customer has to pay, and for how many orders."""
    invoices = (
        spark.read.format("paceline")
        .options(**{"paceline.bootstrap.servers": bootstrap}, subscribe=INVOICES)
        .load()
    )
    euro = functions.get_json_object(functions.col("value").cast("string"), "$.euro").cast("bigint")
    return (
        invoices.groupBy(functions.col("key").cast("string").alias("customer"))
        .agg(functions.count("*").alias("orders"), functions.sum(euro).alias("euro"))
        .orderBy("customer")
    )
