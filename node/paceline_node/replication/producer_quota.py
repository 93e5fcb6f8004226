"""How many producers a partition may know, and who gives way when there are more.

Pure. What a log knows of its producers lies in memory on every replica, and anybody may open as
many as the cluster has numbers. So a leader counts them by client (the principal, or the address of
one without credentials) and lets no client have more than half of a partition's, nor more than its
bound in all partitions that the node leads. A producer that the log knows is never asked anything.
For a new one, where there are too many, others are forgotten by a record in the log
(``storage/producer_evictions.py``); where none may be, the new one is refused for now. So:

* A client that has too many loses its own: the least recently used one first, if it is idle. Idle
  is who has no transaction open, nothing that is not committed, and has written nothing for
  ``IDLE_S``, as long as clients try by default; or who ended with a marker ``ENDED_S`` ago, since
  whatever comes of it again needs the coordinator's word. Until then its state tells a coordinator
  that lost leadership from one that has it, so nobody's need is large enough.
* In a full partition the client that has most gives way, and for one that has less than it, also
  those that wrote a moment ago. Otherwise idle ones do: its own, then anybody's of clients that
  have no fewer.
* A segment's writer whose connection is open stays, as it does when writers expire.
* What a coordinator has decided is stored at once, beyond the bounds where nobody may be forgotten:
  who reads or goes on waits for it. Its producers are bounded as the transactional ids are.
* Whoever is forgotten and comes back is unknown, as after ``log.producer_ttl_ms``.

A new leader does not know whose the producers in its log are, but for those that write again. The
others are counted as one client's, and go by when they wrote last, as far as a sample tells.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest, nsmallest
from itertools import islice

from paceline.errors import PacelineError, Throttled
from paceline.values import dataclass
from paceline.wire.batch_header import BatchHeader, Buffer, ProducerNamespace, read_extension
from paceline_node.settings.counts import CLIENT_PRODUCERS, PARTITION_PRODUCERS
from paceline_node.storage.byte_segment_state import DATA_KINDS, DIALECTS, NO_WRITER
from paceline_node.storage.producer_state import ProducerKey, ProducerState, State, key_of, may_go
from paceline_node.storage.producers import ProducerTable
from paceline_node.storage.sequenced_records import STREAM_EPOCH

IDLE_S = 300.0
ENDED_S = 60.0
"""No request between nodes is under way for so long."""
COORDINATOR = "transactions"
"""Whom producers count for that a coordinator speaks of, and no client."""
_LOOKED_AT = 128
"""Producers of one client that are looked at for idle ones, beginning with the least recent."""
_CLIENTS_LOOKED_AT = 8
_SAMPLED_SHARDS = 8
_SAMPLED_OF_SHARD = 512
_AT_ONCE = 256
_SPARE = 256
"""One in so many goes beyond those that have to: a record for each new producer is too much."""
_REFUSED_S = 1.0
"""For how long there is no room for a client without another search."""


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """``per_partition``: producers that a log knows, half of them of one client at most.
    ``per_client``: in all partitions that a node leads."""

    per_partition: int = PARTITION_PRODUCERS.bound
    per_client: int = CLIENT_PRODUCERS.bound

    @property
    def share(self) -> int:
        """What one client may have in a partition."""
        return max(1, self.per_partition // 2)


class TooManyProducers(Throttled):
    """There is no room for another producer, and none that may be forgotten."""


class ProducerShares:
    """What clients have in all partitions that this node leads."""

    def __init__(self, limits: ProducerLimits | None = None) -> None:
        self.limits = limits or ProducerLimits()
        self.is_connected: Callable[[object, ProducerKey], bool] = lambda log, key: False
        """Whether a segment's writer has a connection open to this node: told that nobody knows
        it, it could never go on. ``log`` is the key of the partition."""
        self.evicted_count = 0
        self.refused_count = 0
        self._counts: dict[str, int] = {}
        self._quotas: dict[str, dict[ProducerQuota, None]] = {}

    def count(self, client: str) -> int:
        """How many producers the client has."""
        return self._counts.get(client, 0)

    def changed(self, client: str, quota: ProducerQuota, delta: int) -> None:
        """The client has ``delta`` more in the partition of ``quota``."""
        count = self._counts.get(client, 0) + delta
        if count:
            self._counts[client] = count
        else:
            self._counts.pop(client, None)
        known = self._quotas.setdefault(client, {})
        if quota.count(client):
            known[quota] = None
        else:
            known.pop(quota, None)
            if not known:
                del self._quotas[client]

    def others(self, client: str, but: ProducerQuota) -> list[ProducerQuota]:
        """Partitions in which the client has producers, the longest idle one first."""
        found = (each for each in self._quotas.get(client, ()) if each is not but)
        return nsmallest(_CLIENTS_LOOKED_AT, found, key=lambda each: each.oldest(client))


class ProducerQuota:
    """A leader's count of the producers in one log, for one leadership.

    ``committed``: the high watermark. ``forget`` writes the record that forgets producers; it may
    raise any PacelineError.
    """

    def __init__(
        self,
        shares: ProducerShares,
        log: object,
        producers: ProducerTable,
        now: Callable[[], float],
        committed: Callable[[], int],
        forget: Callable[[Sequence[ProducerKey]], None],
    ) -> None:
        self._shares = shares
        self._log = log
        self._limits = shares.limits
        self._producers = producers
        self._now = now
        self._committed = committed
        self._forget = forget
        self._since = now()
        self._owners: OrderedDict[ProducerKey, str] = OrderedDict()  # least recently used first
        self._of: dict[str, OrderedDict[ProducerKey, float]] = {}
        self._refused: dict[str, float] = {}
        self._shard = 0

    def __len__(self) -> int:
        """How many producers are known to be somebody's."""
        return len(self._owners)

    def count(self, client: str) -> int:
        """How many producers of the client have written here."""
        return len(self._of.get(client, ()))

    def oldest(self, client: str) -> float:
        """When the least recently used producer of the client wrote last."""
        return next(iter(self._of[client].values()))

    def clear(self) -> None:
        """The leadership is over, or another one begins."""
        of, self._of = self._of, {}
        self._owners = OrderedDict()
        self._refused.clear()
        self._since = self._now()
        for client, keys in of.items():
            self._shares.changed(client, self, -len(keys))

    # --- asked before appends ---------------------------------------------------------------------

    def admit(self, keys: Iterable[ProducerKey], client: str | None) -> None:
        """Producers of ``client`` are about to write: make room for those that the log does not
        know. None is the coordinator of transactions, with what is decided and must be stored: it
        is not refused. Raises TooManyProducers, and what ``forget`` raises; nothing may be appended
        then."""
        owner = COORDINATOR if client is None else client
        now = self._now()
        new: dict[ProducerKey, None] = {}
        for key in keys:
            if self._producers.state(key) is None:
                new[key] = None
            else:
                self._use(key, owner, now)
        if new:
            self._drop_stale()
            if not self._make_room(len(new), owner) and client is not None:
                self._refuse(client)
            for key in new:
                self._use(key, owner, now)

    def admit_marker(self, key: ProducerKey) -> None:
        """A transaction is about to be ended, of a producer that may never have written here. It
        is not refused: nothing else would ever end the transaction."""
        over = self._producers.producer_count + 1 - self._limits.per_partition
        if over > 0 and self._producers.state(key) is None:
            self._evict_here(over, None)
        self._use(key, self._owners.get(key, COORDINATOR), self._now())

    def _use(self, key: ProducerKey, client: str, now: float) -> None:
        owner = self._owners.get(key)
        if owner is not None and owner != client:
            self._drop(key)
            owner = None
        of_client = self._of.get(client)
        if of_client is None:
            of_client = self._of[client] = OrderedDict()
        of_client[key] = now
        self._owners[key] = client
        if owner is None:
            self._shares.changed(client, self, 1)
        else:
            of_client.move_to_end(key)
            self._owners.move_to_end(key)

    def _drop(self, key: ProducerKey) -> None:
        client = self._owners.pop(key, None)
        if client is None:
            return
        of_client = self._of[client]
        del of_client[key]
        if not of_client:
            del self._of[client]
        self._shares.changed(client, self, -1)

    def _drop_stale(self) -> None:
        """Those that were forgotten for their silence are the least recent ones here too."""
        for key in list(islice(self._owners, 2)):
            if self._producers.state(key) is None:
                self._drop(key)

    # --- making room ------------------------------------------------------------------------------

    def _make_room(self, new: int, client: str) -> bool:
        """Whether there is room for ``new`` more."""
        limits = self._limits
        if not self._over(new, client):
            return True
        if self._now() < self._refused.get(client, 0.0):
            return False
        over = self.count(client) + new - limits.share
        if over > 0:
            self._evict_own(over, client)
        over = self._shares.count(client) + new - limits.per_client
        if over > 0:
            over -= self._evict_own(over, client)
            for other in self._shares.others(client, self):
                if over > 0:
                    over -= other.give_up(over, client)
        over = self._producers.producer_count + new - limits.per_partition
        if over > 0:
            self._evict_here(over, client)
        if not self._over(new, client):
            return True
        if len(self._refused) >= _AT_ONCE:
            self._refused.clear()
        self._refused[client] = self._now() + _REFUSED_S
        return False

    def _over(self, new: int, client: str) -> bool:
        limits = self._limits
        return (
            self._producers.producer_count + new > limits.per_partition
            or self.count(client) + new > limits.share
            or self._shares.count(client) + new > limits.per_client
        )

    def _refuse(self, client: str) -> None:
        self._shares.refused_count += 1
        raise TooManyProducers(
            f"no room for another producer of {client or 'a client'}: it has {self.count(client)} "
            f"of {self._producers.producer_count} here (at most {self._limits.share} of "
            f"{self._limits.per_partition}, limits.partition_producers) and "
            f"{self._shares.count(client)} on this node (at most {self._limits.per_client}, "
            f"limits.client_producers), and none that was idle for {IDLE_S:g} s; use fewer "
            "producers, or try again later"
        )

    def give_up(self, count: int, client: str) -> int:
        """Forget up to ``count`` idle producers of the client here; how many went."""
        try:
            return self._evict_own(count, client)
        except PacelineError:
            return 0  # not here then: this partition cannot be written at the moment

    def _evict_own(self, count: int, client: str) -> int:
        return self._evict(islice(self._idle_of(client, patient=True), self._rounded(count)))

    def _evict_here(self, count: int, client: str | None) -> None:
        """Forget producers of whoever has most, and of others if that is not enough."""
        wanted = self._rounded(count)
        own = 0 if client is None else self.count(client)
        gone = 0
        for size, owner in self._greediest():
            if size <= own + 1 or (client is not None and owner == client):
                break
            for patient in (True, False):
                if gone < count:
                    found = self._idle_of(owner, patient=patient)
                    gone += self._evict(islice(found, wanted - gone))
        if gone < count and client is not None:
            gone += self._evict_own(count - gone, client)
        if gone < count:
            for nobody in (None, COORDINATOR):
                found = self._idle_of(nobody, patient=True)
                gone += self._evict(islice(found, max(0, wanted - gone)))
        if gone < count:
            least = (
                key
                for key in islice(self._owners, _LOOKED_AT)
                if self.count(self._owners[key]) >= own and self._is_idle(key, patient=True)
            )
            self._evict(islice(least, wanted - gone))

    def _greediest(self) -> list[tuple[int, str | None]]:
        """Clients that have most here, with how many; None stands for all that nobody knows of."""
        sizes: Iterator[tuple[int, str | None]] = (
            (len(keys), client) for client, keys in self._of.items()
        )
        most = nlargest(_CLIENTS_LOOKED_AT, sizes, key=lambda each: each[0])
        most.append((self._producers.producer_count - len(self._owners), None))
        return sorted(most, key=lambda each: -each[0])

    def _rounded(self, count: int) -> int:
        return min(max(count, _AT_ONCE), count + self._limits.per_partition // _SPARE)

    def _evict(self, keys: Iterator[ProducerKey]) -> int:
        found = list(keys)
        if found:
            self._forget(found)
            self._shares.evicted_count += len(found)
            for key in found:
                self._drop(key)
        return len(found)

    # --- who is idle ------------------------------------------------------------------------------

    def _idle_of(self, client: str | None, *, patient: bool) -> Iterator[ProducerKey]:
        """Producers of a client that may be forgotten, the least recently used ones first."""
        if client is None:
            yield from self._sampled(patient=patient)
            return
        for key in list(islice(self._of.get(client, ()), _LOOKED_AT + self._rounded(1))):
            state = self._producers.state(key)
            if state is None:
                self._drop(key)
            elif not self._may_go(key, state):
                # In use, if not by a write: the next ones are looked at first from now on.
                self._of[client].move_to_end(key)
                self._owners.move_to_end(key)
            elif self._is_idle(key, patient=patient):
                yield key

    def _may_go(self, key: ProducerKey, state: State) -> bool:
        """Whether a producer may be forgotten if it is silent for long enough."""
        if not may_go(state) or state.last_offset >= self._committed():
            return False
        return key[0] not in DIALECTS or not self._shares.is_connected(self._log, key)

    def _is_idle(self, key: ProducerKey, *, patient: bool) -> bool:
        state = self._producers.state(key)
        if state is None or not self._may_go(key, state):
            return False
        silent_s = self._now() - self._of[self._owners[key]][key]
        return silent_s >= _needed_s(state, patient=patient)

    def _sampled(self, *, patient: bool) -> Iterator[ProducerKey]:
        """Of those that have not written in this leadership the ones that wrote first."""
        silent_s = self._now() - self._since
        found: list[tuple[int, ProducerKey]] = []
        count = self._producers.shard_count
        for _ in range(min(count, _SAMPLED_SHARDS)):
            self._shard = (self._shard + 1) % count
            for key, state in islice(self._producers.shard(self._shard), _SAMPLED_OF_SHARD):
                if key in self._owners or not self._may_go(key, state):
                    continue
                if silent_s >= _needed_s(state, patient=patient):
                    found.append((state.last_offset, key))
        for _, key in nsmallest(_AT_ONCE, found):
            yield key


def writers_of(data: Buffer, headers: Iterable[BatchHeader]) -> Iterator[ProducerKey]:
    """The producers of validated batches."""
    position = 0
    for header in headers:
        if header.is_extended:
            extension = read_extension(data, position)
            key = (int(extension.namespace), extension.producer_key)
            if extension.namespace is ProducerNamespace.CURSUS:
                if extension.producer_epoch != STREAM_EPOCH:
                    yield key
            elif extension.kind in DATA_KINDS and extension.producer_key != NO_WRITER:
                yield key
        elif (plain := key_of(header)) is not None:
            yield plain
        position += header.size_bytes


def _needed_s(state: State, *, patient: bool) -> float:
    """For how long a producer must have been silent to be forgotten."""
    if not isinstance(state, ProducerState) or state.coordinator_epoch < 0:
        return IDLE_S if patient else 0.0
    is_ended = not state.window or state.window[-1].last_offset < state.last_offset
    return ENDED_S if is_ended or not patient else IDLE_S
