"""Searches for what a port's glue code computes in place of the reference's.

Each hypothesis is a change of one operation of the reference's own code, or the same change of several ones. The tensor that
the port passed on is computed again with it. A hypothesis counts only when nothing but noise remains, and when no other one fits
nearly as well with another result.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

from ..float64.layer_kinds import may_overwrite
from ..float64.perturbation import Noise
from ..float64.source import Spot
from ..float64.stepping import Models, Pause
from ..float64.structures import flatten, map_tensors
from ..replay.difference import Difference
from ..replay.layout import layouts
from ..replay.operation import Compute, Operation, Source
from ..replay.tape import Tape
from ..replay.tensors import Capture, Floors
from ..results.verdicts import Verdict
from ..verdict.findings import Explanation
from .evidence import best_and_near, compared, fits, is_near
from .faults.glue.catalogue import rewrites
from .faults.glue.operands import before, clause, other_operands
from .faults.glue.operation import Rewrite
from .faults.glue.settings import products, settings
from .glue_fitting import DIGITS, Numbers, fitted
from .patterns import describe

FAILED_SEARCHES = 3  # tensors without an explanation after which the search ends, because it is slow
MOST_OPERATIONS = 400  # behind one tensor; the last ones are searched
MOST_VALUES = 6 * 10**9  # that the searches of one replay compute
OF_WEIGHTS = ("one stale weight", "some channels")  # patterns that say something about the weights of a layer
SAMPLES = 8  # of the noise floor of a hypothesis; it is enough that one of them is as large as the port's rounding
RECENT = 8  # layers whose tensors may be passed on in place of the right ones

ROUNDED_NUMBER = 1e-5  # relative change of a number; a smaller one may come from computing the number in float32
SAME = 1e-9  # relative difference (largest value) of two results in float64 that are the same


@dataclass(frozen=True)
class Hypothesis:
    """What a port may compute. value: the tensor that it then passes on. lines: of the reference's code that are changed.

    mistake: whether it is a mistake of the port, and neither a rounding of a number nor one of several that fit.
    computes: the operations that are changed.
    """

    kind: str
    says: str
    lines: str
    value: Tensor
    mistake: bool = True
    computes: Mapping[Operation, Compute] = field(default_factory=dict)


class GlueSearch:
    """Explains what the port's glue code computes otherwise than the reference's.

    tape: the operations of the reference's code.
    recent: the last layers that were compared, as (layer, call). given: what the reference gives each of them.
    known: the changes that explained a tensor, as (kind, clause).
    """

    def __init__(self, models: Models, capture: Capture, tape: Tape) -> None:
        self.models, self.capture, self.tape = models, capture, tape
        self.recent: deque[tuple[str, int]] = deque(maxlen=RECENT)
        self.given: deque[list[ReferenceType[Tensor]]] = deque(maxlen=RECENT)
        self.known: list[tuple[str, str]] = []
        self.remaining_searches, self.remaining_values = FAILED_SEARCHES, MOST_VALUES

    def compared(self, pause: Pause) -> None:
        """Note that a layer was compared."""
        self.recent.append((pause.layer, pause.call))
        self.given.append([ref(tensor) for tensor in flatten(pause.args)])

    def of_layer(self, difference: Difference, args: Any) -> Explanation | None:
        """Explain the first output of a layer by its own code, of which every operation is recorded."""
        floors = difference.floors
        if difference.captured.shape != floors.exact.shape:
            return None
        outputs = self.outputs(self.models.layers[difference.finding.layer], args)
        if not outputs or not outputs[0].is_floating_point():
            return None
        compared = replace(difference, floors=floors.of(outputs[0]))
        chosen = self._chosen(compared, self._changes(outputs[0])) or self._fitted(compared)
        return None if chosen is None else Explanation(chosen.kind, chosen.says, mistake=chosen.mistake)

    def outputs(self, layer: nn.Module, args: Any, spots: Sequence[Spot] = ()) -> list[Tensor]:
        """What a layer returns for these arguments, with its operations recorded. spots: the lines of the model that call it."""
        with torch.no_grad(), self.tape.recording_layer(spots):
            copies = map_tensors(args, Tensor.clone) if may_overwrite(layer) else args
            return flatten(self.models.compute(layer, copies))

    def explanation(self, difference: Difference) -> Explanation | None:
        """What the port computes in place of a tensor of the reference; None when nothing that is known does.

        difference: its floors have the reference's tensor itself, whose operations were recorded.
        """
        if self.remaining_searches == 0 or self.remaining_values <= 0:
            return None
        exact = difference.floors.exact
        chosen = self._chosen(difference, self._hypotheses(exact)) or self._fitted(difference)
        if chosen is not None:
            return Explanation(chosen.kind, f"the port {chosen.says}{chosen.lines}", mistake=chosen.mistake)
        explanation = describe(
            difference.captured, exact, lambda value: fits(difference, value) is not None, difference.axis
        )
        if explanation is None or explanation.kind in OF_WEIGHTS:
            self.remaining_searches -= 1
            return None
        return replace(explanation, says=f"the port's code there: {explanation.says}")

    def _chosen(self, difference: Difference, hypotheses: Iterator[Hypothesis]) -> Hypothesis | None:
        """The hypothesis that explains a tensor; None when none does, or when several others do as well."""
        fitting: list[tuple[Hypothesis, float]] = []
        for hypothesis in hypotheses:
            ratio = self._ratio(difference, hypothesis)
            if ratio is None or any(_same(hypothesis.value, other.value) for other, _ in fitting):
                continue
            fitting.append((hypothesis, ratio))
            if (hypothesis.kind, hypothesis.says) in self.known:
                break
        if not fitting:
            return None
        best, rivals = best_and_near(fitting)
        if len({rival.kind for rival in rivals}) > 1:
            return None
        if not rivals:
            self.known.append((best.kind, best.says))
            return best
        return _either(best, rivals[0])

    def _ratio(self, difference: Difference, hypothesis: Hypothesis) -> float | None:
        """R of the tensor with a hypothesis when it explains the tensor, else None.

        A port with a fault may round more than the reference. Where the hypothesis comes near, its own noise floor is measured.
        """
        found = compared(difference, hypothesis.value)
        if found is None or found.verdict == Verdict.EQUAL or not hypothesis.computes or not is_near(found, difference):
            return fits(difference, hypothesis.value)
        exact, value, unit = difference.floors.exact, hypothesis.value, difference.floors.unit
        operations = self.tape.behind(exact)
        for index in range(SAMPLES):
            noise = Noise(self.models.seed + index, unit)
            arithmetic = partial(self.models.perturbed_code, noise)
            perturbed = self.tape.perturbed(exact, operations, noise, arithmetic, hypothesis.computes)
            if perturbed is None or perturbed.shape != value.shape:
                return None
            floors = Floors.between(value, perturbed, None, difference.axis, unit)
            ratio = fits(replace(difference, floors=floors), value)
            if ratio is not None:
                return ratio
        return None

    def _hypotheses(self, exact: Tensor) -> Iterator[Hypothesis]:
        """What the port may have passed on in place of a tensor of the reference."""
        yield from self._changes(exact)
        yield from self._older(exact)
        yield from self._other_tensors(exact)

    def _changes(self, exact: Tensor) -> Iterator[Hypothesis]:
        """The changes of the operations behind a tensor; those that explained another tensor first.

        A transposed operand comes last: scores are transposed where queries and keys are exchanged, which is the likelier fault.
        """
        operations = self.tape.behind(exact)[-MOST_OPERATIONS:]
        found = [*rewrites(operations), *other_operands(operations, self._named, self._outputs())]
        found.sort(key=lambda each: ((each.kind, each.says) not in self.known, each.kind == "operand transposed"))
        for rewrite in found:
            value = self._value(exact, rewrite, operations)
            if value is not None and not _same(value, exact):
                yield Hypothesis(
                    rewrite.kind, rewrite.says, _lines(list(rewrite.computes)), value, computes=rewrite.computes
                )

    def _fitted(self, difference: Difference) -> Hypothesis | None:
        """Another value of a number that explains a tensor; None when none does.

        A factor that the reference does not have may stand for a number that it has, so it is searched last.
        """
        return self._with_number(difference, settings) or self._with_number(difference, products)

    def _with_number(self, difference: Difference, numbers: Numbers) -> Hypothesis | None:
        """The number in the operations behind a tensor that explains it with another value; None when none does.

        Where several do, such as a base and a factor of its exponents, it is the one whose value has the fewest digits.
        """
        exact = difference.floors.exact
        if not exact.is_floating_point():
            return None
        operations = self.tape.behind(exact)[-MOST_OPERATIONS:]
        found: list[tuple[int, Hypothesis]] = []
        for rewrite, value, fit in fitted(
            operations, numbers, difference.captured, lambda rewrite: self._value(exact, rewrite, operations)
        ):
            hypothesis = Hypothesis(
                rewrite.kind, rewrite.says, _lines(list(rewrite.computes)), value, fit.change > ROUNDED_NUMBER
            )
            confirmed = exact.numel() > 1 or fit.digits <= DIGITS  # some number explains any tensor of one value
            if confirmed and fits(difference, value) is not None:
                found.append((fit.digits, hypothesis))
        if not found:
            return None
        fewest = min(digits for digits, _ in found)
        best, *others = [hypothesis for digits, hypothesis in found if digits == fewest]
        rival = next((other for other in others if other.kind != best.kind), None)
        return best if rival is None else _either(best, rival)

    def _value(self, exact: Tensor, rewrite: Rewrite, operations: Sequence[Operation]) -> Tensor | None:
        """What a tensor is with some operations changed; None where the change does not fit, and when enough was computed."""
        if self.remaining_values <= 0:
            return None
        first = min(each.number for each in rewrite.computes)
        self.remaining_values -= 1 + sum(each.size // 8 for each in operations if each.number >= first)
        return self.tape.value(exact, rewrite.computes, operations)

    def _outputs(self) -> list[Tensor]:
        """The outputs of the last layers in float64, the last one first."""
        records = [record for key in reversed(self.recent) if (record := self.capture.records.get(key)) is not None]
        found = [self.capture.load(file) for record in records for file in record.outputs]
        return [tensor.double() for tensor in found if tensor.is_floating_point() and tensor.numel() > 1]

    def _named(self, tensor: Tensor) -> str:
        """What a sentence calls a weight of the model or the output of one of the last layers; "" for anything else."""
        for name, weight in (*self.models.float64_model.named_parameters(), *self.models.float64_model.named_buffers()):
            if weight is tensor:
                return f"`{name}`"
        for name, call in reversed(self.recent):
            record = self.capture.records.get((name, call))
            for file in record.outputs if record else ():
                captured = self.capture.load(file)
                if captured.shape == tensor.shape and torch.equal(captured.double(), tensor):
                    return f"the output of `{name}`"
        return ""

    def _older(self, exact: Tensor) -> Iterator[Hypothesis]:
        """The values of the same shape from which the reference computes a tensor: a port may pass on one of them."""
        operations = self.tape.behind(exact)
        for older in before(Source(exact, exact._version, operations[-1])) if operations else ():
            if not _same(older.tensor, exact):
                says = f"passes on {clause(Source(exact, 0, operations[-1]), older, self._named)}"
                yield Hypothesis("older value", says, "", older.tensor)

    def _other_tensors(self, exact: Tensor) -> Iterator[Hypothesis]:
        """The tensors of the last layers, which the port may pass on, or add, by mistake, and zeros."""
        if exact.is_floating_point():
            yield Hypothesis("zeros", "passes on zeros, such as a state that is reset", "", torch.zeros_like(exact))
        for (name, call), given in zip(reversed(self.recent), reversed(self.given)):
            record = self.capture.records.get((name, call))
            if record and any(each() is exact for each in given):  # the reference gives both layers the same tensor
                record = replace(record, inputs=())
            for what, files in (("output", record.outputs), ("input", record.inputs)) if record else ():
                for file in files:
                    for tensor in layouts(self.capture.load(file), exact.shape, None, self.capture.channels_last):
                        if not (tensor.is_floating_point() and exact.is_floating_point()):
                            continue
                        says, value = f"the {what} of `{name}`", tensor.double()
                        yield Hypothesis("another tensor", f"passes on {says}", "", value)
                        yield Hypothesis("term added", f"adds {says}, which the reference does not", "", exact + value)


def _either(best: Hypothesis, rival: Hypothesis) -> Hypothesis:
    """One of two that explain a tensor alike."""
    return replace(best, says=f"{best.says}, or {rival.says}: these inputs cannot tell which", mistake=False)


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
