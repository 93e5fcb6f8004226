"""What a checkpoint is for. Spark knows of a query only how far it is: with another archive, or
other targets, under the same checkpoint it would leave out what it takes for done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from paceline.spark.errors import OptionError
from paceline.spark.places import local_path

FILE = "paceline-job.json"
"""In the checkpoint's folder, beside Spark's own."""


def keep_purpose(checkpoint: str, job: str, facts: Mapping[str, object]) -> None:
    """Write down what a new checkpoint is for. Raises OptionError where an old one is for something
    else. Nothing is done for one that is not on a file system here."""
    folder = local_path(checkpoint)
    if folder is None:
        return
    wanted = json.loads(json.dumps({"job": job, **facts}))
    path = folder / FILE
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        if told := _differing(known, wanted):
            raise OptionError(
                f"{checkpoint}: this checkpoint is of another job: {told}. With another purpose a "
                "job needs a checkpoint of its own"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{FILE}.new"
    draft.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
    draft.rename(path)


def is_begun(checkpoint: str) -> bool:
    """Whether a query has begun with this checkpoint, as far as one can see that here."""
    folder = local_path(checkpoint)
    return folder is not None and (folder / "offsets").exists()


def _differing(known: Mapping[str, object], wanted: Mapping[str, object]) -> str:
    names = [name for name in wanted if known.get(name) != wanted[name]]
    return ", ".join(f"{name} was {known.get(name)}, is now {wanted[name]}" for name in names)
