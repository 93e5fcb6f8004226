"""Changes of users and ACLs, judged where they come one after the other (security/DESIGN 4.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.errors import AuthorizationFailed, PolicyViolation
from paceline.wire.native.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPattern,
    AclResource,
    CreateAcls,
    DeleteAcls,
)
from paceline.wire.native.asked_by import AskedBy
from paceline.wire.native.users import AlterUser, DeleteUser, ScramKey
from tests.unit.controller.bench import Bench

KEY = ScramKey("SCRAM-SHA-256", b"s" * 16, 4096, b"k" * 32, b"v" * 32)
SUPER_USERS = ("root", "ops")
ROOT = AskedBy("root", "10.0.0.1", True, True, True, SUPER_USERS)
OPS = replace(ROOT, name="ops")
ANYBODY = AskedBy("anonymous", "10.0.0.9", False, False, True, SUPER_USERS)
ALTER = Acl("anonymous", AclResource.CLUSTER, AclPattern.LITERAL, "", AclOperation.ALTER)


def created(name: str, by: AskedBy | None) -> AlterUser:
    return AlterUser(name, may_create=True, may_exist=False, keys=(KEY,), asked_by=by)


def bench_of(*users: str) -> Bench:
    bench = Bench()
    for user in users:
        bench.ask(created(user, None))
    return bench


def test_who_was_deleted_deletes_nobody() -> None:
    bench = bench_of("root", "ops")
    bench.ask(DeleteUser("ops", ROOT))
    with pytest.raises(AuthorizationFailed, match="ops"):
        bench.ask(DeleteUser("root", OPS))
    assert list(bench.image.users) == ["root"]


def test_the_last_of_users_and_acls_keeps_it_closed() -> None:
    bench = bench_of("root")
    bench.ask(CreateAcls((ALTER,), ROOT))
    bench.ask(DeleteAcls((AclFilter(),), ROOT))
    with pytest.raises(PolicyViolation, match="make another user or an ACL"):
        bench.ask(DeleteUser("root", ROOT))
    bench.ask(CreateAcls((ALTER,), ROOT))
    bench.ask(DeleteUser("root", ANYBODY))
    with pytest.raises(PolicyViolation, match="make another user or an ACL"):
        bench.ask(DeleteAcls((AclFilter(),), ANYBODY))
    bench.ask(DeleteAcls((AclFilter(),), replace(ANYBODY, keep_closed=False)))
    assert not bench.image.is_guarded


def test_the_same_wish_once_more_is_not_refused() -> None:
    """The first user, whose maker may nothing any more when he has to ask again."""
    bench = Bench()
    for _ in range(2):
        bench.ask(created("root", ANYBODY))
    with pytest.raises(AuthorizationFailed):
        bench.ask(created("eve", ANYBODY))


def test_who_made_the_last_rule_by_which_he_may() -> None:
    bench = Bench()
    with pytest.raises(PolicyViolation, match="could not change ACLs"):
        bench.ask(CreateAcls((replace(ALTER, principal="alice"),), ANYBODY))
    bench.ask(CreateAcls((ALTER,), ANYBODY))
    bench.ask(created("root", ANYBODY))
    with pytest.raises(PolicyViolation, match="could not change ACLs"):
        bench.ask(DeleteAcls((AclFilter(),), ANYBODY))
    bench.ask(DeleteAcls((AclFilter(),), ROOT))
