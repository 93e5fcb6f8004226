"""The jars of Kafka and of Spark's connector for it, in a folder that the user names."""

from __future__ import annotations

from pathlib import Path

from paceline.values import dataclass
from paceline_cluster.errors import BadSetting

CONNECTOR, BROKER = "connector", "broker"
_NEEDED = {
    CONNECTOR: (
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    ),
    BROKER: ("kafka_2.13", "kafka-clients", "kafka-server", "kafka-raft", "slf4j-api"),
}
"""Artifacts without which nothing starts; the first one is what the folder is for."""
_REMEDY = "scripts/beside-kafka/README.md says how to fill it"


@dataclass(frozen=True, slots=True)
class Jars:
    """What belongs on one class path; ``version`` is that of the artifact it is for."""

    paths: tuple[Path, ...]
    version: str

    def joined(self, separator: str) -> str:
        """All of them as one word."""
        return separator.join(map(str, self.paths))


def find(folder: Path, part: str) -> Jars:
    """The jars of CONNECTOR or BROKER: in the folder of that name below ``folder``, or in
    ``folder`` itself. Raises BadSetting."""
    below = folder / part
    place = (below if below.is_dir() else folder).resolve()
    if not place.is_dir():
        raise BadSetting(f"{folder}: no such folder; {_REMEDY}")
    paths = tuple(sorted(place.glob("*.jar")))
    versions = {artifact: _versions(artifact, paths) for artifact in _NEEDED[part]}
    missing = [artifact for artifact, found in versions.items() if not found]
    if missing:
        raise BadSetting(
            f"{place}: the {part} needs {', '.join(f'{each}-*.jar' for each in missing)}, "
            f"not among the {len(paths)} jars there; {_REMEDY}"
        )
    for artifact, found in versions.items():
        if len(found) > 1:
            raise BadSetting(
                f"{place}: {artifact} is there in the versions {', '.join(found)}; leave one"
            )
    return Jars(paths, versions[_NEEDED[part][0]][0])


def _versions(artifact: str, paths: tuple[Path, ...]) -> list[str]:
    """Of an artifact; what follows its name begins with a digit, or it is another one."""
    ends = [each.stem.removeprefix(f"{artifact}-") for each in paths]
    return [
        end for end, path in zip(ends, paths, strict=True) if end[:1].isdigit() and end != path.stem
    ]
