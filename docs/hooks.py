"""What MkDocs asks while it builds: the reference, which is made from the code and never stored."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from docs.reference import PAGES


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file holds."""
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files
