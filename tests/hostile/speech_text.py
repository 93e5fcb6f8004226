"""What is said to the V1 and Cursus listeners."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from paceline.wire.cursus.frames import framed
from tests.hostile import cursus, v1

_WORDS = ("prey k:v", "prey k:v acks=all", "bait 0 999999", "g prey 0", "g m prey 0 1")
_COMMANDS = ("PRODUCE", "CONSUME", "OFFSET", "JOIN", "HEARTBEAT", "ADMIN_GET_METADATA")


def v1_cheap(rng: random.Random) -> Iterator[bytes]:
    for number in itertools.count():
        yield f"V1|{number}|{rng.choice(_COMMANDS)}|{rng.choice(_WORDS)}\n".encode()


def v1_bombs(_: random.Random) -> Iterator[bytes]:
    yield b"V1|1|PRODUCE|" + b"prey k:v " * 100_000 + b"\n"
    yield b"V1|1|PRODUCE|prey k:" + b"%61" * 300_000 + b" enc=pct\n"
    yield b"V1|1|CONSUME|bait " + b"9" * 900_000 + b" 0\n"
    yield b"V1|" + b"9" * 900_000 + b"|CONSUME|bait 0 0\n"
    yield b"\n" * 1_000_000
    yield v1.posted_by_a_page("V1|1|PRODUCE|prey k:v", port=9092)


def cursus_cheap(rng: random.Random) -> Iterator[bytes]:
    lines = (
        b"LIST",
        b"HELP",
        b"PUBLISH topic=prey message=m",
        b"CONSUME bait 0 999999",
        b"DESCRIBE topic=bait",
        b"FETCH_OFFSET topic=bait partition=0 group=g",
    )
    while True:
        yield framed(rng.choice(lines))


def cursus_costly(rng: random.Random) -> Iterator[bytes]:
    lines = (b"CONSUME bait 0 0", b"STREAM bait 0 0", b"LIST")
    while True:
        yield framed(rng.choice(lines))


def cursus_bombs(_: random.Random) -> Iterator[bytes]:
    for line in cursus.wildcards(stars=6):
        yield framed(line.encode())
    for body in cursus.compressed_commands():
        yield framed(body)
    for body in cursus.crowded_batches("prey"):
        yield framed(body)
    for batch in cursus.great_batches("prey"):
        yield framed(batch)
