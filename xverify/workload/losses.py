"""The loss of training: named losses with their settings, and the sum of them that a model is trained with.

The names and formulas are those of torch.nn.functional (documentation of 2.x); ``info_nce`` is that of van den Oord et al. 2018.
``loss_formulas`` has the formulas in operations that every framework has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from ..errors import SpecError, nearest
from .arguments import Arguments

# Loss -> its settings, besides those of every loss.
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "cross_entropy": ("label_smoothing", "class_weights", "ignore_index"),
    "bce_with_logits": (),
    "mse": (),
    "l1": (),
    "huber": ("delta",),
    "smooth_l1": ("beta",),
    "kl_div": (),
    "cosine": (),
    "info_nce": ("temperature",),
    "ctc": ("blank", "lengths"),
}
ALIASES = {
    "bce": "bce_with_logits",
    "contrastive": "info_nce",
    "smooth-l1": "smooth_l1",
    "cross-entropy": "cross_entropy",
}
REDUCTIONS = ("mean", "sum", "none", "batchmean")
OF_ALL = ("name", "output", "target", "weight", "reduction", "variant")
# Losses of whole numbers, and losses whose output and target are of one shape.
OF_CLASSES = ("cross_entropy", "ctc")
ALIKE = tuple(name for name in SETTINGS if name not in OF_CLASSES)
# Variant -> how the loss is wrong. A mutation plants them, and a report names them.
VARIANTS = {
    "": "",
    "softmax twice": "the logits are softmaxed (or given to a sigmoid) before the loss does it again",
    "not from logits": "the logits are taken for probabilities, as with from_logits=False",
    "ignored counted": "the mean divides by all positions, the ignored ones too",
    "ignored is class 0": "ignored positions are counted, as class 0",
    "plain mean": "the weighted sum is divided by the number of rows, not by the sum of their weights",
    "items summed": "the mean is taken within each item of the batch, and the items are summed",
    "mean twice": "the mean is divided once more by the number of values",
}
TARGET = "target"  # the name of the labels of a model whose spec names no targets


@dataclass(frozen=True)
class Loss(Arguments):
    """One named loss, or one term of a loss.

    name: a key of SETTINGS, or of ALIASES.
    output: the output of the model; "" where it has one only. target: the target, or a second output; "" where there is one only.
    weight: the factor of this term in the sum.
    reduction: "mean", "sum", "batchmean" (the sum divided by the number of items), or "none": the values stay as they are, and a
        step differentiates their sum.
    label_smoothing, class_weights, ignore_index: of cross_entropy; torch's. One weight for each class. A target that equals
        ignore_index takes no part. ignore_index=None: none is ignored.
    delta: of huber. beta: of smooth_l1. temperature: of info_nce.
    blank: of ctc, the class that stands for no label. lengths: of ctc, the target that holds the number of labels of each item; ""
        where all labels count.
    variant: a key of VARIANTS: a mistake. Only mutations use it.
    Raises SpecError for an unknown name, and for a setting that the loss does not have or whose value is out of range.
    """

    name: str
    output: str = ""
    target: str = ""
    weight: float = 1.0
    reduction: str = "mean"
    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()
    ignore_index: int | None = None
    delta: float = 1.0
    beta: float = 1.0
    temperature: float = 0.1
    blank: int = 0
    lengths: str = ""
    variant: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", ALIASES.get(self.name, self.name))
        object.__setattr__(self, "class_weights", tuple(map(float, self.class_weights)))
        if self.name not in SETTINGS:
            known = [*SETTINGS, *ALIASES]
            raise SpecError(f"unknown loss {self.name!r}{nearest(str(self.name), known)} Known: {', '.join(SETTINGS)}")
        if self.reduction not in REDUCTIONS:
            close = nearest(str(self.reduction), REDUCTIONS)
            raise SpecError(f"{self.name}: unknown reduction {self.reduction!r}{close} Known: {', '.join(REDUCTIONS)}")
        if self.variant not in VARIANTS:
            raise SpecError(f"{self.name}: unknown variant {self.variant!r}")
        for each in fields(self):
            foreign = each.name not in (*OF_ALL, *SETTINGS[self.name])
            if foreign and getattr(self, each.name) != each.default:
                owner = next(name for name, settings in SETTINGS.items() if each.name in settings)
                raise SpecError(f"{self.name} has no {each.name}: it is a setting of {owner}")
        self._check_ranges()

    def _check_ranges(self) -> None:
        if not (0 <= self.label_smoothing < 1):
            raise SpecError(f"{self.name}: label_smoothing is {self.label_smoothing:g}: it must be from 0 to below 1")
        if any(not (weight >= 0 and math.isfinite(weight)) for weight in self.class_weights):
            raise SpecError(f"{self.name}: class_weights are {self.class_weights}: each must be 0 or more")
        for setting in ("delta", "beta", "temperature"):
            value = getattr(self, setting)
            if not (value > 0 and math.isfinite(value)):
                raise SpecError(f"{self.name}: {setting} is {value:g}: it must be above 0")
        if not (math.isfinite(self.weight) and self.weight != 0):
            raise SpecError(f"{self.name}: weight is {self.weight:g}: it must be a number other than 0")

    def says(self) -> str:
        """The loss in a few words, for example ``0.5 x huber of 'box', delta 0.5``."""
        defaults = {each.name: each.default for each in fields(self)}
        parts = [f"{self.weight:g} x {self.name}" if self.weight != 1 else self.name]
        parts[0] += f" of {self.output!r}" if self.output else ""
        for setting in ("reduction", *SETTINGS[self.name]):
            value = getattr(self, setting)
            if value != defaults[setting]:
                parts.append(f"{setting} {list(value) if isinstance(value, tuple) else value}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Objective:
    """What training minimises: the sum of these losses, or what a function of the model file says.

    terms: with the names of their outputs and targets; () where only the model files say the loss.
    targets: name -> layout, in the order of the batch.
    own: whether the function ``loss`` of the framework's model file is used in place of the terms.
    step: whether its function ``train_step`` makes the whole step.
    """

    terms: tuple[Loss, ...]
    targets: dict[str, str | None] = field(default_factory=lambda: {TARGET: None})
    own: bool = False
    step: bool = False

    def says(self) -> str:
        """The loss in one line."""
        return "of the model file" if self.own else " + ".join(term.says() for term in self.terms)
