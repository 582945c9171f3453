"""The limits that the documentation states are those of the code."""

import re
from pathlib import Path

import pytest

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
        (r"for the outputs of such a file, and of a quantised one, it is (\d+):", limits.NARROW_CAP),
        (r"rms\(residual\) / √\(mean\(s²\) \+ median\(s²\)/(\d+)\)", 1 / limits.LIFT),
    ):
        assert [float(each) for each in re.findall(pattern, text)] == [value], pattern
    assert limits.UNDETERMINED == 1 / 8
    assert "more than an eighth of its size" in text
    assert limits.MOST_UNDETERMINED == limits.LEAST_JUDGED == 0.5
    assert "When over half of an output or of a layer's values are undetermined, it is UNTESTED" in text


# Every sentence outside of the table that states a limit.
SENTENCES = (
    ("verdict.md", r"It is (\d+) noise floors over the size", limits.EQUAL_C),
    ("verdict.md", r"the cap of ([\d.]+) \(", limits.CAP),
    ("verdict.md", r"C of the output (\d+),", limits.COHERENT_RHO / limits.EQUAL_RHO * limits.EQUAL_C),
    ("verdict.md", r"up to (\d+) noise floors in a layer, and \d+ in a group", limits.EQUAL_R),
    ("verdict.md", r"up to \d+ noise floors in a layer, and (\d+) in a group", limits.EQUAL_C),
    ("verdict.md", r"ρ may reach (\d+), and C", limits.COHERENT_RHO),
    ("verdict.md", r"up to (\d+) times the noise of all layers away is EQUAL", limits.OUTPUT.equal),
    ("verdict.md", r"up to (\d+) times is DRIFT", limits.OUTPUT.drift),
    ("verdict.md", r"ρ by this larger floor must be at most (\d+)", limits.OUTPUT.equal),
    ("verdict.md", r"changes its layer by less than (\d+) noise floors", limits.VISIBLE),
    ("comparison.md", r"in which an output has ρ > (\d+)", limits.OUTPUT.equal),
    ("comparison.md", r"The limits are (\d+) for EQUAL", limits.OWN.equal),
    ("comparison.md", r"for EQUAL and (\d+) for DRIFT", limits.OWN.drift),
    ("comparison.md", r"in the worst group of values (\d+) and \d+", limits.OWN.worst_equal),
    ("comparison.md", r"in the worst group of values \d+ and (\d+)", limits.OWN.worst_drift),
    ("comparison.md", r"differ by more than (\d+) noise floors", limits.OUTPUT.equal),
    ("comparison.md", r"noise floors \((\d+) where", limits.OWN.equal),
    ("acceptable.md", r"Up to (\d+) is EQUAL", limits.OUTPUT.equal),
    ("acceptable.md", r"Above ([\d.]+) the verdict is UNTESTED", limits.CAP),
    ("noise-floor.md", r"It exceeds (\d+)² by chance", limits.EQUAL_C),
    ("noise-floor.md", r"(\d+) is the \[limit of a group\]", limits.EQUAL_C),
    ("training.md", r"It may be up to (\d+) in the worst group", limits.EQUAL_C),
    ("training.md", r"both ratios may be up to (\d+)", limits.COHERENT_RHO),
    ("training-step.md", r"limits of a ratio are (\d+) for EQUAL", limits.OWN.equal),
    ("training-step.md", r"for EQUAL and (\d+) for DRIFT", limits.OWN.drift),
    ("training-step.md", r"in the worst group of values (\d+) and \d+", limits.EQUAL_C),
    ("training-step.md", r"in the worst group of values \d+ and (\d+)", limits.DRIFT_C),
    ("evidence.md", r"The limit of a group is (\d+) and not 10", limits.EQUAL_C),
    ("evidence.md", r"group among the thousands of a model; its limit is (\d+)", limits.EQUAL_C),
)


@pytest.mark.parametrize(("page", "pattern", "limit"), SENTENCES)
def test_every_sentence_that_states_a_limit(page, pattern, limit):
    text = " ".join((DOCS / page).read_text().split())
    assert [float(each) for each in re.findall(pattern, text)] == [limit]


def test_the_chance_that_a_right_group_exceeds_its_limit():
    text = " ".join((DOCS / "noise-floor.md").read_text().split())
    [sentence] = re.findall(r"by chance with a probability of (.*?)\. A large", text)
    stated = {int(m): float(p) for p, m in re.findall(r"(\de-\d+) for m = (\d)", sentence)}
    stats = pytest.importorskip("scipy.stats")
    assert stated == {m: float(f"{stats.f.sf(limits.EQUAL_C**2, m, 2 * m):.0e}") for m in (1, 2, 4, 8)}
