"""The last line of a report counts every row, so that its verdict, its counts and the exit code agree."""

from dataclasses import replace

import pytest
from helpers.sampleresults import RESULT

from xverify.commands._main import EXIT_CODES
from xverify.report import content
from xverify.report.notes import tally
from xverify.results.decoding import Decoding
from xverify.results.records import INTERRUPTED, Error, Row, overall
from xverify.results.training import Training
from xverify.results.verdicts import Outcome


def row(verdict=None, status="ok"):
    error = Error(verdict, None) if verdict else None
    return Row("subject", "torch", "eager", "forward", "cpu", 8, status, error=error)


@pytest.mark.parametrize(
    ("rows", "outcome", "says"),
    [
        ([row("EQUAL"), row("IDENTICAL")], "PASS", "2 of 2 subjects EQUAL"),
        ([row("EQUAL"), row("DRIFT")], "PASS", "1 of 2 subjects EQUAL, 1 DRIFT"),
        ([row("DIFFERENT"), row("DRIFT"), row("DIFFERENT")], "FAIL", "0 of 3 subjects EQUAL, 2 DIFFERENT, 1 DRIFT"),
        ([row("EQUAL"), row(status="crashed")], "ERROR", "1 of 2 subjects EQUAL, 1 crashed"),
        ([row("EQUAL", "failed"), row("EQUAL", "failed")], "ERROR", "2 of 2 subjects EQUAL, 2 ended early"),
        ([row("EQUAL"), row("UNTESTED")], "INCONCLUSIVE", "1 of 2 subjects EQUAL, 1 UNTESTED"),
        ([row(), row()], "INCONCLUSIVE", "0 of 2 subjects EQUAL, 2 without a verdict"),
    ],
)
def test_the_last_line_accounts_for_every_row(rows, outcome, says):
    assert overall(rows) == outcome
    assert tally(rows, "subjects") == says


@pytest.mark.parametrize(
    ("subject", "mode", "changes", "outcome"),
    [
        ("torch:eager", "eager", {}, "INCONCLUSIVE"),
        ("torch:eager batch=3", "eager", {}, "INCONCLUSIVE"),
        ("torch:eager", "eager", {"error": Error("DIFFERENT", None)}, "FAIL"),
        ("torch:eager", "eager", {"device": "cuda"}, "PASS"),
        ("torch:eager", "eager", {"decoding": Decoding(2, 8, 4)}, "PASS"),
        ("torch:eager", "eager", {"training": Training("SGD", ranks="2 ranks")}, "PASS"),
        ("torch:script", "script", {}, "PASS"),
        ("torch-fused:eager", "eager", {}, "PASS"),
        ("jittor", "eager", {}, "PASS"),
        ("numpy", "eager", {"status": "not-installed", "error": None}, "ERROR"),
    ],
)
def test_a_run_of_the_reference_alone_is_inconclusive(subject, mode, changes, outcome):
    one = replace(row("IDENTICAL"), subject=subject, mode=mode, **changes)
    assert overall([one], reference="torch") == outcome
    own = replace(row("IDENTICAL"), subject="torch:eager")
    assert overall([own, one], reference="torch") == outcome
    assert overall([row("IDENTICAL")]) == "PASS"


def test_the_meanings_of_exit_codes_name_the_verdicts_that_lead_to_them():
    assert {outcome.exit_code for outcome in Outcome} | {2} == set(EXIT_CODES)
    assert all(word in EXIT_CODES[0] for word in ("IDENTICAL", "EQUAL", "DRIFT"))
    assert all(word in EXIT_CODES[1] for word in ("DIFFERENT", "INVALID", "--strict", "DRIFT"))
    assert "interrupted" in EXIT_CODES[3]
    assert "UNTESTED" in EXIT_CODES[4]


def test_a_row_that_the_user_interrupted_is_not_called_a_failed_one():
    stopped = replace(row(status="failed"), reason=INTERRUPTED)
    assert tally([row("EQUAL"), stopped], "subjects") == "1 of 2 subjects EQUAL, 1 interrupted"
    assert (stopped.outcome, stopped.status, content.verdict(stopped)) == ("interrupted", "failed", "interrupted")
    assert replace(stopped, reason="ValueError: no").outcome == "failed"


def test_a_reason_that_several_rows_have_is_told_once():
    rows = [replace(row(status="failed"), subject=name, reason="no reference") for name in ("a", "b")]
    rows += [replace(row(status="failed"), subject="c", reason="another")]
    found = [(each.subject, each.text) for each in content.reasons(replace(RESULT, rows=tuple(rows)))]
    assert found == [("a, forward, b, forward", "no reference"), ("c, forward", "another")]
