"""Records of the precision of a model file, and of what its quantisation costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .figures import Figures

UNKNOWN = "unknown"
FULL = ("", "float32", "float64")  # nothing is lost in comparison with a float32 reference
MIXED = "mixed"


@dataclass(frozen=True)
class LayerPrecision:
    """The precision of one layer, which is an operator that sums products with weights.

    weights: dtype in which the weights are stored.
    quantised: whether the weights are whole numbers with a scale.
    granularity: "per tensor", "per channel" or "per block" for quantised weights.
    activations: dtype to which the inputs are quantised; "" when they are not.
    scheme: "static" or "dynamic" for quantised inputs: whether the file holds their scale.
    computed: dtype in which the products are summed up, or in which their result is given; "" when it is unknown.
    """

    weights: str
    quantised: bool = False
    granularity: str = ""
    activations: str = ""
    scheme: str = ""
    computed: str = ""

    def __str__(self) -> str:
        if not (self.quantised or self.activations):
            if self.computed in ("", self.weights):
                return self.weights
            return f"{self.weights} weights, computed in {self.computed}"
        grain = f", {self.granularity}" if self.granularity else ""
        if not self.activations:
            computed = f", computed in {self.computed}" if self.computed else ""
            return f"{self.weights} weights only{grain}{computed}"
        return f"{self.weights} {self.scheme}{grain}, weights and {self.activations} activations"


@dataclass(frozen=True)
class Precision:
    """The precision of a model file, as far as its format tells.

    says: in words; "unknown" where the format cannot tell.
    name: the same in one or two words: a dtype, "mixed" or "unknown".
    weights: dtype in which most values of the weights are stored; of a mixed file, in layers below float32.
    computed: floating-point dtype in which most layers compute; "" when it is unknown. Of a mixed file that is not quantised, that
        of layers below float32.
    quantised: whether some layer has weights or inputs that are whole numbers with a scale.
    activations: dtype of quantised inputs of layers; "" when there are none.
    scheme: "static", "dynamic", or "" when no inputs are quantised.
    granularity: "per tensor", "per channel", "per block", or "" when no weights are quantised.
    layers: number of layers by precision, in words; empty where the format does not show layers.
    """

    says: str = UNKNOWN
    name: str = UNKNOWN
    weights: str = ""
    computed: str = ""
    quantised: bool = False
    activations: str = ""
    scheme: str = ""
    granularity: str = ""
    layers: dict[str, int] = field(default_factory=dict)

    @property
    def is_narrow(self) -> bool:
        """Whether it is known to be lower than float32."""
        return self.quantised or self.weights not in FULL or self.computed not in FULL


def from_layers(layers: Iterable[LayerPrecision]) -> Precision:
    """The precision of a file by that of its layers."""
    counts = Counter(layers)
    if not counts:
        return Precision()
    most = counts.most_common(1)[0][0]
    words = Counter({str(each): 0 for each in counts})
    for each, count in counts.items():
        words[str(each)] += count
    quantised = [each for each in counts if each.quantised or each.activations]
    narrow = [each for each in counts if each.weights not in FULL or each.computed not in FULL]
    # A file with few layers below float32 is as exact as these.
    shown = max(quantised or narrow, key=lambda each: counts[each], default=most)
    total = sum(counts.values())
    says = str(most)
    if len(words) > 1:
        says = "; ".join(f"{count} of {total} layers {text}" for text, count in words.most_common())
    return Precision(
        says=f"{MIXED}: {says}" if len(words) > 1 else says,
        name=_name(most) if len(words) == 1 else MIXED,
        weights=shown.weights,
        computed=most.computed if quantised else shown.computed,
        quantised=bool(quantised),
        activations=shown.activations,
        scheme=shown.scheme,
        granularity=shown.granularity,
        layers=dict(words.most_common()),
    )


def _name(layer: LayerPrecision) -> str:
    """One or two words for the precision of a layer."""
    if layer.activations:
        return f"{layer.weights} {layer.scheme}"
    plain = not layer.quantised and layer.computed in ("", layer.weights)
    return layer.weights if plain else f"{layer.weights} weights"


def from_dtypes(sizes: Mapping[str, int], computed: str = "") -> Precision:
    """The precision of a file whose layers are not shown.

    sizes: dtype -> number of values of weights that are stored in it.
    computed: the dtype in which the file computes; "" when that is unknown.
    """
    floats = Counter({name: size for name, size in sizes.items() if size and "float" in name})
    if not floats:
        return Precision(computed, computed, "", computed) if computed else Precision()
    most = floats.most_common(1)[0][0]
    if len(floats) > 1:
        total = sum(floats.values())
        says = ", ".join(f"{size / total:.0%} of the weights in {name}" for name, size in floats.most_common())
        return Precision(f"{MIXED}: {says}", MIXED, most, computed)
    layer = LayerPrecision(most, computed=computed)
    return Precision(str(layer), _name(layer), most, computed)


@dataclass(frozen=True)
class LayerCost:
    """What the quantisation of one layer costs.

    The layer is computed as the file says, with its quantised weights and inputs, from the reference's values. Only its result then
    goes through the rest of the reference.

    layer: name of the node in the reference. kind: its operator. module: its module in the source; "" when the file does not say.
    local: rms of the change of its result / rms of the result. local_sqnr: the same in dB.
    cost: rms of the change of the outputs / rms of the outputs, of the output that changes most; None when it was not computed.
    sqnr: the same in dB. share: part of the sum of the squares of all costs.
    weights_sqnr, inputs_sqnr: of the quantised weights, and of the worst quantised input, in dB; None where there are none.
    coarse: how many times larger the scale of the weights is than their values need; None for weights of no known scale.
    output: the output that changes most.
    wide: how many times wider the range of a quantised input is than its values in the reference, of the input that has most;
        None where no input has a range. wide_input: the name of this input. bits: of a quantised weight.
    """

    layer: str
    kind: str
    module: str = ""
    local: float = 0.0
    local_sqnr: float | None = None
    cost: float | None = None
    sqnr: float | None = None
    share: float | None = None
    weights_sqnr: float | None = None
    inputs_sqnr: float | None = None
    coarse: float | None = None
    output: str = ""
    wide: float | None = None
    wide_input: str = ""
    bits: int = 8

    def saved(self, factor: float, inputs: bool = False) -> float | None:
        """The decibels by which the SQNR at the outputs would be larger, had the weights so many times finer steps; None: unknown.

        inputs: had the quantised inputs finer steps instead.
        """
        if self.share is None:
            return None
        weights, given = (
            0.0 if each is None else 10.0 ** (-each / 10) for each in (self.weights_sqnr, self.inputs_sqnr)
        )
        part = (given if inputs else weights) / (weights + given) if weights + given else 0.0
        left = 1.0 - self.share * part * (1.0 - factor**-2)
        return -10.0 * math.log10(left) if left > 0 else None


@dataclass(frozen=True)
class Quantisation:
    """The error of a quantised file, apart from that of its runtime.

    layers: the layers that correspond to layers of the reference, the most expensive first.
    known: number of layers with quantised weights or inputs in the file.
    error: output -> figures of what the file says, in float64, against the reference: the error of the quantisation alone.
    kernel: output -> figures of what the runtime computes against what the file says: the error of the kernels alone.
    stopped: why there is no ranking, or only a part of one; "" when it is whole.
    seconds: duration of the ranking.
    """

    layers: tuple[LayerCost, ...] = ()
    known: int = 0
    error: dict[str, Figures] = field(default_factory=dict)
    kernel: dict[str, Figures] = field(default_factory=dict)
    stopped: str = ""
    seconds: float = 0.0
