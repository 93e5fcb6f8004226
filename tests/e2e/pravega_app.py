"""An application of the published Pravega client, unmodified; each run is a process of its own.

    pravega_app.py make CONTROLLER         scope, streams; a byte stream written and read back
    pravega_app.py write CONTROLLER COUNT  writes Events, the last one of 9 MiB
    pravega_app.py read CONTROLLER NAME    reads them, as one of a group of readers
    pravega_app.py end CONTROLLER          seals and removes what was made

Prints a JSON document a line. ``write`` goes slowly until it is told something on its standard
input, says {"stored": n} when so many Events are stored and more are under way, and goes on at
once. ``read`` prints what it reads, slice by slice, until its standard input ends. Readers have
processes of their own, because the client lets two in one process wait for each other for ever.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import threading
import time
from typing import Any

import pravega_client

SCOPE, STREAM, BYTES, GROUP = "shop", "orders", "film", "billing"
SEGMENTS, KEYS = 4, 20
BIG = 9 * 1024 * 1024
IN_FLIGHT = 200
PACE_S, LATE_PACE_S = 0.003, 0.05


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def told() -> threading.Event:
    """Set once there is a line, or the end, on standard input."""
    event = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        event.set()

    threading.Thread(target=listen, daemon=True).start()
    return event


def make(manager: Any) -> None:
    made = [manager.create_scope(SCOPE), manager.create_scope(SCOPE)]
    made += [manager.create_stream(SCOPE, STREAM, SEGMENTS), manager.create_stream(SCOPE, BYTES, 1)]
    made.append(manager.create_stream(SCOPE, STREAM, SEGMENTS))
    film = manager.create_byte_stream(SCOPE, BYTES)
    content = hashlib.shake_256(b"film").digest(3_000_000)
    for at in range(0, len(content), 100_000):
        assert film.write(content[at : at + 100_000]) == 100_000
    film.flush()
    again = bytearray()
    while len(again) < len(content):
        buffer = bytearray(64_000)
        again += buffer[: film.readinto(buffer)]
    say(
        made=made,
        scopes=[str(each) for each in manager.list_scope()],
        streams=sorted(str(each) for each in manager.list_stream(SCOPE)),
        same=bytes(again) == content,
        tail=film.current_tail_offset(),
    )


def write(manager: Any, count: int) -> None:
    writer = manager.create_writer(SCOPE, STREAM, IN_FLIGHT)
    hurry = told()

    def event(number: int) -> None:
        key = f"k{number % KEYS}"
        writer.write_event(f"{key}:{number}", routing_key=key)

    stored = 0
    while stored < count // 2 and not hurry.is_set():
        event(stored)
        stored += 1
        time.sleep(PACE_S if stored < count // 4 else LATE_PACE_S)
    writer.flush()
    for number in range(stored, count):
        if number == stored + IN_FLIGHT:
            say(stored=stored)
        event(number)
    writer.flush()
    writer.write_event_bytes(bytes(BIG), routing_key="big")
    writer.flush()
    say(stored=count + 1)


async def read(manager: Any, name: str) -> None:
    reader = manager.create_reader_group(GROUP, SCOPE, STREAM).create_reader(name)
    enough = told()
    while not enough.is_set():
        # Without an Event it ends with an empty slice, in a second.
        slice_ = await reader.get_segment_slice_async()
        events = [bytes(event.data()) for event in slice_]
        if events:
            say(events=["big" if each == bytes(BIG) else each.decode() for each in events])
        reader.release_segment(slice_)
    reader.reader_offline()


def end(manager: Any) -> None:
    unsealed = is_refused(lambda: manager.delete_stream(SCOPE, STREAM))
    full = is_refused(lambda: manager.delete_scope(SCOPE))
    manager.delete_reader_group(GROUP, SCOPE)
    done = []
    for stream in (STREAM, BYTES):
        done += [manager.seal_stream(SCOPE, stream), manager.delete_stream(SCOPE, stream)]
    left = [str(each) for each in manager.list_stream(SCOPE)]
    done.append(manager.delete_scope(SCOPE))
    say(unsealed=unsealed, full=full, done=done, left=left)


def is_refused(call: Any) -> bool:
    try:
        call()
    except Exception:  # noqa: BLE001  the client's errors have no type of their own
        return True
    return False


if __name__ == "__main__":
    what, controller, *rest = sys.argv[1:]
    manager = pravega_client.StreamManager(f"tcp://{controller}")
    match what:
        case "make":
            make(manager)
        case "write":
            write(manager, int(rest[0]))
        case "read":
            asyncio.run(read(manager, rest[0]))
        case "end":
            end(manager)
    # All is said. The client's threads go on in its native runtime while an interpreter takes
    # itself down: one run died of SIGSEGV without a word, most likely there.
    os._exit(0)
