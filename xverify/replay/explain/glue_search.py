"""Searches for what a port's glue code computes in place of the reference's.

Each hypothesis is a change of one operation of the reference's own code, or the same change of several ones. The tensor that
the port passed on is computed again with it. A hypothesis counts only when nothing but noise remains, and when no other one fits
nearly as well with another result.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...float64.arithmetic import float64_arithmetic
from ...float64.layer_kinds import channel_axis, may_overwrite
from ...float64.perturbation import DECISIONS, MARGIN, Noise
from ...float64.stepping import Models, Pause
from ...float64.structures import flatten, map_tensors
from ...results.verdicts import Verdict
from ...verdict.findings import Explanation, Finding
from ..layout import layouts
from ..tensors import Capture, Floors, Place, judge
from .difference import describe
from .evidence import FAR_BETTER, RIVAL, excess
from .faults.glue.catalogue import rewrites
from .faults.glue.operation import Operation, Rewrite
from .glue_fitting import fitted
from .glue_tape import Idle, Tape

FAILED_SEARCHES = 3  # tensors without an explanation after which the search ends, because it is slow
MOST_OPERATIONS = 400  # behind one tensor; the last ones are searched
MOST_VALUES = 6 * 10**9  # that the searches of one replay compute
OF_WEIGHTS = ("one stale weight", "some channels")  # patterns that say something about the weights of a layer
RECENT = 8  # layers whose tensors may be passed on in place of the right ones
Arithmetic = Callable[[], AbstractContextManager[Any]]  # Any: what a context manager returns is not used

ROUNDED_NUMBER = 1e-5  # relative change of a number; a smaller one may come from computing the number in float32
SAME = 1e-9  # relative difference (largest value) of two results in float64 that are the same


@dataclass(frozen=True)
class Hypothesis:
    """What a port may compute. value: the tensor that it then passes on. lines: of the reference's code that are changed.

    mistake: whether it is a mistake of the port, and neither a rounding of a number nor one of several that fit.
    """

    kind: str
    says: str
    lines: str
    value: Tensor
    mistake: bool = True


@dataclass(frozen=True)
class _Compared:
    """A wrong tensor. captured: of the port. floors: of the reference's. axis: of the channels."""

    finding: Finding
    captured: Tensor
    floors: Floors
    axis: int

    def judge(self, value: Tensor) -> Finding:
        """Compare the captured tensor with another exact one."""
        place = Place(self.finding.layer, self.finding.call, self.finding.index, self.finding.kind, self.finding.what)
        return judge(place, self.captured, self.floors.of(value), self.finding.terms, self.axis)

    def fits(self, value: Tensor) -> float | None:
        """R when the captured tensor is EQUAL to this one, and far nearer to it than to the reference's; else None."""
        exact = self.floors.exact
        if not value.shape == self.captured.shape == exact.shape or value.dtype != exact.dtype:
            return None
        found = self.judge(value)
        better = excess(found) * FAR_BETTER <= excess(self.finding)
        return found.ratio if found.verdict == Verdict.EQUAL and better else None


class GlueSearch:
    """Follows the exact pass of a replay, and explains what the port's glue code computes otherwise.

    enabled: whether to record the reference's glue code, without which nothing is explained.
    recent: the last layers that were compared, as (layer, call).
    known: the changes that explained a tensor, as (kind, clause).
    """

    def __init__(self, models: Models, capture: Capture) -> None:
        self.models, self.capture = models, capture
        self.enabled = False
        self.tape = Tape()
        self.recent: deque[tuple[str, int]] = deque(maxlen=RECENT)
        self.known: list[tuple[str, str]] = []
        self.remaining_searches, self.remaining_values = FAILED_SEARCHES, MOST_VALUES

    # -- the exact pass -------------------------------------------------------------------------------------------------

    def arithmetic(self) -> AbstractContextManager[Any]:
        """The arithmetic of the exact pass."""
        return self.tape.recording() if self.enabled else float64_arithmetic()

    def beside(self, arithmetic: Arithmetic = nullcontext) -> Arithmetic:
        """The arithmetic of a pass beside the exact one."""

        @contextmanager
        def both() -> Iterator[None]:
            with arithmetic(), Idle():
                yield

        return both if self.enabled else arithmetic

    def computed(self, layer: nn.Module, pause: Pause) -> Any:
        """What a layer that was not captured returns in the exact pass."""
        if not self.enabled:
            return self.models.compute(layer, pause.args)
        with self.tape.recording_layer(pause.spots):
            return self.models.compute(layer, pause.args)

    def compared(self, pause: Pause) -> None:
        """Note that a layer was compared."""
        self.recent.append((pause.layer, pause.call))

    def judged(self, place: Place, captured: Tensor, floors: Floors, axis: int) -> Finding:
        """Compare what the port's glue code computes, and explain it where it is wrong.

        floors: of what the reference's glue code computes. axis: axis of the channels.
        """
        finding = judge(place, captured, replace(floors, undecided=partial(self._undecided, floors.exact)), 1, axis)
        if finding.verdict == Verdict.EQUAL:
            self.tape.settle(floors.exact)
            return finding
        found = self.explanation(finding, captured, floors, axis) if self.enabled else None
        return finding if found is None else replace(finding, glue=found.says, mistake=found.mistake)

    def _undecided(self, exact: Tensor) -> Tensor:
        """Which whole numbers change when the operations of the glue code round MARGIN times as much."""
        found, operations = torch.zeros_like(exact, dtype=torch.bool), self.tape.behind(exact)
        for index in range(DECISIONS):
            noise = Noise(self.models.seed + index, MARGIN * self.models.precision.unit)
            value = self.tape.perturbed(exact, operations, noise, partial(self.models.perturbed_code, noise))
            if value is not None and value.shape == exact.shape:
                found |= value != exact
        return found

    def through_layer(self, finding: Finding, captured: Tensor, floors: Floors, pause: Pause, args: Any) -> Finding:
        """Explain a wrong output of a layer that is judged together with the glue code before it.

        args: the arguments of the layer; those that were not captured are the reference's own.
        """
        if not self.enabled or finding.verdict == Verdict.EQUAL:
            return finding
        layer = self.models.layers[pause.layer]
        outputs = self._outputs(layer, args, pause)
        if finding.index >= len(outputs):
            return finding
        axis = channel_axis(layer, captured.dim())
        found = self.explanation(finding, captured, floors.of(outputs[finding.index]), axis)
        return finding if found is None else replace(finding, glue=found.says, mistake=found.mistake)

    def of_layer(self, finding: Finding, args: Any, captured: Tensor, floors: Floors, axis: int) -> Explanation | None:
        """Explain the first output of a layer by its own code, of which every operation is recorded."""
        if captured.shape != floors.exact.shape:
            return None
        outputs = self._outputs(self.models.layers[finding.layer], args, Pause("", 0, ()))
        if not outputs or not outputs[0].is_floating_point():
            return None
        compared = _Compared(finding, captured, floors.of(outputs[0]), axis)
        chosen = self._chosen(compared, self._changes(outputs[0])) or self._fitted(compared)
        return None if chosen is None else Explanation(chosen.kind, chosen.says, mistake=chosen.mistake)

    def _outputs(self, layer: nn.Module, args: Any, pause: Pause) -> list[Tensor]:
        """What a layer returns for these arguments, with its operations recorded."""
        with torch.no_grad(), self.tape.recording_layer(pause.spots):
            copies = map_tensors(args, Tensor.clone) if may_overwrite(layer) else args
            return flatten(self.models.compute(layer, copies))

    # -- the search -----------------------------------------------------------------------------------------------------

    def explanation(self, finding: Finding, captured: Tensor, floors: Floors, axis: int) -> Explanation | None:
        """What the port computes in place of a tensor of the reference; None when nothing that is known does.

        captured: the port's tensor, in the reference's layout. floors: with the reference's tensor itself.
        """
        if self.remaining_searches == 0 or self.remaining_values <= 0:
            return None
        compared = _Compared(finding, captured, floors, axis)
        chosen = self._chosen(compared, self._hypotheses(floors.exact)) or self._fitted(compared)
        if chosen is not None:
            return Explanation(chosen.kind, f"the port {chosen.says}{chosen.lines}", mistake=chosen.mistake)
        found = describe(captured, floors.exact, lambda value: compared.fits(value) is not None)
        if found is None or found.kind in OF_WEIGHTS:
            self.remaining_searches -= 1
            return None
        return replace(found, says=f"the port's code there: {found.says}")

    def _chosen(self, compared: _Compared, hypotheses: Iterator[Hypothesis]) -> Hypothesis | None:
        """The hypothesis that explains a tensor; None when none does, or when several others do as well."""
        fitting: list[tuple[Hypothesis, float]] = []
        for hypothesis in hypotheses:
            ratio = compared.fits(hypothesis.value)
            if ratio is None or any(_same(hypothesis.value, other.value) for other, _ in fitting):
                continue
            fitting.append((hypothesis, ratio))
            if (hypothesis.kind, hypothesis.says) in self.known:
                break
        if not fitting:
            return None
        best, ratio = fitting[0]
        for hypothesis, other in fitting[1:]:
            if other < ratio / 2:
                best, ratio = hypothesis, other
        rivals = [each for each, other in fitting if each is not best and other <= RIVAL * ratio]
        if len({rival.kind for rival in rivals}) > 1:
            return None
        if not rivals:
            self.known.append((best.kind, best.says))
            return best
        return replace(best, says=f"{best.says}, or {rivals[0].says}: these inputs cannot tell which", mistake=False)

    def _hypotheses(self, exact: Tensor) -> Iterator[Hypothesis]:
        """What the port may have passed on in place of a tensor of the reference."""
        yield from self._changes(exact)
        yield from self._other_tensors(exact)

    def _changes(self, exact: Tensor) -> Iterator[Hypothesis]:
        """The changes of the operations behind a tensor; those that explained another tensor first."""
        operations = self.tape.behind(exact)[-MOST_OPERATIONS:]
        found = list(rewrites(operations))
        found.sort(key=lambda rewrite: (rewrite.kind, rewrite.says) not in self.known)
        for rewrite in found:
            value = self._value(exact, rewrite, operations)
            if value is not None and not _same(value, exact):
                yield Hypothesis(rewrite.kind, rewrite.says, _lines(list(rewrite.computes)), value)

    def _fitted(self, compared: _Compared) -> Hypothesis | None:
        """The first number in the operations behind a tensor that explains it with another value; None when none does."""
        exact = compared.floors.exact
        if not exact.is_floating_point():
            return None
        operations = self.tape.behind(exact)[-MOST_OPERATIONS:]
        for rewrite, value, change in fitted(
            operations, compared.captured, lambda rewrite: self._value(exact, rewrite, operations)
        ):
            if compared.fits(value) is not None:
                mistake = change > ROUNDED_NUMBER
                return Hypothesis(rewrite.kind, rewrite.says, _lines(list(rewrite.computes)), value, mistake)
        return None

    def _value(self, exact: Tensor, rewrite: Rewrite, operations: Sequence[Operation]) -> Tensor | None:
        """What a tensor is with some operations changed; None where the change does not fit, and when enough was computed."""
        if self.remaining_values <= 0:
            return None
        first = min(each.number for each in rewrite.computes)
        self.remaining_values -= 1 + sum(each.size // 8 for each in operations if each.number >= first)
        return self.tape.value(exact, rewrite, operations)

    def _other_tensors(self, exact: Tensor) -> Iterator[Hypothesis]:
        """The tensors of the last layers, which the port may pass on, or add, by mistake."""
        for name, call in reversed(self.recent):
            record = self.capture.records.get((name, call))
            for what, files in (("output", record.outputs), ("input", record.inputs)) if record else ():
                for file in files:
                    for tensor in layouts(self.capture.load(file), exact.shape, None, self.capture.channels_last):
                        if not (tensor.is_floating_point() and exact.is_floating_point()):
                            continue
                        says, value = f"the {what} of `{name}`", tensor.double()
                        yield Hypothesis("another tensor", f"passes on {says}", "", value)
                        yield Hypothesis("term added", f"adds {says}, which the reference does not", "", exact + value)


def _lines(operations: Sequence[Operation]) -> str:
    """The lines of the changed operations, for a sentence; "" where they are unknown."""
    lines = list(dict.fromkeys(operation.line for operation in operations if operation.line))
    return f" ({', '.join(lines)})" if 0 < len(lines) <= 4 else ""


def _same(value: Tensor, other: Tensor) -> bool:
    """Whether two results in float64 are the same."""
    if value.shape != other.shape or value.is_floating_point() != other.is_floating_point():
        return False
    if not value.is_floating_point():
        return torch.equal(value, other)
    size = float(other.abs().max()) if other.numel() else 0.0
    if not math.isfinite(size):
        return torch.equal(value, other)
    return bool(((value - other).abs() <= SAME * size).all())
