"""Quotas are set and taken away: settings of the cluster (DESIGN 16)."""

from __future__ import annotations

import math
from ipaddress import ip_address

from paceline.errors import InvalidRequest, PolicyViolation
from paceline.wire.native.admin import Done
from paceline.wire.native.quotas import (
    MAX_QUOTAS_OF_A_REQUEST,
    MAX_RATE,
    AlterQuotas,
    QuotaChange,
    QuotaOf,
)
from paceline_node.client_addresses import host_of
from paceline_node.controller.context import Context, Outcome
from paceline_node.controller.metadata_records import Config
from paceline_node.security.principals import ANONYMOUS, is_client_name
from paceline_node.security.quotas import config_key, quotas_in
from paceline_node.settings.counts import QUOTAS


def alter(request: AlterQuotas, context: Context) -> Outcome:
    """Set them, all or nothing; what is so already changes nothing. Raises InvalidRequest,
    PolicyViolation."""
    if len(request.changes) > MAX_QUOTAS_OF_A_REQUEST:
        raise InvalidRequest(
            f"{len(request.changes)} quotas in a request: at most {MAX_QUOTAS_OF_A_REQUEST}"
        )
    before = context.image.configs
    wanted: dict[str, str | None] = {}
    for change in request.changes:
        check(change)
        key = config_key((change.of, _known_as(change), change.limit))
        wanted[key] = None if change.rate is None else repr(float(change.rate))
    new = {key: value for key, value in wanted.items() if before.get(key) != value}
    count = sum(1 for _ in quotas_in(before))
    more = sum(value is not None and key not in before for key, value in new.items())
    if more and count + more > QUOTAS.bound:
        raise PolicyViolation(f"{count} quotas and {more} more: there are {QUOTAS.bound} at most")
    records = tuple(Config("cluster", "", key, value) for key, value in new.items())
    return Outcome(records, lambda at: Done(at.offset, at.term))


def check(change: QuotaChange) -> None:
    """Raise InvalidRequest for one that makes no sense."""
    rate, name = change.rate, change.name
    if rate is not None and not (math.isfinite(rate) and 0 < rate <= MAX_RATE):
        raise InvalidRequest(
            f"a quota of {rate:g} a second: expected more than 0, at most {MAX_RATE:g}"
        )
    if name is None:
        return
    if change.of is QuotaOf.ADDRESS:
        try:
            ip_address(host_of(name))
        except ValueError:
            raise InvalidRequest(f"{name[:80]!r} is no IP address") from None
    elif not (is_client_name(name) or name == ANONYMOUS.name):
        raise InvalidRequest(
            f"no user is called {name[:80]!r}: expected 1 to 255 printable characters, not node: "
            "in front"
        )


def _known_as(change: QuotaChange) -> str | None:
    if change.name is None or change.of is QuotaOf.USER:
        return change.name
    return host_of(change.name)
