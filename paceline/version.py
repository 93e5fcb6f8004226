"""The version of everything in this distribution; changes with ``pyproject.toml``."""

__version__ = "0.1.0"
