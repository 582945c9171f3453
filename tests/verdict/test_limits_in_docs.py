"""The limits that the documentation states are those of the code."""

import re
from pathlib import Path

from xverify.verdict import limits

DOCS = Path(__file__).parents[2] / "docs"


def numbers(text):
    """The numbers after "up to" in a cell, in their order."""
    return [float(each) for each in re.findall(r"up to ([\d.]+)", text)]


def test_the_table_of_limits():
    rows = re.findall(r"^\| (EQUAL|DRIFT)[^|]*\|(.*?)\|(.*?)\|(.*?)\|$", (DOCS / "verdict.md").read_text(), re.M)
    found = {name: [numbers(cell) for cell in cells] for name, *cells in rows}
    assert found == {
        "EQUAL": [
            [limits.LAYER.equal, limits.GRADIENT.equal],
            [limits.OUTPUT.worst_equal],
            [limits.OUTPUT.equal, limits.COHERENT_RHO],
        ],
        "DRIFT": [[limits.LAYER.drift], [limits.OUTPUT.worst_drift], [limits.OUTPUT.drift]],
    }
    assert limits.LAYER.worst_equal == limits.OUTPUT.worst_equal
    assert limits.LAYER.worst_drift == limits.OUTPUT.worst_drift


def test_the_detection_limit_and_its_cap():
    text = " ".join((DOCS / "noise-floor.md").read_text().split())
    for pattern, value in (
        (r"detection limit = (\d+) × noise floor / size", limits.EQUAL_C),
        (r"detection limit is then (\d+) × noise floor / size", limits.EQUAL_RHO),
        (r"Above a detection limit of ([\d.]+),", limits.CAP),
        (r"the cap is (\d+) u:", limits.CAP_UNITS),
        (r"for the outputs of such a file it is (\d+)\.", limits.NARROW_CAP),
        (r"rms\(residual\) / √\(mean\(s²\) \+ median\(s²\)/(\d+)\)", 1 / limits.LIFT),
    ):
        assert [float(each) for each in re.findall(pattern, text)] == [value], pattern
    assert limits.UNDETERMINED == 1 / 8
    assert "more than an eighth of its size" in text
    assert limits.MOST_UNDETERMINED == limits.LEAST_JUDGED == 0.5
    assert "When over half of an output or of a layer's values are undetermined, it is UNTESTED" in text
