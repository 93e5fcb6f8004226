"""The compressors that users registered for Cursus (wire/cursus/DESIGN 2.4): by entry point, or by
call."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points

from paceline.errors import ConfigurationError
from paceline.wire.cursus.compression import CompressorRegistry, CursusCompressor

GROUP = "paceline.cursus.compressors"
"""Entry points of this group name a compressor: the object, or a class to make it of."""


def chosen(
    names: Sequence[str], registry: CompressorRegistry | None
) -> tuple[CursusCompressor, ...]:
    """Those that setting ``cursus.compressors`` names, out of ``registry``; None stands for the
    installed entry points. Raises ConfigurationError."""
    if not names:
        return ()
    return (registry or _installed(names)).named(names)


def _installed(names: Sequence[str]) -> CompressorRegistry:
    registry = CompressorRegistry()
    points = {point.name: point for point in entry_points(group=GROUP)}
    for name in names:
        point = points.get(name)
        if point is None:
            raise ConfigurationError(
                f"cursus.compressors: {name!r} is no entry point of group {GROUP}; "
                f"installed: {', '.join(sorted(points)) or 'none'}"
            )
        try:
            loaded = point.load()
            registry.register(loaded() if isinstance(loaded, type) else loaded)
        except Exception as error:
            # Whatever a user's module raises, the setting that names it is what to look at.
            raise ConfigurationError(f"cursus.compressors: {point.value}: {error}") from error
    return registry
