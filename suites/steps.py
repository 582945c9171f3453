"""Runs training steps of one's own (tests/steps) as they are, plants faults in them, and counts what the verdict says.

python suites/steps.py [--only LIST] [--frameworks LIST] [--part N/M] [--clean | --faults]

A kind of training is a folder as suites/ports.py has them, whose files define ``train_step``: in torch, and in another
framework. Its faults.toml has

    [drift]
    tensorflow = "eps-hat"  # the known differences of the framework, by which the right port is DRIFT, with commas between them

    [[fault]]
    port = "jax"
    old = "b2=0.95"        # text that occurs once in the file
    new = "b2=0.999"
    at = "update"          # regular expression of the first check that fails, with its step and what differs: a weight, a loss, an
                           # optimizer or a part of the state
    says = "beta2 0.999"   # regular expression of the true explanation, at this check or at the first one that fails in a later
                           # step; none may be given when it is left out
    steps = 20             # optional: the fault does not show in three steps, but in so many
    hidden = "why"         # optional: why the fault changes no loss, no weight and no state; its row must be EQUAL

Every right port must be EQUAL, or DRIFT by what [drift] names alone, in three steps and in twenty; both are counted as EQUAL. Every
fault that is not hidden must be DIFFERENT, or INVALID, at its place, and not explained wrongly. Otherwise the exit code is 1. Right
ports are checked by ``xverify.run``. For faults, the reference is computed once for each kind and number of steps.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ports
from ports import Fault, Port, Suite

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
from helpers.ownsteps import judging_folders  # noqa: E402

from xverify.errors import XverifyError  # noqa: E402
from xverify.results.records import Error, Training  # noqa: E402
from xverify.results.verdicts import Verdict  # noqa: E402

MANY = 20  # steps that are compared besides the default number
COLUMNS = (
    *("right", "EQUAL", f"right-{MANY}", f"EQUAL-{MANY}"),
    *("faults", "visible", "caught", "placed", "rightly", "wrongly", "none", "missed", "WRONG"),
)
# What a report says of every difference; what else it says is an explanation.
WEIGHT = r"\S+( \(optimizer '[^']*'\))?"
FACTS = (  # in this order: one fact may contain another
    r"^[\w ]+, step \d+: ",
    r"loss '\w+' is \S+; the reference's is \S+, .*? its noise floor away",
    WEIGHT
    + r": (its error after the step|the error of the gradient that its optimizer is given) is .*? its noise floor",
    WEIGHT + r" is (not changed by the step|changed by the step; the reference's step leaves it as it is)",
    WEIGHT + r" is (changed by rounding alone|\S+; the reference's is \S+)",
    r"\d+ other values? of the state differs?",
    r", and it differs before the step, too",
    r"only weights (that loss '\w+' trains|of optimizer '\w*') differ",
    r"the gradients that its optimizer is given agree, so the optimizer differs",
    r"the step changes no weight",
    r"('\w+'(, )?)+ agrees?",
    r"(it|its change) (has the opposite sign|is \S+ times the right one)",
    r"the search for a cause ended before all known mistakes were tried",
)

Judge = Callable[[Path], tuple[Error, Training]]


def explanation(text: str) -> str:
    """What is left of the text of a check without the plain facts."""
    for fact in FACTS:
        text = re.sub(fact, "", text)
    return text.strip(" ;:,")


def judge_right(error: Error | None, training: Training | None, drift: str) -> list[str]:
    """What is wrong in the answer to a right port. drift: the known differences that it may have; "" for none."""
    if error is None or training is None:
        return ["it was not judged"]
    allowed = Verdict.DRIFT if drift and set(training.differences) <= set(drift.split(", ")) else Verdict.EQUAL
    return [] if error.verdict <= allowed else [f"{error.verdict}: {error.reason}"]


def judge_fault(error: Error, training: Training, fault: Fault) -> tuple[Counter[str], list[str]]:
    """Counts of a planted fault, and what is wrong in the answer."""
    counts = Counter(faults=1, visible=int(not fault.hidden))
    caught = error.verdict.fails
    if fault.hidden:
        return counts, ["hidden, and caught"] if caught else []
    texts = [f"{check.label}: {check.says}" for check in training.told]
    if not caught or not texts:
        return counts + Counter(missed=1), ["missed"]
    placed = bool(re.search(fault.at, texts[0]))
    rightly = bool(fault.says) and any(re.search(fault.says, text) for text in texts)
    wrongly = "" if rightly else "; ".join(filter(None, map(explanation, texts)))
    counts.update(caught=1, placed=int(placed), rightly=int(rightly), wrongly=int(bool(wrongly)))
    counts.update(none=int(not rightly and not wrongly))
    wrong = [] if placed else [f"placed elsewhere than at {fault.at}"]
    return counts, [*wrong, *([f"explained wrongly: {wrongly}"] if wrongly else [])]


def check_right(port: Port, names: Sequence[str]) -> Counter[str]:
    """Run a kind as it is, with the default number of steps and with many."""
    return run_right(port, names, "") + run_right(port, names, f"-{MANY}", steps=MANY)


def run_right(port: Port, names: Sequence[str], suffix: str, **settings: Any) -> Counter[str]:
    """Run a kind as it is. suffix: of the columns that count it. settings: of ``xverify.run``."""
    begun, head = time.monotonic(), f"right{suffix}"
    try:
        by_name = ports.rows(port.folder, names, task="train", threads=1, **settings)
    except XverifyError as error:
        return not_run(error, head, begun)
    found: Counter[str] = Counter()
    for name, row in by_name.items():
        wrong = judge_right(row.error, row.training, port.drift.get(name, ""))
        said = row.error.verdict if row.error else f"{row.status}: {row.reason}"
        ports.tell(f"{head}, {name}", wrong, said, time.monotonic() - begun)
        found += Counter({f"right{suffix}": 1, f"EQUAL{suffix}": int(not wrong), "WRONG": len(wrong)})
    return found


def not_run(error: XverifyError, head: str, begun: float) -> Counter[str]:
    """Tell why something was not run."""
    ports.tell(head, [str(error)], "", time.monotonic() - begun)
    return Counter(WRONG=1)


class Faults:
    """Checks faults, one after another. The reference of the last kind is kept."""

    def __init__(self) -> None:
        self._stack, self._key = ExitStack(), ("", "", 0)
        self._judge: Judge | None = None

    def check(self, port: Port, fault: Fault) -> Counter[str]:
        """Plant one fault in a copy of a kind, and judge it."""
        begun = time.monotonic()
        head = f"{fault.port}, at {fault.at}: {ports.first_line(fault.new)}"
        with ports.planted(port, fault) as folder:
            try:
                error, training = self._judging(port, fault)(folder)
            except XverifyError as failed:
                self.close()
                return Counter(faults=1, visible=int(not fault.hidden)) + not_run(failed, head, begun)
        counts, wrong = judge_fault(error, training, fault)
        ports.tell(head, wrong, f"{error.verdict}: {error.reason or ''}", time.monotonic() - begun)
        return counts + Counter(WRONG=len(wrong))

    def _judging(self, port: Port, fault: Fault) -> Judge:
        """The function that judges a folder beside the reference of a kind."""
        key = (port.folder.name, fault.port, fault.steps)
        if self._judge is None or key != self._key:
            self.close()
            settings = {} if fault.steps == Fault.steps else {"steps": fault.steps}
            context = judging_folders(port.folder, ports.subject(fault.port), threads=1, **settings)
            self._judge, self._key = self._stack.enter_context(context), key
        return self._judge

    def close(self) -> None:
        """End the processes of the last kind."""
        self._judge = None
        self._stack.close()


def main() -> int:
    """Check what the command line asks for. Returns the exit code."""
    faults = Faults()
    says = (__doc__ or "").splitlines()[0]
    try:
        return ports.main(Suite(says, TESTS / "steps", "kind", COLUMNS, check_right, faults.check))
    finally:
        faults.close()


if __name__ == "__main__":
    raise SystemExit(main())
