"""One judgement of how a node and its cluster are: pure functions from facts to named checks.

Nodes judge themselves (``/ready``, STATUS), whoever asks all nodes judges the cluster (``paceline
health``, ``status``, ``check``); both say the same because both ask here. A :class:`Check` that is
not OK says why, and what to do. A sentence about a node does not name it; ``node`` does.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from paceline.values import dataclass

RUNNING = "running"
"""What a node says of itself that serves."""
SOON_S = 14 * 24 * 3600
"""How long before its end a certificate is something to mend."""
STALLS_IN_A_SESSION = 4
"""A session is to be so many times as long as the longest stall of a process
(``broker.session_ms``)."""
INTERNAL_TOPIC_COUNT = 2
"""The controller makes so many topics of its own at bootstrap (controller/DESIGN 9.4)."""


class Level(enum.IntEnum):
    """How bad it is; numbers are the exit codes of ``paceline check``."""

    OK = 0
    WARNING = 1
    """Something to mend, and all is served."""
    CRITICAL = 2
    """Something is not served, or records are in danger."""


class CheckName(enum.StrEnum):
    """What is looked at. The first ones are about a node, the others about a cluster."""

    STATE = "state"
    CONTROLLER = "controller"
    SESSION = "session"
    DISK_SPACE = "disk-space"
    DISK_SPEED = "disk-speed"
    DAMAGE = "damage"
    CERTIFICATES = "certificates"
    EVENT_LOOP = "event-loop"
    EXPOSURE = "exposure"
    NODES = "nodes"
    QUORUM = "quorum"
    INTERNAL_TOPICS = "internal-topics"
    LEADERS = "leaders"
    MIN_ISR = "min-isr"
    REPLICAS = "replicas"
    DRAINED = "drained"


OF_CLUSTER = (
    CheckName.NODES,
    CheckName.QUORUM,
    CheckName.INTERNAL_TOPICS,
    CheckName.LEADERS,
    CheckName.MIN_ISR,
    CheckName.REPLICAS,
    CheckName.DRAINED,
)
OF_NODE = tuple(name for name in CheckName if name not in OF_CLUSTER)
SERVING = frozenset(
    {
        CheckName.STATE,
        CheckName.CONTROLLER,
        CheckName.SESSION,
        CheckName.DISK_SPACE,
        CheckName.DISK_SPEED,
    }
)
"""What keeps a node from being ready: clients are better off with another one. A lost range or a
certificate that ends is none, or a load balancer would send everybody away from all nodes."""
PAST = frozenset({CheckName.EVENT_LOOP})
"""What is over when it is told: worth knowing, and makes nobody unhealthy."""
WANTED = frozenset({CheckName.DRAINED, CheckName.EXPOSURE})
"""What an operator has made so: to be remembered, and makes nobody unhealthy."""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; ``node`` is whose it is, None: the cluster's. There may be several of a name."""

    name: str
    level: Level = Level.OK
    reason: str = ""
    what_to_do: str = ""
    node: int | None = None

    def to_json(self) -> dict[str, object]:
        """For programs, the same from every command and page."""
        return {
            "name": str(self.name),
            "level": self.level.name.lower(),
            "reason": self.reason,
            "what_to_do": self.what_to_do,
            "node": self.node,
        }


def unhealthy(checks: Iterable[Check]) -> list[Check]:
    """Those that make a cluster unhealthy."""
    return [each for each in checks if each.level and each.name not in PAST | WANTED]


def failed_to_serve(checks: Iterable[Check]) -> list[Check]:
    """Those for which a node is not ready."""
    return [each for each in checks if each.level is Level.CRITICAL and each.name in SERVING]


def worst(checks: Iterable[Check]) -> Level:
    """The worst level of all; OK of none."""
    return max((each.level for each in checks), default=Level.OK)


def found(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Those that are not OK."""
    return tuple(each for each in checks if each.level)


def with_passed(
    findings: Iterable[Check], names: Sequence[str], node: int | None = None
) -> tuple[Check, ...]:
    """Findings in the order of the names, with an OK check for each name that has none."""
    by_name: dict[str, list[Check]] = {str(name): [] for name in names}
    for each in findings:
        by_name.setdefault(str(each.name), []).append(each)
    return tuple(
        each for name, several in by_name.items() for each in several or [Check(name, node=node)]
    )


# --- a node ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Damage:
    """A sentence on what a replica lost, and whether it is being repaired already."""

    sentence: str
    is_repaired: bool


@dataclass(frozen=True, slots=True)
class Certificates:
    """Until when each is good, in seconds since 1970, by setting; why the files that the settings
    name now are not in force, empty: they are; and what time it is."""

    expiries: Mapping[str, int]
    refused: str
    now: float


@dataclass(frozen=True, slots=True)
class Exposure:
    """Something that others on the network may do to a node, and how to end it."""

    sentence: str
    what_to_do: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node knows of itself. ``other_history`` says why it does not follow a controller that
    there is. ``shortage`` says what of its disk lacks room."""

    node: int
    state: str
    knows_controller: bool
    other_history: str
    has_session: bool
    shortage: Sequence[str]
    disk_is_slow: bool
    damage: Sequence[Damage]
    certificates: Certificates | None
    loop_delay_s: float
    session_s: float
    exposures: Sequence[Exposure] = ()


_VOTERS = "start enough voters of the quorum: 'paceline quorum describe' names them"
_OTHERS = "start the nodes that have the other replicas; they catch up by themselves"
_STATES = {
    "starting": "wait: it takes part by itself once it has read what it keeps",
    "catching-up": "wait: it takes part by itself once it has caught up",
    "fenced": "see whether it reaches the other nodes: 'paceline status' names them",
}


def judge_node(facts: NodeFacts) -> tuple[Check, ...]:
    """Every check of a node, those that pass too."""
    findings = (
        *_of_controller(facts),
        *(
            _critical(
                CheckName.DISK_SPACE,
                each,
                "make room on the disk: shorter retention, 'paceline topic trim', or a larger disk",
            )
            for each in facts.shortage
        ),
        *_of_speed(facts),
        *(
            Check(CheckName.DAMAGE, Level.WARNING, each.sentence, "wait: it mends itself")
            if each.is_repaired
            else _critical(CheckName.DAMAGE, each.sentence, "")
            for each in facts.damage
        ),
        *(() if facts.certificates is None else judge_certificates(facts.certificates)),
        *(
            Check(CheckName.EXPOSURE, Level.WARNING, each.sentence, each.what_to_do)
            for each in facts.exposures
        ),
    )
    named = (
        Check(each.name, each.level, each.reason, each.what_to_do, facts.node) for each in findings
    )
    return with_passed(named, OF_NODE, facts.node)


def judge_start(waits_for: Sequence[str]) -> tuple[Check, ...]:
    """Of a node that serves nobody yet, and says itself who it is: one for all it waits for."""
    return tuple(_critical(CheckName.STATE, each, _STATES["starting"]) for each in waits_for)


def judge_certificates(facts: Certificates) -> Iterator[Check]:
    """What is to be mended of certificates."""
    todo = "write new files and send the node SIGHUP"
    if facts.refused:
        reason = f"new certificates are not in force: {facts.refused}"
        yield Check(CheckName.CERTIFICATES, Level.WARNING, reason, todo)
    for setting, ends in facts.expiries.items():
        if ends <= facts.now:
            yield _critical(
                CheckName.CERTIFICATES, f"{setting} has expired on {date_of(ends)}", todo
            )
        elif ends - facts.now < SOON_S:
            reason = f"{setting} expires on {date_of(ends)}"
            yield Check(CheckName.CERTIFICATES, Level.WARNING, reason, todo)


def date_of(seconds: int) -> str:
    """A moment as operators read it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _of_controller(facts: NodeFacts) -> Iterator[Check]:
    if facts.state != RUNNING:
        todo = _STATES.get(facts.state, "")
        yield _critical(CheckName.STATE, f"broker is {facts.state}", todo)
    if facts.other_history:
        yield _critical(CheckName.CONTROLLER, facts.other_history, "")
    elif not facts.knows_controller:
        yield _critical(CheckName.CONTROLLER, "no active controller is known", _VOTERS)
    if not facts.has_session:
        todo = "see whether it reaches the controller; writes are refused until it does"
        yield _critical(CheckName.SESSION, "no session with a controller", todo)


def _of_speed(facts: NodeFacts) -> Iterator[Check]:
    if facts.disk_is_slow:
        todo = "see what else uses the disk; other nodes lead meanwhile, and it comes back itself"
        yield _critical(CheckName.DISK_SPEED, "the disk is slow", todo)
    delay_s, session_s = facts.loop_delay_s, facts.session_s
    if delay_s * STALLS_IN_A_SESSION > session_s:
        reason = (
            f"the process stood still for {delay_s:.2f} s within the last minute, and its session "
            f"with the controller lasts {session_s:g} s"
        )
        todo = "give it more of a processor, or raise broker.session_ms to four times that"
        level = Level.CRITICAL if delay_s >= session_s else Level.WARNING
        yield Check(CheckName.EVENT_LOOP, level, reason, todo)


# --- a cluster ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the newest metadata say. ``members`` are the nodes that there should be, ``active``
    those that are registered and not fenced. ``controllers`` are what nodes name as controller,
    negative: none; empty where only one node is asked, which judges that itself. ``any_session``:
    whether one of those asked has a session with a controller. ``drained`` are the members that are
    to lead nothing."""

    members: Sequence[int]
    active: frozenset[int]
    topics: int
    partitions: int
    leaderless: int
    under_min_isr: int
    under_replicated: int
    controllers: Sequence[int] = ()
    any_session: bool = True
    drained: Sequence[int] = ()


def judge_cluster(facts: ClusterFacts) -> tuple[Check, ...]:
    """Every check of a cluster but whether its nodes answer, those that pass too."""
    return with_passed(_of_cluster(facts), OF_CLUSTER)


def _of_cluster(facts: ClusterFacts) -> Iterator[Check]:
    known = {each for each in facts.controllers if each >= 0}
    if facts.controllers and not known:
        becomes = (
            "nothing can be elected, and writes are refused once the nodes' sessions are over"
            if facts.any_session
            else f"writes to all {facts.partitions} partitions are refused"
        )
        yield _critical(CheckName.QUORUM, f"there is no controller: {becomes}", _VOTERS)
    elif len(set(facts.controllers)) > 1:
        yield _critical(
            CheckName.QUORUM,
            "the nodes do not agree on the controller yet",
            "wait: an election is under way, or a node does not reach the others",
        )
    elif facts.topics < INTERNAL_TOPIC_COUNT:
        todo = "wait: the controller makes them once there are nodes enough"
        yield _critical(CheckName.INTERNAL_TOPICS, "the internal topics are not made yet", todo)
    for node in facts.members:
        if node not in facts.active:
            yield Check(
                CheckName.NODES,
                Level.CRITICAL,
                f"node {node} is not an active broker",
                "start it, or see whether it reaches the controller",
                node,
            )
    yield from _of_partitions(facts)
    for node in facts.drained:
        todo = f"'paceline node revive {node}' lets it lead again"
        reason = f"node {node} is drained, and leads nothing: {todo}"
        yield Check(CheckName.DRAINED, Level.WARNING, reason, todo, node)


def _of_partitions(facts: ClusterFacts) -> Iterator[Check]:
    def told(count: int, what: str) -> str:
        return f"{count} of {facts.partitions} partitions {what}"

    if facts.leaderless:
        yield _critical(
            CheckName.LEADERS,
            told(facts.leaderless, "without leader: nobody can write or read them"),
            "start the nodes that have their replicas; lost ranges say what else can be done",
        )
    if facts.under_min_isr:
        yield _critical(
            CheckName.MIN_ISR,
            told(
                facts.under_min_isr,
                "below min.insync.replicas: writes with acks=all to them are refused",
            ),
            _OTHERS,
        )
    if facts.under_replicated:
        yield Check(
            CheckName.REPLICAS,
            Level.WARNING,
            told(facts.under_replicated, "under-replicated"),
            _OTHERS,
        )


def _critical(name: CheckName, reason: str, what_to_do: str) -> Check:
    return Check(name, Level.CRITICAL, reason, what_to_do)
