"""Answers of a node's API, held against the description that the node itself serves."""

from __future__ import annotations

import copy
import re
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

JSON = "application/json"


class Described:
    """An OpenAPI document. It allows fields to be added; here none is allowed that it does not
    name, so that nothing is shown that nobody described."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        closed = copy.deepcopy(document["components"])
        _close(closed["schemas"])
        self._components = closed

    def check(self, path: str, status: int, body: object) -> None:
        """Raise ValidationError unless a page of that path may be answered so."""
        responses = self._operation(path)["responses"]
        found = responses.get(str(status), responses["default"])
        self.check_schema(found["content"][JSON]["schema"]["$ref"].rpartition("/")[2], body)

    def check_schema(self, name: str, body: object) -> None:
        """Raise ValidationError unless the document is of that schema."""
        schema = {"$ref": f"#/components/schemas/{name}", "components": self._components}
        Draft202012Validator(schema, format_checker=FormatChecker()).validate(body)

    def fields(self, name: str) -> set[str]:
        """Of a schema's objects."""
        return set(self.document["components"]["schemas"][name]["properties"])

    def _operation(self, path: str) -> Any:
        path = path.partition("?")[0]
        paths = self.document["paths"]
        for template, item in paths.items():
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
                return item["get"]
        # A page that is not there is answered as any that is described would be.
        return paths["/api/topics"]["get"]


def _close(schema: object) -> None:
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            schema.setdefault("additionalProperties", False)
        for each in schema.values():
            _close(each)
    elif isinstance(schema, list):
        for each in schema:
            _close(each)
