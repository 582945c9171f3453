"""The JSON Schema of result files: the published file is the current one, and it accepts what is written and no more."""

import copy
import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from conftest import write_folder
from helpers.sampleresults import RESULT, earlier

from xverify.commands._main import main
from xverify.results.records import EARLIER_NAMES
from xverify.results.schema import schema

PUBLISHED = Path(__file__).parents[2] / "docs" / "result-schema.json"
VALIDATOR = jsonschema.Draft202012Validator(schema())


def wrong(values):
    return [f"{error.json_path}: {error.message[:200]}" for error in VALIDATOR.iter_errors(values)]


def test_the_published_schema_is_the_one_that_the_command_prints(capsys):
    assert main(["schema"]) == 0
    assert PUBLISHED.read_text() == capsys.readouterr().out, "run xverify schema > docs/result-schema.json"


def test_it_is_a_valid_schema():
    jsonschema.Draft202012Validator.check_schema(schema())


def test_a_written_result_is_valid():
    assert wrong(RESULT.to_dict()) == []


def test_a_result_of_an_earlier_version_is_valid():
    assert wrong(earlier(RESULT.to_dict())) == []


def test_numbers_that_json_cannot_write_are_valid():
    row = RESULT.rows[0]
    speed = replace(row.speed, fps=math.nan, seconds_per_step=math.inf, ratio=-math.inf)
    values = replace(RESULT, rows=(replace(row, speed=speed),)).to_dict()
    assert values["rows"][0]["speed"]["fps"] is None
    assert wrong(values) == []


def test_the_file_of_a_real_run_with_a_failed_row_is_valid(xverify, tmp_path):
    done = xverify(
        "run",
        write_folder(tmp_path / "port", ("numpy", "breaks")),
        "--subjects",
        "numpy,breaks",
        "--warmup",
        "1",
        "--rerun",
        "4",
    )
    assert done.code == 3
    assert done.row("breaks")["status"] == "crashed"
    assert wrong(done.result) == []


def test_unknown_fields_are_allowed():
    values = RESULT.to_dict() | {"new": 1}
    values["rows"][0]["new"] = [1]
    assert wrong(values) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda values: values.update(verdict="MAYBE"), "$.verdict"),
        (lambda values: values.update(schema_version=2), "$.schema_version"),
        (lambda values: values.pop("schema_version"), "$"),
        (lambda values: values.pop("rows"), "$"),
        (lambda values: values["rows"][0].update(batch="many"), "$.rows[0].batch"),
        (lambda values: values["rows"][0]["speed"].update(fps="fast"), "$.rows[0].speed"),
        (lambda values: values["rows"][0]["speed"]["samples"][0].update(calls=None), "$.rows[0].speed"),
        (lambda values: values["rows"][1]["training"].update(rungs=3), "$.rows[1].training"),
    ],
)
def test_a_wrong_file_is_not_valid(change, place):
    values = copy.deepcopy(RESULT.to_dict())
    change(values)
    assert [error.json_path for error in VALIDATOR.iter_errors(values)] == [place]


def test_every_field_of_a_written_file_is_in_the_schema():
    """Unknown fields are allowed, so a field that the schema lacks would be valid without a check."""
    definitions = schema()["$defs"]

    def unknown(values, definition):
        for name, value in values.items():
            if name not in definition["properties"]:
                yield name
            kind = definition["properties"].get(name, {}).get("$ref", "").rpartition("/")[2]
            if kind and isinstance(value, dict):
                yield from unknown(value, definitions[kind])

    values = json.loads(json.dumps(RESULT.to_dict()))
    assert list(unknown(values, definitions["Result"])) == []
    assert list(unknown(values["rows"][1]["training"], definitions["Training"])) == []
    assert set(EARLIER_NAMES.values()) <= set(definitions["Training"]["properties"])
