import io.cursus.client.config.Acks;
import io.cursus.client.config.ConsumerMode;
import io.cursus.client.config.CursusConsumerConfig;
import io.cursus.client.config.CursusProducerConfig;
import io.cursus.client.consumer.CursusConsumer;
import io.cursus.client.producer.CursusProducer;
import io.cursus.client.transaction.TransactionalProducer;
import java.util.List;
import java.util.Locale;

/**
 * Drives the published Cursus client for Java from the command line, as
 * tests/interop/cursus/driver.py says: one mode, its arguments, and a line on standard output for
 * whatever happens.
 */
public final class Driver {
  /** Partitions of every topic that is written. */
  private static final int PARTITIONS = 2;

  public static void main(String[] args) throws Exception {
    List<String> brokers = List.of(args[1].split(","));
    switch (args[0]) {
      case "produce" -> produce(brokers, args[2], args[3], Integer.parseInt(args[4]));
      case "consume" -> consume(brokers, args[2], args[3], args[4]);
      case "transact" -> transact(brokers, args[2], args[3], Integer.parseInt(args[4]));
      default -> throw new IllegalArgumentException("unknown mode " + args[0]);
    }
  }

  /** Writes m-0, m-1, ... with ACKS, idempotently, and says how many are acknowledged. */
  private static void produce(List<String> brokers, String topic, String acks, int count)
      throws Exception {
    Acks wanted = acks.equals("-1") ? Acks.ALL : acks.equals("1") ? Acks.ONE : Acks.NONE;
    CursusProducerConfig config =
        CursusProducerConfig.builder()
            .brokers(brokers)
            .topic(topic)
            .partitions(PARTITIONS)
            .acks(wanted)
            .idempotent(true)
            .compressionType("gzip")
            .batchSize(20)
            .lingerMs(5)
            .maxRetries(20)
            .build();
    CursusProducer producer = new CursusProducer(config);
    for (int number = 0; number < count; number++) {
      producer.send("m-" + number, "k-" + number);
      if (number % 20 == 0) {
        say("acked " + producer.getUniqueAckCount());
        Thread.sleep(10);
      }
    }
    while (producer.getUniqueAckCount() < count) {
      say("acked " + producer.getUniqueAckCount());
      Thread.sleep(100);
    }
    say("acked " + count);
    producer.close();
    System.exit(0);
  }

  /** Reads as a member of GROUP until standard input ends, and says every payload. */
  private static void consume(List<String> brokers, String topic, String group, String mode)
      throws Exception {
    CursusConsumerConfig config =
        CursusConsumerConfig.builder()
            .brokers(brokers)
            .topic(topic)
            .groupId(group)
            .consumerMode(ConsumerMode.valueOf(mode.toUpperCase(Locale.ROOT)))
            .build();
    CursusConsumer consumer = new CursusConsumer(config);
    Thread reading =
        new Thread(() -> consumer.start(message -> say("got " + message.getPayload())));
    reading.setDaemon(true);
    reading.start();
    System.in.readAllBytes();
    consumer.close();
    System.exit(0);
  }

  /**
   * Runs COUNT transactions as ID, each of one record in each partition; every third is
   * aborted.
   */
  private static void transact(List<String> brokers, String topic, String id, int count) {
    try (TransactionalProducer producer = new TransactionalProducer(id, brokers)) {
      producer.initProducerId();
      for (int number = 0; number < count; number++) {
        producer.beginTransaction();
        for (int partition = 0; partition < PARTITIONS; partition++) {
          producer.publish(topic, partition, "t-" + number + "-" + partition, "");
        }
        if (number % 3 == 2) {
          producer.abortTransaction();
          say("aborted " + number);
        } else {
          producer.commitTransaction();
          say("committed " + number);
        }
      }
    }
    System.exit(0);
  }

  private static synchronized void say(String line) {
    System.out.println(line);
  }
}
