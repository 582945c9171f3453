"""The recipe of a training step: what people set around the formula of an optimizer.

Parameter groups, frozen parameters, clipping of gradients, a schedule of the learning rate, gradient accumulation, and an average
of the weights. The formulas are those of torch: torch.optim's parameter groups and lr_scheduler, torch.nn.utils.clip_grad, and
torch.optim.swa_utils.AveragedModel (documentation of 2.x). The checks use them in float64, and a framework computes them with
``--match-optimizer``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from ..errors import SpecError, UsageError, nearest
from .operations import Operations, Tensor
from .schedule import Schedule, is_number

CLIP_EPS = 1e-6  # torch adds it to the norm that it divides by
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # weights of a batch norm that are not trained
PRECISIONS = ("float32", "bfloat16", "float16")
LOSS_SCALES = ("dynamic", "off")
# How gradients are clipped -> what is limited.
CLIPS = {
    "clip_norm": "norm of all gradients",
    "clip_value": "values of gradients",
    "clip_each": "norm of each gradient",
}
# Known differences of a framework's own facility -> how it differs from torch's.
DIFFERENCES = {
    "clip eps": "gradients are divided by their norm itself: torch adds 1e-6 to the norm",
    "late schedule": "the schedule is one step behind: torch's second step has the second rate",
    "late one-cycle": "the rate has its peak and its last value about one update later than torch's",
    "schedule of micro-batches": "the schedule counts micro-batches: torch's counts updates of the weights",
    "rates in momentum": "the momentum adds up learning rates times gradients: torch applies the present rate to all of it",
    "steps of micro-batches": "the bias correction counts micro-batches: torch's counts updates of the weights",
    "average of micro-batches": "the average takes in the weights after every micro-batch: torch's takes them in after an update",
    "norm of groups": "each parameter group is clipped by its own norm, without torch's 1e-6: torch takes the norm of all groups",
}


@dataclass(frozen=True)
class Group:
    """Parameters with a learning rate or a weight decay of their own.

    pattern: of canonical names, with ``*``, ``?`` and ``[...]``, for example ``"*.bias"``.
    lr, weight_decay: the group's own; None: as for all other parameters.
    members: the names that the pattern stands for, where they are known; None: the pattern itself is used.
    """

    pattern: str
    lr: float | None = None
    weight_decay: float | None = None
    members: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for what, value in (("lr", self.lr), ("weight_decay", self.weight_decay)):
            if value is not None and not (is_number(value) and value >= 0):
                raise SpecError(f"Group({self.pattern!r}): {what} is {value!r}: it must be a number, 0 or more")
        if self.lr is None and self.weight_decay is None:
            raise SpecError(f"Group({self.pattern!r}) changes nothing: give lr, weight_decay or both")

    def has(self, name: str) -> bool:
        """Whether a parameter belongs to the group."""
        return fnmatchcase(name, self.pattern) if self.members is None else name in self.members


LISTED = {Group: "Group(...)", str: "patterns"}


@dataclass(frozen=True)
class Recipe:
    """What is set around the formula of an optimizer. The empty recipe changes nothing.

    groups: parameters with a learning rate or a weight decay of their own.
    frozen: patterns of the parameters that training does not change.
    clip_norm: the largest norm of all gradients together. clip_each: the largest norm of each gradient by itself.
    clip_value: the largest absolute value of a gradient. One of the three may be given.
    schedule: of the learning rate.
    accumulate: number of micro-batches into which a batch is split. The update uses the mean of their gradients.
    average: the decay of an exponential moving average of the weights, between 0 and 1.
    amsgrad: whether adam and adamw divide by the largest second moment so far.
    precision: in which the model computes, one of PRECISIONS. Below float32 it is mixed precision: the weights stay in float32.
    loss_scale: "dynamic" or "off": whether the loss is multiplied by a scale, so that small gradients do not become zero in
        float16; None: dynamic for float16.
    Raises SpecError for values that contradict each other.
    """

    groups: tuple[Group, ...] = ()
    frozen: tuple[str, ...] = ()
    clip_norm: float | None = None
    clip_value: float | None = None
    clip_each: float | None = None
    schedule: Schedule | None = None
    accumulate: int = 1
    average: float | None = None
    amsgrad: bool = False
    precision: str = "float32"
    loss_scale: str | None = None

    def __post_init__(self) -> None:
        for what, of in (("groups", Group), ("frozen", str)):
            value = getattr(self, what)
            if not isinstance(value, (tuple, list)) or not all(isinstance(each, of) for each in value):
                raise SpecError(
                    f"{what} is {value!r}: it must be a tuple of {LISTED[of]}, with a comma after a single one"
                )
            object.__setattr__(self, what, tuple(value))
        given = [what for what in CLIPS if getattr(self, what) is not None]
        for what in given:
            if not (is_number(value := getattr(self, what)) and value > 0):
                raise SpecError(f"{what} is {value!r}: it must be a number above 0")
        if len(given) > 1:
            raise SpecError(f"{' and '.join(given)} are given: gradients are clipped in one way, so give one of them")
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise SpecError(f"schedule is {self.schedule!r}: write Schedule(kind, ...)")
        if not isinstance(self.accumulate, int) or isinstance(self.accumulate, bool) or self.accumulate < 1:
            raise SpecError(f"accumulate is {self.accumulate!r}: it must be a whole number, at least 1")
        if self.average is not None and not (is_number(self.average) and 0 < self.average < 1):
            raise SpecError(f"average is {self.average!r}: it must be a number between 0 and 1, such as 0.99")
        self._check_precision()

    def _check_precision(self) -> None:
        if self.precision not in PRECISIONS:
            raise SpecError(
                f"precision is {self.precision!r}{nearest(str(self.precision), PRECISIONS)} Known: {', '.join(PRECISIONS)}"
            )
        if self.loss_scale not in (None, *LOSS_SCALES):
            raise SpecError(f"loss_scale is {self.loss_scale!r}: it must be one of {', '.join(LOSS_SCALES)}")
        if self.loss_scale is not None and self.precision != "float16":
            raise SpecError(
                f"loss_scale is {self.loss_scale!r}, and precision is {self.precision!r}: only a float16 run scales its loss; "
                "leave it out, or give the precision float16"
            )

    def __bool__(self) -> bool:
        """Whether a step is more than the formula of the optimizer. AMSGrad belongs to that formula."""
        return replace(self, amsgrad=False) != NO_RECIPE

    @property
    def is_mixed(self) -> bool:
        """Whether the model computes in a lower precision than that of its weights."""
        return self.precision != "float32"

    @property
    def scales(self) -> bool:
        """Whether the loss is multiplied by a scale."""
        return self.precision == "float16" and self.loss_scale != "off"

    @property
    def clip(self) -> tuple[str, float] | None:
        """(one of CLIPS, its limit); None when gradients are not clipped."""
        return next(((what, getattr(self, what)) for what in CLIPS if getattr(self, what) is not None), None)

    def factor(self, step: int) -> float:
        """See ``Schedule.factor``; 1.0 without a schedule."""
        return self.schedule.factor(step) if self.schedule else 1.0

    def group_of(self, name: str) -> Group | None:
        """The group of a parameter; None when it has none."""
        return next((group for group in self.groups if group.has(name)), None)

    def freezes(self, name: str) -> bool:
        """Whether a parameter is frozen."""
        return any(fnmatchcase(name, pattern) for pattern in self.frozen)

    def check_model(self, weights: Collection[str]) -> None:
        """Check that the recipe fits a model. weights: the canonical names of its weights and running statistics.

        Raises UsageError for a pattern that matches no parameter, for a parameter in two groups, and for micro-batches with a batch
        norm, whose statistics would be those of each micro-batch.
        """
        names = [name for name in weights if name.rpartition(".")[2] not in STATISTICS]
        patterns = [*(("Group", each.pattern) for each in self.groups), *(("frozen", each) for each in self.frozen)]
        for what, pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
                raise UsageError(
                    f"{what} {pattern!r} matches no parameter{nearest(pattern, names)} Parameters: {listed}"
                )
        for name in names:
            own = [group.pattern for group in self.groups if group.has(name)]
            if len(own) > 1:
                raise UsageError(
                    f"{name} belongs to two groups, {own[0]!r} and {own[1]!r}: it can have the settings of one only"
                )
        if self.frozen and all(self.freezes(name) for name in names):
            raise UsageError(f"frozen={self.frozen!r} freezes every parameter, so nothing is trained")
        norm = next((name for name in weights if name.endswith("running_var")), None)
        if self.accumulate > 1 and norm:
            raise UsageError(
                f"accumulate is {self.accumulate}, and {norm.rpartition('.')[0]} is a batch norm: it would use the "
                "statistics of each micro-batch, which xverify does not compare. Leave accumulate out for this model"
            )

    def check_batch(self, size: int) -> None:
        """Raise UsageError when a batch of this size cannot be split into micro-batches of one size."""
        parts = self.accumulate
        if size % parts:
            raise UsageError(f"accumulate is {parts}, and the batch has {size} items: it must be divisible by {parts}")

    def named(self, canonical: Mapping[str, str]) -> Recipe:
        """The same recipe with a framework's own names in the place of patterns. canonical: own name -> canonical name."""
        groups = tuple(
            replace(group, members=tuple(own for own, name in canonical.items() if group.has(name)))
            for group in self.groups
        )
        frozen = tuple(_literal(own) for own, name in canonical.items() if self.freezes(name))
        return replace(self, groups=groups, frozen=frozen)

    def says(self) -> list[str]:
        """Each setting in a few words."""
        parts = [
            f"{group.pattern}: "
            + " and ".join(
                f"{what} {v:g}" for what, v in (("lr", group.lr), ("weight decay", group.weight_decay)) if v is not None
            )
            for group in self.groups
        ]
        parts += [f"{pattern} frozen" for pattern in self.frozen]
        if self.clip:
            parts.append(f"{CLIPS[self.clip[0]]} clipped at {self.clip[1]:g}")
        if self.schedule:
            parts.append(self.schedule.says())
        if self.accumulate > 1:
            parts.append(f"{self.accumulate} micro-batches")
        if self.average is not None:
            parts.append(f"average of weights {self.average:g}")
        if self.is_mixed:
            unscaled = self.precision == "float16" and not self.scales
            parts.append(f"computed in {self.precision}" + (" without loss scaling" if unscaled else ""))
        return parts


NO_RECIPE = Recipe()


def clip_factors(
    how: str, limit: float, squares: Sequence[Tensor], sqrt: Any, minimum: Any, eps: float = CLIP_EPS
) -> list[Tensor]:
    """What every gradient is multiplied by when norms are clipped.

    how: clip_norm or clip_each. squares: for each gradient, the sum of its squares.
    sqrt, minimum: of such scalars; ``minimum`` takes a scalar and a number.
    """
    norms = (
        [sqrt(sum(squares[1:], squares[0]))] * len(squares) if how == "clip_norm" else [sqrt(each) for each in squares]
    )
    return [minimum(limit / (norm + eps), 1.0) for norm in norms]


def clipped(
    clip: tuple[str, float] | None, gradients: Sequence[Tensor], ops: Operations, owners: Sequence[int] = ()
) -> list[Tensor]:
    """Clip gradients by torch's formulas.

    clip: see ``Recipe.clip``. owners: for each gradient, the number of the weight of which it is a part, from 0; (): each gradient
        is that of a whole weight.
    """
    how, limit = clip or ("", 0.0)
    if how in ("", "clip_value"):
        return [ops.clip(each, limit) if how else each for each in gradients]
    owners = owners or range(len(gradients))
    squares = dict[int, Tensor]()
    for owner, each in zip(owners, gradients):
        square = ops.sum(each * each)
        squares[owner] = squares[owner] + square if owner in squares else square
    factors = dict(zip(squares, clip_factors(how, limit, list(squares.values()), ops.sqrt, ops.minimum)))
    return [each * factors[owner] for owner, each in zip(owners, gradients)]


def averaged(decay: float, average: Tensor | None, weight: Tensor) -> Tensor:
    """The average of a weight after an update. average: before it; None at the first update. weight: after the update."""
    return weight if average is None else average + (1 - decay) * (weight - average)


def micro_batches(batch: Sequence[Any], count: int) -> list[tuple[Any, ...]]:
    """The parts of a batch, split along its first axis. batch: inputs and labels, which can be sliced, or dicts of such."""
    if count == 1:
        return [tuple(batch)]
    first = batch[0]
    size = len(next(iter(first.values())) if isinstance(first, dict) else first) // count

    def part(value: Any, start: int) -> Any:  # a tensor of any framework, or a mapping of tensors
        if isinstance(value, dict):  # in a timed step, where a test for any Mapping would show
            return {name: each[start : start + size] for name, each in value.items()}
        return value[start : start + size]

    return [tuple(part(value, start) for value in batch) for start in range(0, size * count, size)]


def mean_of_parts(parts: Sequence[Sequence[Any]]) -> list[Any]:
    """The means over micro-batches. parts: of each micro-batch, the same list of values, such as gradients."""
    return list(parts[0]) if len(parts) == 1 else [sum(each[1:], each[0]) / len(parts) for each in zip(*parts)]


def _literal(name: str) -> str:
    """A pattern that matches this name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
