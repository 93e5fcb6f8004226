"""What a checkpoint is for. Spark knows of a query only how far it is: with another archive, or
other targets, under the same checkpoint it would leave out what it takes for done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from paceline.spark.errors import OptionError
from paceline.spark.places import below, local_path
from paceline.spark.sink_ids import last_committed, last_planned

FILE, CHOICES = "paceline-job.json", "paceline-choices.json"
"""In the checkpoint's folder, beside Spark's own: what never changes, and what may between two
batches."""


def keep_purpose(checkpoint: str, job: str, facts: Mapping[str, object]) -> None:
    """Write down what a new checkpoint is for. Raises OptionError where an old one is for something
    else. Nothing is done for one that is not on a file system here."""
    folder = local_path(checkpoint)
    if folder is None:
        return
    path = folder / FILE
    known, wanted = _read(path), _plain({"job": job, **facts})
    if known is None:
        _keep(path, wanted)
    elif told := _differing(known, wanted):
        raise OptionError(
            f"{checkpoint}: this checkpoint is of another job: {told}. With another purpose a "
            "job needs a checkpoint of its own"
        )


def keep_choices(checkpoint: str, query: str, facts: Mapping[str, str]) -> None:
    """Write down by what the next batches of a query are judged, whose own checkpoint is the folder
    ``query``. Raises OptionError where one that was begun by other choices is not done yet: parts
    of it may be written. Nothing is done for a checkpoint that is not on a file system here."""
    folder = local_path(checkpoint)
    if folder is None:
        return
    path = folder / CHOICES
    known, wanted = _read(path), _plain(facts)
    if known == wanted:
        return
    place = below(checkpoint, query)
    batch = max(last_planned(place), default=-1)
    if known is not None and batch > last_committed(place):
        raise OptionError(
            f"{checkpoint}: batch {batch} was begun by other choices, and is not done: "
            f"{_differing(known, wanted)}. Finish it first with what it was begun with "
            "(--trigger now), then change that"
        )
    _keep(path, wanted)


def is_begun(checkpoint: str) -> bool:
    """Whether a query has begun with this checkpoint, as far as one can see that here."""
    folder = local_path(checkpoint)
    return folder is not None and (folder / "offsets").exists()


def _plain(facts: Mapping[str, object]) -> dict[str, object]:
    """As they come back from a file."""
    found: dict[str, object] = json.loads(json.dumps(facts))
    return found


def _read(path: Path) -> dict[str, object] | None:
    if not path.exists():
        return None
    found: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _keep(path: Path, facts: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    draft.rename(path)


def _differing(known: Mapping[str, object], wanted: Mapping[str, object]) -> str:
    names = [name for name in wanted if known.get(name) != wanted[name]]
    return ", ".join(f"{name} was {known.get(name)}, is now {wanted[name]}" for name in names)
