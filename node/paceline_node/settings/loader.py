"""Finding the values: defaults < TOML file < environment < flags, all errors at once.

Environment: ``PACELINE_LOG__SEGMENT_BYTES`` sets ``log.segment_bytes``, ``PACELINE_LISTENERS`` the
listeners; the FLUX_ names of ``aliases.py`` come below them. Flags: ``log.segment_bytes=1048576``.
Lists are TOML arrays, or text with commas; times and sizes may have units (``"7d"``). Each value is
converted leaf by leaf, so that every bad one is reported, each with where it came from.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from paceline.errors import ConfigurationError
from paceline.oauthbearer import OAUTHBEARER
from paceline.scram import SASL_MECHANISMS
from paceline.values import dataclass
from paceline_node.settings.addresses import ClientAuth, Listener, ListenerKind
from paceline_node.settings.aliases import read_aliases
from paceline_node.settings.fields import BadValue, Spec, convert, in_units, spec_of
from paceline_node.settings.tree import Settings, Timing

PREFIX = "PACELINE_"
PLANNED = "for this cluster"
"""Where a value comes from that no file holds yet."""


class InvalidSettings(ConfigurationError):
    """One or more settings are wrong; ``problems`` has a sentence for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One setting: its dotted key, type, specification and place in the tree."""

    key: str
    kind: Any
    spec: Spec
    default: object

    @property
    def unit(self) -> str:
        """What it is a number of, as its name says: ``ms``, ``bytes``, or nothing of that kind."""
        name = self.key.rpartition(".")[2]
        if name.endswith("_ms"):
            return "ms"
        return "bytes" if "_bytes" in name else ""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as somebody wrote it. ``name`` is what they call it, ``source`` where it stands."""

    value: object
    name: str
    source: str


def leaves() -> Iterator[Leaf]:
    """Every setting, in the order of the tree."""
    for part, kind in _typed_fields(Settings):
        if isinstance(kind, type) and is_dataclass(kind):
            for inner, inner_kind in _typed_fields(kind):
                yield _leaf(f"{part.name}.{inner.name}", inner, inner_kind)
        else:
            yield _leaf(part.name, part, kind)


def load(
    *,
    file: Path | None = None,
    planned: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> Settings:
    """The settings of a node. Raises InvalidSettings with everything that is wrong.

    ``planned`` is what a file would hold that is not written yet.
    """
    problems: list[str] = []
    given: dict[str, Given] = {}
    known = {leaf.key: leaf for leaf in leaves()}
    beneath = _flat(planned or {}, PLANNED)
    for key, entry in (*beneath, *_everything(file, environ or {}, flags, problems)):
        if key in known:
            given[key] = entry
        else:
            problems.append(
                f"unknown setting {entry.name}{_suggestion(key, known)} ({entry.source})"
            )
    values = _converted(known, given, problems)
    if problems:
        raise InvalidSettings(problems)
    settings = _built(values)
    problems.extend(_contradictions(settings, given))
    if problems:
        raise InvalidSettings(problems)
    return settings


def _everything(
    file: Path | None, environ: Mapping[str, str], flags: Sequence[str], problems: list[str]
) -> Iterator[tuple[str, Given]]:
    """All that is given, later entries before earlier ones in rank."""
    if file is not None:
        yield from _from_file(file, problems)
    aliases, wrong = read_aliases(environ)
    problems.extend(wrong)
    for key, name, value in aliases:
        yield key, Given(value, name, "environment")
    for name in sorted(environ):
        variable = _variable_key(name)
        if variable is not None:
            yield variable, Given(environ[name], name, "environment")
    for flag in flags:
        key, equals, value = flag.partition("=")
        if equals:
            yield key.strip(), Given(value, key.strip(), "command line")
        else:
            problems.append(f"{flag!r} is not KEY=VALUE (command line)")


def _variable_key(name: str) -> str | None:
    if not name.startswith(PREFIX):
        return None
    rest = name.removeprefix(PREFIX)
    section, separator, field = rest.partition("__")
    if separator:
        return f"{section.lower()}.{field.lower()}"
    return "listeners" if rest == "LISTENERS" else None


def _from_file(file: Path, problems: list[str]) -> Iterator[tuple[str, Given]]:
    try:
        with file.open("rb") as stream:
            document = tomllib.load(stream)
    except OSError as error:
        problems.append(f"cannot read {file}: {error.strerror}")
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{file} is not TOML: {error}")
        return
    yield from _flat(document, str(file))


def _flat(document: Mapping[str, Any], source: str) -> Iterator[tuple[str, Given]]:
    for name, value in document.items():
        if not isinstance(value, dict):
            yield name, Given(value, name, source)
            continue
        for inner, inner_value in value.items():
            key = f"{name}.{inner}"
            yield key, Given(inner_value, key, source)


def _converted(
    known: Mapping[str, Leaf], given: Mapping[str, Given], problems: list[str]
) -> dict[str, object]:
    values: dict[str, object] = {}
    timing = Timing.PRODUCTION
    for key in sorted(known, key=lambda key: key != "cluster.timing"):
        leaf, entry = known[key], given.get(key)
        if entry is None:
            values[key] = leaf.spec.local if timing is Timing.LOCAL else leaf.default
            continue
        try:
            values[key] = convert(leaf.kind, leaf.spec, in_units(leaf.unit, entry.value))
        except BadValue as error:
            problems.append(f"invalid {entry.name}: {error} ({entry.source})")
            continue
        if key == "cluster.timing" and isinstance(values[key], Timing):
            timing = Timing(values[key])
    return values


def _built(values: Mapping[str, object]) -> Settings:
    arguments: dict[str, Any] = {}
    for part, kind in _typed_fields(Settings):
        if isinstance(kind, type) and is_dataclass(kind):
            inner = {f.name: values[f"{part.name}.{f.name}"] for f in fields(kind)}
            arguments[part.name] = kind(**inner)
        else:
            arguments[part.name] = values[part.name]
    return Settings(**arguments)


def _contradictions(settings: Settings, given: Mapping[str, Given]) -> list[str]:
    """Values that are each fine but not together."""
    topics, broker, replication = settings.topics, settings.broker, settings.replication
    rules = [
        (
            topics.min_insync_replicas > topics.replication_factor,
            ("topics.min_insync_replicas", "topics.replication_factor"),
            f"{topics.min_insync_replicas} in-sync replicas of {topics.replication_factor}",
        ),
        (
            broker.session_ms < 2 * broker.heartbeat_ms,
            ("broker.session_ms", "broker.heartbeat_ms"),
            (
                f"a session of {broker.session_ms} ms needs heartbeats of at most half of it, "
                f"not {broker.heartbeat_ms} ms"
            ),
        ),
        (
            settings.raft.election_ms < 2 * settings.raft.heartbeat_ms,
            ("raft.election_ms", "raft.heartbeat_ms"),
            (
                f"elections after {settings.raft.election_ms} ms need heartbeats of at most half "
                f"of it, not {settings.raft.heartbeat_ms} ms"
            ),
        ),
        (
            settings.raft.voters % 2 == 0,
            ("raft.voters",),
            f"{settings.raft.voters} voters bear no more losses than {settings.raft.voters - 1}",
        ),
        (
            replication.backoff_min_ms > replication.backoff_max_ms,
            ("replication.backoff_min_ms", "replication.backoff_max_ms"),
            (
                f"a pause of at least {replication.backoff_min_ms} and at most "
                f"{replication.backoff_max_ms} ms"
            ),
        ),
    ]
    found = []
    for broken, keys, text in rules:
        if broken:
            found.append(f"invalid {_names(keys, given)}: {text}{_sources(keys, given)}")
    found.extend(_listener_problems(settings.listeners, given))
    found.extend(_tls_problems(settings, given))
    for key, text in settings.oauth.problems():
        found.append(f"invalid {_names((key,), given)}: {text}{_sources((key,), given)}")
    mechanisms = (*SASL_MECHANISMS, OAUTHBEARER)
    unknown = sorted(set(settings.login.mechanisms) - set(mechanisms))
    if unknown:
        known = ", ".join(mechanisms)
        sources = _sources(("login.mechanisms",), given)
        found.append(f"invalid login.mechanisms: {unknown[0]!r} is none of {known}{sources}")
    return found


def _tls_problems(settings: Settings, given: Mapping[str, Given]) -> Iterator[str]:
    """What encrypted listeners lack."""
    tls = settings.tls
    encrypted = [listener for listener in settings.listeners if listener.tls]
    asking = [each for each in encrypted if settings.client_auth(each) is not ClientAuth.NONE]
    has_peers = any(each.kind is ListenerKind.PEER for each in encrypted)
    needs = (
        (encrypted, "a +tls listener", "tls.certificate", "tls.key"),
        (has_peers, "peer+tls", "tls.peer_authority"),
        (has_peers and tls.peer_certificate, "tls.peer_certificate", "tls.peer_key"),
        (asking, "who asks clients for certificates", "tls.client_authorities"),
    )
    for holds, what, *keys in needs:
        if holds and not all(getattr(tls, key.removeprefix("tls.")) for key in keys):
            sources = _sources(("listeners", *keys), given)
            yield f"invalid listeners: {what} needs {' and '.join(keys)}{sources}"
    for each in encrypted:
        if each.plain_too and settings.client_auth(each) is ClientAuth.REQUIRED:
            sources = _sources(("listeners", "tls.client_auth"), given)
            yield f"invalid listeners: {each}: who need not encrypt shows no certificate{sources}"


def _listener_problems(listeners: Sequence[Listener], given: Mapping[str, Given]) -> Iterator[str]:
    if not listeners:
        return
    sources = _sources(("listeners",), given)
    kinds = [listener.kind for listener in listeners]
    for kind in ListenerKind:
        if kinds.count(kind) > 1:
            yield f"invalid listeners: {kinds.count(kind)} of scheme {kind.value}{sources}"
    for needed in (ListenerKind.NATIVE, ListenerKind.PEER):
        if needed not in kinds:
            yield f"invalid listeners: a node needs a {needed.value}:// listener{sources}"
    taken: dict[int, Listener] = {}
    for listener in listeners:
        other = taken.setdefault(listener.port, listener) if listener.port else listener
        if other is not listener:
            yield f"invalid listeners: {other} and {listener} share a port{sources}"


def _names(keys: Sequence[str], given: Mapping[str, Given]) -> str:
    return " and ".join(given[key].name if key in given else key for key in keys)


def _sources(keys: Sequence[str], given: Mapping[str, Given]) -> str:
    parts = [given[key].source if key in given else "default" for key in keys]
    return f" ({', '.join(dict.fromkeys(parts))})"


def _suggestion(key: str, known: Mapping[str, Leaf]) -> str:
    close = difflib.get_close_matches(key, known, n=1) or [
        each for each in known if each.rpartition(".")[2] == key.rpartition(".")[2]
    ]
    return f", did you mean {close[0]}?" if close else ""


def _typed_fields(kind: type[Any]) -> list[tuple[Field[Any], Any]]:
    hints = get_type_hints(kind)
    return [(field, hints[field.name]) for field in fields(kind)]


def _leaf(key: str, field: Field[Any], kind: Any) -> Leaf:
    return Leaf(key, kind, spec_of(field.metadata), field.default)
