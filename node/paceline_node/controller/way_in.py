"""Whether users and ACLs may change as somebody wishes (security/DESIGN 4.2).

Judged by the newest appended image, for changes that are asked for at once, of several nodes too,
could each be harmless: two administrators who delete each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paceline.errors import AuthorizationFailed, PolicyViolation
from paceline.wire.native.acls import Acl
from paceline.wire.native.asked_by import AskedBy
from paceline_node.controller.context import Context, Outcome
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import User
from paceline_node.security.acls import AclRules, Asker, needed
from paceline_node.security.principals import CLUSTER, Operation


def kept(outcome: Outcome, context: Context, asked_by: AskedBy | None, user: str = "") -> Outcome:
    """``outcome``, where whoever asks may still wish it, and somebody could take it back. ``user``:
    whom it makes, changes or forgets; empty where it is about ACLs. ``asked_by``: None of
    a node that does not say, and judges itself.

    What changes nothing is not judged: it is the same wish once more. Raises AuthorizationFailed,
    PolicyViolation.
    """
    if asked_by is None or not outcome.records:
        return outcome
    image = context.image
    if is_out(asked_by, image.acls, image.users):
        raise AuthorizationFailed(f"{asked_by.name} may not administer the cluster any more")
    after = image.apply(image.offset + 1, outcome.records)
    if asked_by.keep_closed and image.is_guarded and not after.is_guarded:
        raise PolicyViolation(
            "then there were neither users nor ACLs, and everything would be allowed to whoever "
            "shows a certificate: make another user or an ACL first; or, if the cluster is to be "
            "open, take login=required from its listeners"
        )
    if is_out(asked_by, after.acls, after.users):
        if not user:
            raise PolicyViolation(
                f"then {asked_by.name} could not change ACLs any more: allow alter of the "
                "cluster to somebody whom you can be, first or in the same request, or name a "
                "super user (security.super_users)"
            )
        _check_user(asked_by, image, after, user)
    return outcome


def is_out(asked_by: AskedBy, acls: frozenset[Acl], users: Mapping[str, User]) -> bool:
    """Whether who asks could not change ACLs and users where there are these."""
    if not (acls or users):
        return False
    if asked_by.is_user and not can_log_in(users.get(asked_by.name)):
        return True
    if asked_by.is_super:
        return False
    return not AclRules(acls).allows(
        Asker(asked_by.name, asked_by.host), needed(Operation.ADMINISTER, CLUSTER.kind), ""
    )


def can_log_in(user: User | None) -> bool:
    """Whether there is anything that proves to be the user."""
    return user is not None and bool(user.keys or user.tokens)


def _check_user(asked_by: AskedBy, image: Image, after: Image, user: str) -> None:
    """Who makes the first user need not be able to administer himself, if that user is."""
    made = replace(asked_by, name=user, is_user=True, is_super=user in asked_by.super_users)
    if not is_out(made, after.acls, after.users):
        return
    if image.is_guarded:
        raise PolicyViolation(
            f"then {asked_by.name} could not log in any more to take that back: another "
            "administrator can do it"
        )
    lacks = "is no super user" if can_log_in(after.users.get(user)) else "could not log in"
    named = ", ".join(map(repr, asked_by.super_users)) or "nobody"
    raise PolicyViolation(
        f"then nobody could administer this cluster: once there is a user, what nothing allows is "
        f"refused, and {user!r} {lacks}; the first user is one that security.super_users of all "
        f"nodes names (reloaded on SIGHUP), and has a password or a token; here it names {named}"
    )
