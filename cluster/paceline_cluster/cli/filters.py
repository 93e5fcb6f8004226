"""Which records ``consume`` prints, of those that it reads."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import click

from paceline.client import ConsumedRecord

Filter = Callable[[ConsumedRecord], bool]


def wanted(key: str | None, pattern: str | None) -> Filter | None:
    """Those with this key and in whose value, as UTF-8, the regular expression is found; None for
    all. Raises click.UsageError for one that is none."""
    if key is None and pattern is None:
        return None
    try:
        found = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise click.UsageError(f"--grep: {pattern!r} is no regular expression: {error}") from None
    bytes_ = None if key is None else os.fsencode(key)

    def is_wanted(record: ConsumedRecord) -> bool:
        if bytes_ is not None and record.key != bytes_:
            return False
        if found is None:
            return True
        # As the pattern came from the command line: any other byte stands for itself.
        return (
            record.value is not None
            and found.search(record.value.decode("utf-8", "surrogateescape")) is not None
        )

    return is_wanted
