// The copier with Kafka's client for Java.

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class KafkaCopier extends Copying implements ConsumerRebalanceListener {
    static final int REPEATS = 10;

    int moves;
    ConsumerGroupMetadata member;
    KafkaProducer<String, String> producer;
    KafkaConsumer<String, String> consumer;

    public static void main(String[] words) throws IOException {
        new KafkaCopier(words).copy();
        System.exit(0);
    }

    KafkaCopier(String[] words) {
        super(words);
    }

    @Override
    void open() {
        Properties told = new Properties();
        told.put("bootstrap.servers", servers);
        told.put("transactional.id", name);
        told.put("transaction.timeout.ms", "60000");
        producer = new KafkaProducer<>(told, new StringSerializer(), new StringSerializer());
        Properties asked = new Properties();
        asked.put("bootstrap.servers", servers);
        asked.put("group.id", group);
        asked.put("auto.offset.reset", "earliest");
        asked.put("isolation.level", "read_committed");
        asked.put("enable.auto.commit", "false");
        asked.put("max.poll.records", "" + batch);
        asked.put("session.timeout.ms", "6000");
        asked.put("heartbeat.interval.ms", "2000");
        consumer = new KafkaConsumer<>(asked, new StringDeserializer(), new StringDeserializer());
        producer.initTransactions();
        consumer.subscribe(List.of(input), this);
    }

    @Override
    void close() {
        if (producer != null) producer.close(Duration.ZERO);
        if (consumer != null) consumer.close();
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        moves++;
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        moves++;
    }

    @Override
    List<Read> take() {
        int before = moves;
        List<Read> reads = new ArrayList<>();
        for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofSeconds(1))) {
            reads.add(new Read(each.partition(), each.offset()));
        }
        member = consumer.groupMetadata();
        return before == moves ? reads : List.of();
    }

    @Override
    Map<Integer, Long> rewind() {
        Map<Integer, Long> offsets = new HashMap<>();
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition at : consumer.assignment()) {
            OffsetAndMetadata found = committed.get(at);
            long offset = found == null ? 0 : found.offset();
            consumer.seek(at, offset);
            offsets.put(at.partition(), offset);
        }
        return offsets;
    }

    @Override
    void begin() {
        producer.beginTransaction();
    }

    @Override
    void send(int partition, String value) {
        producer.send(new ProducerRecord<>(output, partition, null, value));
    }

    @Override
    void sendOffsets(Map<Integer, Long> offsets) {
        Map<TopicPartition, OffsetAndMetadata> told = new HashMap<>();
        offsets.forEach((at, to) -> told.put(new TopicPartition(input, at), new OffsetAndMetadata(to)));
        producer.sendOffsetsToTransaction(told, member);
    }

    @Override
    void flush() {
        producer.flush();
    }

    /** One that timed out is to be said again. */
    @Override
    void end(boolean commits) {
        for (int turn = 0; ; turn++) {
            try {
                if (commits) producer.commitTransaction();
                else producer.abortTransaction();
                return;
            } catch (TimeoutException error) {
                if (turn == REPEATS) throw error;
            }
        }
    }

    @Override
    boolean isFailure(RuntimeException error) {
        return error instanceof KafkaException;
    }

    @Override
    boolean mayAbort(RuntimeException error) {
        return !(error instanceof ProducerFencedException
                || error instanceof OutOfOrderSequenceException
                || error instanceof AuthorizationException
                || error instanceof TimeoutException);
    }
}
