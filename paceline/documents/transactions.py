"""Transactions."""

from __future__ import annotations

from typing import Any

from paceline.wire.native.transactions import TransactionListing


def transaction_document(found: TransactionListing) -> dict[str, Any]:
    """An item of ``transaction list``."""
    return {
        "id": found.transactional_id,
        "family": found.family,
        "state": found.state,
        "open_s": None if found.open_ms < 0 else round(found.open_ms / 1000, 1),
        "partitions": found.partition_count,
        "producer_id": found.producer_id,
        "epoch": found.producer_epoch,
    }
