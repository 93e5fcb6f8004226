"""How much clients may have of this node in a second, and who has to wait for it (DESIGN 7).

A meter is a point in time that lies as far ahead as what was spent takes at the quota's rate.
Whoever is more than a second ahead waits for the rest. Nobody is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import trio

from paceline.wire.native.quotas import Quota, QuotaLimit, QuotaOf
from paceline_node.security.principals import Principal, Proof, proved_name

BURST_S = 1.0
"""So much may be spent at once."""
MOST_AHEAD_S = 60.0
"""What one huge request costs is forgotten beyond it: nobody waits for longer."""
_LOOK_AGAIN_S = 1.0
"""Quotas change while somebody waits."""
_METERS = 10_000
_PREFIX = "quota."

Configs = Mapping[str, str]
Key = tuple[QuotaOf, str | None, QuotaLimit]


def config_key(key: Key) -> str:
    """Under what a quota is kept among the cluster's settings."""
    of, name, limit = key
    whose = "" if name is None else f"={name}"
    return f"{_PREFIX}{of.name.lower()}.{limit.name.lower()}{whose}"


def quotas_in(configs: Configs) -> Iterator[Quota]:
    """All that the cluster's settings hold. What a later version has put there is not for us."""
    for text, value in configs.items():
        if not text.startswith(_PREFIX):
            continue
        kind, equals, name = text.removeprefix(_PREFIX).partition("=")
        of, _, limit = kind.upper().partition(".")
        if of in QuotaOf.__members__ and limit in QuotaLimit.__members__:
            whose = name if equals else None
            yield Quota(QuotaOf[of], whose, QuotaLimit[limit], float(value))


_NO_CONFIGS: Configs = MappingProxyType({})


def no_quotas() -> ClientQuotas:
    """Where nobody has any."""
    return ClientQuotas(lambda: 0.0, lambda: _NO_CONFIGS)


class _Meter(NamedTuple):
    of: QuotaOf
    name: str
    limit: QuotaLimit


class ClientQuotas:
    """Of one node. ``configs`` are the cluster's settings as this node knows them, the same object
    as long as they are the same."""

    def __init__(self, now: Callable[[], float], configs: Callable[[], Configs]) -> None:
        self._now = now
        self._configs = configs
        self._known: Configs = {}
        self._rates: dict[Key, float] = {}
        self._reached: dict[_Meter, float] = {}
        self.waited_s = 0.0
        """So long clients have waited, all together."""

    def spend(self, principal: Principal, limit: QuotaLimit, amount: float) -> None:
        """Count it. What nodes pass on was counted where the client is connected."""
        if not (amount and self._are_any()) or principal.proof is Proof.CLUSTER_SECRET:
            return
        now = self._now()
        for meter in _meters(principal, limit):
            rate = self._rate(meter)
            if rate is not None:
                reached = max(self._reached.get(meter, now), now) + amount / rate
                self._reached[meter] = min(reached, now + BURST_S + MOST_AHEAD_S)
        if len(self._reached) > _METERS:
            self._forget(now)

    def delay_s(self, principal: Principal, limits: Iterable[QuotaLimit] = QuotaLimit) -> float:
        """How long it has to wait before it goes on; 0 for most. ``limits`` are those that what it
        wants to do next is measured by."""
        if not self._are_any() or not self._reached or principal.proof is Proof.CLUSTER_SECRET:
            return 0.0
        ahead = [
            self._reached[meter]
            for limit in limits
            for meter in _meters(principal, limit)
            if meter in self._reached
        ]
        return max(0.0, max(ahead, default=0.0) - self._now() - BURST_S)

    def throttle_ms(self, principal: Principal) -> int:
        """The same for protocols that tell it."""
        return round(self.delay_s(principal) * 1000)

    async def pace(self, principal: Principal, limits: Iterable[QuotaLimit] = QuotaLimit) -> None:
        """Wait until ``principal`` may go on; mostly not at all, and without a checkpoint."""
        while (delay_s := self.delay_s(principal, limits)) > 0:
            begun = self._now()
            try:
                await trio.sleep(min(delay_s, _LOOK_AGAIN_S))
            finally:
                self.waited_s += self._now() - begun

    def _are_any(self) -> bool:
        configs = self._configs()
        if configs is not self._known:
            self._known = configs
            rates = {(each.of, each.name, each.limit): each.rate for each in quotas_in(configs)}
            if rates != self._rates:
                self._rates = rates
                self._reached.clear()  # what was spent under others says nothing about these
        return bool(self._rates)

    def _rate(self, meter: _Meter) -> float | None:
        own = self._rates.get((meter.of, meter.name, meter.limit))
        return self._rates.get((meter.of, None, meter.limit)) if own is None else own

    def _forget(self, now: float) -> None:
        """A meter that is not ahead is as good as none. Of more that are ahead than there may be
        those go that are least so."""
        kept = [(at, meter) for meter, at in self._reached.items() if at > now]
        kept.sort(reverse=True)
        self._reached = {meter: at for at, meter in kept[: _METERS // 2]}


def _meters(principal: Principal, limit: QuotaLimit) -> tuple[_Meter, _Meter]:
    return (
        _Meter(QuotaOf.USER, proved_name(principal), limit),
        _Meter(QuotaOf.ADDRESS, principal.host, limit),
    )
