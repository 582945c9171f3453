import json

import pytest

from xverify.results.conditions import Host, InputsSummary, ReferenceSummary, Settings, WeightsSummary
from xverify.results.file import write
from xverify.results.records import Check, Error, Result, Row, overall
from xverify.results.verdicts import Outcome, Verdict


def row(status="ok", verdict="EQUAL"):
    error = Error(verdict) if verdict else None
    return Row("numpy", "numpy", "eager", "forward", "cpu", 1, status, error=error)


@pytest.mark.parametrize(
    ("rows", "verdict", "code"),
    [
        ([row(), row()], "PASS", 0),
        ([row(), row(verdict="DIFFERENT")], "FAIL", 1),
        ([row(), row(verdict="INVALID")], "FAIL", 1),
        ([row(), row("crashed", None)], "ERROR", 3),
        ([row(verdict="DIFFERENT"), row("crashed", None)], "FAIL", 1),
        ([row(), row(verdict="UNTESTED")], "INCONCLUSIVE", 4),
        ([row(verdict=None)], "INCONCLUSIVE", 4),
        ([], "INCONCLUSIVE", 4),
    ],
)
def test_the_whole_verdict_and_its_exit_code(rows, verdict, code):
    assert overall(rows) == verdict
    assert result(verdict).exit_code == code


def result(verdict="PASS", **host):
    conditions = Host(**host), Settings(), WeightsSummary(), InputsSummary(), ReferenceSummary()
    return Result("m", ("forward",), verdict, (), "now", "0", *conditions, "rule")


@pytest.mark.parametrize(("strict", "verdict"), [(False, "PASS"), (True, "FAIL")])
def test_drift_is_a_warning_unless_strict(strict, verdict):
    assert overall([row(), row(verdict="DRIFT")], strict) == verdict
    assert overall([row(), row(verdict="IDENTICAL")], strict) == "PASS"


def test_a_result_file_is_json_without_infinities(tmp_path):
    write(result(memory_gib=float("inf"), load=(float("nan"), 1.0)), tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    host = json.loads(text, parse_constant=pytest.fail)["host"]
    assert host["memory_gib"] is None
    assert host["load"] == [None, 1.0]
    assert not list(tmp_path.glob("*.tmp"))


def test_only_members_of_the_enum_are_verdicts():
    assert type(Error("EQUAL").verdict) is Verdict
    assert type(result().verdict) is Outcome
    with pytest.raises(ValueError, match="UNHEARD-OF"):
        Check("update", 0, "UNHEARD-OF")


def test_verdicts_are_ordered_from_the_best_to_the_worst():
    order = ["IDENTICAL", "EQUAL", "DRIFT", "UNTESTED", "DIFFERENT", "INVALID"]
    assert [str(each) for each in sorted(Verdict)] == order
    assert [str(each) for each in Verdict if each.fails] == ["DIFFERENT", "INVALID"]
    assert all((order[i] <= Verdict(order[j])) == (i <= j) for i in range(6) for j in range(6))
    assert all((Verdict(order[i]) > order[j]) == (i > j) for i in range(6) for j in range(6))
    assert Verdict.worst([Verdict.EQUAL, Verdict.DRIFT, Verdict.IDENTICAL]) is Verdict.DRIFT
    assert Verdict.worst([]) is Verdict.UNTESTED
