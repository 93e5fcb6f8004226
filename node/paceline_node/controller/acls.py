"""ACLs are made and removed (DESIGN 14). What they mean is ``security/acls.py``'s."""

from __future__ import annotations

from paceline.errors import InvalidRequest, PolicyViolation
from paceline.wire.native.acls import (
    MAX_ACLS_OF_A_REQUEST,
    AclsDeleted,
    AclsOfFilter,
    CreateAcls,
    DeleteAcls,
)
from paceline.wire.native.admin import Done
from paceline_node.controller import way_in
from paceline_node.controller.context import Context, Outcome
from paceline_node.controller.metadata_records import AddAcl, RemoveAcl
from paceline_node.security.acls import check, described


def create(request: CreateAcls, context: Context) -> Outcome:
    """Add them, all or none; those that are there already change nothing.

    Raises InvalidRequest, PolicyViolation, AuthorizationFailed.
    """
    if len(request.acls) > MAX_ACLS_OF_A_REQUEST:
        raise InvalidRequest(
            f"{len(request.acls)} ACLs in a request: at most {MAX_ACLS_OF_A_REQUEST}"
        )
    for acl in request.acls:
        check(acl)
    known = context.image.acls
    new = [acl for acl in dict.fromkeys(request.acls) if acl not in known]
    most = context.settings.max_acls
    if new and len(known) + len(new) > most:
        raise PolicyViolation(
            f"{len(known)} ACLs and {len(new)} more: there are {most} at most (security.acls_max)"
        )
    outcome = Outcome(tuple(map(AddAcl, new)), lambda at: Done(at.offset, at.term))
    return way_in.kept(outcome, context, request.asked_by)


def delete(request: DeleteAcls, context: Context) -> Outcome:
    """Remove those that any filter describes. Raises as :func:`create`."""
    found = described(context.image.acls, request.filters)
    records = tuple(RemoveAcl(acl) for acls in found for acl in acls)
    deleted = tuple(map(AclsOfFilter, found))
    outcome = Outcome(records, lambda at: AclsDeleted(deleted, at.offset, at.term))
    return way_in.kept(outcome, context, request.asked_by)
