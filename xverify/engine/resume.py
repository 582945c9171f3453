"""Resume a run that ended early. Process runs that its result file contains are not measured again."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from .. import host
from ..errors import UsageError
from ..reference import summary
from ..results.file import read
from ..results.records import Host, Result, Row, WeightsSummary
from ..timing.plan import EFFORTS
from ..version import __version__
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .stages import History

# Settings that may differ from the earlier run, because they change how much is measured and not what.
FREE = ("effort", "max_seconds", "timeout", "total_memory", "strict", "notes", "trust", "asked")
HOST = ("cpu", "cores", "system")


@dataclass(frozen=True)
class Earlier:
    """The result of an earlier run of the same request."""

    path: Path
    result: Result

    def finished(self, request: Request) -> bool:
        """Whether nothing is left to measure at this effort."""
        efforts = list(EFFORTS)
        more = efforts.index(request.effort) > efforts.index(self.result.settings.effort)
        broken = any(row.status in ("crashed", "timeout", "failed") for row in self.result.rows)
        return self.result.complete and not more and not broken

    def histories(self) -> dict[str, History]:
        """Subject -> its earlier measurements. Blocks of a process run that did not finish are left out."""
        runs = [run for row in self.result.rows if row.speed for run in row.speed.launches]
        count = max((run.launch + 1 for run in runs), default=0)
        return {row.subject: _history(row, count) for row in self.result.rows}


def _history(row: Row, next_run: int) -> History:
    """The earlier measurements in one row. next_run: the number of the next process run of all subjects."""
    if row.speed is None or not row.speed.launches:
        return History(next_run)
    finished = {run.launch for run in row.speed.launches}
    samples = tuple(sample for sample in row.speed.samples if sample.launch in finished)
    return History(next_run, row.speed.launches, samples, row.environment)


def earlier_run(path: Path, request: Request, folder: ModelFolder) -> Earlier | None:
    """The run to resume; None when there is no such file. Raises UsageError when it was another run."""
    if not path.exists():
        return None
    result = read(path)
    theirs, mine = result.settings, summary.settings(request, folder)
    machine = Host(**host.describe())
    names = [field.name for field in fields(mine) if field.name not in FREE]
    if theirs.weights_digest and mine.weights_digest:
        names.remove("weights")  # the same weights may stand in another place
    changed = [
        _change("xverify", result.xverify, __version__),
        *(_change(name, getattr(theirs, name), getattr(mine, name)) for name in names),
        *(_change(name, getattr(result.host, name), getattr(machine, name)) for name in HOST),
    ]
    differences = [each for each in changed if each]
    if differences:
        raise UsageError(
            f"--resume: {path} is of another run: {'; '.join(differences)}. Name another file with --json to start a new run"
        )
    return Earlier(path, result)


def check_weights(earlier: Earlier, mine: WeightsSummary) -> None:
    """Raise UsageError when the canonical weights are not those of the earlier run. Without a digest, they are not compared."""
    theirs = earlier.result.weights
    change = _change("weights.digest", theirs.digest, mine.digest)
    # Sums of parameters, which the digest covers, are those of the subjects that could be built.
    if change and theirs.digest is not None and theirs.normal_form == mine.normal_form:
        raise UsageError(
            f"--resume: {earlier.path} is of another run: {change}. Name another file with --json to start a new run"
        )


def _change(name: str, was: object, now: object) -> str:
    return f"{name} was {was!r}, is {now!r}" if was != now else ""
