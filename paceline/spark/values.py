"""How single option values are read. Pure; every error names the option and what it may be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from paceline import units
from paceline.spark.errors import OptionError
from paceline.types import TopicPartition, is_valid_topic_name

T = TypeVar("T")
Offsets = dict[TopicPartition, int]


def boolean(name: str, text: str) -> bool:
    """``true`` or ``false``."""
    lowered = text.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    raise OptionError(f"paceline: {name}={text!r}: expected true or false")


def number(name: str, text: str, *, least: int = 1) -> int:
    """A whole number from ``least`` up."""
    try:
        value = int(text)
    except ValueError:
        raise OptionError(f"paceline: {name}={text!r}: expected a whole number") from None
    if value < least:
        raise OptionError(f"paceline: {name}={value}: expected at least {least}")
    return value


def size(name: str, text: str) -> int:
    """Bytes, with units or without (``paceline.units``), and not none."""
    try:
        found = units.size(text)
    except ValueError as error:
        raise OptionError(f"paceline: {name}={text!r}: {error}") from None
    if not found:
        raise OptionError(f"paceline: {name}={text!r}: expected {units.BYTES}")
    return found


def duration_ms(name: str, text: str) -> int:
    """Milliseconds, with units or without (``paceline.units``)."""
    try:
        return units.milliseconds(text)
    except ValueError as error:
        raise OptionError(f"paceline: {name}={text!r}: {error}") from None


def one_of(name: str, text: str, choices: Mapping[str, T]) -> T:
    """One of several words, whatever their case."""
    for word, value in choices.items():
        if text.strip().lower() == word.lower():
            return value
    raise OptionError(f"paceline: {name}={text!r}: expected one of {', '.join(choices)}")


def topic_list(name: str, text: str) -> tuple[str, ...]:
    """``a,b``: at least one topic."""
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise OptionError(f"paceline: {name}={text!r}: expected topic names, for example a,b")
    for topic in topics:
        _check_topic(name, topic)
    return topics


def pattern(name: str, text: str) -> str:
    """A regular expression of Python, for whole topic names."""
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"paceline: {name}={text!r}: {error}") from None
    return text


def assignment(name: str, text: str) -> tuple[TopicPartition, ...]:
    """``{"topic": [0, 1]}``."""
    found = []
    for topic, numbers in _topics(name, text).items():
        _check_topic(name, topic)
        if not isinstance(numbers, list) or not numbers or not all(map(_is_partition, numbers)):
            raise OptionError(f'paceline: {name}={text!r}: expected {{"{topic}": [0, 1]}}')
        found += [TopicPartition(topic, each) for each in dict.fromkeys(numbers)]
    return tuple(sorted(found))


def offsets(name: str, text: str, *, least: int = -2) -> Offsets:
    """``{"topic": {"0": 12}}``; what :mod:`paceline.spark.offsets` writes is taken as it is."""
    found: Offsets = {}
    for topic, places in _topics(name, text).items():
        if topic.startswith("$"):
            continue
        _check_topic(name, topic)
        if not isinstance(places, dict):
            raise OptionError(f'paceline: {name}={text!r}: expected {{"{topic}": {{"0": 12}}}}')
        for partition, value in places.items():
            if not partition.isdecimal() or not isinstance(value, int) or value < least:
                raise OptionError(
                    f"paceline: {name}: {topic} partition {partition!r}: {value!r} is no number "
                    f"from {least} up"
                )
            found[TopicPartition(topic, int(partition))] = value
    return found


def topic_ids(name: str, text: str) -> dict[str, str]:
    """``{"topic": "id as hex text"}``."""
    found = _topics(name, text)
    for topic, value in found.items():
        _check_topic(name, topic)
        if not isinstance(value, str):
            raise OptionError(f"paceline: {name}: {topic}: {value!r} is no id")
    return found


def two_offsets(name: str, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """``[START, END]``: offsets of a streaming query."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(f"paceline: {name}={text!r}: not JSON: {error}") from None
    if not isinstance(found, list) or [type(each) for each in found] != [dict, dict]:
        raise OptionError(f"paceline: {name}={text!r}: expected a JSON list of two offsets")
    return found[0], found[1]


def _is_partition(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _topics(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(f"paceline: {name}={text!r}: not JSON: {error}") from None
    if not isinstance(value, dict) or not value:
        raise OptionError(f"paceline: {name}={text!r}: expected a JSON object of topics")
    return value


def _check_topic(name: str, topic: str) -> None:
    if not is_valid_topic_name(topic):
        raise OptionError(f"paceline: {name}: {topic!r} is no topic name")


Reader = Callable[[str, str], Any]
"""Reads an option: its name (for errors) and its text."""
