"""One request for a page of the API: who asks, the names in its path, its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl

from paceline.errors import InvalidRequest
from paceline.types import NodeId
from paceline.wire.peer.cluster_queries import TransactionName
from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.security.principals import Principal
from paceline_node.services.paging import MOST

USUAL = 100
"""Items of a page, unless ``limit`` says otherwise."""
_MOST_PARAMETERS = 16
_LARGEST = 2**31 - 1
_FLAGS = {"true": True, "false": False}
T = TypeVar("T")


class Call(NamedTuple):
    """``names`` are those that the path holds, ``said`` the parameters behind it: only such as the
    page knows, in the order in which they came."""

    principal: Principal
    names: Mapping[str, str]
    said: Sequence[tuple[str, str]]

    def several(self, name: str) -> tuple[str, ...]:
        """The values of a parameter that may be there more than once."""
        return tuple(value for key, value in self.said if key == name)

    def text(self, name: str, default: str) -> str:
        """A parameter; the default where it is not there."""
        found = self.several(name)
        if len(found) > 1:
            raise InvalidRequest(f"{name} is there {len(found)} times, expected one")
        return found[0] if found else default

    def read(self, name: str, convert: Callable[[str], T], expected: str) -> T | None:
        """A parameter, converted; None where it is not there. ``convert`` raises ValueError for
        what is not as ``expected``."""
        text = self.text(name, "")
        if not self.several(name):
            return None
        try:
            return convert(text)
        except ValueError:
            raise InvalidRequest(f"{name}={text!r}: expected {expected}") from None

    def flag(self, name: str) -> bool:
        """Whether it is wanted."""
        text = self.text(name, "false")
        if text not in _FLAGS:
            raise InvalidRequest(f"{name}={text!r}: expected true or false")
        return _FLAGS[text]

    def one_of(self, name: str, known: Sequence[str]) -> str | None:
        """One of a few words."""

        def check(text: str) -> str:
            if text not in known:
                raise ValueError(text)
            return text

        return self.read(name, check, f"one of {', '.join(known)}")

    @property
    def limit(self) -> int:
        """How many items are wanted."""

        def convert(text: str) -> int:
            found = number(text)
            if not 0 < found <= MOST:
                raise ValueError(text)
            return found

        return self.read("limit", convert, f"a number from 1 to {MOST}") or USUAL

    def number(self, name: str) -> int | None:
        """A number that is not negative."""
        return self.read(name, number, "a number")

    def node(self, name: str) -> NodeId | None:
        """The id of a node."""
        found = self.number(name)
        return None if found is None else NodeId(found)

    def after_number(self) -> int | None:
        """Behind which number the page begins."""
        return self.read("after", number, "'next' of the page before")

    def after_partition(self) -> PartitionName | None:
        """Behind which partition the page begins."""
        return self.read("after", _partition, "'next' of the page before")

    def after_transaction(self) -> TransactionName | None:
        """Behind which transactional id the page begins."""
        return self.read("after", _transaction, "'next' of the page before")

    def after_group(self) -> GroupName | None:
        """Behind which group the page begins."""
        return self.read("after", _group, "'next' of the page before")


def parameters(query: str, known: frozenset[str]) -> list[tuple[str, str]]:
    """What stands behind a path. Raises InvalidRequest for what is not known: a slip would be
    answered with more than was asked for."""
    try:
        said = parse_qsl(
            query,
            keep_blank_values=True,
            strict_parsing=bool(query),
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError as error:
        raise InvalidRequest(f"parameters {query!r}: {error}") from None
    for name, _ in said:
        if name not in known:
            there = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            raise InvalidRequest(f"unknown parameter {name!r}: {there}")
    return said


def number(text: str) -> int:
    """A number as a path or parameter has it. Raises ValueError."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST))):
        raise ValueError(text)
    found = int(text)
    if found > _LARGEST:
        raise ValueError(text)
    return found


# --- places in lists: ``next`` of one page is ``after`` of another


def place_of_partition(topic: str, partition: int) -> str:
    """Where a page ends."""
    return f"{topic}/{partition}"


def _partition(text: str) -> PartitionName:
    topic, _, partition = text.rpartition("/")
    return PartitionName(topic, number(partition))


def place_of_transaction(family: str, name: str) -> str:
    """Where a page ends."""
    return f"{family}/{name}"


def _transaction(text: str) -> TransactionName:
    family, slash, name = text.partition("/")
    if not slash:
        raise ValueError(text)
    return TransactionName(family, name)


def place_of_group(family: str, group: str, subject: str) -> str:
    """Where a page ends. Names of families and topics hold no slash."""
    return f"{family}/{group}/{subject}"


def _group(text: str) -> GroupName:
    family, _, rest = text.partition("/")
    group, slash, subject = rest.rpartition("/")
    if not slash:
        raise ValueError(text)
    return GroupName(family, group, subject)
