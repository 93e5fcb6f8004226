"""The description of the API: a valid one, of the pages that there are, in the words of the
commands."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import ValidationError
from openapi_spec_validator import validate

from docs.reference import outputs
from docs.reference.shapes import Shape
from paceline_node.http.api.openapi import document
from paceline_node.http.api.pages import DESCRIPTION
from tests.openapi import Described
from tests.unit.http.api_routes import table


@pytest.fixture(scope="module")
def described() -> Described:
    return Described(document())


def test_it_is_an_openapi_document(described: Described) -> None:
    validate(described.document)


def test_a_wrong_one_is_found(described: Described) -> None:
    wrong = {**described.document, "paths": {"/api/topics": {"get": {"responses": 3}}}}
    with pytest.raises(Exception, match="3 is not of type"):
        validate(wrong)


def test_it_has_every_page_and_parameter(described: Described) -> None:
    paths = described.document["paths"]
    assert {each.template for each in table()} | {"/ready"} == set(paths)
    for route in table():
        parameters = paths[route.template]["get"]["parameters"]
        named = {each["name"] for each in parameters if each["in"] == "path"}
        assert all(f"{{{name}}}" in route.template for name in named), route.template
        assert route.template.count("{") == len(named), route.template
        said = {each["name"] for each in parameters if each["in"] == "query"}
        assert said == route.parameters, route.template
    assert DESCRIPTION not in paths


@pytest.mark.parametrize(
    ("command", "name", "only_here"),
    [
        ("topic list", "Topics", {"next", "stale", "hidden"}),
        ("topic describe", "Topic", {"next"}),
        ("group list", "Groups", {"next", "stale", "hidden"}),
        ("group describe", "Group", {"next"}),
        ("quorum describe", "Quorum", set()),
        ("transaction list", "Transactions", {"next"}),
        ("health", "Health", set()),
    ],
)
def test_documents_are_those_of_the_commands(
    described: Described, command: str, name: str, only_here: set[str]
) -> None:
    shape = outputs.OUTPUTS[command]
    one = shape[0] if isinstance(shape, tuple) else shape
    assert isinstance(one, dict)
    schema = described.document["components"]["schemas"][name]
    properties = {key: item for key, item in schema["properties"].items() if key not in only_here}
    assert _differences({**schema, "properties": properties}, one, described) == []


def test_an_error_is_that_of_the_commands(described: Described) -> None:
    error = described.document["components"]["schemas"]["Error"]
    assert _differences(error, outputs.FAILURE, described) == []


_WORDS = {"text": "string", "integer": "integer", "number": "number", "flag": "boolean"}


def _differences(schema: dict[str, Any], shape: Shape, described: Described) -> list[str]:
    """Where a schema is not what the page on JSON output says, in depth."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = described.document["components"]["schemas"][name]
    if isinstance(shape, tuple):
        null, shape = shape
        assert null == "null"
        if schema["type"][1:] != [null]:
            return [f"{schema} may not be null"]
    if isinstance(shape, str):
        wanted: object = _WORDS[shape.removesuffix("?")]
        wanted = [wanted, "null"] if shape.endswith("?") else wanted
        return [] if schema["type"] == wanted else [f"{schema} is not {shape}"]
    if isinstance(shape, list):
        return _differences(schema["items"], shape[0], described)
    assert isinstance(shape, dict)
    if list(shape) == ["*"]:
        return _differences(schema["additionalProperties"], shape["*"], described)
    properties = schema["properties"]
    found = [f"{name} differs" for name in shape.keys() ^ properties.keys()]
    for name in shape.keys() & properties.keys():
        found += _differences(properties[name], shape[name], described)
    return found


def test_what_is_not_described_is_found(described: Described) -> None:
    error = {"error": {"code": "NOT_FOUND", "message": "no", "hint": None}}
    described.check("/api/nothing", 404, error)
    for wrong in (
        {"error": "no"},
        {"error": {"code": "NOT_FOUND", "message": "no"}},
        {**error, "more": 1},
    ):
        with pytest.raises(ValidationError):
            described.check("/api/nothing", 404, wrong)
