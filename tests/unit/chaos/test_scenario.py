from __future__ import annotations

import pytest

from paceline_cluster.chaos.faults import KINDS
from paceline_cluster.chaos.scenario import built_in, named, parse
from paceline_cluster.errors import BadScenario

WHOLE = """
name = "mine"
description = "Leaders die."
seconds = 12
nodes = 5

[settings]
"broker.session_ms" = 1500

[workload]
writers = 1
rate = 50
batch = [2, 4]

[schedule]
pause_s = [1, 2]
calm = 0

[[fault]]
kind = "kill"
target = "leader of orders/*"
seconds = [0.5, 3]
weight = 2

[[fault]]
kind = "slow-link"
target = "any"
seconds = 2
delay_ms = 70
at = 5
every = 3
"""


def test_a_scenario_is_read() -> None:
    scenario = parse(WHOLE, "mine.toml")
    assert (scenario.name, scenario.seconds, scenario.nodes) == ("mine", 12.0, 5)
    assert scenario.settings == {"broker.session_ms": "1500"}
    assert (scenario.workload.writers, scenario.workload.batch) == (1, (2, 4))
    assert (scenario.workload.rate, scenario.workload.readers) == (50.0, 1)
    assert (scenario.schedule.pause_s, scenario.schedule.calm) == ((1.0, 2.0), 0.0)
    kill, slow = scenario.faults
    assert (kill.kind, kill.seconds, kill.weight, kill.at) == ("kill", (0.5, 3.0), 2.0, None)
    assert (slow.seconds, slow.numbers, slow.at, slow.every) == (
        (2.0, 2.0),
        {"delay_ms": 70.0},
        5.0,
        3.0,
    )


def test_everything_wrong_is_named_at_once() -> None:
    text = """
    sceonds = 3
    nodes = "many"
    [workload]
    rate = true
    batch = [5, 2]
    readres = 1
    [[fault]]
    kind = "explode"
    target = "any"
    [[fault]]
    kind = "kill"
    target = "somebody"
    delay_ms = 3
    every = 2
    """
    with pytest.raises(BadScenario) as refused:
        parse(text, "bad.toml")
    lines = str(refused.value).splitlines()
    assert all(line.startswith("bad.toml: ") for line in lines)
    for expected in (
        "sceonds: unknown",
        "nodes: expected a number, found 'many'",
        "workload.rate: expected a number, found True",
        "workload, batch: expected a number or [from, to], found [5, 2]",
        "workload.readres: unknown",
        "fault 1, kind: 'explode'; expected kill",
        "fault 2, target: 'somebody' is no target",
        "fault 2, delay_ms: unknown",
        "fault 2, every: goes with at",
    ):
        assert any(expected in line for line in lines), f"{expected}\n{refused.value}"


@pytest.mark.parametrize("text", ["", "[[fault]", "fault = 3"])
def test_what_is_no_scenario(text: str) -> None:
    with pytest.raises(BadScenario):
        parse(text, "bad.toml")


def test_built_in_scenarios_together_use_every_kind() -> None:
    scenarios = built_in()
    used = {fault.kind for scenario in scenarios for fault in scenario.faults}
    assert used == set(KINDS)
    assert all(scenario.description for scenario in scenarios)
    assert named("mixed").name == "mixed"
    with pytest.raises(BadScenario, match="there is no scenario 'nope'; there are clocks, disk"):
        named("nope")
