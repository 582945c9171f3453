"""Going on with a run that ended early: what its result file has is not measured again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import host
from ..errors import UsageError
from ..reference.request import Request
from ..results.file import read
from ..results.records import Launch, Sample
from ..timing import plan
from ..timing.noise import Seen
from ..workload.spec import ModelFolder
from .candidate import Candidate

# What may differ from the earlier run: how much is measured, not what.
FREE = ("effort", "max_seconds", "timeout", "strict", "notes", "trust")
HOST = ("cpu", "cores", "system")


@dataclass(frozen=True)
class Earlier:
    """A result file of the same request."""

    path: Path
    result: Mapping[str, Any]

    def finished(self, request: Request) -> bool:
        """Whether nothing is left of it at this effort."""
        efforts = list(plan.EFFORTS)
        more = efforts.index(request.effort) > efforts.index(self.result["settings"]["effort"])
        broken = any(row["status"] in ("crashed", "timeout", "failed") for row in self.result["rows"])
        return bool(self.result["complete"]) and not more and not broken

    def into(self, candidates: Sequence[Candidate], seen: Seen) -> None:
        """Give every candidate the launches that it has finished.

        A candidate whose framework has changed since fails when it starts.
        """
        rows = {row["subject"]: row for row in self.result["rows"]}
        count = max((each["launch"] + 1 for row in rows.values() for each in _launches(row)), default=0)
        for candidate in candidates:
            row = rows[candidate.label]
            candidate.launch = count
            candidate.launches = [Launch(**each) for each in _launches(row)]
            whole = {each.launch for each in candidate.launches}
            samples = [Sample(**each) for each in row["speed"]["samples"]] if whole else []
            candidate.samples = [sample for sample in samples if sample.launch in whole]
            candidate.expected = row["environment"] if whole else {}
        seen.restore(self.result["noise"])


def _launches(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return row["speed"]["launches"] if row["speed"] else []


def earlier_run(path: Path, request: Request, folder: ModelFolder) -> Earlier | None:
    """The run to go on with; None when there is no such file. Raises UsageError when it was another run."""
    if not path.exists():
        return None
    result = read(path)
    mine = json.loads(json.dumps({**asdict(request), "folder_digest": folder.digest()}))
    theirs = result["settings"]
    machine = host.describe()
    changed = [
        *(
            f"{name} was {theirs.get(name)!r}, is {mine[name]!r}"
            for name in mine
            if name not in FREE and mine[name] != theirs.get(name)
        ),
        *(
            f"{name} was {result['host'].get(name)!r}, is {machine[name]!r}"
            for name in HOST
            if machine[name] != result["host"].get(name)
        ),
    ]
    if changed:
        raise UsageError(f"--resume: {path} is of another run: {'; '.join(changed)}. Name another --json to begin anew")
    return Earlier(path, result)
