"""How records get to standard output, while nodes and signals are heard."""

from __future__ import annotations

import os
import select
import stat

import trio

from paceline_cluster.cli.terminal import escaped_bytes


async def write_all(descriptor: int, data: bytes, *, raw: bool = False) -> None:
    """Write all of ``data``: escaped where a terminal would obey it, unless ``raw``.

    Where somebody reads along, it waits for him without keeping the loop from signals and nodes;
    cancelled while it waits, it has written a part.
    """
    if not raw and os.isatty(descriptor):
        data = escaped_bytes(data)
    view = memoryview(data)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        while view:
            view = view[os.write(descriptor, view) :]
        return
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    while view:
        if not ready.poll(0):
            await trio.lowlevel.wait_writable(descriptor)
        # So many bytes find room in any pipe that can be written at all.
        view = view[os.write(descriptor, view[: select.PIPE_BUF]) :]
