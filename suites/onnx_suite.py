"""Checks onnx's own test data: `xverify check MODEL --against DATA` must agree with the expected outputs.

Every case of onnx.backend.test is checked: one file for each use of an operator, and the small and the light models that come with
the package. ONNX Runtime also runs every case without xverify, with the tolerance of onnx's own runner. So a verdict can be wrong
in two ways, and both are counted: a right output that is accused, and a wrong output that passes.

python suites/onnx_suite.py [--kinds LIST] [--operators LIST] [--only PATTERN] [--all]

Cases that are known to have another answer are in onnx_exceptions.txt, each with its reason. The exit code is 1 when a case that
is not in it has a wrong answer. A case that is in it and has a right answer is named.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import onnx_data
import pool
from onnx_data import CANNOT, RIGHT, UNKNOWN, WRONG, Case
from tables import table

from xverify.checking.api import check
from xverify.errors import UsageError
from xverify.results.records import Result, Row
from xverify.results.verdicts import Verdict

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
EXCEPTIONS = Path(__file__).with_name("onnx_exceptions.txt")
AGREES, CONSTANT, DRIFTS, DIFFERS, NO_ROW, REFUSED = "agrees", "constant", "drift", "differs", "no row", "refused"
# What a row says when a value of the file is no tensor of numbers, which check does not compare.
NO_TENSORS = ("compares tensors only", "takes strings", "it holds strings")
# ... and when it is of a dtype that ONNX Runtime cannot be given or asked for from Python.
NO_DTYPE = ("is not given inputs of dtype", "can't be converted to MLDataType", "has only numbers", "not understood")
COLUMNS = (
    "cases",
    "agree",
    "constant",
    "rightly differ",
    "runtime cannot",
    "no tensors",
    "no dtype",
    "exceptions",
    "WRONG",
)


def answer(row: Row) -> tuple[str, str]:
    """What one row says, and why."""
    if row.error is None:
        return NO_ROW, f"{row.status}: {row.reason}"
    verdict = row.error.verdict
    if verdict == Verdict.UNTESTED and row.error.compared < row.error.expected:
        return REFUSED, row.error.reason or ""
    known = {Verdict.IDENTICAL: AGREES, Verdict.EQUAL: AGREES, Verdict.DRIFT: DRIFTS, Verdict.UNTESTED: CONSTANT}
    return known.get(verdict, DIFFERS), row.error.reason or ""


def ask(case: Case) -> tuple[dict[str, tuple[str, str]], Result | None]:
    """Check a case. Question -> what the row says, and why."""
    try:
        result = check(case.model, against=str(case.folder), threads=1, timeout=onnx_data.LONGEST)
    except UsageError as error:
        return {"conversion": (REFUSED, str(error))}, None
    return {row.task: answer(row) for row in result.rows}, result


def judge(direct: tuple[str, str], found: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """(column of the table, why) of one case. direct: what ONNX Runtime alone says."""
    said, why = found["conversion"]
    own, own_why = found.get("runtime", (CONSTANT, ""))
    if any(text in why for text in NO_TENSORS):
        return "no tensors", why
    if direct[0] == UNKNOWN and said == NO_ROW and any(text in why for text in NO_DTYPE):
        return "no dtype", why
    if direct[0] == CANNOT and said in (NO_ROW, REFUSED):
        return "runtime cannot", why
    if own in (DIFFERS, DRIFTS) and direct[0] != WRONG:
        return "WRONG", f"the runtime is accused ({own}): {own_why}"
    if said in (NO_ROW, REFUSED):
        return "WRONG", f"ONNX Runtime alone: {direct[0]} {direct[1]}; check: {said}: {why}"
    if direct[0] == WRONG:
        return ("rightly differ", why) if said in (DIFFERS, DRIFTS) else ("WRONG", f"it passes: {direct[1]}")
    if direct[0] == CANNOT:
        return "WRONG", f"ONNX Runtime alone cannot compute it ({direct[1]}), and check says: {said}"
    if said in (DIFFERS, DRIFTS):
        return "WRONG", f"the file is accused ({said}): {why}"
    return ("agree" if said == AGREES else "constant"), ""


def exceptions() -> dict[str, str]:
    """Pattern of names -> reason."""
    lines = [line for line in EXCEPTIONS.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {name.strip(): reason.strip() for name, _, reason in (line.partition(":") for line in lines)}


def run(cases: list[Case], direct: onnx_data.Answers, all_lines: bool) -> tuple[dict[str, Counter[str]], list[str]]:
    """Check all cases. Returns the counts by kind, and the names of cases with a wrong answer."""
    known = exceptions()
    counts: dict[str, Counter[str]] = {}
    wrong: list[str] = []
    with pool.lend() as processes:
        for number, case in enumerate(cases, 1):
            found, _ = ask(case)
            column, why = judge(direct[f"{case.kind}/{case.name}"], found)
            reason = next((says for pattern, says in known.items() if fnmatch.fnmatch(case.name, pattern)), "")
            if reason:
                if column in ("agree", "constant"):
                    print(f"no exception any more: {case.name}: {reason}")
                else:
                    column, why = "exceptions", f"{reason} [{why}]"
            if column == "WRONG":
                wrong.append(case.name)
            if column in ("WRONG", "exceptions") or (all_lines and why):
                print(f"{column:14} {case.name}: {why}", flush=True)
            counts.setdefault(case.kind, Counter()).update(("cases", column))
            if number % 200 == 0:
                print(f"... {number} of {len(cases)} cases", file=sys.stderr, flush=True)
        print(f"{processes.started} processes computed them")
    return counts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of cases (default: all of them)")
    parser.add_argument("--operators", default="", help="files of node cases, e.g. conv,gemm (default: all of them)")
    parser.add_argument("--only", default="*", help="a pattern of names of cases")
    parser.add_argument("--all", action="store_true", help="also print why the runtime cannot compute a case")
    asked = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onnx-suite-") as folder:
        operators = [name for name in asked.operators.split(",") if name]
        cases, absent = onnx_data.write(Path(folder), asked.kinds.split(","), operators)
        cases = [case for case in cases if fnmatch.fnmatch(case.name, asked.only)]
        direct = onnx_data.directly(cases, Path(folder))
        alone = Counter(said for said, _ in direct.values())
        counts, wrong = run(cases, direct, asked.all)
    print(table(counts, COLUMNS, "kind"))
    print(
        f"ONNX Runtime alone: {alone[RIGHT]} right, {alone[WRONG]} wrong by onnx's own tolerance, {alone[CANNOT]} it cannot "
        f"compute, {alone[UNKNOWN]} with dtypes that numpy lacks"
    )
    if absent:
        print(f"{len(absent)} skipped, because their models are not in the package: {', '.join(absent)}")
    print(
        f"{'FAIL' if wrong else 'PASS'}: {len(wrong)} of {len(cases)} answers are wrong; {time.monotonic() - begun:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
