"""Kafka requests about ACLs: numbers and words are the same, names of principals are not.

Here a principal is ``User:ann``, the cluster is called ``kafka-cluster``, and each part of a
request has its own answer.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import groupby
from typing import TypeVar

from paceline.errors import InvalidRequest, PacelineError
from paceline.wire.kafka import acls as wire
from paceline.wire.native.acls import (
    Acl,
    AclEffect,
    AclFilter,
    AclOperation,
    AclPattern,
    AclResource,
)
from paceline_node.bare_errors import bare
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.errors import code_of, message_of
from paceline_node.services.admin.acl_service import AclService, OpenAcls

_USER = "User:"
_CLUSTER_NAME = "kafka-cluster"
_FIRST_WITH_PATTERNS = 1
_ACLS_UNITS = 20
E = TypeVar("E", bound=IntEnum)


class KafkaAcls:
    """Describes, makes and removes ACLs."""

    def __init__(self, acls: AclService) -> None:
        self._acls = acls

    async def describe(
        self, request: wire.DescribeAclsRequest, call: Call
    ) -> wire.DescribeAclsResponse:
        """Those that a filter describes, by resource."""
        try:
            everything = self._acls.listed(call.principal, AclFilter())
            wanted = _filter(request, call.version)
        except PacelineError as error:
            return wire.DescribeAclsResponse(
                error_code=code_of(error), error_message=message_of(error)
            )
        found = [each async for each in call.pace.each(everything) if wanted.fits(each)]
        if call.version < _FIRST_WITH_PATTERNS:
            found = [each for each in found if each.pattern is AclPattern.LITERAL]
        by_resource = groupby(found, lambda each: (each.resource, each.name, each.pattern))
        return wire.DescribeAclsResponse(
            error_code=0,
            resources=tuple(
                wire.DescribeAclsResponseResource(
                    resource_type=resource,
                    resource_name=_shown_name(resource, name),
                    pattern_type=pattern,
                    acls=tuple(
                        wire.DescribeAclsResponseResourceAcl(
                            principal=_USER + each.principal,
                            host=each.host,
                            operation=each.operation,
                            permission_type=each.effect,
                        )
                        for each in acls
                    ),
                )
                for (resource, name, pattern), acls in by_resource
            ),
        )

    async def create(self, request: wire.CreateAclsRequest, call: Call) -> wire.CreateAclsResponse:
        """Add those that are right, together; each is told by itself what was wrong with it."""
        errors: dict[int, PacelineError] = {}
        wanted: dict[int, Acl] = {}
        try:
            opened = self._acls.open(call.principal)
            async for index, each in call.pace.each(list(enumerate(request.creations))):
                try:
                    wanted[index] = opened.checked(_acl(each))
                except InvalidRequest as error:
                    errors[index] = bare(error)
            if wanted:
                await opened.create(wanted.values())
        except PacelineError as error:
            for index in range(len(request.creations)):
                errors.setdefault(index, bare(error))
        return wire.CreateAclsResponse(
            results=tuple(
                wire.CreateAclsResponseResult(
                    error_code=code_of(errors[index]) if index in errors else 0,
                    error_message=message_of(errors[index]) if index in errors else None,
                )
                for index in range(len(request.creations))
            )
        )

    async def delete(self, request: wire.DeleteAclsRequest, call: Call) -> wire.DeleteAclsResponse:
        """Remove what the filters that are right describe, together."""
        errors: dict[int, PacelineError] = {}
        filters: dict[int, AclFilter] = {}
        deleted: dict[int, tuple[Acl, ...]] = {}
        try:
            opened = self._acls.open(call.principal)
            async for index, each in call.pace.each(list(enumerate(request.filters))):
                try:
                    filters[index] = _filter(each, call.version)
                except InvalidRequest as error:
                    errors[index] = bare(error)
            deleted = await _deleted(opened, filters)
        except PacelineError as error:
            for index in range(len(request.filters)):
                errors.setdefault(index, bare(error))
        units = _ACLS_UNITS if deleted else 1  # there may be many filters where all are refused
        return wire.DeleteAclsResponse(
            filter_results=tuple(
                [
                    _deletion(errors.get(index), deleted.get(index, ()))
                    async for index in call.pace.each(range(len(request.filters)), units)
                ]
            )
        )


async def _deleted(opened: OpenAcls, filters: dict[int, AclFilter]) -> dict[int, tuple[Acl, ...]]:
    if not filters:
        return {}
    reply = await opened.delete(filters.values())
    return {index: each.acls for index, each in zip(filters, reply.deleted, strict=True)}


def _deletion(error: PacelineError | None, acls: tuple[Acl, ...]) -> wire.DeleteAclsResponseResult:
    if error is not None:
        return wire.DeleteAclsResponseResult(
            error_code=code_of(error), error_message=message_of(error)
        )
    return wire.DeleteAclsResponseResult(
        error_code=0,
        matching_acls=tuple(
            wire.DeleteAclsResponseResultAcl(
                error_code=0,
                resource_type=each.resource,
                resource_name=_shown_name(each.resource, each.name),
                pattern_type=each.pattern,
                principal=_USER + each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.effect,
            )
            for each in acls
        ),
    )


def _acl(asked: wire.CreateAclsRequestCreation) -> Acl:
    resource = _one(AclResource, asked.resource_type)
    return Acl(
        _principal(asked.principal),
        resource,
        _one(AclPattern, asked.resource_pattern_type),
        _meant_name(resource, asked.resource_name),
        _one(AclOperation, asked.operation),
        asked.host,
        _one(AclEffect, asked.permission_type),
    )


def _filter(
    asked: wire.DescribeAclsRequest | wire.DeleteAclsRequestFilter, version: int
) -> AclFilter:
    resource = _any_or(AclResource, asked.resource_type_filter)
    name, principal = asked.resource_name_filter, asked.principal_filter
    pattern = asked.pattern_type_filter if version >= _FIRST_WITH_PATTERNS else wire.LITERAL
    is_match = pattern == wire.MATCH
    if name is None and version < _FIRST_WITH_PATTERNS:
        pattern = wire.ANY
    return AclFilter(
        principal=None if principal is None else _principal(principal),
        resource=resource,
        pattern=None if is_match else _any_or(AclPattern, pattern),
        name=None if name is None else _meant_name(resource, name),
        operation=_any_or(AclOperation, asked.operation),
        host=asked.host_filter,
        effect=_any_or(AclEffect, asked.permission_type),
        is_match=is_match,
    )


def _any_or(kind: type[E], number: int) -> E | None:
    return None if number == wire.ANY else _one(kind, number)


def _one(kind: type[E], number: int) -> E:
    try:
        return kind(number)
    except ValueError:
        raise InvalidRequest(f"{number} is no {kind.__name__} that is known here") from None


def _principal(name: str) -> str:
    if not name.startswith(_USER):
        raise InvalidRequest(f"principal {name[:80]!r}: expected User:NAME")
    return name.removeprefix(_USER)


def _shown_name(resource: AclResource, name: str) -> str:
    return _CLUSTER_NAME if resource is AclResource.CLUSTER else name


def _meant_name(resource: AclResource | None, name: str) -> str:
    if resource is AclResource.CLUSTER or (resource is None and name == _CLUSTER_NAME):
        if name != _CLUSTER_NAME:
            raise InvalidRequest(f"cluster {name[:80]!r}: it is called {_CLUSTER_NAME}")
        return ""
    return name
