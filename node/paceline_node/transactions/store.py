"""All transactional ids, sinks and staged records: the fold of the records, and nothing else."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable

from paceline.wire.peer.names import PartitionName
from paceline_node.state_machines.machine import Entry
from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.records import (
    Change,
    Floor,
    FloorKey,
    Marked,
    MarkedKey,
    Sink,
    SinkKey,
    Staged,
    StagedKey,
    State,
    Transaction,
    decode,
)


class TransactionStore:
    """Read freely; only :meth:`apply` changes it. ``ongoing`` and ``prepared`` name the
    transactions in these states, the latter in the order of the decisions, ``of_sink`` the task
    attempts of a sink, ``of_producer``, by producer id, those that are open or decided. ``states``
    counts the ids of each family in each state. ``open_count`` is how many partitions, groups and
    offsets all of them name. ``forgotten`` is told of each id that is no more, ``grew`` of how many
    more an id names. ``idle`` names, by family, the ids that have had transactions and have none
    now, ``unused`` those that never had one, ``unused_sinks`` the sinks that have committed
    nothing. Of these, and of ``sinks``, whichever changed longest ago comes first."""

    def __init__(self) -> None:
        self.transactions: dict[TransactionKey, Transaction] = {}
        self.forgotten: Callable[[TransactionKey], None] = lambda key: None
        self.grew: Callable[[TransactionKey, int], None] = lambda key, delta: None
        self.open_count = 0
        self.sinks: dict[str, Sink] = {}
        self.unused_sinks: dict[str, None] = {}
        self.staged: dict[TransactionKey, dict[tuple[int, int], Staged]] = {}
        self.staged_bytes: dict[TransactionKey, int] = {}
        self._numbers: dict[TransactionKey, dict[tuple[int, int], int]] = {}
        """Of each id, by serial and client's number: under which number it is staged."""
        self.marked: dict[TransactionKey, Marked] = {}
        self.ongoing: dict[TransactionKey, None] = {}
        self._began: list[tuple[int, str, str]] = []  # sorted: when each ongoing one began, its key
        self.states: Counter[tuple[Family, State]] = Counter()
        self.of_producer: dict[int, tuple[TransactionKey, ...]] = {}
        self.prepared: dict[TransactionKey, None] = {}
        self.idle: dict[Family, dict[TransactionKey, None]] = {family: {} for family in Family}
        self.unused: dict[Family, dict[TransactionKey, None]] = {family: {} for family in Family}
        self.of_sink: dict[str, dict[TransactionKey, None]] = {}
        self.total_staged_bytes = 0
        self.counts: Counter[Family] = Counter()
        """Transactional ids of each family."""
        self.floors: dict[Family, int] = {}
        """Where the epochs of a family's new ids begin; 0 where nothing is said."""

    def apply(self, entry: Entry) -> None:
        """Fold one record. Raises RemoteProtocolError for one that cannot be read."""
        match decode(entry):
            case Change(TransactionKey() as key, value):
                assert value is None or isinstance(value, Transaction)
                self._change_transaction(key, value)
            case Change(SinkKey(sink), value):
                assert value is None or isinstance(value, Sink)
                self._change_sink(sink, value)
            case Change(FloorKey(family), Floor() as value):
                self.floors[family] = value.wire_epoch
            case Change(MarkedKey(name), value):
                assert value is None or isinstance(value, Marked)
                self.marked.pop(name, None)
                if value is not None:
                    self.marked[name] = value
            case Change(StagedKey() as key, value):
                assert value is None or isinstance(value, Staged)
                self._change_staged(key, value)

    def _change_transaction(self, key: TransactionKey, value: Transaction | None) -> None:
        before = self.transactions.pop(key, None)
        self.counts[key.family] += (value is not None) - (before is not None)
        delta = named_count(value) - named_count(before)
        if delta:
            self.open_count += delta
            self.grew(key, delta)
        self._count(key, before, value)
        self.ongoing.pop(key, None)
        if value is None or not value.state.is_prepared:
            self.prepared.pop(key, None)
        self.idle[key.family].pop(key, None)
        self.unused[key.family].pop(key, None)
        if before is not None and before.sink:
            attempts = self.of_sink[before.sink]
            attempts.pop(key, None)
            if not attempts:
                del self.of_sink[before.sink]
        if value is None:
            self.forgotten(key)
            return
        self.transactions[key] = value
        if value.state is State.ONGOING:
            self.ongoing[key] = None
        elif value.state.is_prepared:
            self.prepared[key] = None
        elif value.state is State.EMPTY and not value.serial:
            self.unused[key.family][key] = None
        else:
            self.idle[key.family][key] = None
        if value.sink:
            self.of_sink.setdefault(value.sink, {})[key] = None

    def _count(
        self, key: TransactionKey, before: Transaction | None, value: Transaction | None
    ) -> None:
        """Keep what is known of all ids without looking at all of them."""
        if before is not None:
            self.states[key.family, before.state] -= 1
        if value is not None:
            self.states[key.family, value.state] += 1
        began, begins = _beginning(key, before), _beginning(key, value)
        if began != begins:
            if began is not None:
                del self._began[bisect_left(self._began, began)]
            if begins is not None:
                insort(self._began, begins)
        had, has = _producers(before), _producers(value)
        for number in had - has:
            rest = tuple(each for each in self.of_producer[number] if each != key)
            if rest:
                self.of_producer[number] = rest
            else:
                del self.of_producer[number]
        for number in has - had:
            self.of_producer[number] = (*self.of_producer.get(number, ()), key)

    @property
    def oldest_began_ms(self) -> int | None:
        """When the oldest ongoing transaction began; None while none is."""
        return self._began[0][0] if self._began else None

    def _change_sink(self, name: str, value: Sink | None) -> None:
        self.sinks.pop(name, None)
        self.unused_sinks.pop(name, None)
        if value is not None:
            self.sinks[name] = value
            if value.last_batch < 0:
                self.unused_sinks[name] = None

    def _change_staged(self, key: StagedKey, value: Staged | None) -> None:
        of_id = self.staged.setdefault(key.transaction, {})
        before = of_id.pop((key.serial, key.number), None)
        growth = 0
        numbers = self._numbers.setdefault(key.transaction, {})
        if before is not None:
            growth -= before.size_bytes
            numbers.pop((key.serial, before.sequence), None)
        if value is not None:
            numbers[key.serial, value.sequence] = key.number
            of_id[key.serial, key.number] = value
            growth += value.size_bytes
        self.total_staged_bytes += growth
        size = self.staged_bytes.get(key.transaction, 0) + growth
        if of_id:
            self.staged_bytes[key.transaction] = size
        else:
            del self.staged[key.transaction]
            self.staged_bytes.pop(key.transaction, None)
            self._numbers.pop(key.transaction, None)

    def clear(self) -> None:
        """Forget everything."""
        self.transactions.clear()
        self.sinks.clear()
        self.unused_sinks.clear()
        self.staged.clear()
        self.staged_bytes.clear()
        self._numbers.clear()
        self.marked.clear()
        self.ongoing.clear()
        self._began.clear()
        self.states.clear()
        self.of_producer.clear()
        self.prepared.clear()
        for family in Family:
            self.idle[family].clear()
            self.unused[family].clear()
        self.of_sink.clear()
        self.total_staged_bytes = self.open_count = 0
        self.counts.clear()
        self.floors.clear()

    def staged_in(self, key: TransactionKey) -> list[Staged]:
        """What is staged in the id's present transaction, in order."""
        found = self.transactions.get(key)
        if found is None:
            return []
        of_id = self.staged.get(key, {})
        return [each for (serial, _), each in sorted(of_id.items()) if serial == found.serial]

    def staged_as(self, key: TransactionKey, serial: int, sequence: int) -> Staged | None:
        """What is staged in that transaction of the id under the client's number."""
        number = self._numbers.get(key, {}).get((serial, sequence))
        return None if number is None else self.staged[key][serial, number]

    def marked_in(self, key: TransactionKey) -> frozenset[PartitionName]:
        """Where the id's decided transaction has all that was staged, and its marker."""
        found, marked = self.transactions.get(key), self.marked.get(key)
        if found is None or marked is None or found.identity != marked.identity:
            return frozenset()
        return frozenset(marked.partitions) if found.state.is_prepared else frozenset()

    def unstored_in(self, key: TransactionKey) -> list[Staged]:
        """What is staged in the id's present transaction where it is not marked, in order."""
        staged, marked = self.staged_in(key), self.marked_in(key)
        if not marked:
            return staged
        return [each for each in staged if PartitionName(each.topic, each.partition) not in marked]


def named_count(found: Transaction | None) -> int:
    """Partitions, groups and offsets of the id's transaction, until it is complete."""
    if found is None:
        return 0
    return len(found.partitions) + len(found.groups) + len(found.offsets)


def _beginning(key: TransactionKey, found: Transaction | None) -> tuple[int, str, str] | None:
    if found is None or found.state is not State.ONGOING:
        return None
    return found.began_ms, key.family.value, key.name


def _producers(found: Transaction | None) -> set[int]:
    """Under which producer ids a transaction that is open or decided may write."""
    if found is None or not (found.state is State.ONGOING or found.state.is_prepared):
        return set()
    return {found.producer_id, found.next_producer_id, found.ended_producer_id} - {-1}
