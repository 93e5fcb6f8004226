"""Compressors of Cursus as installed packages name them: entry points."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from paceline.errors import ConfigurationError
from paceline_node.app.compressors import GROUP, chosen

MODULE = """
import zlib


class Deflate:
    name = "deflate"

    def compress(self, data):
        return zlib.compress(data)

    def decompress(self, data):
        return zlib.decompress(data)


class Broken(Deflate):
    def __init__(self):
        raise RuntimeError("no licence")


made = Deflate()
made.name = "made"
"""
POINTS = f"""[{GROUP}]
deflate = shop_compressors:Deflate
made = shop_compressors:made
broken = shop_compressors:Broken
absent = shop_compressors:Absent
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package on the path, as pip leaves one."""
    (tmp_path / "shop_compressors.py").write_text(MODULE)
    info = tmp_path / "shop_compressors-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-compressors\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(tmp_path)


def test_classes_and_objects_in_the_order_of_the_setting() -> None:
    found = chosen(["made", "deflate"], None)
    assert [each.name for each in found] == ["made", "deflate"]
    for each in found:
        assert each.decompress(zlib.compress(b"batch")) == b"batch"


@pytest.mark.parametrize(
    ("name", "named"),
    [("broken", "no licence"), ("absent", "Absent"), ("unknown", "unknown")],
)
def test_what_cannot_be_had_is_named(name: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"cursus\.compressors.*{named}"):
        chosen(["deflate", name], None)


def test_nothing_is_loaded_that_the_setting_does_not_name() -> None:
    assert chosen([], None) == ()
