"""Requests about ACLs. Source: Kafka's published message definitions."""

from __future__ import annotations

from typing import Annotated

from paceline.values import dataclass
from paceline.wire.kafka.layout import I8, I16, I32, NullableStr, Str, Struct, since

ANY = 1
"""In filters: whatever it is."""
MATCH = 2
"""As the pattern of a filter: whatever describes the name."""
LITERAL = 3

# DescribeAcls (29), versions 0 to 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsRequest(Struct):
    """The ACLs that a filter describes."""

    resource_type_filter: I8 = ANY
    resource_name_filter: NullableStr = None
    pattern_type_filter: Annotated[I8, since(1)] = LITERAL
    principal_filter: NullableStr = None
    host_filter: NullableStr = None
    operation: I8 = ANY
    permission_type: I8 = ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsResponseResourceAcl(Struct):
    principal: Str = ""
    host: Str = ""
    operation: I8 = 0
    permission_type: I8 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsResponseResource(Struct):
    resource_type: I8 = 0
    resource_name: Str = ""
    pattern_type: Annotated[I8, since(1)] = LITERAL
    acls: tuple[DescribeAclsResponseResourceAcl, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsResponse(Struct):
    throttle_time_ms: I32 = 0
    error_code: I16
    error_message: NullableStr = None
    resources: tuple[DescribeAclsResponseResource, ...] = ()


# CreateAcls (30), versions 0 to 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsRequestCreation(Struct):
    resource_type: I8 = 0
    resource_name: Str = ""
    resource_pattern_type: Annotated[I8, since(1)] = LITERAL
    principal: Str = ""
    host: Str = ""
    operation: I8 = 0
    permission_type: I8 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsRequest(Struct):
    """Add ACLs."""

    creations: tuple[CreateAclsRequestCreation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsResponseResult(Struct):
    error_code: I16
    error_message: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsResponse(Struct):
    throttle_time_ms: I32 = 0
    results: tuple[CreateAclsResponseResult, ...] = ()


# DeleteAcls (31), versions 0 to 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsRequestFilter(Struct):
    resource_type_filter: I8 = ANY
    resource_name_filter: NullableStr = None
    pattern_type_filter: Annotated[I8, since(1)] = LITERAL
    principal_filter: NullableStr = None
    host_filter: NullableStr = None
    operation: I8 = ANY
    permission_type: I8 = ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsRequest(Struct):
    """Remove the ACLs that filters describe."""

    filters: tuple[DeleteAclsRequestFilter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsResponseResultAcl(Struct):
    error_code: I16
    error_message: NullableStr = None
    resource_type: I8 = 0
    resource_name: Str = ""
    pattern_type: Annotated[I8, since(1)] = LITERAL
    principal: Str = ""
    host: Str = ""
    operation: I8 = 0
    permission_type: I8 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsResponseResult(Struct):
    error_code: I16
    error_message: NullableStr = None
    matching_acls: tuple[DeleteAclsResponseResultAcl, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsResponse(Struct):
    throttle_time_ms: I32 = 0
    filter_results: tuple[DeleteAclsResponseResult, ...] = ()
