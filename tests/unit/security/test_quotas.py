"""Who has to wait for how long, and what is kept of whom."""

from __future__ import annotations

import pytest
import trio

from paceline.wire.native.quotas import QuotaLimit, QuotaOf
from paceline_node.security.principals import ANONYMOUS, Principal, Proof, node_principal
from paceline_node.security.quotas import (
    _METERS,
    BURST_S,
    MOST_AHEAD_S,
    ClientQuotas,
    config_key,
    quotas_in,
)

USER, ADDRESS = QuotaOf.USER, QuotaOf.ADDRESS
PRODUCE, FETCH, REQUESTS = QuotaLimit.PRODUCE, QuotaLimit.FETCH, QuotaLimit.REQUESTS


def somebody(name: str, host: str = "10.0.0.1") -> Principal:
    return Principal(name, Proof.PASSWORD, host=host)


ANN, BOB = somebody("ann"), somebody("bob", "10.0.0.2")


class World:
    def __init__(self, **rates: float) -> None:
        self.now = 100.0
        self.configs = dict(rates)
        self.quotas = ClientQuotas(lambda: self.now, lambda: self.configs)

    def set(self, key: tuple[QuotaOf, str | None, QuotaLimit], rate: float) -> None:
        self.configs = {**self.configs, config_key(key): str(rate)}


def test_nobody_waits_where_there_are_none() -> None:
    world = World()
    world.quotas.spend(ANN, PRODUCE, 1e12)
    assert world.quotas.delay_s(ANN) == 0


def test_a_second_is_free_and_the_rest_takes_its_time() -> None:
    world = World()
    world.set((USER, "ann", PRODUCE), 1000)
    world.quotas.spend(ANN, PRODUCE, 1000 * BURST_S)
    assert world.quotas.delay_s(ANN) == 0
    world.quotas.spend(ANN, PRODUCE, 500)
    assert world.quotas.delay_s(ANN) == pytest.approx(0.5)
    assert world.quotas.throttle_ms(ANN) == 500
    assert world.quotas.delay_s(ANN, [REQUESTS]) == 0
    assert world.quotas.delay_s(BOB) == 0
    world.now += 0.4
    assert world.quotas.delay_s(ANN) == pytest.approx(0.1)


def test_in_the_long_run_the_rate_is_what_was_asked_for() -> None:
    world = World()
    world.set((USER, None, FETCH), 1000)
    spent, begun = 0, world.now
    while world.now < begun + 100:
        world.now += world.quotas.delay_s(BOB) or 0.001
        if not world.quotas.delay_s(BOB):
            world.quotas.spend(BOB, FETCH, 300)
            spent += 300
    assert spent == pytest.approx(101 * 1000, rel=0.01)


def test_each_has_his_own_unless_one_is_his_and_addresses_count_besides() -> None:
    world = World()
    world.set((USER, None, REQUESTS), 10)
    world.set((USER, "ann", REQUESTS), 1000)
    world.set((ADDRESS, "10.0.0.1", REQUESTS), 20)
    for who in (ANN, BOB):
        world.quotas.spend(who, REQUESTS, 30)
    assert world.quotas.delay_s(ANN) == pytest.approx(0.5), "for the address"
    assert world.quotas.delay_s(BOB) == pytest.approx(2)
    other = somebody("eve")
    assert world.quotas.delay_s(other) == pytest.approx(0.5), "who has spent nothing, but is there"


def test_who_proved_nothing_is_anonymous_whatever_he_calls_himself() -> None:
    world = World()
    world.set((USER, "anonymous", PRODUCE), 10)
    liar = Principal("ann", Proof.NONE, host="10.0.0.3")
    world.quotas.spend(liar, PRODUCE, 100)
    assert world.quotas.delay_s(ANONYMOUS) == pytest.approx(9)
    assert world.quotas.delay_s(ANN) == 0


def test_nodes_never_wait() -> None:
    world = World()
    world.set((USER, None, PRODUCE), 1)
    node = node_principal(1)  # type: ignore[arg-type]
    world.quotas.spend(node, PRODUCE, 1e9)
    assert world.quotas.delay_s(node) == 0


def test_nobody_is_shut_out_by_one_huge_request() -> None:
    world = World()
    world.set((USER, "ann", PRODUCE), 1)
    world.quotas.spend(ANN, PRODUCE, 1e9)
    assert world.quotas.delay_s(ANN) == pytest.approx(MOST_AHEAD_S)


async def test_who_waits_goes_on_when_the_quota_is_raised(autojump_clock: object) -> None:
    configs = {config_key((USER, "ann", PRODUCE)): "1"}
    quotas = ClientQuotas(trio.current_time, lambda: configs)
    quotas.spend(ANN, PRODUCE, 50)
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(quotas.pace, ANN)
        await trio.sleep(5.5)
        configs = {config_key((USER, "ann", PRODUCE)): "1000"}
    assert trio.current_time() - begun < 7
    assert quotas.waited_s == pytest.approx(trio.current_time() - begun)


def test_what_is_kept_of_many_is_bounded() -> None:
    world = World()
    world.set((ADDRESS, None, REQUESTS), 1)
    late = somebody("z", "10.9.9.9")
    world.quotas.spend(late, REQUESTS, 40)
    for number in range(_METERS + 10):
        world.quotas.spend(somebody("a", f"h{number}"), REQUESTS, 1.5)
        assert len(world.quotas._reached) <= _METERS + 1
    assert world.quotas.delay_s(late) == pytest.approx(39), "who is furthest ahead is remembered"


def test_what_a_later_version_has_set_is_left_alone() -> None:
    configs = {
        "quota.team.produce=a": "1",
        "quota.user.dreams": "2",
        "group.topics.g": "a,b",
        config_key((USER, "a=b", PRODUCE)): "3.0",
        config_key((ADDRESS, None, FETCH)): "4",
    }
    found = [(each.of, each.name, each.limit, each.rate) for each in quotas_in(configs)]
    assert found == [(USER, "a=b", PRODUCE, 3.0), (ADDRESS, None, FETCH, 4.0)]
