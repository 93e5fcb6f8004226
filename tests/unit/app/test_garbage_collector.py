"""What lasts is set aside, and yet no cycle stays for ever."""

from __future__ import annotations

import subprocess
import sys

from paceline_node.app.garbage_collector import Aside

PROCESS = """
import gc, weakref
from paceline_node.app.garbage_collector import Collector

class Thing: pass

def cycle():
    thing = Thing()
    thing.itself = thing
    return thing

kept, looked_at = [], []
gc.callbacks.append(lambda phase, info: looked_at.append((phase, info["generation"])))
collector = Collector(few=200_000)
old = cycle()
died = weakref.ref(old)
for _ in range(100_000):
    kept.append(Thing())
gc.collect()
print(len(gc.get_objects(2)) < 1_000, gc.get_freeze_count() > 100_000)
del old
gc.collect()
print(died() is not None)
collections = 0
while died() is not None:  # ends: the process's time is limited
    kept += [Thing() for _ in range(10_000)]
    collections += 1
print(collections > 5)
old = cycle()
died = weakref.ref(old)
gc.collect()
del old
gc.collect()
print(died() is not None)
collector.look_through()
print(died() is None, gc.get_freeze_count() > 100_000)
"""


def test_what_survives_is_set_aside_and_cycles_among_it_go_in_the_end() -> None:
    """In a process of its own, for the collector is one a process."""
    done = subprocess.run(
        [sys.executable, "-c", PROCESS], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["True"] * 7, done.stderr


def test_everything_is_looked_through_after_a_doubling() -> None:
    total = 1000
    aside = Aside(lambda: total, few=100)
    assert aside.may_set_aside(600)
    total = 1600
    assert aside.may_set_aside(400)
    total = 2000
    assert not aside.may_set_aside(300)
    assert aside.may_set_aside(2200)  # of everything
    assert aside.may_set_aside(2000)
    total = 4200
    assert not aside.may_set_aside(400)


def test_what_has_gone_meanwhile_does_not_count() -> None:
    aside = Aside(lambda: 1000, few=100)
    for _ in range(50):
        assert aside.may_set_aside(600)


def test_little_may_be_added_to_next_to_nothing() -> None:
    total = 10
    aside = Aside(lambda: total, few=100)
    assert aside.may_set_aside(90)
    total = 100
    assert not aside.may_set_aside(30)
