"""Where transactions are kept, and the last epoch of a producer."""

from __future__ import annotations

TRANSACTIONS_TOPIC = "__transactions"
PARTITION = 0
"""The topic has one partition (DESIGN 2.1), so that one batch can decide many transactions."""
LAST_EPOCH = 2**15 - 1
"""Nobody is given this one: it is left for fencing whoever has the one before."""
