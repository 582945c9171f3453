"""What the checks of a training say of a planted mistake, and of a run without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..results.records import Check
from ..results.verdicts import Verdict
from .records import Trial


class Planted(Protocol):
    """A mistake. kind: its name. check: the first check that it breaks. says: a text that the report must contain."""

    @property
    def kind(self) -> str: ...

    @property
    def check(self) -> str: ...

    @property
    def says(self) -> str: ...


def alarm_of(checks: Sequence[Check]) -> str:
    """What is wrongly found in a run without a mistake; "" when all checks pass."""
    broken = next((check for check in checks if check.verdict not in (Verdict.EQUAL, Verdict.UNTESTED)), None)
    return f"{broken.name}: {broken.verdict}, {broken.says}" if broken else ""


def trial_of(model: str, mistake: Planted, checks: Sequence[Check], visible: float) -> Trial:
    """The outcome of a mistake. checks: of the port with it. visible: see ``Trial``."""
    broken = [check for check in checks if check.verdict in (Verdict.DRIFT, Verdict.DIFFERENT, Verdict.INVALID)]
    understood = [check for check in broken if mistake.says in f"{check.difference} {check.says}"]
    told = next(iter(understood or broken), None)
    return Trial(
        model=model,
        kind=mistake.kind,
        layer=mistake.check,
        says=mistake.kind,
        visible=visible,
        verdict=Verdict.worst((Verdict(check.verdict) for check in broken), default=Verdict.EQUAL),
        found=broken[0].name if broken else None,
        explained=mistake.kind if understood else None,
        explanation=f"{told.name}, step {told.step}: {told.difference} {told.says}" if told else "",
    )
