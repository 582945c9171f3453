"""The findings on a captured layer that is judged together with the glue code before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from ..float64.stepping import Pause
from ..float64.structures import unflatten
from ..results.verdicts import Verdict
from ..verdict.findings import Finding
from .inputs import Given
from .tensors import Floors

if TYPE_CHECKING:
    from .forward import Replay


def joined_findings(
    replay: Replay,
    findings: Sequence[Finding],
    outputs: Sequence[Tensor],
    floors: Sequence[Floors],
    pause: Pause,
    given: Given,
) -> list[Finding]:
    """The findings on the outputs of a layer, which say that they judge the glue code before it as well."""
    blame = replay.blame
    found = [replace(finding, joined=given.joined) for finding in findings]
    if all(finding.verdict == Verdict.EQUAL for finding in found):
        blame.right()
        return found
    if pause.layer not in replay.explainer.explained:
        args = unflatten(pause.args, given.inputs)
        found = [blame.glue.through_layer(*each, pause, args) for each in zip(found, outputs, floors)]
    found = [blame.located(finding, pause) for finding in found]
    return [*blame.never_ran(replay.capture.load_all(given.files), replay.models.layers[pause.layer]), *found]
