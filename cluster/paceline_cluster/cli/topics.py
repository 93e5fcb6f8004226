"""``topic``: create, list, describe, alter, add partitions, delete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import trio
