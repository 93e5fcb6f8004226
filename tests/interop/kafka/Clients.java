// The Java client against a cluster of three: producer with defaults, a group, transactions, admin.
//   java -cp 'lib/*' Clients.java SERVERS produce|group|transactions|admin
// Prints one line "ok PART" at the end; anything unexpected is an exception.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Clients {
    static final int COUNT = 1000;
    static final Duration POLL = Duration.ofMillis(200);
    static String servers;

    public static void main(String[] words) throws Exception {
        servers = words[0];
        switch (words[1]) {
            case "produce" -> produce();
            case "group" -> group();
            case "transactions" -> transactions();
            case "admin" -> admin();
            default -> throw new IllegalArgumentException(words[1]);
        }
        System.out.println("ok " + words[1]);
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static Properties base(String... pairs) {
        Properties made = new Properties();
        made.put("bootstrap.servers", servers);
        for (int at = 0; at < pairs.length; at += 2) made.put(pairs[at], pairs[at + 1]);
        return made;
    }

    static KafkaProducer<String, String> producer(String... pairs) {
        return new KafkaProducer<>(base(pairs), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group, String... pairs) {
        Properties made = base(pairs);
        made.put("group.id", group);
        made.put("auto.offset.reset", "earliest");
        made.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(made, new StringDeserializer(), new StringDeserializer());
    }

    static void topic(String name, int partitions) throws Exception {
        try (Admin admin = Admin.create(base())) {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 3))).all().get();
        }
    }

    // Idempotent and acks=all by default.
    static void produce() throws Exception {
        topic("java", 3);
        try (KafkaProducer<String, String> producer = producer()) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < COUNT; number++) {
                sent.add(producer.send(new ProducerRecord<>("java", "k" + number % 7, "" + number)));
            }
            for (Future<RecordMetadata> each : sent) check(each.get().hasOffset(), "an offset");
        }
    }

    static void group() throws Exception {
        try (KafkaConsumer<String, String> one = consumer("java-group");
                KafkaConsumer<String, String> two = consumer("java-group")) {
            Map<String, List<Integer>> read = new HashMap<>();
            one.subscribe(List.of("java"));
            two.subscribe(List.of("java"));
            int count = 0;
            for (int turn = 0; turn < 300; turn++) {
                if (count >= COUNT && !one.assignment().isEmpty() && !two.assignment().isEmpty()) break;
                for (KafkaConsumer<String, String> each : List.of(one, two)) {
                    for (ConsumerRecord<String, String> record : each.poll(POLL)) {
                        List<Integer> numbers =
                                read.computeIfAbsent(record.key(), key -> new ArrayList<>());
                        int number = Integer.parseInt(record.value());
                        if (numbers.contains(number)) continue; // read again after a rebalance
                        numbers.add(number);
                        count++;
                    }
                    try {
                        each.commitSync();
                    } catch (CommitFailedException rebalancing) {
                        // Somebody else goes on from the last commit.
                    }
                }
            }
            check(count == COUNT, count + " records");
            check(one.assignment().size() + two.assignment().size() == 3, "all partitions assigned");
            for (List<Integer> numbers : read.values()) {
                check(numbers.equals(numbers.stream().sorted().toList()), "in order");
            }
        }
        try (KafkaConsumer<String, String> late = consumer("java-group")) {
            Set<TopicPartition> all = new HashSet<>();
            for (int number = 0; number < 3; number++) all.add(new TopicPartition("java", number));
            long committed = 0;
            for (OffsetAndMetadata each : late.committed(all).values()) committed += each.offset();
            check(committed == COUNT, "committed " + committed);
        }
    }

    static void transactions() throws Exception {
        topic("java-in", 1);
        topic("java-out", 3);
        try (KafkaProducer<String, String> plain = producer()) {
            for (int number = 0; number < 10; number++) {
                plain.send(new ProducerRecord<>("java-in", "" + number)).get();
            }
        }
        KafkaProducer<String, String> first = producer("transactional.id", "java-t");
        first.initTransactions();
        try (KafkaConsumer<String, String> input = consumer("java-t-group")) {
            input.subscribe(List.of("java-in"));
            List<String> values = take(input, 10);
            for (boolean commits : new boolean[] {false, true}) {
                first.beginTransaction();
                for (String value : values) {
                    first.send(new ProducerRecord<>("java-out", value, (commits ? "c" : "a") + value));
                }
                first.sendOffsetsToTransaction(
                        Map.of(new TopicPartition("java-in", 0), new OffsetAndMetadata(10)),
                        input.groupMetadata());
                first.flush(); // an abort would drop what was not sent yet
                if (commits) first.commitTransaction();
                else first.abortTransaction();
                OffsetAndMetadata found =
                        input.committed(Set.of(new TopicPartition("java-in", 0)))
                                .get(new TopicPartition("java-in", 0));
                check((found != null) == commits, "offsets go with the transaction: " + found);
            }
        }
        // A second producer of the same id fences the first, whose open transaction is aborted.
        first.beginTransaction();
        first.send(new ProducerRecord<>("java-out", "x", "fenced")).get();
        try (KafkaProducer<String, String> second = producer("transactional.id", "java-t")) {
            second.initTransactions();
            try {
                first.commitTransaction();
                throw new AssertionError("a fenced producer committed");
            } catch (ProducerFencedException expected) {
                first.close();
            }
            second.beginTransaction();
            second.send(new ProducerRecord<>("java-out", "y", "last")).get();
            second.commitTransaction();
        }
        try (KafkaConsumer<String, String> committed =
                consumer("java-rc", "isolation.level", "read_committed")) {
            committed.subscribe(List.of("java-out"));
            Set<String> read = new HashSet<>(take(committed, 11));
            check(read.size() == 11 && read.contains("last") && read.contains("c0"), read.toString());
            check(committed.poll(Duration.ofSeconds(1)).isEmpty(), "nothing else");
        }
        try (KafkaConsumer<String, String> all = consumer("java-ru")) {
            all.subscribe(List.of("java-out"));
            check(new HashSet<>(take(all, 22)).contains("fenced"), "uncommitted records are there");
        }
    }

    static List<String> take(KafkaConsumer<String, String> consumer, int count) {
        List<String> found = new ArrayList<>();
        for (int turn = 0; turn < 300 && found.size() < count; turn++) {
            for (ConsumerRecord<String, String> each : consumer.poll(POLL)) found.add(each.value());
        }
        check(found.size() == count, found.size() + " records of " + count);
        return found;
    }

    static void admin() throws Exception {
        try (Admin admin = Admin.create(base())) {
            check(admin.describeCluster().nodes().get().size() == 3, "three nodes");
            topic("java-admin", 2);
            try {
                topic("java-admin", 2);
                throw new AssertionError("made twice");
            } catch (ExecutionException expected) {
                check(expected.getCause() instanceof TopicExistsException, "exists");
            }
            check(admin.listTopics().names().get().contains("java-admin"), "listed");
            admin.createPartitions(Map.of("java-admin", NewPartitions.increaseTo(4))).all().get();
            TopicDescription described =
                    admin.describeTopics(List.of("java-admin")).allTopicNames().get().get("java-admin");
            check(described.partitions().size() == 4, "grown");
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, "java-admin");
            AlterConfigOp set =
                    new AlterConfigOp(
                            new ConfigEntry("retention.ms", "60000"), AlterConfigOp.OpType.SET);
            Map<ConfigResource, Collection<AlterConfigOp>> change = Map.of(resource, List.of(set));
            admin.incrementalAlterConfigs(change).all().get();
            Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            check(config.get("retention.ms").value().equals("60000"), "altered");

            TopicPartition at = new TopicPartition("java-admin", 0);
            try (KafkaProducer<String, String> producer = producer()) {
                for (int number = 0; number < 10; number++) {
                    long time = 1_700_000_000_000L + (number == 4 ? 1000 : number);
                    producer.send(new ProducerRecord<>("java-admin", 0, time, "k", "v")).get();
                }
            }
            check(offset(admin, at, OffsetSpec.latest()) == 10, "latest");
            check(offset(admin, at, OffsetSpec.maxTimestamp()) == 4, "max timestamp");
            check(offset(admin, at, OffsetSpec.forTimestamp(1_700_000_000_003L)) == 3, "by time");
            admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(6))).all().get();
            check(offset(admin, at, OffsetSpec.earliest()) == 6, "earliest");

            TopicPartition other = new TopicPartition("java-admin", 1);
            Map<TopicPartition, OffsetAndMetadata> offsets =
                    Map.of(at, new OffsetAndMetadata(7, "m"), other, new OffsetAndMetadata(0));
            admin.alterConsumerGroupOffsets("java-admin-group", offsets).all().get();
            Map<TopicPartition, OffsetAndMetadata> kept =
                    admin.listConsumerGroupOffsets("java-admin-group")
                            .partitionsToOffsetAndMetadata()
                            .get();
            check(kept.get(at).offset() == 7, "group offsets");
            boolean listed =
                    admin.listConsumerGroups().all().get().stream()
                            .anyMatch(each -> each.groupId().equals("java-admin-group"));
            check(listed, "groups listed");
            admin.describeConsumerGroups(List.of("java-admin-group")).all().get();
            admin.deleteConsumerGroupOffsets("java-admin-group", Set.of(at)).all().get();
            admin.deleteConsumerGroups(List.of("java-admin-group")).all().get();
            admin.deleteTopics(List.of("java-admin")).all().get();
            check(!admin.listTopics().names().get().contains("java-admin"), "deleted");
        }
    }

    static long offset(Admin admin, TopicPartition at, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(at, spec)).all().get().get(at).offset();
    }
}
