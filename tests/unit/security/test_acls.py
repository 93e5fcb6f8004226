"""What ACLs mean: deny wins, patterns, hosts; by examples, and against a reading of the rules
without any index."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidRequest
from paceline.wire.native.acls import (
    OPERATIONS,
    Acl,
    AclEffect,
    AclFilter,
    AclOperation,
    AclPattern,
    AclResource,
    holds_for,
)
from paceline_node.client_addresses import host_of
from paceline_node.security import acls as rules_of
from paceline_node.security.acls import AclRules, Asker, Needed, check, needed
from paceline_node.security.principals import Operation

TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALL, CREATE = AclOperation.ALL, AclOperation.CREATE
ALLOW, DENY = AclEffect.ALLOW, AclEffect.DENY
ANN, BOB = Asker("ann", "10.0.0.1"), Asker("bob", "10.0.0.2")
READS, WRITES, SEES = Needed(TOPIC, READ), Needed(TOPIC, WRITE), Needed(TOPIC, DESCRIBE)
NUMBERS = Needed(CLUSTER, AclOperation.IDEMPOTENT_WRITE)


def topic(
    principal: str,
    name: str,
    operation: AclOperation = READ,
    pattern: AclPattern = LITERAL,
    effect: AclEffect = ALLOW,
    host: str = "*",
) -> Acl:
    return Acl(principal, TOPIC, pattern, name, operation, host, effect)


def test_nothing_is_allowed_that_nothing_allows() -> None:
    assert not AclRules(()).allows(ANN, READS, "orders")
    rules = AclRules([topic("ann", "orders")])
    assert rules.allows(ANN, READS, "orders")
    assert not rules.allows(BOB, READS, "orders")
    assert not rules.allows(ANN, WRITES, "orders")
    assert not rules.allows(ANN, READS, "orders2")
    assert not rules.allows(ANN, Needed(GROUP, READ), "orders")


@pytest.mark.parametrize(
    "denial",
    [
        topic("ann", "orders", effect=DENY),
        topic("*", "orders", effect=DENY),
        topic("ann", "*", effect=DENY),
        topic("ann", "or", pattern=PREFIXED, effect=DENY),
        topic("ann", "orders", ALL, effect=DENY),
        topic("*", "o", ALL, PREFIXED, DENY, ANN.host),
    ],
)
def test_a_denial_wins_over_every_allowance(denial: Acl) -> None:
    allowing = [topic("ann", "orders"), topic("*", "*", ALL), topic("ann", "orders", host=ANN.host)]
    assert AclRules(allowing).allows(ANN, READS, "orders")
    assert not AclRules([*allowing, denial]).allows(ANN, READS, "orders")


def test_a_denial_denies_no_more_than_it_says() -> None:
    rules = AclRules([topic("*", "*", ALL), topic("ann", "orders", DESCRIBE, effect=DENY)])
    assert not rules.allows(ANN, SEES, "orders")
    assert rules.allows(ANN, READS, "orders"), "reading is not denied, though seeing is"
    assert rules.allows(BOB, SEES, "orders")
    for old in ("::ffff:10.0.0.1", "::FFFF:a00:1"):
        assert host_of(old) == ANN.host
        denied = AclRules([topic("*", "*"), topic("ann", "orders", effect=DENY, host=old)])
        assert not denied.allows(ANN, READS, "orders"), "as was stored once, and never fitted"
    elsewhere = AclRules([topic("*", "*"), topic("ann", "orders", effect=DENY, host="10.0.0.9")])
    assert elsewhere.allows(ANN, READS, "orders")


@pytest.mark.parametrize(
    "operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, DESCRIBE, ALL]
)
def test_who_may_use_may_see(operation: AclOperation) -> None:
    assert AclRules([topic("ann", "orders", operation)]).allows(ANN, SEES, "orders")


@pytest.mark.parametrize(
    "operation", [CREATE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS]
)
def test_others_may_not_see(operation: AclOperation) -> None:
    assert not AclRules([topic("ann", "orders", operation)]).allows(ANN, SEES, "orders")


def test_who_may_make_topics_in_the_cluster_may_make_any() -> None:
    creates = Needed(TOPIC, CREATE)
    anywhere = Acl("ann", CLUSTER, LITERAL, "", CREATE)
    assert AclRules([anywhere]).allows(ANN, creates, "orders")
    assert not AclRules([anywhere]).allows(ANN, SEES, "orders")
    denied = topic("ann", "or", CREATE, PREFIXED, DENY)
    assert not AclRules([anywhere, denied]).allows(ANN, creates, "orders")
    assert AclRules([anywhere, denied]).allows(ANN, creates, "payments")


@pytest.mark.parametrize(
    ("acls", "may"),
    [
        ([topic("ann", "orders", WRITE)], True),
        ([topic("ann", "or", ALL, PREFIXED)], True),
        ([topic("ann", "*", WRITE)], True),
        ([topic("ann", "orders", READ)], False),
        ([topic("bob", "orders", WRITE)], False),
        ([topic("ann", "orders", WRITE), topic("ann", "orders", WRITE, effect=DENY)], False),
        ([topic("ann", "orders", WRITE), topic("*", "*", WRITE, effect=DENY)], False),
        ([topic("ann", "orders", WRITE), topic("ann", "o", ALL, PREFIXED, DENY)], False),
        # Denies one of the names that begin so; others may be written to.
        ([topic("ann", "or", WRITE, PREFIXED), topic("ann", "or", WRITE, effect=DENY)], True),
        ([topic("ann", "or", WRITE, PREFIXED), topic("ann", "orders", WRITE, effect=DENY)], True),
        ([topic("ann", "*", WRITE), topic("ann", "orders", ALL, PREFIXED, DENY)], True),
        ([Acl("ann", CLUSTER, LITERAL, "", AclOperation.IDEMPOTENT_WRITE)], True),
        (
            [
                topic("ann", "orders", WRITE),
                Acl("ann", CLUSTER, LITERAL, "", AclOperation.IDEMPOTENT_WRITE, effect=DENY),
            ],
            False,
        ),
    ],
)
def test_who_may_write_somewhere_gets_a_producer_id(acls: list[Acl], may: bool) -> None:
    assert AclRules(acls).allows(ANN, NUMBERS, "") is may


# --- against the plain reading of all ACLs --------------------------------------------------------

PRINCIPALS, HOSTS = ("ann", "bob", "*"), ("10.0.0.1", "10.0.0.2", "*")
NAMES = ("a", "ab", "abc", "b", "*")
_operations = {kind: (*known, ALL) for kind, known in OPERATIONS.items()}


@st.composite
def acls(draw: st.DrawFn) -> Acl:
    resource = draw(st.sampled_from([TOPIC, GROUP, CLUSTER]))
    pattern = LITERAL if resource is CLUSTER else draw(st.sampled_from(AclPattern))
    names = NAMES if pattern is LITERAL else NAMES[:-1]
    return Acl(
        draw(st.sampled_from(PRINCIPALS)),
        resource,
        pattern,
        "" if resource is CLUSTER else draw(st.sampled_from(names)),
        draw(st.sampled_from(_operations[resource])),
        draw(st.sampled_from(HOSTS)),
        draw(st.sampled_from(AclEffect)),
    )


def plainly(all_acls: list[Acl], asker: Asker, wanted: Needed, name: str) -> bool:
    """Every ACL is looked at."""
    resource, operation = wanted
    about = [
        each
        for each in all_acls
        if each.resource is resource
        and holds_for(each, name)
        and each.principal in (asker.name, "*")
        and each.host in (asker.host, "*")
    ]
    if any(each.effect is DENY and each.operation in (operation, ALL) for each in about):
        return False
    enough = {operation, ALL}
    if operation is DESCRIBE:
        enough |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation is AclOperation.DESCRIBE_CONFIGS:
        enough.add(AclOperation.ALTER_CONFIGS)
    if any(each.effect is ALLOW and each.operation in enough for each in about):
        return True
    if wanted == Needed(TOPIC, CREATE):
        return plainly(all_acls, asker, Needed(CLUSTER, CREATE), "")
    if wanted == NUMBERS:
        endless = [*NAMES[:-1], *(f"{each}z" for each in NAMES[:-1]), "z"]
        return any(plainly(all_acls, asker, WRITES, each) for each in endless)
    return False


@given(st.lists(acls(), max_size=12), st.data())
def test_the_index_decides_as_the_plain_reading(given_acls: list[Acl], data: st.DataObject) -> None:
    rules = AclRules(given_acls)
    for _ in range(4):  # the same question is answered from memory the second time
        resource = data.draw(st.sampled_from([TOPIC, GROUP, CLUSTER]))
        wanted = Needed(resource, data.draw(st.sampled_from(OPERATIONS[resource])))
        name = "" if resource is CLUSTER else data.draw(st.sampled_from([*NAMES[:-1], "abcd", "c"]))
        asker = Asker(data.draw(st.sampled_from(PRINCIPALS[:-1])), HOSTS[0])
        assert rules.allows(asker, wanted, name) == plainly(given_acls, asker, wanted, name)
        assert rules.allows(asker, wanted, name) == plainly(given_acls, asker, wanted, name)


@given(st.lists(acls(), max_size=12), acls(), st.sampled_from(["a", "ab", "abcd"]))
def test_one_more_denial_never_allows_and_one_less_never_forbids(
    some: list[Acl], more: Acl, name: str
) -> None:
    before, after = AclRules(some), AclRules([*some, more])
    for operation in OPERATIONS[TOPIC]:
        wanted = Needed(TOPIC, operation)
        if more.effect is DENY:
            assert not after.allows(ANN, wanted, name) or before.allows(ANN, wanted, name)
        else:
            assert not before.allows(ANN, wanted, name) or after.allows(ANN, wanted, name)


def test_what_is_kept_of_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_of, "_KEPT", 10)
    rules = AclRules([topic("ann", "t", pattern=PREFIXED)])
    for number in range(100):
        assert rules.allows(ANN, READS, f"t{number}")
        assert rules.allows(Asker("ann", str(number)), NUMBERS, "") is False
    assert rules.allows(ANN, READS, "t" * 100_000)
    kept = rules._known
    assert 0 < len(kept) <= 10
    assert all(len(name) < 1000 for _, name, _ in kept)


# --- what makes an ACL ----------------------------------------------------------------------------


def test_every_operation_of_the_services_has_its_acl() -> None:
    for operation in Operation:
        for kind in operation.kinds:
            resource, wanted = needed(operation, kind)
            assert wanted in OPERATIONS[resource], operation


@pytest.mark.parametrize(
    "acl",
    [
        topic("", "orders"),
        topic("a" * 256, "orders"),
        topic("a\nb", "orders"),
        topic("ann", ""),
        topic("ann", "a/b"),
        topic("ann", "*", pattern=PREFIXED),
        topic("ann", "orders", AclOperation.CLUSTER_ACTION),
        topic("ann", "orders", host="example.com"),
        topic("ann", "orders", host="::0:1"),
        topic("ann", "orders", host="::ffff:10.0.0.1"),
        topic("ann", "orders", host="fe80::1%eth0"),
        Acl("ann", CLUSTER, LITERAL, "orders", AclOperation.ALTER),
        Acl("ann", CLUSTER, PREFIXED, "", AclOperation.ALTER),
        Acl("ann", GROUP, LITERAL, "g", WRITE),
        Acl("ann", GROUP, LITERAL, "g" * 256, READ),
    ],
)
def test_what_is_no_acl(acl: Acl) -> None:
    with pytest.raises(InvalidRequest, match="ACL: "):
        check(acl)


@given(acls())
def test_what_is_one(acl: Acl) -> None:
    check(acl)
    assert Acl.unpack(acl.pack()) == acl


def test_filters() -> None:
    acl = topic("ann", "or", pattern=PREFIXED)
    assert AclFilter().fits(acl)
    assert AclFilter(principal="ann", resource=TOPIC, name="or", operation=READ).fits(acl)
    for other in (
        AclFilter(principal="bob"),
        AclFilter(resource=GROUP),
        AclFilter(name="orders"),
        AclFilter(pattern=LITERAL),
        AclFilter(operation=WRITE),
        AclFilter(host="10.0.0.1"),
        AclFilter(effect=DENY),
    ):
        assert not other.fits(acl), other
    match = AclFilter(resource=TOPIC, name="orders", is_match=True)
    assert match.fits(acl)
    assert match.fits(topic("ann", "*"))
    assert match.fits(topic("ann", "orders"))
    assert not match.fits(topic("ann", "payments"))


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[::1]", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("memory", "memory"),
    ],
)
def test_hosts(address: str, host: str) -> None:
    assert host_of(address) == host
