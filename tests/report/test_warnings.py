"""A DRIFT is no plain PASS, and a condition of --accept that does not hold is a failure, in every report."""

from dataclasses import replace

import junitparser
import pytest
from helpers.htmlpages import Page
from helpers.sampleresults import FORWARD, RESULT, of_files

from xverify.report import html, junit, markdown
from xverify.results.figures import Figures
from xverify.results.file import write
from xverify.results.verdicts import Outcome, Verdict

EQUAL = replace(FORWARD, subject="flax", error=replace(FORWARD.error, verdict=Verdict.EQUAL, reason=None, layers=None))
DRIFT = replace(EQUAL, subject="jax", error=replace(EQUAL.error, verdict=Verdict.DRIFT))


def passed(*rows):
    return replace(RESULT, tasks=("forward",), verdict=Outcome.PASS, rows=rows)


def gated(top1, holds):
    """A check of a file that differs, whose figures decide."""
    says = f"--accept decides: top1>=0.9 {'holds' if holds else 'does not hold'}: {top1:g} (logits)"
    runtime, conversion = of_files().rows
    conversion = replace(conversion, figures={"logits": Figures(top1=top1, sqnr=31.25)}, notes=(says,))
    notes = () if holds else (f"model.onnx: top1>=0.9: top1 of logits is {top1:g}",)
    verdict = Outcome.PASS if holds else Outcome.FAIL
    return replace(of_files(), rows=(runtime, conversion), verdict=verdict, notes=notes)


def suite(result):
    [found] = junitparser.JUnitXml.fromstring(junit.report([result]).encode())
    return found


@pytest.mark.parametrize(
    ("rows", "says"), [((EQUAL, DRIFT), "PASS, 1 warning"), ((DRIFT, DRIFT, EQUAL), "PASS, 2 warnings")]
)
def test_a_drift_is_a_warning_in_every_report_and_passes(rows, says, xverify, tmp_path):
    result = passed(*rows)
    write(result, tmp_path / "r.json")
    done = xverify("report", tmp_path / "r.json", "--html", tmp_path / "page.html")
    assert done.code == 0
    assert f"{says} mlp: " in xverify("report", tmp_path / "r.json").out.splitlines()[-1]
    assert says in Page((tmp_path / "page.html").read_text()).text
    assert markdown.report([result]).startswith(f"## {says}: mlp")
    assert result.to_dict()["verdict"] == "PASS"
    found = suite(result)
    assert (found.failures, found.errors) == (0, 0)
    assert found._elem.find("system-out").text.splitlines()[0] == says
    assert [case.system_out for case in found if case.name == "jax"] == ["DRIFT: a warning"] * rows.count(DRIFT)


def test_several_results_count_their_warnings_together():
    assert markdown.report([passed(DRIFT), passed(EQUAL, DRIFT)]).startswith("# PASS, 2 warnings: 2 results")
    failed = replace(passed(FORWARD, DRIFT), verdict=Outcome.FAIL)
    assert markdown.report([passed(DRIFT), failed]).startswith("# FAIL: 2 results")


def test_a_pass_without_a_drift_is_a_plain_pass():
    assert markdown.report([passed(EQUAL)]).startswith("## PASS: mlp")
    assert suite(passed(EQUAL))._elem.find("system-out").text.splitlines()[0] == "PASS"


def test_the_last_line_counts_the_rows_that_miss_their_condition(xverify, tmp_path):
    for holds, says in ((True, "1 DIFFERENT; "), (False, "1 DIFFERENT, 1 misses its condition; ")):
        write(gated(0.95 if holds else 0.5, holds), tmp_path / "r.json")
        assert says in xverify("report", tmp_path / "r.json").out.splitlines()[-1]


def test_a_drift_that_the_figures_accept_is_no_warning():
    result = gated(0.95, holds=True)
    rows = [replace(row, error=replace(row.error, verdict=Verdict.DRIFT)) for row in result.rows[1:]]
    assert markdown.report([replace(result, rows=tuple(rows))]).startswith("## PASS: ")


def test_a_condition_that_does_not_hold_is_a_failure_with_its_figures_in_junit():
    runtime, conversion, *layers = suite(gated(0.5, holds=False))
    assert runtime.result == []
    [failure] = conversion.result
    assert isinstance(failure, junitparser.Failure)
    assert (failure.type, failure.message) == ("--accept", "--accept: top1>=0.9 does not hold: 0.5 (logits)")
    figures = {each.get("name"): each.get("value") for each in conversion._elem.iter("property")}
    assert (figures["top1 of logits"], figures["sqnr of logits"]) == ("0.5", "31.25")
    assert [each.name for each in layers] == ["layer fc2"]


def test_conditions_that_hold_for_one_file_accept_it_where_another_one_fails():
    accepted, failed = gated(0.95, holds=True), gated(0.5, holds=False)
    rows = (accepted.rows[1], *(replace(row, subject="other.onnx") for row in failed.rows))
    found = {(case.name, case.classname): case for case in suite(replace(failed, rows=rows))}
    assert found["model.onnx", "model.onnx.conversion"].result == []
    assert isinstance(found["other.onnx", "model.onnx.conversion"].result[0], junitparser.Failure)


def test_a_condition_that_does_not_hold_is_the_headline_of_the_page():
    text = " ".join(Page(html.page([gated(0.5, holds=False)])).text.split())
    assert "model.onnx, conversion misses its condition: top1>=0.9 does not hold: 0.5 (logits)" in text


def test_a_page_where_all_is_right_says_so_first():
    text = " ".join(Page(html.page([passed(EQUAL, replace(EQUAL, subject="jax"))])).text.split())
    assert "PASS mlp, forward, batch 32 All 2 subjects are EQUAL: nothing differs by more than rounding." in text
    assert "The other subject is EQUAL." in Page(html.page([passed(EQUAL, DRIFT)])).text
