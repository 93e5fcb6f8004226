"""ACLs in the metadata: made and removed, bounded, kept in snapshots."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from paceline.errors import InvalidRequest, PolicyViolation
from paceline.wire.native.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPattern,
    AclResource,
    AclsDeleted,
    CreateAcls,
    DeleteAcls,
)
from paceline_node.controller.context import ControllerSettings
from paceline_node.controller.image import Image
from tests.unit.controller.bench import Bench

READ = Acl("ann", AclResource.TOPIC, AclPattern.LITERAL, "orders", AclOperation.READ)
WRITE = replace(READ, operation=AclOperation.WRITE)
OTHERS = replace(READ, principal="bob", pattern=AclPattern.PREFIXED, name="or")


@pytest.fixture
def bench() -> Bench:
    bench = Bench(settings=ControllerSettings(max_acls=3))
    bench.start(1)
    return bench


def test_they_are_made_and_removed(bench: Bench) -> None:
    assert not bench.image.is_guarded
    bench.ask(CreateAcls((READ, WRITE, READ)))
    assert bench.image.acls == {READ, WRITE}
    assert bench.image.is_guarded
    before = bench.image.acls
    bench.ask(CreateAcls((WRITE,)))
    assert bench.image.acls is before, "nothing to tell anybody"
    bench.ask(CreateAcls((OTHERS,)))
    filters = AclFilter(principal="ann"), AclFilter(operation=AclOperation.READ)
    answer = bench.ask(DeleteAcls(filters))
    assert isinstance(answer, AclsDeleted)
    assert [set(each.acls) for each in answer.deleted] == [{READ, WRITE}, {OTHERS}]
    assert not bench.image.acls
    assert not bench.image.is_guarded


def test_all_or_none(bench: Bench) -> None:
    wrong = replace(READ, host="somewhere.example")
    with pytest.raises(InvalidRequest, match=r"host .somewhere\.example."):
        bench.ask(CreateAcls((WRITE, wrong)))
    bench.ask(CreateAcls((READ, WRITE)))
    more = replace(READ, host="10.0.0.1"), replace(READ, host="10.0.0.2")
    with pytest.raises(PolicyViolation, match=r"3 at most \(security.acls_max\)"):
        bench.ask(CreateAcls(more))
    assert bench.image.acls == {READ, WRITE}
    bench.ask(CreateAcls((READ, WRITE, more[0])))
    assert len(bench.image.acls) == 3


def test_requests_are_bounded(bench: Bench) -> None:
    with pytest.raises(InvalidRequest, match="1001 ACLs in a request"):
        bench.ask(CreateAcls((READ,) * 1001))
    with pytest.raises(InvalidRequest, match="20 of them for more than one ACL"):
        bench.ask(DeleteAcls((AclFilter(),) * 21))
    bench.ask(CreateAcls((READ, WRITE)))
    exact = AclFilter(*READ.pack())
    exact = replace(exact, resource=READ.resource, pattern=READ.pattern)
    exact = replace(exact, operation=READ.operation, effect=READ.effect)
    assert exact.only == READ
    with pytest.raises(InvalidRequest, match="at most 1000 filters"):
        bench.ask(DeleteAcls((exact,) * 1001))
    bench.ask(DeleteAcls((exact,) * 1000))
    assert bench.image.acls == {WRITE}


def test_snapshots(bench: Bench) -> None:
    before = bench.image.to_snapshot()
    bench.ask(CreateAcls((READ, OTHERS)))
    assert Image.from_snapshot(bench.image.to_snapshot()) == bench.image
    bench.ask(DeleteAcls((AclFilter(),)))
    after = bench.image.to_snapshot()
    assert Image.from_snapshot(after) == bench.image
    values = [len(msgpack.unpackb(each)[1]) for each in (before, after)]
    assert values == [10, 10], "the snapshot of a cluster without ACLs is what it always was"


def test_snapshots_of_equal_images_are_equal(bench: Bench) -> None:
    other = Bench(settings=ControllerSettings(max_acls=3))
    other.start(1)
    bench.ask(CreateAcls((READ, WRITE, OTHERS)))
    other.ask(CreateAcls((OTHERS, WRITE, READ)))
    assert bench.image.to_snapshot() == other.image.to_snapshot()
