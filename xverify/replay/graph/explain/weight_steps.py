"""Compares the quantised weights of a graph with those of a float graph, value by value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..layers import BIAS
from ..model import Graph
from ..values import worst
from .compensated import compensated
from .equalised import equalised
from .moved_blocks import moved_block
from .partners import Partner, Partners
from .quantised_weights import Weight, quantised_weights, unread
from .step_causes import cause

# Rounding to the nearest step is half a step away, and rounding by another rule up to a whole one.
STEPS = 1.001
FLOAT32 = 2.0**-21  # relative: what computing the steps in float32 may add, for biases of many steps
FOLDED = 2.0**-16  # relative to the largest value: what folding in float32 may change in a bias
# A bias in real numbers, of its rms: tools correct it for the mean error of the rounded weights. Of drawn layers that was at most
# 0.19 with 8 bits (tests/checking/test_quantised_weights.py), and of five networks of torchvision by NNCF at most 0.37, and 0.15 in
# the rms of all values. A halved bias is away by at least 0.65, and by 0.5.
CORRECTED, CORRECTED_RMS = 0.6, 0.25
CORRECTED_SAYS = "they differ by as little as after a correction of the bias"
CHOSEN_SAYS = "their steps are not the nearest ones, and the results of their layers are as near, as with GPTQ"
UNLIKE = 0.3  # cosine below which two layers with one name are no partners when this holds for most
NAMED = 3  # weights that a note names


@dataclass(frozen=True)
class Compared:
    """A quantised weight with its partner, which of its values are wrong, and what is wrong with a block of them together."""

    weight: Weight
    partner: Partner
    wrong: Any

    @property
    def right(self) -> bool:
        return not self.wrong.any()

    @cached_property
    def moved(self) -> str:
        """See ``moved_block``."""
        return moved_block(self.weight, self.partner.values) if self.weight.place != BIAS else ""


@dataclass
class StepsCompared:
    """wrong: a sentence about each weight with a value that is beyond its step. skipped: weight -> why it is not compared.

    count: the number of weights that are compared.
    """

    wrong: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def notes(self) -> list[str]:
        """A sentence about the weights that are not compared, for each reason."""
        total = self.count + len(self.skipped)
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.skipped.items():
            by_reason.setdefault(reason, []).append(name)
        return [
            f"{len(names)} of {total} quantised weights are not compared with the reference's one by one, because {reason}: "
            f"{', '.join(names[:NAMED])}{' and others' if len(names) > NAMED else ''}"
            for reason, names in by_reason.items()
        ]


def beyond_steps(graph: Graph, reference: Graph, cases: Sequence[Mapping[str, Any]] = ()) -> StepsCompared:
    """Compare each quantised weight with the weight of the reference that it was made from.

    A value is right when it is at most one step from the reference's, or at the end of its range where the reference's lies beyond.

    cases: inputs of the reference, by which layers are compared whose steps are not the nearest ones.
    """
    steps, partners = StepsCompared(), Partners(graph, reference)
    pairs = list(_pairs(graph, partners, steps))
    steps.count = len(pairs)
    for pair, reason in _excused([pair for pair in pairs if not pair.right or pair.moved], pairs, partners, cases):
        if reason:
            steps.count -= 1
            steps.skipped[_called(pair.weight)] = reason
        else:
            steps.wrong.append(_sentence(pair))
    for name in unread(graph, {weight.name for weight in quantised_weights(graph)}):
        steps.skipped[name] = "their format is not read"
    return steps


def _excused(
    wrong: Sequence[Compared], every: Sequence[Compared], partners: Partners, cases: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Compared, str]]:
    """The weights that differ, each with the reason why a right tool may have made it; "" for none."""
    beside, all_pairs = ([(pair.weight, pair.partner.values) for pair in each] for each in (wrong, every))
    scaled = equalised(beside, partners.graph, partners.reference)
    reasons = dict.fromkeys(scaled, "their channels are scaled, and those of another layer by the inverse")
    reasons |= {id(pair.weight): CORRECTED_SAYS for pair in wrong if _corrected(pair)}
    moved = {id(pair.weight) for pair in wrong if pair.moved}
    left = [each for each in beside if id(each[0]) not in reasons | dict.fromkeys(moved)]
    chosen = compensated(left, all_pairs, partners, cases) if left and cases else ()
    for pair in wrong:
        bias = pair.weight.place == BIAS
        known = (CORRECTED_SAYS if bias else CHOSEN_SAYS) if id(pair.weight) in chosen else ""
        yield pair, reasons.get(id(pair.weight), known)


def _pairs(graph: Graph, partners: Partners, found: StepsCompared) -> Iterator[Compared]:
    """The weights with their partners. What has none is noted."""
    pairs, left = [], []
    for weight in _with_biases(graph, partners):
        layer = partners.layer(weight.layer)
        folded = partners.folded(weight, layer) if layer is not None else ""
        possible = partners.of(weight, layer) if layer is not None and not folded else []
        if folded:
            found.skipped[_called(weight)] = f"the file may have the reference's {folded.split()[0]} folded into them"
        elif not possible:
            left.append(weight)
        else:
            compared = [_compare(weight, partner) for partner in possible]
            pairs.append(next((each for each in compared if each.right), compared[0]))
    # A layer with weights of other shapes is no partner, and neither is its bias.
    strange = {id(weight.layer) for weight in left}
    left += [pair.weight for pair in pairs if id(pair.weight.layer) in strange and not pair.right]
    pairs = [pair for pair in pairs if id(pair.weight.layer) not in strange or pair.right]
    unlike = [pair for pair in pairs if not pair.right and _unlike(pair)]
    if 2 * len(unlike) > len(pairs):
        # The names only number the layers, and mean others in each file.
        left += [pair.weight for pair in pairs if not pair.right]
        pairs = [pair for pair in pairs if pair.right]
    yield from pairs
    taken = {pair.partner.called for pair in pairs}
    for weight, partner in partners.left(left, taken):
        if partner is None:
            found.skipped[_called(weight)] = "no weight of the reference was found for them"
        else:
            yield _compare(weight, partner)


def _with_biases(graph: Graph, partners: Partners) -> Iterator[Weight]:
    """The quantised weights, and the biases in real numbers of their layers, also those that a node behind a layer adds."""
    weights = list(quantised_weights(graph))
    biased = {id(weight.layer) for weight in weights if weight.place == BIAS}
    layers = {id(weight.layer): partners.bias(weight) for weight in weights if id(weight.layer) not in biased}
    biases = [bias for bias in layers.values() if bias is not None]
    names = {bias.name for bias in biases}
    yield from (weight for weight in weights if weight.name not in names)
    yield from biases


def _unlike(pair: Compared) -> bool:
    mine, right = pair.weight.values, pair.partner.values
    sizes = float(np.linalg.norm(mine) * np.linalg.norm(right))
    return abs(float(np.vdot(mine, right))) < UNLIKE * sizes


def _compare(weight: Weight, partner: Partner) -> Compared:
    right = partner.values
    low, high = np.minimum(weight.low, weight.high), np.maximum(weight.low, weight.high)
    expected = np.clip(right, low, high)
    limit = STEPS * weight.step + FLOAT32 * np.abs(right)
    if weight.place == BIAS:
        limit = limit + FOLDED * np.max(np.abs(right), initial=0.0)
    return Compared(weight, partner, ~(np.abs(weight.values - expected) <= limit))


def _corrected(pair: Compared) -> bool:
    """Whether a bias in real numbers differs by no more than tools correct it."""
    weight, right = pair.weight, pair.partner.values
    if weight.place != BIAS or np.any(weight.step):
        return False
    away, rms = np.abs(weight.values - right), float(np.sqrt(np.mean(np.square(right))))
    return bool(away.max() <= CORRECTED * rms and np.sqrt(np.mean(np.square(away))) <= CORRECTED_RMS * rms)


def _called(weight: Weight) -> str:
    return f"{weight.name} of {weight.layer.name}"


def _sentence(pair: Compared) -> str:
    """What is wrong with a weight: how many values, the worst one, and the cause where it is known."""
    weight, right, wrong = pair.weight, pair.partner.values, pair.wrong
    away = np.where(wrong, np.abs(weight.values - right) / np.maximum(weight.step, np.finfo(float).tiny), 0.0)
    place, where = worst(away)
    if pair.right:
        of = f"{weight.layer.name}: of its weight {weight.name}, compared with the reference's {pair.partner.called}"
        return f"{of}, {pair.moved}"
    why = cause(weight, right, wrong) or pair.moved
    more = f", with {pair.partner.folded} folded in," if pair.partner.folded else ""
    beyond = "more than one step" if np.any(weight.step) else "more than rounding"
    return (
        f"{weight.layer.name}: {int(wrong.sum())} of {wrong.size} values of its {'bias' if weight.place == BIAS else 'weight'} "
        f"{weight.name} are {beyond} from the reference's {pair.partner.called}{more.rstrip(',')}: {weight.name}{where} stands for "
        f"{weight.values[place]:.6g}, and the reference has {right[place]:.6g}{': ' if why else ''}{why}"
    )
