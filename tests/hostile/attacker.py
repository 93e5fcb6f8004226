"""One attack in a process of its own: its work is not the load's."""

from __future__ import annotations

import json
import random
import resource
import sys

import trio

from tests.hostile.speech import SPEECHES
from tests.hostile.ways import Aim, attack


def main() -> None:
    """``PROTOCOL WAY ADDRESSES SOURCE SEED SECONDS``, the addresses as JSON."""
    protocol, way, addresses, source, seed, seconds = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    [speech] = [each for each in SPEECHES if each.name == protocol]
    aimed = tuple((host, port) for host, port in json.loads(addresses))
    aim = Aim(speech, aimed, source, random.Random(seed))
    trio.run(attack, way, aim, float(seconds))


if __name__ == "__main__":
    main()
