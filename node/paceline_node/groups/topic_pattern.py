"""Patterns of topic names, as consumers send them: matched in linear time, whatever they say.

A consumer's white list is a pattern that somebody else wrote, so Python's own ``re`` is not for it:
some patterns would keep the event loop busy for ever. Here a pattern becomes a non-deterministic
automaton, run by sets of states that are found once and remembered, as many as 64::

    a  \\.    a character          .  [a-z_]  [^a-z]    one of several
    *  +  ?   as often as            ( )  |             parts, one or the other

The whole name must match, as in Kafka 0.8; ``^`` and ``$`` around the whole are taken and mean
nothing. ``,`` separates alternatives, as Kafka 0.8 read its lists.
"""

from __future__ import annotations

from typing import NamedTuple

from paceline.errors import InvalidRequest
from paceline_node.sliced_work import Work, at_once

PATTERN_BYTES_MAX = 255
_DEPTH_MAX = 20
_SETS_MAX = 64
_STATES_PER_UNIT = 20
_SPECIAL = frozenset("*+?|()[],")


class _Class(NamedTuple):
    """Characters from ``ranges``, or all others."""

    ranges: tuple[tuple[str, str], ...]
    is_negated: bool

    def holds(self, character: str) -> bool:
        inside = any(low <= character <= high for low, high in self.ranges)
        return inside is not self.is_negated


_ANY = _Class((), is_negated=True)


class _State:
    """Goes on to ``to`` over a character of ``over``, or, without it, at once."""

    __slots__ = ("over", "to")

    def __init__(self, over: _Class | None = None) -> None:
        self.over = over
        self.to: list[_State] = []


class _Set:
    """States that the automaton may be in together, and where each character leads from there."""

    __slots__ = ("after", "holds_end", "states")

    def __init__(self, states: tuple[_State, ...], *, holds_end: bool) -> None:
        self.states = states
        self.holds_end = holds_end
        self.after: dict[str, _Set] = {}


class _Piece(NamedTuple):
    start: _State
    end: _State


class TopicPattern:
    """A compiled pattern. Raises InvalidRequest for one that cannot be read."""

    def __init__(self, text: str) -> None:
        if not 1 <= len(text.encode("utf-8", "surrogateescape")) <= PATTERN_BYTES_MAX:
            raise InvalidRequest(f"a pattern of topics: expected 1 to {PATTERN_BYTES_MAX} bytes")
        inner = text.removeprefix("^")
        if inner.endswith("$") and not inner.endswith("\\$"):
            inner = inner[:-1]
        self.text = text
        self._piece = _Parser(text, inner).whole()
        self._sets: dict[frozenset[_State], _Set] = {}
        self._first = self._set_of([self._piece.start])

    def matches(self, name: str) -> bool:
        """Whether all of ``name`` fits."""
        return at_once(self.matching(name))

    def matching(self, name: str) -> Work[bool]:
        """Whether all of ``name`` fits. A pattern that knows too many sets finds one anew for each
        character, which takes as long as many names of another."""
        at = self._first
        for character in name:
            after = at.after.get(character)
            if after is None:
                yield 1 + len(at.states) // _STATES_PER_UNIT
                after = self._next(at, character)
            if not after.states:
                return False
            at = after
        return at.holds_end

    def _next(self, at: _Set, character: str) -> _Set:
        """The set behind ``character``; found once, it is a look-up from then on."""
        found = self._set_of(
            [
                to
                for state in at.states
                if state.over is not None and state.over.holds(character)
                for to in state.to
            ]
        )
        at.after[character] = found
        return found

    def _set_of(self, states: list[_State]) -> _Set:
        closed = _closure(states)
        key = frozenset(closed)
        found = self._sets.get(key)
        if found is None:
            if len(self._sets) >= _SETS_MAX:
                # Patterns that know so many are rare. All is found anew, from a new beginning.
                self._sets.clear()
                self._first = self._set_of([self._piece.start])
            found = self._sets[key] = _Set(tuple(closed), holds_end=self._piece.end in closed)
        return found


def _closure(states: list[_State]) -> dict[_State, None]:
    found: dict[_State, None] = {}
    todo = states
    while todo:
        state = todo.pop()
        if state not in found:
            found[state] = None
            if state.over is None:
                todo += state.to
    return found


class _Parser:
    """Recursive descent; every method leaves ``_at`` behind what it read."""

    def __init__(self, text: str, inner: str) -> None:
        self._text = text
        self._inner = inner
        self._at = 0
        self._depth = 0

    def whole(self) -> _Piece:
        piece = self._either()
        if self._at < len(self._inner):
            raise self._bad(f"{self._inner[self._at]!r} is unexpected")
        return piece

    def _bad(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"pattern of topics {self._text!r}: {why}")

    def _next(self) -> str:
        return self._inner[self._at : self._at + 1]

    def _take(self) -> str:
        found = self._next()
        if not found:
            raise self._bad("it ends too early")
        self._at += 1
        return found

    def _either(self) -> _Piece:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._bad(f"more than {_DEPTH_MAX} parts in each other")
        pieces = [self._sequence()]
        while self._next() and self._next() in "|,":
            self._at += 1
            pieces.append(self._sequence())
        self._depth -= 1
        if len(pieces) == 1:
            return pieces[0]
        start, end = _State(), _State()
        for piece in pieces:
            start.to.append(piece.start)
            piece.end.to.append(end)
        return _Piece(start, end)

    def _sequence(self) -> _Piece:
        start = end = _State()
        while self._next() and self._next() not in "|,)":
            piece = self._repeated()
            end.to.append(piece.start)
            end = piece.end
        return _Piece(start, end)

    def _repeated(self) -> _Piece:
        piece = self._one()
        while self._next() and self._next() in "*+?":
            sign = self._take()
            start, end = _State(), _State()
            start.to.append(piece.start)
            piece.end.to.append(end)
            if sign != "+":
                start.to.append(end)
            if sign != "?":
                end.to.append(start)
            # Behind the loop, so that what follows does not begin inside it.
            last = _State()
            end.to.append(last)
            piece = _Piece(start, last)
        return piece

    def _one(self) -> _Piece:
        character = self._take()
        if character == "(":
            piece = self._either()
            if self._take() != ")":
                raise self._bad("a part is not closed")
            return piece
        if character == "[":
            return _over(self._several())
        if character == ".":
            return _over(_ANY)
        if character == "\\":
            character = self._take()
            if character.isalnum():
                raise self._bad(f"\\{character} is not known")
        elif character in _SPECIAL:
            raise self._bad(f"{character!r} is unexpected")
        return _over(_Class(((character, character),), is_negated=False))

    def _several(self) -> _Class:
        is_negated = self._next() == "^"
        self._at += is_negated
        ranges: list[tuple[str, str]] = []
        while not ranges or self._next() != "]":
            low = high = self._take()
            if self._next() == "-" and self._inner[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._take()
            if low > high:
                raise self._bad(f"{low}-{high} is no range")
            ranges.append((low, high))
        self._at += 1
        return _Class(tuple(ranges), is_negated=is_negated)


def _over(characters: _Class) -> _Piece:
    start, end = _State(characters), _State()
    start.to.append(end)
    return _Piece(start, end)
