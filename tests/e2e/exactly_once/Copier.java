// The copier with the Java client; copying.py says what it does, journal.py what it writes.
//   java -cp 'lib/*' Copier.java SERVERS NAME INPUT OUTPUT GROUP ENDS BATCH ABORT_EVERY JOURNAL FIRST

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
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

public class Copier implements ConsumerRebalanceListener {
    enum Told { COMMITTED, ABORTED, UNKNOWN }

    static final Pattern NUMBER = Pattern.compile("\"attempt\": (\\d+)");
    static final int REPEATS = 10;

    final String servers, name, input, output, group;
    final long[] ends;
    final int batch, abortEvery;
    final Path journal;
    int next;
    int moves;
    KafkaProducer<String, String> producer;
    KafkaConsumer<String, String> consumer;

    public static void main(String[] words) throws Exception {
        new Copier(words).copy();
        System.exit(0);
    }

    Copier(String[] words) throws Exception {
        servers = words[0];
        name = words[1];
        input = words[2];
        output = words[3];
        group = words[4];
        String[] each = words[5].split(",");
        ends = new long[each.length];
        for (int at = 0; at < ends.length; at++) ends[at] = Long.parseLong(each[at]);
        batch = Integer.parseInt(words[6]);
        abortEvery = Integer.parseInt(words[7]);
        journal = Path.of(words[8]);
        next = Integer.parseInt(words[9]);
        if (!Files.exists(journal)) return;
        String text = Files.readString(journal);
        text = text.substring(0, text.lastIndexOf('\n') + 1); // a killed one may have torn its last
        Files.writeString(journal, text);
        Matcher found = NUMBER.matcher(text);
        while (found.find()) next = Math.max(next, Integer.parseInt(found.group(1)) + 1);
    }

    void copy() throws Exception {
        boolean done = false;
        while (!done) {
            try {
                open();
                done = goOn();
            } catch (KafkaException error) {
                write("{\"stopped\": " + quoted(text(error)) + "}");
            } finally {
                if (producer != null) producer.close(Duration.ZERO);
                if (consumer != null) consumer.close();
            }
        }
    }

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

    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        moves++;
    }

    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        moves++;
    }

    /** Until all is copied, or false when the client has to begin anew. */
    boolean goOn() throws Exception {
        while (true) {
            int before = moves;
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofSeconds(1))) records.add(each);
            if (before != moves || records.isEmpty()) {
                if (isDone(rewind())) return true;
                continue;
            }
            Told told = transact(records, consumer.groupMetadata());
            if (told == Told.UNKNOWN) return false;
            if (told == Told.ABORTED) rewind();
        }
    }

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

    boolean isDone(Map<Integer, Long> at) {
        for (Map.Entry<Integer, Long> each : at.entrySet()) {
            if (each.getValue() < ends[each.getKey()]) return false;
        }
        return !at.isEmpty();
    }

    Told transact(List<ConsumerRecord<String, String>> records, ConsumerGroupMetadata member)
            throws Exception {
        Map<Integer, long[]> slices = slices(records);
        int number = next++;
        List<String> parts = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        slices.forEach((at, slice) -> {
            parts.add("\"" + at + "\": [" + slice[0] + ", " + slice[1] + "]");
            offsets.put(new TopicPartition(input, at), new OffsetAndMetadata(slice[1]));
        });
        write("{\"attempt\": " + number + ", \"slices\": {" + String.join(", ", parts) + "}}");
        boolean onPurpose = number % abortEvery == 0;
        Told told;
        String why = "";
        try {
            producer.beginTransaction();
            for (ConsumerRecord<String, String> each : records) {
                String value = number + "/" + each.partition() + "/" + each.offset();
                producer.send(new ProducerRecord<>(output, (int) (each.offset() % 2), null, value));
            }
            producer.sendOffsetsToTransaction(offsets, member);
            if (onPurpose) producer.flush();
            end(!onPurpose);
            told = onPurpose ? Told.ABORTED : Told.COMMITTED;
        } catch (KafkaException error) {
            why = text(error);
            told = giveUp(error);
        }
        String word = told.name().toLowerCase();
        write("{\"attempt\": " + number + ", \"told\": \"" + word + "\", \"why\": " + quoted(why) + "}");
        return told;
    }

    /** From where to where, by partition. */
    Map<Integer, long[]> slices(List<ConsumerRecord<String, String>> records) {
        Map<Integer, long[]> slices = new TreeMap<>();
        for (ConsumerRecord<String, String> each : records) {
            long offset = each.offset();
            long[] slice = slices.computeIfAbsent(each.partition(), at -> new long[] {offset, offset});
            if (slice[1] != offset) throw new IllegalStateException(offset + " behind " + slice[1]);
            slice[1] = offset + 1;
        }
        return slices;
    }

    /** A commit or an abort that timed out is to be said again. */
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

    Told giveUp(KafkaException error) {
        boolean fatal =
                error instanceof ProducerFencedException
                        || error instanceof OutOfOrderSequenceException
                        || error instanceof AuthorizationException
                        || error instanceof TimeoutException;
        if (fatal) return Told.UNKNOWN;
        try {
            end(false);
        } catch (KafkaException another) {
            return Told.UNKNOWN;
        }
        return Told.ABORTED;
    }

    static String text(KafkaException error) {
        String text = error.getClass().getSimpleName() + ": " + error.getMessage();
        return text.substring(0, Math.min(300, text.length()));
    }

    static String quoted(String text) {
        return "\"" + text.replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"";
    }

    void write(String line) throws Exception {
        Files.writeString(journal, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }
}
