"""What we write is what two codecs of others read, and write again, byte for byte.

kafka-python's codec works from the published message definitions in every version; kio from those
that current brokers still serve.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any

import kio.index
import kio.schema.errors
import kio.serial
import pytest
from kafka.protocol.api_message import ApiMessage

from paceline.wire.kafka.apis import API_VERSIONS, APIS, Api
from paceline.wire.kafka.layout import Struct
from paceline.wire.kafka.writing import write_struct
from tests.unit.wire_kafka.values import Values

ERRORS = tuple(code.value for code in kio.schema.errors.ErrorCode)
LONGEST_MS = 1_000_000_000  # kio holds times as timedelta
MESSAGES_EACH = 20


def layouts() -> list[Any]:
    return [
        pytest.param(api, version, message, id=f"{message.__name__}-{version}")
        for api in APIS.values()
        for version in range(api.first, api.last + 1)
        for message in (api.request, api.response)
    ]


def messages(api: Api, version: int, message: type[Struct]) -> Iterator[bytes]:
    errors = (0,) if api.key == API_VERSIONS else ERRORS  # otherwise it is read as version 0
    values = Values(random.Random(api.key * 100 + version), errors=errors, longest_ms=LONGEST_MS)
    for _ in range(MESSAGES_EACH):
        out = bytearray()
        value = values.message(message, version)
        write_struct(out, value, version, flexible=api.is_flexible(version))
        yield bytes(out)


def _subclasses(cls: type) -> Iterator[type]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer  # noqa: F401  loading them registers the classes

    return {cls.__name__: cls for cls in _subclasses(ApiMessage)}


@pytest.mark.parametrize(("api", "version", "message"), layouts())
def test_against_kafka_python(
    api: Api, version: int, message: type[Struct], theirs: dict[str, Any]
) -> None:
    other = theirs[message.__name__]
    for data in messages(api, version, message):
        read = other.decode(data, version=version)
        read._header = None  # what it reads without a header it cannot write otherwise
        assert read.encode(version=version) == data


@pytest.mark.parametrize(("api", "version", "message"), layouts())
def test_against_kio(api: Api, version: int, message: type[Struct]) -> None:
    load = (
        kio.index.load_request_schema if message is api.request else kio.index.load_response_schema
    )
    try:
        other = load(api.key, version)
    except kio.index.UnknownEntity:
        pytest.skip("kio does not know this version")
    for data in messages(api, version, message):
        read, size = kio.serial.entity_reader(other)(data, 0)
        assert size == len(data)
        out = io.BytesIO()
        kio.serial.entity_writer(other)(out, read)
        assert out.getvalue() == data
