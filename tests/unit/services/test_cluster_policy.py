"""ACLs of the metadata as services ask them: who counts as whom, and from when on they hold."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from paceline.errors import AuthorizationFailed
from paceline.types import NodeId
from paceline.wire.native.acls import Acl, AclEffect, AclOperation, AclPattern, AclResource
from paceline_node.controller.metadata_records import (
    AddAcl,
    NoOp,
    RemoveAcl,
    RemoveUser,
    TokenKey,
    User,
    encode_record,
)
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.controller.way_in import is_out
from paceline_node.security.principals import (
    ANONYMOUS,
    CLUSTER,
    Operation,
    Principal,
    Proof,
    Resource,
    ResourceKind,
    node_principal,
)
from paceline_node.services.authorization.cluster_policy import ClusterPolicy

ORDERS = Resource(ResourceKind.TOPIC, "orders")
ANN = Principal("ann", Proof.CERTIFICATE, host="10.0.0.1")
READ = Acl("ann", AclResource.TOPIC, AclPattern.LITERAL, "orders", AclOperation.READ)


class World:
    def __init__(self) -> None:
        self.store = MetadataStore(UUID(int=1))
        self.super_users: tuple[str, ...] = ()
        self.policy = ClusterPolicy(self.store, lambda: self.super_users)

    def commit(self, *records: AddAcl | RemoveAcl | RemoveUser | User | NoOp) -> None:
        index = self.store.image.offset + 1
        self.store.apply(index, 1, [encode_record(each) for each in records])

    def may(
        self,
        principal: Principal,
        operation: Operation = Operation.CONSUME,
        resource: Resource = ORDERS,
    ) -> bool:
        try:
            self.policy.authorize(principal, operation, resource)
        except AuthorizationFailed:
            return False
        return True


@pytest.fixture
def world() -> World:
    return World()


def test_everything_is_allowed_until_there_is_a_rule_and_nothing_else_then(world: World) -> None:
    assert world.may(ANONYMOUS, Operation.ADMINISTER, CLUSTER)
    world.commit(AddAcl(READ))
    assert world.may(ANN)
    for who, operation in ((ANONYMOUS, Operation.CONSUME), (ANN, Operation.PRODUCE)):
        assert not world.may(who, operation)
    assert not world.may(ANN, Operation.ADMINISTER, CLUSTER)
    world.commit(NoOp())
    assert world.may(ANN)
    world.commit(RemoveAcl(READ))
    assert world.may(ANONYMOUS, Operation.ADMINISTER, CLUSTER)


def test_a_change_holds_at_once(world: World) -> None:
    world.commit(AddAcl(READ))
    assert world.may(ANN)
    denial = replace(READ, effect=AclEffect.DENY, host=ANN.host)
    world.commit(AddAcl(denial))
    assert not world.may(ANN)
    assert world.may(replace(ANN, host="10.0.0.2"))
    world.commit(RemoveAcl(denial))
    assert world.may(ANN)


def test_who_has_proved_nothing_is_nobody(world: World) -> None:
    world.super_users = ("ann",)
    world.commit(AddAcl(READ))
    claims_to_be = Principal("ann", Proof.NONE)
    assert not world.may(claims_to_be)
    assert not world.may(claims_to_be, Operation.ADMINISTER, CLUSTER)
    world.commit(AddAcl(replace(READ, principal="anonymous")))
    assert world.may(claims_to_be)


def test_super_users_and_nodes_may_everything(world: World) -> None:
    world.super_users = ("root",)
    world.commit(AddAcl(replace(READ, principal="*", effect=AclEffect.DENY)))
    root = Principal("root", Proof.CERTIFICATE)
    for who in (root, node_principal(NodeId(1))):
        assert world.may(who)
        assert world.may(who, Operation.ADMINISTER, CLUSTER)
    world.super_users = ()
    assert not world.may(root)
    assert not world.may(Principal("node:1", Proof.CERTIFICATE))


def test_who_would_be_locked_out(world: World) -> None:
    alter = Acl("ann", AclResource.CLUSTER, AclPattern.LITERAL, "", AclOperation.ALTER)

    def locks_out(who: Principal, acls: frozenset[Acl]) -> bool:
        return is_out(world.policy.asked_by(who), acls, {})

    assert locks_out(ANN, frozenset({READ}))
    assert not locks_out(ANN, frozenset({READ, alter}))
    assert not locks_out(ANN, frozenset())
    assert locks_out(ANN, frozenset({alter, replace(alter, effect=AclEffect.DENY)}))
    world.super_users = ("ann",)
    assert not locks_out(ANN, frozenset({READ}))


def test_who_has_logged_in_needs_to_be_able_to_again(world: World) -> None:
    world.super_users = ("ann",)
    by_password, by_token = (Principal("ann", proof) for proof in (Proof.PASSWORD, Proof.TOKEN))
    ann = User("ann", tokens=(TokenKey("0" * 16, bytes(32), 0, 0, ""),))
    nothing, others = frozenset[Acl](), {"bob": User("bob")}
    for each in by_password, by_token:
        assert not is_out(world.policy.asked_by(each), nothing, {})
        assert not is_out(world.policy.asked_by(each), nothing, {**others, "ann": ann})
        for users in others, {"ann": User("ann")}:
            assert is_out(world.policy.asked_by(each), nothing, users)
    assert not is_out(world.policy.asked_by(ANN), nothing, others), "a certificate needs no user"
    assert is_out(world.policy.asked_by(replace(by_password, name="bob")), nothing, {"bob": ann})


def test_a_user_is_a_rule(world: World) -> None:
    assert world.may(ANONYMOUS, Operation.ADMINISTER, CLUSTER)
    world.commit(User("ann"))
    assert not world.may(ANONYMOUS)
    assert not world.may(ANN)
    world.commit(RemoveUser("ann"))
    assert world.may(ANONYMOUS)


def test_what_makes_no_sense_is_a_bug(world: World) -> None:
    with pytest.raises(AssertionError):
        world.policy.authorize(ANN, Operation.PRODUCE, CLUSTER)
