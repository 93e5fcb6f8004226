"""A V1 client over a plain blocking socket, as small as the protocol allows."""

from __future__ import annotations

import re
import socket
from types import TracebackType
from typing import Self
from urllib.parse import quote, unquote_to_bytes

ANSWER_S = 10.0
"""The protocol promises an answer within 4 s; this bounds a hang."""


class V1Error(Exception):
    """An ``ERR`` reply."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}|{message}")
        self.code = code
        self.message = message


class V1Client:
    """One connection; requests one at a time. Raises OSError when the connection breaks."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=ANSWER_S)
        self._reader = self._socket.makefile("rb")
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def send_line(self, line: str) -> str:
        """Send raw text as one line and return the reply line as it is, without its LF."""
        self._socket.sendall(line.encode() + b"\n")
        return self.read_line()

    def read_line(self) -> str:
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the node closed the connection without an answer")
        return line[:-1].decode()

    def call(self, command: str, arguments: str) -> str:
        """The payload of an ``OK`` reply. Raises V1Error."""
        self._correlation += 1
        reply = self.send_line(f"V1|{self._correlation}|{command}|{arguments}")
        version, correlation, status, rest = (reply + "|").split("|", 3)
        assert version == "V1", reply
        assert correlation in (str(self._correlation), "0"), reply
        rest = rest.removesuffix("|")
        if status != "OK":
            code, _, message = rest.partition("|")
            raise V1Error(code, message)
        return rest

    def produce(self, topic: str, key: bytes, value: bytes, acks: str = "all") -> tuple[int, int]:
        """(partition, offset) of an acknowledged record."""
        message = f"{escape(key)}:{escape(value)}"
        payload = self.call("PRODUCE", f"{topic} {message} acks={acks} enc=pct")
        facts = fields(payload)
        return int(facts["partition"]), int(facts["offset"])

    def consume(self, topic: str, partition: int, offset: int) -> list[tuple[int, bytes, bytes]]:
        """(offset, key, value) of the committed records from ``offset`` on that fit one reply."""
        payload = self.call("CONSUME", f"{topic} {partition} {offset} enc=pct keys=1")
        items = fields(payload)["messages"]
        records = []
        for item in filter(None, items.split(",")):
            number, key, value = item.split(":")
            records.append((int(number), unquote_to_bytes(key), unquote_to_bytes(value)))
        return records

    def consume_all(self, topic: str, partition: int) -> list[tuple[int, bytes, bytes]]:
        """Every committed record of a partition."""
        records: list[tuple[int, bytes, bytes]] = []
        while True:
            following = records[-1][0] + 1 if records else 0
            batch = self.consume(topic, partition, following)
            if not batch:
                return records
            records += batch


def escape(data: bytes) -> str:
    """``enc=pct``: letters, digits and ``-._~`` as they are, the rest as %XX."""
    return quote(data, safe="")


def fields(payload: str) -> dict[str, str]:
    """``name=value`` pairs of a payload; a list in brackets is one value."""
    return dict(re.findall(r"(\w+)=(\[[^\]]*\]|\S*)", payload))
