// Spark's own Kafka sink and source, as batches and as a stream.
//   java -cp 'lib/*' SparkKafka.java SERVERS DIRECTORY COUNT
// Prints "ok spark" at the end; anything unexpected is an exception.

import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

public class SparkKafka {
    static String servers;

    public static void main(String[] words) throws Exception {
        servers = words[0];
        int count = Integer.parseInt(words[2]);
        SparkSession spark =
                SparkSession.builder()
                        .master("local[2]")
                        .config("spark.ui.enabled", "false")
                        .config("spark.sql.shuffle.partitions", "2")
                        .getOrCreate();
        spark.sparkContext().setLogLevel("ERROR");
        spark.range(count)
                .selectExpr("cast(id as string) as key", "concat('v', id) as value")
                .write()
                .format("kafka")
                .option("kafka.bootstrap.servers", servers)
                .option("topic", "spark-in")
                .save();
        check(values(spark, "spark-in").distinct().count() == count, "the batch is there");

        StreamingQuery query =
                spark.readStream()
                        .format("kafka")
                        .option("kafka.bootstrap.servers", servers)
                        .option("subscribe", "spark-in")
                        .option("startingOffsets", "earliest")
                        .option("maxOffsetsPerTrigger", count / 4)
                        .load()
                        .selectExpr("key", "concat('s', cast(value as string)) as value")
                        .writeStream()
                        .format("kafka")
                        .option("kafka.bootstrap.servers", servers)
                        .option("topic", "spark-out")
                        .option("checkpointLocation", words[1])
                        .trigger(Trigger.AvailableNow())
                        .start();
        query.awaitTermination();
        check(query.recentProgress().length >= 4, "several batches");
        List<Row> missing =
                values(spark, "spark-in")
                        .selectExpr("concat('s', value) as value")
                        .except(values(spark, "spark-out"))
                        .collectAsList();
        check(missing.isEmpty(), missing.size() + " records are missing");
        check(values(spark, "spark-out").count() == count, "each of them once");
        spark.stop();
        System.out.println("ok spark");
    }

    static Dataset<Row> values(SparkSession spark, String topic) {
        return spark.read()
                .format("kafka")
                .option("kafka.bootstrap.servers", servers)
                .option("subscribe", topic)
                .load()
                .selectExpr("cast(value as string) as value");
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }
}
