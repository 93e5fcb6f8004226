// The copier, the same for every client in Java; copying.py says what it does, journal.py what it
// writes. A client is a subclass with a method for each step.
//   java -cp CLASSES NAME SERVERS NAME INPUT OUTPUT GROUP ENDS BATCH ABORT_EVERY JOURNAL FIRST

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

abstract class Copying {
    enum Told { COMMITTED, ABORTED, UNKNOWN }

    /** Where an input record lies. */
    record Read(int partition, long offset) {}

    static final Pattern NUMBER = Pattern.compile("\"attempt\": (\\d+)");

    final String servers, name, input, output, group;
    final long[] ends;
    final int batch, abortEvery;
    final Path journal;
    int next;

    Copying(String[] words) {
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
    }

    // --- what a client has to do -----------------------------------------------------------------

    /** Connect, take the transactional id over and join the group. */
    abstract void open();

    abstract void close();

    /** The next records, none after a moment without any. All of one assignment. */
    abstract List<Read> take();

    /** Go back to the committed offsets, which are returned; empty while nothing is assigned. */
    abstract Map<Integer, Long> rewind();

    abstract void begin();

    abstract void send(int partition, String value);

    abstract void sendOffsets(Map<Integer, Long> offsets);

    abstract void flush();

    /** Commit or abort, again as often as the client asks for that. */
    abstract void end(boolean commits);

    /** Whether this ends a transaction; anything else is a bug of the copier, and ends it. */
    abstract boolean isFailure(RuntimeException error);

    /** Whether the client says that this failure is one to be aborted. */
    abstract boolean mayAbort(RuntimeException error);

    // --- copying ---------------------------------------------------------------------------------

    /** Copy until the group's committed offsets are the ends of all that it was given. */
    void copy() throws IOException {
        resume();
        boolean done = false;
        while (!done) {
            try {
                open();
                done = goOn();
            } catch (RuntimeException error) {
                if (!isFailure(error)) throw error;
                write("{\"stopped\": " + quoted(text(error)) + "}");
            } finally {
                close();
            }
        }
    }

    /** Until all is copied, or false when the client has to begin anew. */
    boolean goOn() {
        while (true) {
            List<Read> reads = take();
            if (reads.isEmpty()) {
                if (isDone(rewind())) return true;
                continue;
            }
            Told told = transact(reads);
            if (told == Told.UNKNOWN) return false;
            if (told == Told.ABORTED) rewind();
        }
    }

    boolean isDone(Map<Integer, Long> at) {
        for (Map.Entry<Integer, Long> each : at.entrySet()) {
            if (each.getValue() < ends[each.getKey()]) return false;
        }
        return !at.isEmpty();
    }

    Told transact(List<Read> reads) {
        Map<Integer, long[]> slices = slices(reads);
        int number = next++;
        List<String> parts = new ArrayList<>();
        Map<Integer, Long> offsets = new HashMap<>();
        slices.forEach((at, slice) -> {
            parts.add("\"" + at + "\": [" + slice[0] + ", " + slice[1] + "]");
            offsets.put(at, slice[1]);
        });
        write("{\"attempt\": " + number + ", \"slices\": {" + String.join(", ", parts) + "}}");
        boolean onPurpose = number % abortEvery == 0;
        Told told;
        String why = "";
        try {
            begin();
            for (Read each : reads) {
                String value = number + "/" + each.partition() + "/" + each.offset();
                send((int) (each.offset() % 2), value);
            }
            sendOffsets(offsets);
            if (onPurpose) flush();
            end(!onPurpose);
            told = onPurpose ? Told.ABORTED : Told.COMMITTED;
        } catch (RuntimeException error) {
            if (!isFailure(error)) throw error;
            why = text(error);
            told = giveUp(error);
        }
        String word = told.name().toLowerCase();
        write("{\"attempt\": " + number + ", \"told\": \"" + word + "\", \"why\": " + quoted(why) + "}");
        return told;
    }

    /** From where to where, by partition. */
    static Map<Integer, long[]> slices(List<Read> reads) {
        Map<Integer, long[]> slices = new TreeMap<>();
        for (Read each : reads) {
            long offset = each.offset();
            long[] slice = slices.computeIfAbsent(each.partition(), at -> new long[] {offset, offset});
            if (slice[1] != offset) throw new AssertionError(offset + " behind " + slice[1]);
            slice[1] = offset + 1;
        }
        return slices;
    }

    /** Abort what has failed, if the client says so, and only then it is certainly aborted. */
    Told giveUp(RuntimeException error) {
        if (!mayAbort(error)) return Told.UNKNOWN;
        try {
            end(false);
        } catch (RuntimeException another) {
            if (!isFailure(another)) throw another;
            return Told.UNKNOWN;
        }
        return Told.ABORTED;
    }

    // --- the journal -----------------------------------------------------------------------------

    /** Go on where a killed one left it, which may have torn its last line. */
    void resume() throws IOException {
        if (!Files.exists(journal)) return;
        String text = Files.readString(journal);
        text = text.substring(0, text.lastIndexOf('\n') + 1);
        Files.writeString(journal, text);
        Matcher found = NUMBER.matcher(text);
        while (found.find()) next = Math.max(next, Integer.parseInt(found.group(1)) + 1);
    }

    void write(String line) {
        try {
            Files.writeString(journal, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static String text(RuntimeException error) {
        String text = error.getClass().getSimpleName() + ": " + error.getMessage();
        return text.substring(0, Math.min(300, text.length()));
    }

    static String quoted(String text) {
        return "\"" + text.replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"";
    }
}
