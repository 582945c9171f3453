"""The check of a converted file against the model that it was made of, in float64 and with the same weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..checking.candidate import REFERENCE, ModelSource, Target
from ..checking.computing import Cases, sized
from ..checking.judge import CONVERSION, RUNTIME
from ..checking.meaning import Meaning
from ..checking.options import CheckSettings
from ..checking.run import check_files
from ..processes.space import temporary_folder
from ..progress import Listener
from ..reference import summary
from ..reference.build import Prepared
from ..reference.truth import Truth
from ..results.records import Result, Row
from ..results.verdicts import Outcome, SpeedVerdict, Verdict
from ..weights import npz
from ..workload.asked import Asked
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .planner import Planned


@dataclass(frozen=True)
class Against:
    """The reference of the check: the model with its inputs and its outputs in float64. source: as the user wrote it."""

    source: str
    folder: ModelFolder
    request: Request
    prepared: Prepared
    truth: Truth

    def target(self) -> Target:
        """The reference as the check takes it."""
        arrays, count, truth = npz.load_file(self.prepared.inputs), self.request.cases, self.truth
        cases = Cases(arrays, count, ("random",) * count, sized(arrays))
        floors = truth.noise_floors
        modelled = floors is not None
        meaning = Meaning(truth.outputs, truth.float32, floors, modelled, truth.precision, self.describe())
        return Target(cases, meaning, source=ModelSource(self.folder, self.request, self.prepared))

    def describe(self) -> str:
        """Where the outputs come from, as a phrase."""
        return f"{self.folder.name} in {self.request.reference}, {self.truth.precision}, with the same weights"


def check(
    path: Path, against: Against, settings: CheckSettings, made: str, listener: Listener, planned: Planned | None = None
) -> Result:
    """Check a file, which was converted from a reference.

    made: how it was made, a sentence for the report. planned: the plan of its precisions; None without one.
    """
    # The check has its reference already, so it opens no file for it.
    asked = replace(settings, against=against.prepared.inputs)
    with temporary_folder() as space:
        target = against.target()
        if planned is not None:
            target = replace(target, plan=planned.plan, beside=planned.beside)
        result = check_files([path], asked, listener, space, target)
    reference = summary.reference(against.request, against.prepared, None, against.truth, against.truth.layers)
    command = result.settings.asked.changed(against=against.source)
    concluded = _concluded(result, (made,), command, reference=against.source, batch=against.request.batch)
    return replace(
        concluded,
        weights=summary.weights(against.prepared),
        inputs=summary.inputs(against.request, against.prepared),
        reference=replace(reference, framework=against.describe(), environment=dict(against.prepared.environment)),
    )


def check_against_file(
    path: Path, settings: CheckSettings, calibration: Path | None, made: tuple[str, ...], listener: Listener
) -> Result:
    """Check a file, which was converted from the file that ``settings.against`` names.

    calibration: the array file of the inputs that it is checked on; None: those of ``xverify check``. made: notes for the report.
    """
    asked = settings if calibration is None else replace(settings, inputs=calibration)
    with temporary_folder() as space:
        result = check_files([path], asked, listener, space)
    command = result.settings.asked
    kept = {name: value for name, value in command.options.items() if name != "inputs"}  # that file is a temporary one
    return _concluded(result, made, replace(command, options=kept))


def _concluded(result: Result, made: tuple[str, ...], asked: Asked, **settings: Any) -> Result:
    """The result of a conversion from that of its check. asked: the command. settings: fields of the settings that differ."""
    return replace(
        result,
        rows=tuple(row for row in result.rows if not _without_evaluation(row)),
        verdict=decided(result),
        settings=replace(result.settings, asked=asked, **settings),
        notes=(*made, *result.notes),
    )


def answers(result: Result) -> list[Row]:
    """The rows that compare the file with the model that it was made of. The model itself has a row when it was timed."""
    return [row for row in result.rows if row.task == CONVERSION and not row.subject.endswith(REFERENCE)]


def _without_evaluation(row: Row) -> bool:
    """Whether a row only says that files of its format cannot be computed in float64, which the other question needs not."""
    error = row.error
    return row.task == RUNTIME and error is not None and error.verdict == Verdict.UNTESTED and not error.expected


def decided(result: Result) -> Outcome:
    """The outcome of a conversion.

    Where a runtime has no evaluation of its files in float64, the comparison with the model decides alone.
    """
    compared = [row.error.verdict for row in answers(result) if row.error is not None]
    known = len(compared) == len(answers(result)) and Verdict.UNTESTED not in compared
    return Outcome.PASS if result.verdict == Outcome.INCONCLUSIVE and compared and known else result.verdict


def conclusion(result: Result, accept: str | None = None) -> str:
    """The last line of the report: "converted, checked: EQUAL, 1.7 times faster". The speed stands there with --time.

    accept: the conditions that decided instead of the verdict; None: there were none.
    """
    rows = answers(result)
    found = [f"{row.error.verdict}{row.at_precision}" if row.error else row.status for row in rows]
    words = ", ".join(f"{row.framework} {each}" for row, each in zip(rows, found)) if len(rows) > 1 else str(found[0])
    speeds = [_speed(row) for row in rows if row.counted is not None and row.counted.ratio]
    plan = result.plan
    if accept and result.verdict == Outcome.PASS:
        words += f", accepted by {accept}"
    if plan is not None:
        words += f", {sum(layer.kept for layer in plan.layers)} of {len(plan.layers)} layers in float32"
    return f"converted, checked: {words}" + "".join(f", {each}" for each in speeds)


def _speed(row: Row) -> str:
    """How fast the file is beside the model, where the check measured it."""
    assert row.speed is not None
    assert row.speed.ratio is not None
    ratio, (low, high) = row.speed.ratio, row.speed.ratio_ci
    if row.speed.verdict == SpeedVerdict.SAME or (low is not None and high is not None and low <= 1 <= high):
        return f"as fast as the model within noise (time ratio {ratio:.3g})"
    return f"{1 / ratio:.2g} times faster" if ratio < 1 else f"{ratio:.2g} times slower"
