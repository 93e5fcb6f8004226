"""Is what the replicas hold sound, and the same? Every check as a Spark query (DESIGN 7.4).

Replicas are read side by side by the tasks; only digests are shuffled. Bounds are the highest log
start and the lowest high watermark of a partition's in-sync replicas when the audit begins.

Up to a partition's *cleaned point*, the last batch that the cleaner has rewritten on any replica,
each replica has its own cleaner to thank for what is left: there batches may be missing and
sequences have holes, but what was not rewritten is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from paceline.client import blocking
from paceline.spark.view_reader import UNREACHABLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS = ("check", "finding", "topic", "partition", "replica", "offset", "detail")
WRAP = 1 << 31


class Auditor:
    """The checks over two views of some topics. Each method gives findings in COLUMNS.
    ``open_producers``: ids whose transaction a coordinator knows to be open, and will end."""

    def __init__(
        self,
        offsets: DataFrame,
        batches: DataFrame,
        *,
        transaction_ms: int,
        open_producers: Collection[int] = (),
    ) -> None:
        self.offsets = offsets
        self.batches = batches
        self._transaction_ms = transaction_ms
        self._open_producers = sorted(open_producers)
        cleaned = F.max(F.when(F.col("isThinned"), F.col("lastOffset")))
        self._cleaned = (
            batches.where("status = 'ok'")
            .groupBy("topic", "partition")
            .agg(F.coalesce(cleaned, F.lit(-1)).alias("cleaned"))
        )

    def findings(self, *, allow_missing: bool) -> DataFrame:
        """All of them."""
        found = [
            self.checksums(),
            self.continuity(),
            self.epochs(),
            self.replicas(),
            self.watermarks(),
            self.sequences(),
            self.transactions(),
        ]
        if not allow_missing:
            found.append(self.unreachable())
        return reduce(lambda left, right: left.unionByName(right), found)

    # --- single batches ---------------------------------------------------------------------------

    def checksums(self) -> DataFrame:
        """A1, A8: a stored checksum that does not fit its bytes; what cannot be read at all."""
        wrong = _finding(
            self.batches.where("status = 'ok' and storedCrc != computedCrc"),
            "A1",
            F.lit("CRC_MISMATCH"),
            F.format_string("stored %x, computed %x", "storedCrc", "computedCrc"),
        )
        kind = F.when(F.col("status").startswith("malformed"), "BATCH_MALFORMED").otherwise(
            "BATCH_UNREADABLE"
        )
        return wrong.unionByName(
            _finding(self.batches.where("status != 'ok'"), "A8", kind, F.col("status"))
        )

    # --- one replica ------------------------------------------------------------------------------

    def continuity(self) -> DataFrame:
        """A2: each batch begins where the one before it ended."""
        before = F.lag("lastOffset").over(_replica())
        rows = self.batches.where("status = 'ok'").withColumn("before", before)
        kind = F.when(F.col("baseOffset") > F.col("before") + 1, "OFFSET_GAP").otherwise(
            "OFFSET_OVERLAP"
        )
        broken = rows.where("before is not null and baseOffset != before + 1")
        return _finding(broken, "A2", kind, F.format_string("behind offset %d", "before"))

    def epochs(self) -> DataFrame:
        """A3: leader epochs never fall."""
        before = F.lag("leaderEpoch").over(_replica())
        rows = self.batches.where("status = 'ok'").withColumn("before", before)
        text = F.format_string("epoch %d behind %d", "leaderEpoch", "before")
        falls = rows.where("leaderEpoch < before")
        return _finding(falls, "A3", F.lit("EPOCH_REGRESSION"), text)

    # --- replicas together ------------------------------------------------------------------------

    def replicas(self) -> DataFrame:
        """A4: every in-sync replica has each batch behind the cleaned point, and each batch that no
        cleaner has rewritten is the same."""
        expected = (
            self.offsets.where("status = 'ok' and inSync")
            .groupBy("topic", "partition")
            .agg(F.count("*").alias("expected"))
        )
        seen = (
            self.batches.where("status = 'ok'")
            .groupBy("topic", "partition", "baseOffset")
            .agg(
                # Sets of a few, where counting distinct ones would shuffle every row twice.
                F.sort_array(F.collect_set("replica")).alias("on"),
                F.size(F.collect_set(F.when(~F.col("isThinned"), F.col("contentHash")))).alias(
                    "versions"
                ),
            )
            .withColumns({"count": F.size("on"), "on": F.col("on").cast("string")})
            .join(expected, ["topic", "partition"])
            .join(self._cleaned, ["topic", "partition"])
            .withColumn("replica", F.lit(None).cast("int"))
        )
        missing = _finding(
            seen.where("count < expected and baseOffset > cleaned"),
            "A4",
            F.lit("REPLICA_MISSING"),
            F.format_string("on %s only, %d are in sync", "on", "expected"),
        )
        differing = _finding(
            seen.where("versions > 1"),
            "A4",
            F.lit("REPLICA_DIVERGED"),
            F.format_string("%d versions on %s", "versions", "on"),
        )
        return missing.unionByName(differing)

    def watermarks(self) -> DataFrame:
        """A5: log start <= last stable <= high watermark <= log end, on every replica."""
        wrong = self.offsets.where(
            """status = 'ok' and not (logStart <= highWatermark and highWatermark <= logEnd
               and lastStable <= highWatermark)"""
        ).withColumn("baseOffset", F.col("highWatermark"))
        text = F.format_string(
            "start %d, stable %d, watermark %d, end %d",
            "logStart",
            "lastStable",
            "highWatermark",
            "logEnd",
        )
        return _finding(wrong, "A5", F.lit("WATERMARK_ORDER"), text)

    def unreachable(self) -> DataFrame:
        """A replica whose node does not answer, or not for it."""
        silent = self.offsets.where("status != 'ok'").withColumn(
            "baseOffset", F.lit(-1).cast("long")
        )
        kind = F.when(F.col("status").startswith(UNREACHABLE), "REPLICA_UNREACHABLE").otherwise(
            "REPLICA_MISSING"
        )
        return _finding(silent, "A4", kind, F.col("status"))

    # --- producers --------------------------------------------------------------------------------

    def _by_leaders(self) -> DataFrame:
        """Each batch once."""
        leaders = self.offsets.where("isLeader").select("topic", "partition", "replica")
        rows = self.batches.where("status = 'ok'").join(leaders, ["topic", "partition", "replica"])
        return rows.join(self._cleaned, ["topic", "partition"])

    def sequences(self) -> DataFrame:
        """A6: what a producer wrote in one epoch is there without a hole, behind the cleaned point,
        and without a repeat. A batch that has lost records had a sequence for each offset."""
        producer = Window.partitionBy("topic", "partition", "producerId", "producerEpoch").orderBy(
            "baseOffset"
        )
        count = F.col("lastOffset") - F.col("baseOffset") + 1
        next_sequence = ((F.col("baseSequence") + count) % F.lit(WRAP)).cast("int")
        rows = (
            self._by_leaders()
            .where("producerId >= 0 and baseSequence >= 0 and not isControl and recordCount > 0")
            .withColumn("wanted", F.lag(next_sequence).over(producer))
            .withColumn("before", F.lag("baseOffset").over(producer))
            .where("wanted is not null and baseSequence != wanted")
            .where("baseSequence < wanted or before > cleaned")
        )
        kind = F.when(F.col("baseSequence") > F.col("wanted"), "SEQUENCE_GAP").otherwise(
            "SEQUENCE_DUPLICATE"
        )
        text = F.format_string(
            "producer %d epoch %d: sequence %d, expected %d",
            "producerId",
            "producerEpoch",
            "baseSequence",
            "wanted",
        )
        return _finding(rows, "A6", kind, text)

    def transactions(self) -> DataFrame:
        """A7: a transaction without its marker that no coordinator will end, older than any
        time-out. Times are the producer's: a restored record is old from the first."""
        is_data = F.col("isTransactional") & ~F.col("isControl")
        last = (
            self._by_leaders()
            .where("producerId >= 0 and (isTransactional or isControl) and baseOffset > cleaned")
            .where(~F.col("producerId").isin(self._open_producers))
            .groupBy("topic", "partition", "replica", "producerId")
            .agg(
                F.max(F.when(is_data, F.col("baseOffset"))).alias("baseOffset"),
                F.max(F.when(F.col("isControl"), F.col("baseOffset"))).alias("marker"),
                F.max(F.when(is_data, F.col("maxTimestamp"))).alias("at"),
            )
            .where("baseOffset > coalesce(marker, -1)")
            .where(F.col("at") < F.unix_millis(F.current_timestamp()) - self._transaction_ms)
        )
        text = F.format_string("producer %d has no marker behind it", "producerId")
        return _finding(last, "A7", F.lit("TXN_DANGLING"), text)


def audited(
    spark: SparkSession, options: Mapping[str, str], *, deep: bool, transaction_ms: int
) -> Auditor:
    """An auditor of what the cluster holds now."""

    def view(name: str, **more: str) -> DataFrame:
        reader = spark.read.format("paceline").options(**options)
        return reader.option("view", name).options(**more).load()

    bootstrap = options["paceline.bootstrap.servers"]
    # Asked for before and behind what is read, so that none that ends meanwhile seems forgotten.
    open_producers = _open_producers(bootstrap)
    # A task for each replica of each partition would be taken again by every check.
    tasks = spark.sparkContext.defaultParallelism
    offsets = view("offsets").coalesce(1).cache()
    batches = view("batches", deep=str(deep).lower()).coalesce(tasks).cache()
    batches.count()
    open_producers |= _open_producers(bootstrap)
    return Auditor(offsets, batches, transaction_ms=transaction_ms, open_producers=open_producers)


_OPEN = ("ongoing", "prepare_commit", "prepare_abort")


def _open_producers(bootstrap: str) -> set[int]:
    with blocking.connect(bootstrap.split(",")) as client:
        return {each.producer_id for each in client.admin.transactions.list(states=_OPEN)}


def _replica() -> Window:
    return Window.partitionBy("topic", "partition", "replica").orderBy("baseOffset")


def _finding(rows: DataFrame, check: str, kind: Column, detail: Column) -> DataFrame:
    return rows.select(
        F.lit(check).alias("check"),
        kind.alias("finding"),
        "topic",
        "partition",
        "replica",
        F.col("baseOffset").alias("offset"),
        detail.alias("detail"),
    )
