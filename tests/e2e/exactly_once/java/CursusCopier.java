// The copier over Cursus, in the form that its client for Java says things: commands in an empty
// envelope, isolation_level. The client is in no registry, so the frames are made here.

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class CursusCopier extends Copying {
    static final int REPLY_MS = 6_000, PAUSE_MS = 50, NOTHING_MS = 200, BEAT_MS = 3_000, WINDOW = 256;
    static final long PATIENCE_NS = 90_000_000_000L;
    static final int MAGIC = 0xBA7C;
    static final String ELSEWHERE = "NOT_COORDINATOR";
    static final Set<String> AGAIN =
            Set.of(
                    ELSEWHERE,
                    "coordinator_not_available",
                    "leader_not_available",
                    "no_raft_leader",
                    "request_timed_out",
                    "not_enough_replicas",
                    "transaction_commit_failed",
                    "transaction_sync_failed",
                    "init_producer_failed");

    /** An answer that saying it again would not change. */
    @SuppressWarnings("serial")
    static class Refused extends RuntimeException {
        Refused(String text) {
            super(text);
        }
    }

    /** Nobody has answered for good: what became of it is not known. */
    @SuppressWarnings("serial")
    static class NotAnswered extends RuntimeException {
        NotAnswered(String text) {
            super(text);
        }
    }

    /** Frames out, frames in. */
    static class Connection {
        final Socket socket = new Socket();
        final DataOutputStream out;
        final DataInputStream in;

        Connection(String address) throws IOException {
            int colon = address.lastIndexOf(':');
            String host = address.substring(0, colon);
            int port = Integer.parseInt(address.substring(colon + 1));
            socket.connect(new InetSocketAddress(host, port), REPLY_MS);
            socket.setSoTimeout(REPLY_MS);
            socket.setTcpNoDelay(true);
            out = new DataOutputStream(new java.io.BufferedOutputStream(socket.getOutputStream()));
            in = new DataInputStream(new java.io.BufferedInputStream(socket.getInputStream()));
        }

        void write(String line) throws IOException {
            byte[] body = line.getBytes(StandardCharsets.UTF_8);
            out.writeInt(2 + body.length);
            out.writeShort(0); // the envelope, for no topic
            out.write(body);
        }

        byte[] read() throws IOException {
            byte[] body = new byte[in.readInt()];
            in.readFully(body); // readNBytes() gives a torn frame where the node dies
            return body;
        }

        String readText() throws IOException {
            return new String(read(), StandardCharsets.UTF_8);
        }

        void close() {
            try {
                socket.close();
            } catch (IOException error) {
                // It is gone all the same.
            }
        }
    }

    /** The way to whoever coordinates one transactional id or group, on a connection that is kept. */
    class Line {
        final String key;
        Connection connection;

        Line(String key) {
            this.key = key;
        }

        /** The answer of the coordinator, whoever that is in the end. */
        String say(String line) {
            long until = System.nanoTime() + PATIENCE_NS;
            while (true) {
                List<String> heard = hear(List.of(line));
                String answer = heard.isEmpty() ? null : heard.get(0);
                if (answer != null && answer.startsWith("OK")) return answer;
                if (answer != null && !maySayAgain(answer)) throw new Refused(line + ": " + answer);
                if (answer != null && word(answer).equals(ELSEWHERE)) close();
                if (System.nanoTime() > until) throw new NotAnswered(line + ": " + answer);
                sleep(PAUSE_MS);
            }
        }

        /** As say_all() in cursus.py: commands that may be repeated, one behind the other. */
        void sayAll(List<String> lines) {
            List<String> left = lines;
            while (!left.isEmpty()) {
                List<String> window = left.subList(0, Math.min(WINDOW, left.size()));
                int done = carriedOut(window, hear(window));
                if (done < window.size()) {
                    say(window.get(done)); // finds the coordinator, or hears why not
                    done++;
                }
                left = left.subList(done, left.size());
            }
        }

        /** The answers as far as they come; where not all do, the connection is not kept. */
        List<String> hear(List<String> lines) {
            List<String> answers = new ArrayList<>();
            try {
                if (connection == null) connection = find();
                if (connection == null) return answers;
                for (String line : lines) connection.write(line);
                connection.out.flush();
                while (answers.size() < lines.size()) answers.add(connection.readText());
            } catch (IOException error) {
                close(); // what it may still say answers another command
            }
            return answers;
        }

        Connection find() throws IOException {
            for (String server : servers.split(",")) {
                String told = ask(server, "FIND_COORDINATOR " + key);
                if (told != null && told.startsWith("OK")) {
                    return new Connection(field(told, "host") + ":" + field(told, "port"));
                }
            }
            return null;
        }

        void close() {
            if (connection != null) connection.close();
            connection = null;
        }
    }

    Line transactions, groups;
    String who;
    volatile String member;
    long sequence;
    List<String> unsent = new ArrayList<>();
    Map<Integer, Long> positions = new HashMap<>();
    final Map<Integer, Deque<Read>> waiting = new HashMap<>();
    final Map<Integer, Connection> readers = new HashMap<>();

    public static void main(String[] words) throws IOException {
        if (words[0].equals("carried-out")) {
            for (int at = 1; at < words.length; at++) System.out.println(judged(words[at]));
            return;
        }
        if (words[0].equals("ask")) {
            System.out.println(ask(words[1], "HELP"));
            return;
        }
        CursusCopier copier = new CursusCopier(words);
        Thread beating = new Thread(copier::beat, "beats");
        beating.setDaemon(true);
        beating.start();
        copier.copy();
        System.exit(0);
    }

    CursusCopier(String[] words) {
        super(words);
    }

    // --- life ------------------------------------------------------------------------------------

    @Override
    void open() {
        transactions = new Line("transactional_id=" + name);
        groups = new Line("group=" + group);
        String told = transactions.say("INIT_PRODUCER_ID transactional_id=" + name);
        String producer = "producerId=" + producerName() + " epoch=" + field(told, "epoch");
        who = "transactional_id=" + name + " " + producer;
        sequence = 0;
        join();
    }

    String producerName() {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            byte[] hash = digest.digest(name.getBytes(StandardCharsets.UTF_8));
            return "txn-" + HexFormat.of().formatHex(hash).substring(0, 16);
        } catch (NoSuchAlgorithmException error) {
            throw new AssertionError(error);
        }
    }

    void join() {
        String told = groups.say("JOIN_GROUP topic=" + input + " group=" + group + " member=" + name);
        member = "generation=" + field(told, "generation") + " member=" + field(told, "member");
        String shared = told.substring(told.indexOf("assignments=[") + 13, told.indexOf(']'));
        positions.clear();
        for (String each : shared.trim().split("[ ,]+")) {
            if (!each.isEmpty()) positions.put(Integer.parseInt(each), 0L);
        }
        rewind();
    }

    /** Keep the member alive however long a transaction takes. */
    void beat() {
        Line beats = new Line("group=" + group);
        while (true) {
            sleep(BEAT_MS);
            String now = member;
            if (now == null) continue;
            try {
                beats.say("HEARTBEAT topic=" + input + " group=" + group + " " + now);
            } catch (Refused | NotAnswered error) {
                // Heard again before the next transaction.
            }
        }
    }

    @Override
    void close() {
        member = null;
        if (transactions != null) transactions.close();
        if (groups != null) groups.close();
        readers.values().forEach(Connection::close);
        readers.clear();
    }

    // --- reading ---------------------------------------------------------------------------------

    @Override
    List<Read> take() {
        try {
            groups.say("HEARTBEAT topic=" + input + " group=" + group + " " + member);
        } catch (Refused error) {
            join();
            return List.of();
        }
        List<Integer> own = new ArrayList<>(positions.keySet());
        own.sort(Comparator.comparing(positions::get));
        List<Read> reads = new ArrayList<>();
        for (int at : own) {
            Deque<Read> here = waiting.computeIfAbsent(at, each -> new ArrayDeque<>());
            if (here.isEmpty()) here.addAll(consume(at));
            while (!here.isEmpty() && reads.size() < batch) reads.add(here.remove());
            if (!reads.isEmpty()) {
                positions.put(at, reads.get(reads.size() - 1).offset() + 1);
                return reads;
            }
        }
        sleep(NOTHING_MS);
        return reads;
    }

    /** What lies at the position, from whichever node has it; none when that is not told. */
    List<Read> consume(int partition) {
        try {
            if (!readers.containsKey(partition)) readers.put(partition, leader(partition));
            Connection connection = readers.get(partition);
            String place = "topic=" + input + " partition=" + partition;
            String from = " offset=" + positions.get(partition) + " isolation_level=read_committed";
            connection.write("CONSUME " + place + from + " member=" + name);
            connection.out.flush();
            return offsets(partition, connection.read());
        } catch (IOException error) {
            Connection connection = readers.remove(partition);
            if (connection != null) connection.close();
            return List.of();
        }
    }

    Connection leader(int partition) throws IOException {
        for (String server : servers.split(",")) {
            String told = ask(server, "METADATA topic=" + input);
            if (told == null || !told.startsWith("OK")) continue;
            String[] leaders = field(told, "leaders").split(",", -1);
            if (!leaders[partition].isEmpty()) return new Connection(leaders[partition]);
        }
        throw new IOException("no node knows who leads");
    }

    /** Of the records of a batch frame; what is no batch is an error. */
    static List<Read> offsets(int partition, byte[] frame) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap(frame);
        if (frame.length < 2 || Short.toUnsignedInt(bytes.getShort()) != MAGIC) {
            throw new IOException(new String(frame, StandardCharsets.UTF_8));
        }
        skip(bytes, Short.toUnsignedInt(bytes.getShort())); // topic
        skip(bytes, 4); // partition
        skip(bytes, Byte.toUnsignedInt(bytes.get())); // acks
        skip(bytes, 1 + 8 + 8); // idempotent, first and last number
        List<Read> reads = new ArrayList<>();
        for (int left = bytes.getInt(); left > 0; left--) {
            reads.add(new Read(partition, bytes.getLong()));
            skip(bytes, 8); // number
            skip(bytes, Short.toUnsignedInt(bytes.getShort())); // producer
            skip(bytes, Short.toUnsignedInt(bytes.getShort())); // key
            skip(bytes, 8); // epoch
            skip(bytes, bytes.getInt()); // payload
            skip(bytes, Short.toUnsignedInt(bytes.getShort())); // event type
            skip(bytes, 4 + 8); // versions
            skip(bytes, Short.toUnsignedInt(bytes.getShort())); // metadata
        }
        return reads;
    }

    static void skip(ByteBuffer bytes, int size) {
        bytes.position(bytes.position() + size);
    }

    /** As rewind() in cursus.py: of all partitions, once its own are copied. */
    @Override
    Map<Integer, Long> rewind() {
        waiting.clear();
        for (int at : positions.keySet()) positions.put(at, committed(at));
        Map<Integer, Long> offsets = new HashMap<>(positions);
        if (!positions.isEmpty() && !isDone(positions)) return offsets;
        for (int at = 0; at < ends.length; at++) offsets.put(at, committed(at));
        return offsets;
    }

    long committed(int partition) {
        String place = "topic=" + input + " group=" + group + " partition=" + partition;
        return Long.parseLong(field(groups.say("FETCH_OFFSET " + place), "offset"));
    }

    // --- a transaction ---------------------------------------------------------------------------

    @Override
    void begin() {
        unsent = new ArrayList<>();
        transactions.say("BEGIN_TXN " + who);
    }

    @Override
    void send(int partition, String value) {
        String place = " topic=" + output + " partition=" + partition + " seqNum=" + ++sequence;
        unsent.add("TXN_PUBLISH " + who + place + " message=" + value);
    }

    @Override
    void sendOffsets(Map<Integer, Long> offsets) {
        flush();
        List<String> pairs = new ArrayList<>();
        offsets.forEach((at, to) -> pairs.add("P" + at + ":" + to));
        String where = "topic=" + input + " group=" + group + " " + member;
        String told = where + " " + String.join(",", pairs);
        transactions.say("SEND_OFFSETS_TO_TXN " + who + " " + told);
    }

    @Override
    void flush() {
        List<String> lines = unsent;
        unsent = new ArrayList<>();
        transactions.sayAll(lines);
    }

    @Override
    void end(boolean commits) {
        transactions.say("END_TXN " + who + " result=" + (commits ? "commit" : "abort"));
    }

    @Override
    boolean isFailure(RuntimeException error) {
        return error instanceof Refused || error instanceof NotAnswered;
    }

    @Override
    boolean mayAbort(RuntimeException error) {
        return error instanceof Refused;
    }

    // --- answers ---------------------------------------------------------------------------------

    /** As carried_out() in cursus.py: how many, from the first on, need not be said again. */
    static int carriedOut(List<String> lines, List<String> answers) {
        int first = answers.size();
        for (int at = answers.size() - 1; at >= 0; at--) {
            if (!answers.get(at).startsWith("OK")) first = at;
        }
        for (int at = first; at < answers.size(); at++) {
            String answer = answers.get(at);
            if (!answer.startsWith("OK") && !maySayAgain(answer)) {
                throw new Refused(lines.get(at) + ": " + answer);
            }
        }
        for (int at = first; at < answers.size(); at++) {
            if (answers.get(at).startsWith("OK")) {
                String refused = lines.get(first) + ": " + answers.get(first);
                throw new Refused(refused + ", but not what was said after it");
            }
        }
        return first;
    }

    /** What carriedOut() says to answers with | in between, for tests. */
    static String judged(String answers) {
        try {
            return "" + carriedOut(List.of("a", "b", "c"), List.of(answers.split("\\|")));
        } catch (Refused error) {
            return text(error);
        }
    }

    static boolean maySayAgain(String answer) {
        return AGAIN.contains(word(answer));
    }

    static String word(String answer) {
        return answer.split(" ")[1];
    }

    static String field(String answer, String name) {
        Matcher found = Pattern.compile(" " + name + "=(\\S*)").matcher(answer);
        if (!found.find()) throw new AssertionError(name + " is not in " + answer);
        return found.group(1);
    }

    /** One command over a connection of its own; null when nobody answers. */
    static String ask(String server, String line) {
        Connection connection = null;
        try {
            connection = new Connection(server);
            connection.write(line);
            connection.out.flush();
            return connection.readText();
        } catch (IOException error) {
            return null;
        } finally {
            if (connection != null) connection.close();
        }
    }

    static void sleep(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }
}
