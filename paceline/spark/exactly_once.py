"""The guarantee ``exactly_once``: a transaction for each task attempt, one commit for all of a
micro-batch (spec spark 9.2). What the coordinator does is in ``node/paceline_node/transactions``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from paceline.client import blocking
from paceline.spark.errors import OptionError
from paceline.spark.options import SinkOptions
from paceline.spark.sink_ids import TaskId, WriteId
from paceline.wire.native.data import ProducerIdentity

NOT_SERVED = (
    "paceline: deliveryGuarantee=exactly_once is not served by this version; say "
    "deliveryGuarantee=idempotent or at_least_once"
)


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An open transaction; ``name`` is its transactional id."""

    name: str
    identity: ProducerIdentity


def begin(client: blocking.Client, options: SinkOptions, task: TaskId) -> OpenAttempt | None:
    """Open a task attempt's transaction; None when its batch is committed already."""
    raise OptionError(NOT_SERVED)


@contextmanager
def kept_alive(client: blocking.Client, write: WriteId, options: SinkOptions) -> Iterator[None]:
    """Renew all open transactions of the batch while a task of it runs."""
    yield


def commit(client: blocking.Client, write: WriteId, transactions: Sequence[str]) -> None:
    """Commit them all, or none; done before counts as done."""
    raise OptionError(NOT_SERVED)


def abort(client: blocking.Client, write: WriteId, transactions: Sequence[str]) -> None:
    """Abort what is open of them."""
