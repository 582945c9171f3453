"""The JSON Schema of result files, made from the records."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from .records import EARLIER_NAMES, SCHEMA_VERSION, Result

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "Result file of xverify"
SCHEMA = dict[str, Any]  # Any: any JSON values, which are changed in place


def schema() -> SCHEMA:
    """The JSON Schema that every file of ``results.file.write`` satisfies.

    Unknown fields are allowed, because later versions add fields.
    """
    (_,), definitions = msgspec.json.schema_components([Result], ref_template="#/$defs/{name}")
    for definition in definitions.values():
        for part in _parts(definition):
            _allow_null(part)
        _add_earlier_names(definition)
        definition["description"] = inspect.cleandoc(definition.get("description", ""))
    result = cast(SCHEMA, definitions["Result"])
    result["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    result["required"] = [*result["required"], "schema_version"]
    return {"$schema": DIALECT, "title": TITLE, "$ref": "#/$defs/Result", "$defs": definitions}


def _parts(value: object) -> Iterator[SCHEMA]:
    """Every object in a schema, the outer ones first."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _parts(each)


def _allow_null(part: SCHEMA) -> None:
    """Allow null for a number: it stands for infinity and NaN, which JSON cannot write."""
    if part.get("type") == "number":
        part["type"] = ["number", "null"]


def _add_earlier_names(definition: SCHEMA) -> None:
    """Add the earlier names of fields, under which a file holds the same value once more."""
    properties = definition.get("properties", {})
    for new, old in EARLIER_NAMES.items():
        if new in properties:
            properties[old] = {**properties[new], "deprecated": True, "description": f"The same as {new!r}."}
