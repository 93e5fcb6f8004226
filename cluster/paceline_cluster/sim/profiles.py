"""Which faults a run may have, and how often (DESIGN 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from paceline.values import dataclass
from paceline_node.settings.flush_mode import FlushMode

_BOTH = (FlushMode.GROUP, FlushMode.GROUP, FlushMode.BATCH, FlushMode.INTERVAL)


@dataclass(frozen=True, slots=True)
class Profile:
    """``faults`` are weights by kind (``faults.py``), one strikes every ``slot_s`` seconds; where
    ``rough`` is off, the network is perfect besides. ``spares`` are machines that may join,
    ``losses`` how many may have lost data at a time, ``crowd`` how many writers come on top of the
    others until all is healed; where there is one, nobody pauses. ``foreign_clients`` are those
    that are always there; where Kafka is one, there are ``pipelines`` producers of it with several
    requests in flight. ``pauses_s`` are bounds of a writer's pause: where faults matter more than
    load, longer ones give more seeds. A run has two of the ``keepings``: ways in which topics do
    not keep all that is written. ``besides`` are weights of faults that strike now and then beside
    the others. Of Kafka's clients ``namers`` ask for producer ids alone. ``settings`` are those of
    its nodes. ``troubled`` members of the group are there besides, and beside Kafka's clients a
    group of as many members as one of ``audiences``. So many ``labourers`` say what they have
    worked through."""

    name: str
    about: str
    faults: Mapping[str, float] = field(default_factory=dict)
    slot_s: tuple[float, float] = (0.2, 1.5)
    seconds: float = 15.0
    nodes: tuple[int, ...] = (3, 3, 3, 4, 5)
    flush_modes: tuple[FlushMode, ...] = _BOTH
    rough: bool = True
    spares: int = 0
    losses: int = 1
    crowd: int = 0
    foreign_clients: tuple[str, ...] = ()
    pipelines: int = 1
    pauses_s: tuple[float, ...] = (0.05, 0.1, 0.3)
    keepings: tuple[str, ...] = ()
    namers: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    besides: Mapping[str, float] = field(default_factory=dict)
    troubled: int = 0
    audiences: tuple[int, ...] = (0,)
    labourers: int = 0


_DISK_BESIDES = {
    "rot": 10,
    "loss": 8,
    "unreadable": 8,
    "age": 5,
    "exchange": 3,
    "restart-all": 5,
    "call-error": 4,
    "rename-error": 2,
    "names-error": 2,
    "descriptors": 5,
}
"""One disk lies, beside whatever else a profile is about."""

MIXED = Profile(
    "mixed",
    "a little of everything",
    {
        "kill": 20,
        "stop": 6,
        "kill-all": 4,
        "power": 6,
        "wipe": 4,
        "suspend": 12,
        "cut": 18,
        "slow-link": 6,
        "stall": 6,
        "reset": 6,
        "slow-disk": 4,
        "move": 6,
        "min-isr": 3,
        "clock": 3,
    },
    besides=_DISK_BESIDES,
)
MOVER = Profile(
    "mover",
    "leaders move all the time while links are slow",
    {"move": 70, "slow-link": 12, "stall": 10, "suspend": 5, "cut": 5},
    slot_s=(0.02, 0.3),
    besides=_DISK_BESIDES,
)
LOSSY = Profile(
    "lossy",
    "disks are lost and power is cut, as often as the budget allows",
    {"wipe": 25, "power": 35, "kill": 15, "cut": 10, "suspend": 5},
    besides=_DISK_BESIDES,
)
POWER_ALL = Profile(
    "power-all",
    "the whole cluster loses power, again and again",
    {"power-all": 40, "power": 20, "kill": 20, "kill-all": 10, "cut": 10},
    slot_s=(0.5, 3.0),
    flush_modes=(FlushMode.GROUP,),
    besides=_DISK_BESIDES,
)
FLAP = Profile(
    "flap",
    "links go up and down; half-open connections",
    {"cut": 40, "clog": 15, "slow-link": 15, "stall": 15, "reset": 15},
    slot_s=(0.1, 0.8),
    besides=_DISK_BESIDES,
)
DISK = Profile(
    "disk",
    "errors, no room, slowness, rot",
    {
        "sync-error": 12,
        "write-error": 12,
        "disk-full": 14,
        "slow-disk": 20,
        "hang-disk": 8,
        "rot-logs": 10,
        "kill": 12,
        "power": 8,
    },
    flush_modes=(FlushMode.GROUP, FlushMode.GROUP, FlushMode.BATCH),
    besides=_DISK_BESIDES,
)
RESTART = Profile(
    "restart",
    "orderly stops and restarts, one after the other or together",
    {"stop": 60, "kill": 10, "suspend": 10, "move": 10, "clock": 10},
    slot_s=(0.3, 2.0),
    besides=_DISK_BESIDES,
)
SLOW_PROPOSAL = Profile(
    "slow-proposal",
    "the controller hears late, while replicas lose what they had",
    {"slow-controller": 45, "wipe": 15, "power": 20, "suspend": 10, "move": 5, "min-isr": 5},
    slot_s=(0.1, 0.8),
    besides=_DISK_BESIDES,
)
MEMBERSHIP = Profile(
    "membership",
    "nodes join, voters are taken out of the quorum, under kills and cuts",
    {
        "join": 12,
        "remove-voter": 20,
        "kill": 15,
        "stop": 8,
        "suspend": 10,
        "cut": 15,
        "power": 6,
        "move": 8,
    },
    slot_s=(0.3, 1.5),
    spares=2,
    flush_modes=(FlushMode.GROUP, FlushMode.GROUP, FlushMode.BATCH),
    besides=_DISK_BESIDES,
)
ROLLING = Profile(
    "rolling",
    "node after node is stopped and comes back, as an upgrade goes, while other things fail",
    {"roll": 20, "cut": 10, "suspend": 10, "slow-disk": 10, "move": 5, "reset": 10, "kill": 5},
    slot_s=(0.5, 3.0),
    besides=_DISK_BESIDES,
)
EXCESS = Profile(
    "excess",
    "more disks are lost than replicas can make up for: the cluster may halt, never lie",
    {"wipe": 40, "power": 20, "kill": 15, "cut": 10, "suspend": 5},
    losses=9,
)
FLOOD = Profile(
    "flood",
    "many more clients than the cluster can serve at once, and slow disks",
    {"slow-disk": 30, "hang-disk": 10, "slow-link": 20, "kill": 10, "suspend": 10, "disk-full": 5},
    slot_s=(0.3, 1.5),
    crowd=6,
    besides=_DISK_BESIDES,
)
_SLOW = (0.2, 0.4)
_FEW = (3, 3, 3, 4)
_DURABLE = (FlushMode.GROUP, FlushMode.GROUP, FlushMode.BATCH)
ROT = Profile(
    "rot",
    "bits flip in files of one disk at a time, also in the newest bytes and in every small file",
    {"rot": 50, "restart-all": 10, "kill": 10, "power": 5, "cut": 5, "move": 5, "suspend": 3},
    slot_s=(0.1, 0.9),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=_SLOW,
)
HEADERS = Profile(
    "headers",
    "leader epochs and base offsets of one disk at a time rot where no checksum covers them",
    {"rot-headers": 45, "restart-all": 12, "kill": 15, "power": 4, "move": 20, "suspend": 4},
    slot_s=(0.1, 0.9),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=_SLOW,
)
PASSED = Profile(
    "passed",
    "bits flip in a log of one disk, and what lies there is deleted before it is repaired",
    {"rot-trails": 40, "restart-all": 8, "kill": 20, "power": 5, "cut": 5, "move": 20},
    slot_s=(0.1, 0.9),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=(0.05, 0.1),
    keepings=("trimmed", "repeated"),
)
LOSS = Profile(
    "loss",
    "files and directories of one disk at a time are gone",
    {"loss": 45, "restart-all": 12, "kill": 10, "power": 5, "cut": 8, "move": 5, "wipe": 3},
    slot_s=(0.1, 0.9),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=_SLOW,
)
UNREADABLE = Profile(
    "unreadable",
    "reads of one disk at a time fail for good",
    {"unreadable": 50, "restart-all": 8, "kill": 10, "move": 10, "cut": 5},
    slot_s=(0.1, 0.9),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=_SLOW,
)
UNWRITABLE = Profile(
    "unwritable",
    "writes of what says how far logs are durable fail for good, while logs rot and lose their end",
    {"unwritable": 20, "rot-logs": 45, "restart-all": 15, "kill": 10, "cut": 10, "move": 10},
    slot_s=(0.1, 0.9),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=_SLOW,
)
STALE = Profile(
    "stale",
    "files of one disk at a time are again what they were",
    {"age": 50, "restart-all": 10, "kill": 10, "power": 5, "cut": 5, "move": 10},
    slot_s=(0.1, 0.9),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=_SLOW,
)
OUTDATED = Profile(
    "outdated",
    "files of one disk at a time are again what they were, under topics that do not keep all",
    {"age": 20, "age-copies": 25, "restart-all": 8, "kill": 20, "stop": 10, "cut": 5, "move": 15},
    slot_s=(0.1, 0.9),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=_SLOW,
    keepings=("trimmed", "states"),
)
EXCHANGED = Profile(
    "exchanged",
    "files of two partitions of one disk each lie where the other was",
    {"exchange": 50, "age": 5, "restart-all": 8, "kill": 10, "cut": 5, "move": 10},
    slot_s=(0.1, 0.9),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=_SLOW,
)
TORN = Profile(
    "torn",
    "the whole cluster goes down and comes back in any order, while calls of one disk fail",
    {
        "restart-all": 30,
        "power": 20,
        "power-all": 10,
        "call-error": 12,
        "rename-error": 8,
        "names-error": 8,
        "rot": 8,
        "loss": 4,
    },
    slot_s=(0.2, 1.5),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=_SLOW,
)
WAITING = Profile(
    "waiting",
    "a node waits for a quorum, goes down again, and what it keeps has rotted",
    {"rot-alone": 60, "kill": 10, "cut": 5, "move": 10},
    slot_s=(1.5, 4.0),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=_SLOW,
)
SEQUENCES = Profile(
    "sequences",
    "min ISR changes under producers that have several requests in flight",
    {"min-isr": 50, "kill": 5, "cut": 10, "suspend": 30, "move": 10, "wipe": 3},
    slot_s=(0.05, 0.5),
    foreign_clients=("kafka",),
    pipelines=3,
    nodes=(3, 3, 3, 4),
    besides=_DISK_BESIDES,
)
FORGETFUL = Profile(
    "forgetful",
    "records are deleted, expire, are compacted; topics are made again; disks are lost meanwhile",
    {"wipe": 30, "kill": 15, "move": 25, "restart-all": 6, "power": 5, "cut": 8, "suspend": 5},
    slot_s=(0.1, 0.9),
    flush_modes=_DURABLE,
    nodes=_FEW,
    foreign_clients=("cursus",),
    pauses_s=_SLOW,
    keepings=("trimmed", "events", "seasons", "states"),
    besides=_DISK_BESIDES,
)
DESCRIPTORS = Profile(
    "descriptors",
    "no file can be opened, or there is no room, anywhere",
    {"descriptors": 40, "disk-full": 20, "kill": 15, "move": 10, "restart-all": 5, "power": 5},
    slot_s=(0.2, 1.5),
    flush_modes=_DURABLE,
    nodes=_FEW,
    pauses_s=_SLOW,
)
FORCED = Profile(
    "forced",
    "a majority of the voters is lost for good, and the one that is left goes on alone",
    {"force-quorum": 40, "kill": 15, "cut": 10, "suspend": 10, "move": 10, "reset": 5},
    slot_s=(0.5, 2.0),
    flush_modes=_DURABLE,
    nodes=(3,),
    foreign_clients=("kafka",),
    namers=2,
    settings={"broker.session_ms": "3000", "replication.lag_max_ms": "4000"},
)
TROUBLES = Profile(
    "troubles",
    "members are static, slow or hang, and read a topic whose partitions die now and then",
    {"kill": 20, "stop": 15, "suspend": 15, "cut": 20, "move": 20, "slow-link": 5, "reset": 5},
    nodes=_FEW,
    pauses_s=_SLOW,
    troubled=3,
)
LABOUR = Profile(
    "labour",
    "programs of a group fail, are long at work and commit by name, while members come and go",
    {"kill": 20, "stop": 15, "suspend": 15, "cut": 20, "move": 20, "slow-link": 5, "reset": 5},
    nodes=_FEW,
    pauses_s=_SLOW,
    labourers=3,
)
AUDIENCE = Profile(
    "audience",
    "a group of hundreds of members, a few of whom come and go, while its coordinators fall",
    {"kill": 25, "stop": 15, "suspend": 15, "cut": 20, "move": 10, "reset": 10, "slow-link": 5},
    slot_s=(1.0, 3.0),
    nodes=(3,),
    foreign_clients=("kafka",),
    pauses_s=_SLOW,
    audiences=(100, 200, 300),
)
QUIET = Profile("quiet", "no faults: no leader may change", rough=False)

HARMED = (
    ROT,
    HEADERS,
    PASSED,
    LOSS,
    UNREADABLE,
    UNWRITABLE,
    STALE,
    OUTDATED,
    EXCHANGED,
    TORN,
    WAITING,
    DESCRIPTORS,
)
"""Those in which everything that a disk keeps may be harmed."""

PROFILES = {
    profile.name: profile
    for profile in (
        MIXED,
        MOVER,
        LOSSY,
        POWER_ALL,
        FLAP,
        DISK,
        RESTART,
        SLOW_PROPOSAL,
        MEMBERSHIP,
        ROLLING,
        EXCESS,
        FLOOD,
        SEQUENCES,
        FORGETFUL,
        FORCED,
        TROUBLES,
        LABOUR,
        AUDIENCE,
        *HARMED,
        QUIET,
    )
}
