"""Records of a replay, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from .figures import shown_limit, shown_ratio
from .verdicts import Verdict, settle_verdict

MOST_NAMES = 3  # layers with one fault that a sentence names
OUTPUT = "(output) "  # the name of a layer begins with this when it stands for an output of the model


@dataclass(frozen=True)
class LayerError:
    """The result of one layer of the reference, over all its calls.

    kind: class of the layer in torch.
    calls: number of calls that were compared.
    ratio, channel_ratio: R and C, residual / noise floor, of what the layer computed; C of its worst group of values.
    input_ratio: R of the inputs that the layer was given; they are compared with what the reference's glue code computes from
        the outputs of earlier layers.
    verdict: the worst verdict on a tensor of the layer; UNTESTED where all are EQUAL and one of them could not have shown a fault.
    faulty: "output" when the layer itself has the worst finding, "input" when the glue code before it has; in a backward pass the
        name of the gradient. Of a layer that is UNTESTED, the tensor in which no fault could have shown.
    terms: length of the sums behind one value.
    mean_abs, max_abs, rel_rms: errors of the worst finding.
    reason: why no ratio could be computed; None when one was computed.
    explanation: what the layer computes instead, when a known alternative explains it.
    rounding: whether the layer is right but computes in another precision.
    after: where glue code differs, the layer that was compared before it; "" for the inputs of the model.
    source: where glue code differs, the lines of the reference between the calls of both layers; "" where they are unknown.
    joined: why the glue code before the layer is judged together with it; "" when it is not.
    glue: where glue code differs, what the port's glue code computes instead; "" where that is unknown.
    small: whether the explanation is a mistake of the port, which is a fault although the difference alone would be DRIFT.
    detection_limit: the smallest relative error of what the layer computes, or is given, that would not have been EQUAL, in the
        median group of values; None where it was not measured.
    detection_limit_worst: the same in the worst group. detection_limit_index, detection_limit_value: of an error in one index of an
        axis, and in one value.
    undetermined: share of values that have no digit which the precision determines; they are in no ratio.
    case: the first input case in which it has this verdict.
    """

    layer: str
    kind: str
    calls: int
    ratio: float
    channel_ratio: float
    input_ratio: float
    verdict: Verdict
    faulty: str = "output"
    terms: int = 1
    mean_abs: float | None = None
    max_abs: float | None = None
    rel_rms: float | None = None
    reason: str | None = None
    explanation: str | None = None
    rounding: bool = False
    after: str = ""
    source: str = ""
    joined: str = ""
    glue: str = ""
    small: bool = False
    detection_limit: float | None = None
    detection_limit_worst: float | None = None
    detection_limit_index: float | None = None
    detection_limit_value: float | None = None
    undetermined: float = 0.0
    case: int = 0

    def __post_init__(self) -> None:
        settle_verdict(self, Verdict)

    @property
    def name(self) -> str:
        """The layer in a sentence. A number alone says nothing, so its kind stands beside it."""
        return f"layer {self.layer} ({self.kind})" if _is_number(self.layer) else self.layer

    @property
    def largest_ratio(self) -> float:
        """The largest residual / noise floor; infinite where none could be computed."""
        if self.reason is not None:
            return math.inf
        return max(self.ratio, self.input_ratio, self.channel_ratio)

    def says(self, before: str = "", first: bool = True) -> str:
        """Where the fault is and what it looks like, in one clause.

        before: the layer that is computed just before this one; when it is omitted, a fault in glue code has one end only.
        first: whether it is the first fault in the order of computation.
        """
        if self.verdict == Verdict.UNTESTED:
            given = "what is given to " if self.faulty == "input" else ""
            return f"{given}{self.name} is UNTESTED: {self._unseen}"
        return self._says(before, first) + (f" (input case {self.case})" if self.case else "")

    def _says(self, before: str, first: bool) -> str:
        worst = max(self.ratio, self.input_ratio)
        channel = f" (worst group {shown_ratio(self.channel_ratio, 3)} x)" if self.channel_ratio else ""
        size = f"{shown_ratio(worst, 3)} x its noise floor{channel}"
        what = self.explanation or self.reason
        if self.faulty == "input":
            told = f": {self.reason}" if self.reason else f" is already wrong, {size}"
            also = f"; besides, {self.name} {self.explanation}" if self.explanation and not self.reason else ""
            glue = f": {self.glue}" if self.glue else ""
            fault = "a small fault" if self.small else "Fault"
            return f"{fault} {self.place(before)}: {self._given}{told}{glue}{also}"
        where = self.name if self.faulty == "output" else f"{self.name}, {self.faulty}"
        what = what or (self.glue if self.joined else "")
        if self.small and what:
            told = f"a small fault: {where if _is_number(self.layer) else f'`{where}`'} {what}"
        else:
            told = f"{where}: {what}" if what else f"{where} differs{' first' * first}: {size}"
        return f"{told} ({self.joined}; {self.place(before)} or in it)" if self.joined else told

    def place(self, before: str = "") -> str:
        """Where the glue code before this layer is: the layers around it, and the lines of the reference between their calls."""
        after = self.after or ("" if self.source else before)
        _, is_output, output = self.layer.partition(OUTPUT)
        what = f"the output `{output}`" if is_output else quoted(self.layer)
        start = quoted(after) if after else "the model's inputs"
        place = f"between {start} and {what}" if after or self.source else f"before {what}"
        return place + (f" ({self.source})" if self.source else "")

    @property
    def _unseen(self) -> str:
        """Why no fault could have shown."""
        if self.undetermined > 1 / 2:
            return f"{self.undetermined:.1%} of its values have no digit that its precision determines"
        return f"a relative error of {shown_limit(self.detection_limit or 0.0)} would not have been seen"

    @property
    def _given(self) -> str:
        _, is_output, output = self.layer.partition(OUTPUT)
        return f"the output `{output}`" if is_output else f"the input of {quoted(self.layer)}"


@dataclass(frozen=True)
class Layers:
    """The results of a replay of one framework, layer by layer in the order of computation.

    compared, known: number of compared layers, and of all layers of the reference.
    missing: layers that were not captured; each was judged together with the glue code.
    subject: the subject that was captured.
    stopped: why the replay ended early; "" when it did not.
    matched: canonical name -> the framework's own name, where layers were matched by order and shape.
    mode: the mode in which the captured pass ran; "" when it ran in none of the framework's modes.
    failed: subjects that build the same model and could not be captured -> the reason.
    partial: layers of which some call was not captured.
    uncalled: layers that the reference does not call on these inputs, so that there is nothing to capture.
    notes: sentences on how layers and calls were compared where the port is written in another way than the reference.
    cases: the input cases in which the layers were judged.
    equal_cases: those of several in which every layer was compared and is EQUAL; see ``equal_in``.
    """

    layers: tuple[LayerError, ...] = ()
    compared: int = 0
    known: int = 0
    missing: tuple[str, ...] = ()
    subject: str = ""
    stopped: str = ""
    matched: dict[str, str] = field(default_factory=dict)
    mode: str = ""
    failed: dict[str, str] = field(default_factory=dict)
    partial: tuple[str, ...] = ()
    uncalled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cases: tuple[int, ...] = (0,)
    equal_cases: tuple[int, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every call of every layer of the reference was compared and could be judged, and the replay reached its end."""
        gaps = self.stopped or self.partial or set(self.missing) - set(self.uncalled)
        return self.compared > 0 and not (gaps or self.untested)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on a layer that could be judged."""
        found = (layer.verdict for layer in self.layers if layer.verdict != Verdict.UNTESTED)
        return Verdict.worst(found, Verdict.EQUAL)

    @property
    def untested(self) -> tuple[LayerError, ...]:
        """The layers in which no fault could have shown."""
        return tuple(layer for layer in self.layers if layer.verdict == Verdict.UNTESTED)

    @property
    def judged(self) -> float:
        """The share of the compared layers in which a fault could have shown."""
        return 1 - len(self.untested) / max(1, len(self.layers))

    @property
    def equal_in(self) -> tuple[int, ...]:
        """The input cases in which every layer was compared and is EQUAL."""
        return self.cases if self.complete and self.verdict == Verdict.EQUAL else self.equal_cases

    @property
    def rounding(self) -> bool:
        """Whether some layers are not EQUAL, and another precision explains all of them."""
        found = self._differing
        return bool(found) and all(layer.rounding for layer in found)

    @cached_property
    def first(self) -> LayerError | None:
        """The first layer with the worst verdict; None when no layer differs."""
        worst = self.verdict
        return next((layer for layer in self._differing if layer.verdict == worst), None)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every fault once, the largest first. Layers that only drift come last."""
        groups: dict[object, list[LayerError]] = {}
        for layer in self._differing:
            groups.setdefault(_same_fault(layer), []).append(layer)
        found = [self._fault(layers) for layers in groups.values()]
        return tuple(sorted(found, key=lambda fault: (not fault.worst.verdict.fails, -fault.worst.largest_ratio)))

    def describe(self, layer: LayerError) -> str:
        """Where the fault of one of these layers is and what it looks like, in one clause."""
        return layer.says(self._before.get(layer.layer, ""), layer is self.first)

    @cached_property
    def _before(self) -> dict[str, str]:
        """Layer -> the layer before it."""
        names = [layer.layer for layer in self.layers]
        return dict(zip(names[1:], names))

    @cached_property
    def _differing(self) -> list[LayerError]:
        return [layer for layer in self.layers if layer.verdict > Verdict.EQUAL and layer.verdict != Verdict.UNTESTED]

    def _fault(self, layers: list[LayerError]) -> Fault:
        clause = self.describe(layers[0])
        also = f" (also {named(each.layer for each in layers[1:])})" if layers[1:] else ""
        worst = max(layers, key=lambda layer: layer.largest_ratio)
        return Fault(worst, clause, clause + also, any(layer is self.first for layer in layers))


@dataclass(frozen=True)
class Fault:
    """A fault that one or several layers show.

    worst: the layer with the largest residual / noise floor. clause: on the first layer. says: the same with the other layers.
    first: whether it is the first in the order of computation.
    """

    worst: LayerError
    clause: str
    says: str
    first: bool


def _same_fault(layer: LayerError) -> object:
    """What two layers share that show the same fault: the explanation, or a wrong tensor that both are given."""
    if layer.faulty == "input":
        errors = (layer.mean_abs, layer.max_abs, layer.rel_rms)
        return layer.glue or (errors if all(errors) else layer.layer)
    alone = layer.joined or layer.explanation is None
    return layer.layer if alone else (layer.explanation, layer.faulty, layer.verdict, layer.small)


def _is_number(name: str) -> bool:
    """Whether a name is the place of a layer in a list, such as ``1`` or ``2.0``."""
    return name.replace(".", "").isdigit()


def quoted(name: str) -> str:
    """The name of a layer in a sentence."""
    return f"layer {name}" if _is_number(name) else f"`{name}`"


def named(names: Iterable[str]) -> str:
    """The first of some names, and how many more there are."""
    known = [quoted(name) for name in names]
    more = len(known) - MOST_NAMES
    return ", ".join(known[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def told(faults: Iterable[Fault], most: int, where: str = "") -> list[str]:
    """The clauses of some faults, the first of the computation among them.

    most: number of faults that are told; the others are counted. where: what shows all.
    """
    every = list(faults)
    shown = every[:most]
    shown += [fault for fault in every[most:] if fault.first]
    lines = [
        fault.says + " (the first in the order of computation)" * (fault.first and index > 0)
        for index, fault in enumerate(shown)
    ]
    more = len(every) - len(shown)
    return [*lines, f"and {more} more{where}"] if more else lines
