# %% [markdown]
# # A stream from topic to topic, exactly once
#
# Needs `paceline up` with the topic `orders` of README.md. Run it whole (`python example.py`), or
# cell by cell where cells are known.

# %%
from __future__ import annotations

import sys
import tempfile

from paceline.client import blocking
from paceline.spark.lag import LagListener
from paceline.spark.session import local_session

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7400"
CHECKPOINT = tempfile.mkdtemp(prefix="paceline-example-")

spark = local_session("example", conf={"spark.sql.shuffle.partitions": "2"})
lag = LagListener()
spark.streams.addListener(lag)

# %% [markdown]
# ## Every number gets its square

# %%
with blocking.connect(BOOTSTRAP.split(",")) as client:
    client.admin.create_topic("squares", partitions=4, if_not_exists=True)

orders = (
    spark.readStream.format("paceline")
    .option("paceline.bootstrap.servers", BOOTSTRAP)
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", "30000")
    .load()
)
squares = orders.selectExpr(
    "key",
    "cast(pow(cast(cast(value as string) as bigint), 2) as string) as value",
    "partition",
)


def run() -> None:
    """Everything that is there; a second run finds what came since."""
    query = (
        squares.writeStream.format("paceline")
        .option("paceline.bootstrap.servers", BOOTSTRAP)
        .option("topic", "squares")
        .option("checkpointLocation", CHECKPOINT)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = [(each.batchId, each.numInputRows) for each in query.recentProgress]
    print("batches and their rows:", rows)  # noqa: T201 - an example shows
    print("behind:", [each.to_json() for each in lag.latest.get(str(query.id), [])])  # noqa: T201


run()

# %% [markdown]
# ## Killed and started again, it goes on where it was

# %%
run()
written = (
    spark.read.format("paceline")
    .option("paceline.bootstrap.servers", BOOTSTRAP)
    .option("subscribe", "squares")
    .load()
)
written.groupBy("partition").count().orderBy("partition").show()
spark.stop()
