"""The steps of a replay at a captured layer that ends in an activation; see ``fused``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..float64.stepping import Pause
from ..float64.structures import flatten, unflatten
from ..results.verdicts import Verdict
from ..verdict.findings import Finding
from .fused import FusedLayer
from .tensors import Floors

if TYPE_CHECKING:
    from .forward import Replay


def fused_layer(
    replay: Replay, findings: Sequence[Finding], outputs: Sequence[Tensor], floors: Sequence[Floors], args: Any
) -> FusedLayer | None:
    """Explain a wrong first output of a layer. Returns the layer as one that ends in an activation; None when it is none.

    findings: the comparisons of the outputs with those of the reference's layer alone.
    args: the arguments of the call, in float64.
    """
    if not findings or findings[0].verdict == Verdict.EQUAL:
        return None
    first, output, exact = findings[0], outputs[0], floors[0].exact
    found = replay.fused.right_layer(first, output, exact, args)
    return found or replay.explainer.explain(first, output, floors[0], args)


def step_fused(
    replay: Replay, fused: FusedLayer, findings: Sequence[Finding], outputs: list[Tensor], floors: Sequence[Floors]
) -> list[Any]:
    """The output of the layer for each pass, before the activation: the reference is to compute the activation itself."""
    replay.need_all_passes()
    replay.findings += [fused.finding, *findings[1:]]
    replay.fused.follow(fused)
    others = [*outputs[1:], *(each.exact for each in floors[len(outputs) :])]
    answers = replay.answers([fused.exact, *others])
    return [unflatten(result, [flatten(result)[0], *answer[1:]]) for result, answer in zip(fused.results, answers)]


def step_activation(replay: Replay, pauses: list[Pause], fused: FusedLayer) -> list[Any]:
    """Judge the output of a layer that ends in an activation as that of the reference's activation, and pass it on."""
    first = pauses[0]
    view = fused.view(flatten(first.args)[0])
    results = replay.compute_in_each_pass(pauses)
    values = [flatten(result)[0] for result in results]
    finding, captured = replay.fused.judge_activation(fused, first, view, values)
    replay.compared[first.layer] += 1
    replay.blame.compared(first)
    replay.findings.append(finding)
    if finding.verdict != Verdict.EQUAL:
        replay.explainer.explained.setdefault(first.layer, fused.other_than(finding.kind))
    for value, (answer,) in zip(values, replay.answers([captured])):
        value.copy_(answer)
    return results


def add_passed_on(replay: Replay, finding: Finding, captured: Tensor, exact: Tensor) -> None:
    """Add a finding on what glue code passed on, and explain it where a layer before it ends in another activation.

    captured: what the port passed on.
    exact: what the reference's glue code computes.
    """
    replay.findings.append(finding)
    if finding.verdict != Verdict.EQUAL:
        explain_passed_on(replay, finding.layer, captured, exact)


def explain_passed_on(replay: Replay, layer: str, captured: Tensor, exact: Tensor) -> None:
    """Explain a wrong tensor that a layer was given, where a layer before it ends in another activation."""
    found = replay.fused.explain(captured, exact)
    if found is not None:
        replay.explainer.explained.setdefault(layer, found)
