"""What newcomers mistype, what ``paceline`` said of it once, and what it has to say.

``{dir}``, ``{http}``, ``{kafka}`` and so on in ``words`` are the cluster's, ``{tmp}`` an empty
folder. There are the topics ``orders`` (three partitions) and ``one``, whose one partition has the
records a, b and c.
"""

from __future__ import annotations

from paceline.values import dataclass

USAGE, DATA, UNAVAILABLE, CONFIGURATION = 64, 65, 69, 78
SAME = "the same"
SILENT = "accepted, silently"
UNKNOWN = "not recorded"


@dataclass(frozen=True, slots=True)
class Mistake:
    """``says``: what has to be in the answer; ``before``: what was answered once."""

    words: str
    exit_code: int
    says: tuple[str, ...]
    before: str
    stdin: bytes = b""


_NATIVE = "not the native protocol\nname a node's native listener, port 7400 by default"
_FIRST = (
    Mistake(
        "cluster init --nodes 3 --dir {dir}",
        UNAVAILABLE,
        ("{dir} holds a cluster already\nchoose another --dir; or 'paceline up --dir {dir}'",),
        "port 9092 is in use; end what uses it",
    ),
    Mistake(
        "log dump {dir}/node-0",
        DATA,
        ("is a node's data directory; name the directory of a partition, such as", "/topics/"),
        UNKNOWN,
    ),
    Mistake(
        "log dump {dir}",
        DATA,
        ("is a cluster's directory; name the directory of a partition, such as",),
        UNKNOWN,
    ),
    Mistake(
        "produce bad/name",
        DATA,
        ("bad/name: no topic can have this name: expected 1 to 249 of A-Z",),
        "bad/name: error code 17",
        b"a\n",
    ),
    Mistake(
        "down --dir {tmp}/nowhere",
        DATA,
        ("there is no cluster in {tmp}/nowhere (no cluster.json)", "paceline cluster list"),
        "[Errno 2] No such file or directory",
    ),
    Mistake(
        "up --detach --any-port --dir {tmp}/file/x",
        UNAVAILABLE,
        ("no cluster can be made in {tmp}/file/x ({tmp}/file is a file)\nchoose another --dir",),
        "[Errno ...]",
    ),
    Mistake(
        "up --detach --any-port --dir {tmp}/new --set foo.bar=1",
        CONFIGURATION,
        ("unknown setting foo.bar (command line)", "'paceline node settings' shows all"),
        "not refused before the directories were made",
    ),
    Mistake(
        "up --detach --any-port --dir {tmp}/new --set disk.min_free=1",
        CONFIGURATION,
        ("unknown setting disk.min_free, did you mean disk.min_free_bytes?",),
        "told as disk.min_free in one place, as disk.min_free_bytes in another",
    ),
    Mistake(
        "topic list --bootstrap {http}",
        DATA,
        ("{http} speaks HTTP, ", _NATIVE),
        "retried 110 times, within 30 s",
    ),
    Mistake(
        "topic list --bootstrap {kafka}",
        DATA,
        ("{kafka} speaks Kafka, ", _NATIVE),
        "retried 110 times, within 30 s",
    ),
    Mistake(
        "topic list --bootstrap {v1}",
        DATA,
        ("{v1} speaks V1, ", _NATIVE),
        "retried 110 times, within 30 s",
    ),
    Mistake(
        "topic list --bootstrap 127.0.0.1:1 --connect-timeout 0.1",
        UNAVAILABLE,
        ("127.0.0.1:1: connection refused (tried for 0.1 s)\nis the cluster up?",),
        "the same, but --connect-timeout was not told in the help",
    ),
    Mistake(
        "produce __groups",
        DATA,
        ("line 1: internal topics take no records from clients (it is not stored)",),
        "__groups: ... __groups: internal topics ... (the name twice)",
        b"a\n",
    ),
    Mistake(
        "topic list --nope",
        USAGE,
        ("paceline: No such option '--nope'.\n'paceline topic list --help' explains it",),
        "Error: No such option (others began with paceline:)",
    ),
    Mistake(
        "tpoic list",
        USAGE,
        ("No such command 'tpoic'. Did you mean 'topic list'?",),
        "No such command 'tpoic'.",
    ),
    Mistake(
        "topics list",
        USAGE,
        ("No such command 'topics'. Did you mean 'topic list'?",),
        "No such command 'topics'. Did you mean 'group topics'?",
    ),
    Mistake(
        "produce one --json",
        DATA,
        ('line 1: unknown field "headrs", did you mean "headers"? (0 records before it',),
        SILENT,
        b'{"value": "x", "headrs": []}\n',
    ),
    Mistake(
        "produce one --json",
        DATA,
        (
            'line 1: unknown field "user"; known: topic, ',
            "leave --json off to store lines as they are; how-to/shell of the documentation shows",
        ),
        'unknown field "user"; known: topic, ...',
        b'{"user": "ann", "n": 1}\n',
    ),
    Mistake(
        "produce one --json",
        DATA,
        ('line 1: field "value" is there twice',),
        SILENT,
        b'{"value": "x", "value": "y"}\n',
    ),
    Mistake(
        "produce one --key-delimiter :",
        DATA,
        ("line 1: no ':' behind a key (--allow-keyless takes such lines as values)",),
        SILENT,
        b"no key\n",
    ),
    Mistake(
        "consume one --exit-at-end --from 500",
        DATA,
        ("offset 500 is beyond the end of one/0 (3)\n'--from end' waits for new records",),
        SILENT,
    ),
    Mistake(
        "consume --help",
        0,
        ("-N (the last N of\n",),
        "help said the last N; it was of each partition",
    ),
    Mistake(
        "group offsets reset g --topic one --to-offset 500",
        DATA,
        ("one/0 has 0 to 3, not 500", "--to-latest go as far as there is"),
        "took the nearest offset, silently",
    ),
    Mistake(
        "produce one --acks 7",
        USAGE,
        ("'7' is not one of '0', '1', 'all'.",),
        SILENT,
        b"a\n",
    ),
    Mistake(
        "consume one --json --output yaml",
        USAGE,
        ("--json and --output yaml exclude each other",),
        SILENT,
    ),
    Mistake(
        "topic describe nothing --output json",
        DATA,
        ('{"error": {"code": "UNKNOWN_TOPIC_OR_PARTITION", "message": "nothing: no such topic"',),
        "text, whatever --output said",
    ),
    Mistake(
        "topic delete orders",
        USAGE,
        ("delete removes all records of orders; confirm it with --yes",),
        SAME,
    ),
)
"""Those of the first list of frictions."""
_MORE = (
    Mistake(
        "",
        USAGE,
        ("Usage: paceline [OPTIONS] COMMAND [ARGS]...\n\n  Run and use", "  topic  "),
        "the usage twice, the second behind 'paceline: '",
    ),
    Mistake(
        "group",
        USAGE,
        ("Usage: paceline group [OPTIONS] COMMAND [ARGS]...\n\n  List, ", "  offsets "),
        "the usage twice, the second behind 'paceline: '",
    ),
    Mistake("help", USAGE, ("Did you mean '--help'?",), "Did you mean 'health'?"),
    Mistake("version", USAGE, ("Did you mean '--version'?",), "No such command 'version'."),
    Mistake(
        "create topic orders",
        USAGE,
        ("No such command 'create'. Did you mean 'topic create', ",),
        "No such command 'create'.",
    ),
    Mistake(
        "list topics",
        USAGE,
        ("Did you mean 'topic list', ",),
        "No such command 'list'. Did you mean 'limits'?",
    ),
    Mistake(
        "consume order --exit-at-end",
        DATA,
        ("order: no such topic\nthere is 'orders'; 'paceline topic list' shows all",),
        "no such topic, without the one that was meant",
    ),
    Mistake(
        "topic describe Orders",
        DATA,
        ("Orders: no such topic\nthere is 'orders'; ",),
        "no such topic, without the one that was meant",
    ),
    Mistake(
        "topic create one",
        DATA,
        ("topic already exists: one\n'paceline topic describe one' shows it; --if-not-exists ",),
        "topic already exists: one",
    ),
    Mistake(
        "produce one hello",
        USAGE,
        ("File 'hello' does not exist.", "Lines come from standard input where no FILE is named."),
        "File 'hello' does not exist.",
    ),
    Mistake(
        "produce one",
        DATA,
        ("line 2: record of 17000000 bytes, limit 16777216 (1 record before it is stored)",),
        "one: record of 17000000 bytes, limit 16777216",
        b"x\n" + b"x" * 17_000_000 + b"\n",
    ),
    Mistake(
        "consume orders --from-beginning",
        USAGE,
        ("No such option '--from-beginning'. Topics are read from their start, unless --from",),
        "No such option '--from-beginning'.",
    ),
    Mistake(
        "consume --topic orders",
        USAGE,
        ("No such option '--topic'. The topic stands by itself: paceline consume TOPIC",),
        "No such option '--topic'.",
    ),
    Mistake(
        "consume orders --max-messages 3",
        USAGE,
        ("No such option '--max-messages'. Did you mean '--count'?",),
        "No such option '--max-messages'.",
    ),
    Mistake(
        "role elect orders --node 1",
        USAGE,
        ("'orders' is no TOPIC/PARTITION, for example orders/2",),
        "Missing argument 'PARTITION'.",
    ),
    Mistake(
        "segment append nothing/here/0 {tmp}/file",
        DATA,
        ("there is no segment 'nothing/here/0'\n'paceline segment create NAME' makes one",),
        "the writer's id, and a hint about topics",
    ),
    Mistake(
        "topic list --bootstrap tls://{native} --connect-timeout 1",
        UNAVAILABLE,
        ("the tls handshake failed", "a listener without TLS is named by HOST:PORT alone"),
        "the tls handshake failed, and nothing to do",
    ),
    Mistake(
        "topic create x --config retention=7d",
        DATA,
        (
            "retention: unknown topic configuration, did you mean retention.ms?\n",
            "\n'paceline topic settings' shows which there are, and their bounds",
        ),
        SAME,
    ),
    Mistake(
        "topic create x --config retention.ms=7days",
        USAGE,
        ("retention.ms=7days: expected ms, or a number with ms, s, m, h, d or w: 7d",),
        "retention.ms=7days: expected a whole number (ms)",
    ),
    Mistake(
        "topic create x --replication-factor 5",
        DATA,
        (
            "topic x: replication factor 5, but 3 nodes registered\neach replica lies on another ",
            "--replication-factor asks for fewer",
        ),
        SAME,
    ),
    Mistake(
        "topic create x --partition 3",
        USAGE,
        ("No such option '--partition'. Did you mean '--partitions'?",),
        SAME,
    ),
    Mistake("node kill 7", DATA, ("there is no node 7 in this cluster; it has 0, 1, 2",), SAME),
    Mistake(
        "consume one --from yesterday",
        USAGE,
        ("'yesterday' is no place in a topic: give start, end, an offset, -N",),
        SAME,
    ),
    Mistake(
        "group describe missing",
        DATA,
        ("group missing of family kafka does not exist\n'paceline group list' shows",),
        SAME,
    ),
    Mistake(
        "topic alter orders --config min.insync.replicas=5",
        DATA,
        ("min.insync.replicas=5: the replication factor is 3\n'paceline topic settings' shows ",),
        SAME,
    ),
)
"""Twenty-five more."""
MISTAKES = (*_FIRST, *_MORE)
