"""Kafka requests about quotas (KIP-546).

``user`` and ``ip`` are what there are quotas for; ``client-id`` is whatever a client likes to call
itself, so none are. ``request_rate`` is ours: Kafka measures threads' time instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

from paceline.errors import InvalidRequest, PacelineError
from paceline.wire.kafka import quotas as wire
from paceline.wire.native.quotas import Quota, QuotaChange, QuotaLimit, QuotaOf
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.errors import code_of, message_of
from paceline_node.services.admin.quota_service import QuotaService

ENTITIES: Mapping[str, QuotaOf] = MappingProxyType({"user": QuotaOf.USER, "ip": QuotaOf.ADDRESS})
KEYS: Mapping[str, QuotaLimit] = MappingProxyType(
    {
        "producer_byte_rate": QuotaLimit.PRODUCE,
        "consumer_byte_rate": QuotaLimit.FETCH,
        "request_rate": QuotaLimit.REQUESTS,
    }
)
_ENTITY_NAMES = {of: name for name, of in ENTITIES.items()}
_KEY_NAMES = {limit: key for key, limit in KEYS.items()}


class KafkaQuotas:
    """Describes and alters quotas."""

    def __init__(self, quotas: QuotaService) -> None:
        self._quotas = quotas

    async def describe(
        self, request: wire.DescribeClientQuotasRequest, call: Call
    ) -> wire.DescribeClientQuotasResponse:
        """Those that the filter matches, by entity."""
        try:
            everything = self._quotas.listed(call.principal)
            _check(request.components)
        except PacelineError as error:
            return wire.DescribeClientQuotasResponse(
                error_code=code_of(error), error_message=message_of(error)
            )
        found = [
            each async for each in call.pace.each(everything) if _fits(each, request.components)
        ]
        return wire.DescribeClientQuotasResponse(
            error_code=0,
            entries=tuple(
                wire.DescribeClientQuotasResponseEntry(
                    entity=(
                        wire.DescribeClientQuotasResponseEntryEntity(
                            entity_type=_ENTITY_NAMES[of], entity_name=name
                        ),
                    ),
                    values=tuple(
                        wire.DescribeClientQuotasResponseEntryValue(
                            key=_KEY_NAMES[each.limit], value=each.rate
                        )
                        for each in quotas
                    ),
                )
                for (of, name), quotas in groupby(found, lambda each: (each.of, each.name))
            ),
        )

    async def alter(
        self, request: wire.AlterClientQuotasRequest, call: Call
    ) -> wire.AlterClientQuotasResponse:
        """Each entity by itself, all or nothing of it."""
        entries = [
            await self._altered(entry, call, validate_only=request.validate_only)
            async for entry in call.pace.each(request.entries)
        ]
        return wire.AlterClientQuotasResponse(entries=tuple(entries))

    async def _altered(
        self, entry: wire.AlterClientQuotasRequestEntry, call: Call, *, validate_only: bool
    ) -> wire.AlterClientQuotasResponseEntry:
        code, why = 0, None
        try:
            self._quotas.permit_changes(call.principal)
            changes = [self._quotas.checked(each) for each in _changes(entry)]
            if changes and not validate_only:
                await self._quotas.alter(call.principal, changes)
        except PacelineError as error:
            code, why = code_of(error), message_of(error)
        return wire.AlterClientQuotasResponseEntry(
            error_code=code,
            error_message=why,
            entity=tuple(
                wire.AlterClientQuotasResponseEntryEntity(
                    entity_type=each.entity_type, entity_name=each.entity_name
                )
                for each in entry.entity
            ),
        )


def _changes(entry: wire.AlterClientQuotasRequestEntry) -> list[QuotaChange]:
    """Raises InvalidRequest."""
    if len(entry.entity) != 1:
        raise InvalidRequest("a quota is for one user, or for one ip")
    [entity] = entry.entity
    of = _entity(entity.entity_type)
    keys = [op.key for op in entry.ops]
    if len(set(keys)) < len(keys):
        raise InvalidRequest("a quota is named twice")
    if not KEYS.keys() >= set(keys):
        raise InvalidRequest(f"the quotas are {', '.join(KEYS)}")
    return [
        QuotaChange(of, entity.entity_name, KEYS[op.key], None if op.remove else op.value)
        for op in entry.ops
    ]


def _entity(name: str) -> QuotaOf:
    if name not in ENTITIES:
        raise InvalidRequest(f"no quotas for {name[:80]!r}: there are some for user, and for ip")
    return ENTITIES[name]


def _check(components: Sequence[wire.DescribeClientQuotasRequestComponent]) -> None:
    """Raises InvalidRequest."""
    names = [each.entity_type for each in components]
    if len(set(names)) < len(names):
        raise InvalidRequest("a filter names a kind of entity twice")
    for each in components:
        is_exact = each.match_type == wire.EXACT
        if each.match_type not in (wire.EXACT, wire.DEFAULT, wire.ANY):
            raise InvalidRequest(f"no match type {each.match_type}")
        if is_exact is (each.match is None):
            raise InvalidRequest("an exact match, and no other, names an entity")


def _fits(quota: Quota, components: Sequence[wire.DescribeClientQuotasRequestComponent]) -> bool:
    """As in Kafka: an entity has what each component asks for. Ours have one name each."""
    for each in components:
        if ENTITIES.get(each.entity_type) is not quota.of:
            return False
        if each.match_type == wire.EXACT and quota.name != each.match:
            return False
        if each.match_type == wire.DEFAULT and quota.name is not None:
            return False
    return True
