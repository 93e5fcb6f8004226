"""What in-sync replicas remember besides records: the same, when nothing moves any more.

Producers are remembered by what they have written, also by what has expired since. A replica that
begins above 0, was repaired, or came back from a snapshot has to know of each what the others know.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline_cluster.sim.oracle import Oracle
from paceline_node.replication.partition import Partition
from paceline_node.storage.producer_state import ProducerKey, ProducerState, State
from paceline_node.storage.sequenced_records import SequencedState

ProducerView = tuple[object, ...]


def differing_producer_states(oracle: Oracle) -> str | None:
    """The first replica in sync that remembers something else than another one does."""
    for key in oracle.committed:
        known: tuple[int, Mapping[ProducerKey, ProducerView]] | None = None
        for node, partition in oracle.in_sync(key):
            found = _producer_states(partition)
            if known is None:
                known = node, found
            elif known[1] != found:
                return _difference(partition, known[0], known[1], node, found)
    return None


def _producer_states(partition: Partition) -> dict[ProducerKey, ProducerView]:
    found = ((key, _producer_state(state)) for key, state in partition.log.producers)
    return {key: memory for key, memory in found if memory is not None}


def _producer_state(state: State) -> ProducerView | None:
    """What decides about the next batch of a producer; not what a table rebuilt from compacted
    batches need not know. Segments have judges of their own."""
    match state:
        case ProducerState():
            last = state.window[-1].last_sequence if state.window else -1
            return state.epoch, last, state.last_offset, state.open_offset
        case SequencedState():
            return state.epoch, state.runs, state.last_offset
    return None


def _difference(
    partition: Partition,
    one: int,
    ones: Mapping[ProducerKey, ProducerView],
    other: int,
    others: Mapping[ProducerKey, ProducerView],
) -> str:
    key = next(each for each in (*ones, *others) if ones.get(each) != others.get(each))
    return (
        f"{partition}: of producer {key[0]}/{key[1].hex()} n{one} remembers {ones.get(key)}, "
        f"n{other} {others.get(key)}"
    )
