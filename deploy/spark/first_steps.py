"""A topic in PySpark, from its first record to an exactly-once stream.

Opens as a notebook where an editor knows `# %%` cells (Jupytext, VS Code, PyCharm, Spyder), and
runs as a script: `python first_steps.py`. It wants `pip install 'paceline[spark]'` and a running
cluster, for example of `paceline up --detach`. Run it again and the stream goes on where it was.
"""

# %% A session, and where the cluster is
import json
import os
from pathlib import Path

from pyspark.sql import functions as F

from paceline.client import blocking
from paceline.errors import TopicAlreadyExists
from paceline.spark import decode
from paceline.spark.session import local_session

BOOTSTRAP = os.environ.get("PACELINE_BOOTSTRAP", "127.0.0.1:7400")
CHECKPOINTS = Path("first-steps-checkpoints").resolve()
ORDERS, LARGE = "first-steps-orders", "first-steps-large"
CLUSTER = {"paceline.bootstrap.servers": BOOTSTRAP}

spark = local_session("first-steps")

# %% Some orders. Your programs write them; here the blocking client does
with blocking.connect(BOOTSTRAP.split(",")) as client:
    for topic in (ORDERS, LARGE):
        try:
            client.admin.create_topic(topic, partitions=2)
        except TopicAlreadyExists:
            print(f"{topic} is there already")
    with client.producer() as producer:
        for number in range(1000):
            order = {"id": number, "who": f"user-{number % 7}", "euro": number % 90 + 10}
            producer.submit(ORDERS, json.dumps(order).encode(), key=order["who"].encode())
        producer.submit(ORDERS, b"what is this?", key=b"user-0")

# %% A topic is a table: key and value are bytes, and each row knows where it lies
records = spark.read.format("paceline").options(**CLUSTER, subscribe=ORDERS).load()
records.select("topic", "partition", "offset", "timestamp", F.col("value").cast("string")).show(3)

# %% Values become columns; what does not fit goes apart, with the reason
SCHEMA = "id bigint, who string, euro double"
good, bad = decode.split_bad(records, *decode.json(records.value, SCHEMA))
orders = good.select("partition", "offset", "decoded.*")
orders.groupBy("who").agg(F.count("*").alias("orders"), F.sum("euro").alias("euro")).show()
bad.select("partition", "offset", "error", F.col("value").cast("string")).show(truncate=False)


# %% A stream: large orders into a topic of their own, each once, whatever dies meanwhile
def copy_large_orders():
    """Take what is new, and end; without `trigger` it would go on for ever."""
    stream = (
        spark.readStream.format("paceline")
        .options(**CLUSTER, subscribe=ORDERS, startingOffsets="earliest")
        .load()
    )
    text = F.col("value").cast("string")
    large = stream.where(F.get_json_object(text, "$.euro").try_cast("double") >= 90)
    query = (
        large.select("key", "value")
        .writeStream.format("paceline")
        .options(**CLUSTER, topic=LARGE)
        .option("checkpointLocation", str(CHECKPOINTS / "large"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


print("orders taken:", copy_large_orders())

# %% Run again: nothing is new, so nothing is written twice
print("orders taken:", copy_large_orders())
copied = spark.read.format("paceline").options(**CLUSTER, subscribe=LARGE).load()
wanted = orders.where("euro >= 90").count()
print(f"large orders: {wanted} in {ORDERS}, {copied.count()} in {LARGE}")
