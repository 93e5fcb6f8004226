"""Requests about quotas. Source: Kafka's published message definitions (KIP-546)."""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.kafka.layout import F64, I8, I16, I32, Bool, NullableStr, Str, Struct

EXACT, DEFAULT, ANY = 0, 1, 2
"""How a component of a filter matches."""

# DescribeClientQuotas (48), versions 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasRequestComponent(Struct):
    entity_type: Str
    match_type: I8
    match: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasRequest(Struct):
    """Quotas of those that all components match; ``strict``: of no others besides."""

    components: tuple[DescribeClientQuotasRequestComponent, ...] = ()
    strict: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasResponseEntryEntity(Struct):
    entity_type: Str
    entity_name: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasResponseEntryValue(Struct):
    key: Str
    value: F64


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasResponseEntry(Struct):
    entity: tuple[DescribeClientQuotasResponseEntryEntity, ...] = ()
    values: tuple[DescribeClientQuotasResponseEntryValue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasResponse(Struct):
    throttle_time_ms: I32 = 0
    error_code: I16
    error_message: NullableStr = None
    entries: tuple[DescribeClientQuotasResponseEntry, ...] | None = None


# AlterClientQuotas (49), versions 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasRequestEntryEntity(Struct):
    entity_type: Str
    entity_name: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasRequestEntryOp(Struct):
    key: Str
    value: F64
    remove: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasRequestEntry(Struct):
    entity: tuple[AlterClientQuotasRequestEntryEntity, ...] = ()
    ops: tuple[AlterClientQuotasRequestEntryOp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasRequest(Struct):
    """Set and take away quotas, each entity by itself."""

    entries: tuple[AlterClientQuotasRequestEntry, ...] = ()
    validate_only: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasResponseEntryEntity(Struct):
    entity_type: Str
    entity_name: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasResponseEntry(Struct):
    error_code: I16
    error_message: NullableStr = None
    entity: tuple[AlterClientQuotasResponseEntryEntity, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasResponse(Struct):
    throttle_time_ms: I32 = 0
    entries: tuple[AlterClientQuotasResponseEntry, ...] = ()
