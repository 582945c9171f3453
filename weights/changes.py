"""The weights of a port that have other values than the reference's, by ``add`` and ``batch_norm`` in a line of names.toml.

The reference's weights are changed before the port gets them, and the port must return what it was given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from xverify.errors import WeightsError, nearest

from .canonical import Array
from .layout import Shape
from .moves import Move, filled

STATISTICS = ("weight", "bias", "running_mean", "running_var")  # of a batch norm


@dataclass(frozen=True)
class Change:
    """A weight whose values are computed from the reference's in float64, and rounded to float32.

    name, shape: of the weight. says: how it is computed, in a few words.
    uses: names of the weights of the reference that the port has only in this form.
    """

    name: str
    shape: Shape
    says: str
    uses: tuple[str, ...]
    add: float = 0.0
    norm: str = ""
    eps: float = 0.0
    axis: int = 0

    def compute(self, arrays: Mapping[str, Array]) -> Array:
        """The values. arrays: of the reference."""
        if not self.norm:
            return np.asarray(np.asarray(arrays[self.name], np.float64) + self.add, np.float32)
        gamma, beta, mean, var = (self._statistic(arrays, each) for each in STATISTICS)
        factor = gamma / np.sqrt(var + self.eps)
        own = np.asarray(arrays[self.name], np.float64) if self.name in arrays else np.zeros(self.shape)
        if self.name.endswith(".bias"):
            return np.asarray((own - mean) * factor + beta, np.float32)
        sizes = [1] * own.ndim
        sizes[self.axis] = -1
        return np.asarray(own * factor.reshape(sizes), np.float32)

    def _statistic(self, arrays: Mapping[str, Array], kind: str) -> Array:
        name = f"{self.norm}.{kind}"
        default = 1.0 if kind == "weight" else 0.0
        return np.asarray(arrays[name], np.float64) if name in arrays else np.asarray([default])


def changes(rules: Mapping[str, Move], shapes: Mapping[str, Shape], place: str) -> list[Change]:
    """The changes that the lines of a table ask for. shapes: of the reference's weights. place: begins every message.

    Raises WeightsError for a line that fits no weight.
    """
    found: dict[str, Change] = {}
    for key, rule in rules.items():
        if not rule.add and not rule.batch_norm:
            continue
        of = _folded if rule.batch_norm else _added
        made = list(of(rule, shapes, f"{place} {key!r}"))
        if not made:
            (name,) = rule.names()
            raise WeightsError(f"{place} {key!r}: {name!r} is no {_kind(rule)} of the reference{nearest(name, shapes)}")
        for each in made:
            if each.name in found:
                raise WeightsError(f"{place} {key!r}: {each.name} is changed by two lines")
            found[each.name] = each
    return list(found.values())


def _kind(rule: Move) -> str:
    return "layer with a weight" if rule.batch_norm else "weight"


def _added(rule: Move, shapes: Mapping[str, Shape], place: str) -> Iterator[Change]:
    for name, _ in _matches(rule, shapes):
        says = f"{name} {'+' if rule.add > 0 else '-'} {abs(rule.add):g}"
        yield Change(name, shapes[name], says, (), add=rule.add)


def _folded(rule: Move, shapes: Mapping[str, Shape], place: str) -> Iterator[Change]:
    layers = {name.removesuffix(".weight"): name for name in shapes if name.endswith(".weight")}
    for layer, texts in _matches(rule, layers):
        weight, norm = layers[layer], filled(rule.batch_norm, texts)
        uses = tuple(name for kind in (*STATISTICS, "num_batches_tracked") if (name := f"{norm}.{kind}") in shapes)
        size = shapes[weight][rule.axis] if rule.axis < len(shapes[weight]) else 0
        if f"{norm}.running_var" not in uses:
            raise WeightsError(f"{place}: {norm!r} is no batch norm of the reference{nearest(norm, shapes)}")
        if shapes[f"{norm}.running_var"] != (size,):
            raise WeightsError(
                f"{place}: {weight} has {size} channels along axis {rule.axis}, and {norm} has "
                f"{shapes[f'{norm}.running_var'][0]}"
            )
        for name, shape in ((weight, shapes[weight]), (f"{layer}.bias", (size,))):
            yield Change(name, shape, f"{name} with {norm}", uses, norm=norm, eps=rule.eps, axis=rule.axis)


def _matches(rule: Move, known: Mapping[str, object]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The names that the right side of a line stands for, and what its ``*`` stand for in each."""
    (name,) = rule.names()
    pattern = re.compile("([^.]*)".join(map(re.escape, name.split("*"))))
    for other in known:
        match = pattern.fullmatch(other)
        if match is not None:
            yield other, match.groups()
