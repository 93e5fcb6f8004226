"""Clients that run on asyncio, from a thread of their own."""

from __future__ import annotations

import asyncio
import gc
import traceback
import warnings
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def through_asyncio(work: Coroutine[Any, Any, T], limit_s: float) -> T:
    """What ``work`` returns, or raises. aiokafka leaves transports open, of a refused log-in for
    one: they are collected here, or whatever test comes next would be told of them."""
    try:
        return asyncio.run(asyncio.wait_for(work, limit_s))
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
