"""Records of a replay, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, field

from .verdicts import Verdict, settle_verdict

OUTPUT = "(output) "  # the name of a layer begins with this when it stands for an output of the model


@dataclass(frozen=True)
class LayerError:
    """The result of one layer of the reference, over all its calls.

    kind: class of the layer in torch.
    calls: number of calls that were compared.
    ratio, channel_ratio: R and C, residual / noise floor, of what the layer computed.
    input_ratio: R of the inputs that the layer was given; they are compared with what the reference's glue code computes from
        the outputs of earlier layers.
    verdict: the worst verdict on a tensor of the layer.
    faulty: "output" when the layer itself has the worst finding, "input" when the glue code before it has; in a backward pass the
        name of the gradient.
    terms: length of the sums behind one value.
    mean_abs, max_abs, rel_rms: errors of the worst finding.
    reason: why no ratio could be computed; None when one was computed.
    explanation: what the layer computes instead, when a known alternative explains it.
    rounding: whether the layer is right but computes in another precision.
    after: where glue code differs, the layer that was compared before it; "" for the inputs of the model.
    source: where glue code differs, the lines of the reference between the calls of both layers; "" where they are unknown.
    joined: why the glue code before the layer is judged together with it; "" when it is not.
    glue: where glue code differs, what the port's glue code computes instead; "" where that is unknown.
    case: the input case in which it has the worst finding.
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
    case: int = 0

    def __post_init__(self) -> None:
        settle_verdict(self, Verdict)

    def says(self, before: str = "") -> str:
        """Where the fault is and what it looks like, in one clause.

        before: the layer that is computed just before this one; when it is omitted, a fault in glue code has one end only.
        """
        return self._says(before) + (f" (input case {self.case})" if self.case else "")

    def _says(self, before: str) -> str:
        worst = max(self.ratio, self.input_ratio)
        channel = f" (worst channel {self.channel_ratio:.3g} x)" if self.channel_ratio else ""
        size = f"{worst:.3g} x its noise floor{channel}"
        what = self.explanation or self.reason
        if self.faulty == "input":
            told = f": {self.reason}" if self.reason else f" is already wrong, {size}"
            also = f"; besides, {self.layer} {self.explanation}" if self.explanation and not self.reason else ""
            glue = f": {self.glue}" if self.glue else ""
            return f"Fault {self.place(before)}: {self._given}{told}{glue}{also}"
        where = self.layer if self.faulty == "output" else f"{self.layer}, {self.faulty}"
        what = what or (self.glue if self.joined else "")
        told = f"{where}: {what}" if what else f"{where} differs first: {size}"
        return f"{told} ({self.joined}; {self.place(before)} or in it)" if self.joined else told

    def place(self, before: str = "") -> str:
        """Where the glue code before this layer is: the layers around it, and the lines of the reference between their calls."""
        after = self.after or ("" if self.source else before)
        _, is_output, output = self.layer.partition(OUTPUT)
        what = f"the output `{output}`" if is_output else f"`{self.layer}`"
        start = f"`{after}`" if after else "the model's inputs"
        place = f"between {start} and {what}" if after or self.source else f"before {what}"
        return place + (f" ({self.source})" if self.source else "")

    @property
    def _given(self) -> str:
        _, is_output, output = self.layer.partition(OUTPUT)
        return f"the output `{output}`" if is_output else f"the input of `{self.layer}`"


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
        """Whether every call of every layer of the reference was compared, and the replay reached its end."""
        return self.compared > 0 and not (self.stopped or self.partial or set(self.missing) - set(self.uncalled))

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on a layer."""
        return Verdict.worst((layer.verdict for layer in self.layers), Verdict.EQUAL)

    @property
    def equal_in(self) -> tuple[int, ...]:
        """The input cases in which every layer was compared and is EQUAL."""
        return self.cases if self.complete and self.verdict == Verdict.EQUAL else self.equal_cases

    @property
    def rounding(self) -> bool:
        """Whether some layers are not EQUAL, and another precision explains all of them."""
        found = [layer for layer in self.layers if layer.verdict != Verdict.EQUAL]
        return bool(found) and all(layer.rounding for layer in found)

    @property
    def first(self) -> LayerError | None:
        """The first layer with the worst verdict; None when all are EQUAL."""
        worst = self.verdict
        return next((layer for layer in self.layers if layer.verdict == worst != Verdict.EQUAL), None)

    def describe(self, layer: LayerError) -> str:
        """Where the fault of one of these layers is and what it looks like, in one clause."""
        names = ["", *(each.layer for each in self.layers)]
        return layer.says(names[self.layers.index(layer)])
