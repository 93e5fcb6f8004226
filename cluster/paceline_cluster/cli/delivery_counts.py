"""What became of the lines that ``produce`` handed to the producer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.client import BatchMetadata, Delivery, Portion
from paceline.errors import Closed, Outcome, PacelineError
from paceline_cluster.cli.acknowledged_file import AckedFile
from paceline_cluster.cli.input_records import Keys
from paceline_cluster.cli.output import Update


class Tally:
    """Counts acknowledgements and failures as they arrive; keeps the acknowledged-file. Of the
    failures, ``refused`` records are not stored for sure, and somebody has said why.

    ``update`` is told how many records are acknowledged or, ``in_bytes``, to how many of the bytes
    read that comes, by their number.
    """

    def __init__(
        self, acked_file: AckedFile | None, update: Update, *, in_bytes: bool = False
    ) -> None:
        self.read_bytes = 0
        self.handed = 0
        self.acked = 0
        self.failed = 0
        self.is_stopped = False
        self.first_failed_line = 0
        self.error: PacelineError | None = None
        self.refused = 0
        self.first_refused_line = 0
        self.refusal: PacelineError | None = None
        self.on_failure: Callable[[], None] | None = None
        self._file = acked_file
        self._update = update
        self._in_bytes = in_bytes
        self._uncertain = 0

    @property
    def is_reading(self) -> bool:
        """Whether lines are taken already."""
        return self.on_failure is not None

    @property
    def open(self) -> int:
        """Records of which it is not known yet what becomes of them."""
        return self.handed - self.acked - self.failed

    @property
    def unknown(self) -> int:
        """Records that may be stored although nobody acknowledged them."""
        return self.open + self._uncertain

    @property
    def given_up(self) -> int:
        """Records that were never sent, and never will be."""
        return self.failed - self._uncertain - self.refused

    def follow(self, portion: Portion, first: int, keys: Keys) -> None:
        """Count a portion's records when it is resolved; ``first`` is the line of position 0."""
        self.handed += len(portion.positions)

        def resolved() -> None:
            lines = [first + position for position in portion.positions]
            try:
                placed = portion.result()
            except PacelineError as error:
                self._failed(error, lines)
                return
            names = [None if keys is None else keys[at] for at in portion.positions]
            self._acked(placed, lines, names)

        portion.when_done(resolved)

    def follow_one(self, delivery: Delivery, line: int, key: bytes | None) -> None:
        """Count one record when it is resolved."""
        self.handed += 1

        def resolved() -> None:
            try:
                record = delivery.result()
            except PacelineError as error:
                self._failed(error, [line])
                return
            placed = BatchMetadata(
                record.topic, record.partition, record.offset, 1, record.leader_epoch, False
            )
            self._acked(placed, [line], [key])

        delivery.when_done(resolved)

    def stop(self) -> None:
        """Take no more lines: the person has had enough."""
        self.is_stopped = True
        if self.on_failure is not None:
            self.on_failure()

    def outcome(self) -> str:
        """What the first failure says of its records, in words."""
        if self.error is not None and self.error.outcome is Outcome.UNKNOWN:
            return f"{'it' if self.failed == 1 else 'they'} may be stored all the same"
        return "it is not stored" if self.failed == 1 else "they are not stored"

    def _acked(
        self, placed: BatchMetadata, lines: Sequence[int], keys: Sequence[bytes | None]
    ) -> None:
        self.acked += len(lines)
        done = self.read_bytes * self.acked // self.handed if self._in_bytes else self.acked
        self._update(done)
        if self._file is not None:
            self._file.write(
                partition=placed.partition,
                base_offset=placed.base_offset,
                leader_epoch=placed.leader_epoch,
                records=zip(lines, keys, strict=True),
            )

    def _failed(self, error: PacelineError, lines: Sequence[int]) -> None:
        self.failed += len(lines)
        if error.outcome is Outcome.UNKNOWN:
            self._uncertain += len(lines)
        elif not isinstance(error, Closed):  # that is only what becomes of the rest at the end
            self.refused += len(lines)
            if self.refusal is None:
                self.refusal, self.first_refused_line = error, lines[0]
        if self.error is None:
            self.error, self.first_failed_line = error, lines[0]
            if self.on_failure is not None:
                self.on_failure()
