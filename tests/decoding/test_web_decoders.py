"""Decoders on onnxruntime-web: the export and a file are EQUAL in every way, and a fault in a file is found with its step."""

import json

import pytest
from helpers.decoderfiles import FAMILIES, changed, exported
from helpers.decoders import checks
from helpers.web import NEEDS_WEB

pytestmark = [pytest.mark.slow, NEEDS_WEB]


def decode(xverify, result, subject, *options):
    """(the exit code, the row of the result's last subject)."""
    command = ["run", str(FAMILIES / "llama"), "--task", "decode", "--subjects", subject, "--json", str(result)]
    done = xverify(*command, *options)
    assert result.is_file(), done.out + done.err
    return done.code, json.loads(result.read_text())["rows"][-1]


def test_export_is_equal_in_every_way(tmp_path, xverify):
    code, row = decode(xverify, tmp_path / "result.json", "onnxruntime-web:wasm")
    assert code == 0
    assert {"steps", "full pass, 1 thread", "padded left, steps"} <= set(checks(row))
    assert {each["verdict"] for each in checks(row).values()} == {"EQUAL"}


def test_fault_in_a_file_is_found_with_its_step_and_cause(tmp_path, xverify):
    file = exported(tmp_path)
    weights = ("--weights", str(file.with_name("weights.pt")))
    code, row = decode(xverify, tmp_path / "right.json", f"port=onnxruntime-web:{file}", *weights)
    assert code == 0
    assert {each["verdict"] for each in checks(row).values()} == {"EQUAL"}
    code, row = decode(xverify, tmp_path / "wrong.json", f"port=onnxruntime-web:{changed(file, 'late')}", *weights)
    assert code == 1
    found = checks(row)
    assert found["full pass"]["verdict"] == "EQUAL"
    wrong = next(each for each in found.values() if each["verdict"] != "EQUAL")
    assert wrong["verdict"] == "DIFFERENT"
    assert wrong["step"] is not None
    assert "it behaves as if positions after a cache were one too large" in wrong["explanation"]
    assert wrong["place"] == ""  # its environment has no torch, which computes the nodes in float64
