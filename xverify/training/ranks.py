"""What several ranks do in one step: whether they agree to the last bit, and what explains a step that differs from the exact one.

The exact step is that of one process on the whole batch. That of a rank's part of the batch is computed where something has to be
explained, and where batch norms use the items of their rank alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np

from ..messages.training import ListWeightsHeld, TrainingTruth
from ..processes.worker import Worker
from ..results.records import Check
from ..results.verdicts import Verdict
from ..verdict.findings import StepTruth
from ..verdict.limits import COHERENT_RHO, UNIT, UNITS
from ..weights import npz
from ..weights.canonical import Array
from ..workload.probe import STATISTICS
from ..workload.ranks import OF_FILES, Ranks, shard_file
from .compared import rms
from .gradients import few
from .learner import Learner
from .rank_layers import RankLayers, backward_order
from .step import Arrays, Step, holds

NO_CURVE = "the batch norms of each rank use its own items, and the curve of the reference is that of one process"
CLEARLY = 10.0  # times nearer than the right gradient: an explanation that is not, explains nothing
NOT_SYNCHRONISED = (
    "what each rank computes of its own items: something that a layer or the loss computes of the whole batch, such as the mean of "
    "a batch norm or the number of labels, is not synchronised"
)
LEAST_VALUES = 4  # for each rank: the factors of fewer values are a matter of chance
MOST_EXPLAINED = 8  # gradients, of which the first that is explained is told
MOST_BIASES = 100  # each takes a step in float64
# What a rank has of a parameter: the start of its names in the results of a step -> what a report calls it.
KEPT = {"gradient/": "the gradient of {}", "weight/": "{} after the step", "state/": "the optimizer state of {}"}


@dataclass(frozen=True)
class Part:
    """The exact step of a rank's part of the batch. arrays: as ``Step.exact``."""

    truth: StepTruth
    arrays: Arrays


class RankTruths:
    """Further exact steps from one state, each computed once. question: for that of the whole batch. worker: of the reference."""

    def __init__(self, worker: Worker, question: TrainingTruth, ranks: Ranks) -> None:
        self.worker, self.question, self.ranks = worker, replace(question, parts=1), ranks

    @cached_property
    def parts(self) -> Sequence[Part]:
        """The exact step of each rank's part of the batch; none where every rank has the whole batch."""
        found = []
        for rank in range(len(self.ranks.items)):
            inputs, path = (str(shard_file(each, rank)) for each in (self.question.inputs, self.question.path))
            truth = self.worker.ask(replace(self.question, inputs=inputs, path=path)).truth
            found.append(Part(truth, npz.OnDisk(Path(path))))
        return found

    @cached_property
    def with_biases(self) -> Mapping[str, float]:
        """Name of a bias -> the exact loss of a model in which it is multiplied by the number of ranks."""
        state, losses = self.question.state, dict[str, float]()
        weights = npz.load_file(Path(state.weights))
        file, path = (str(Path(self.question.path).with_name(f"biases-{each}.npz")) for each in ("weights", "truth"))
        for name in [each for each in weights if each.endswith("bias")][:MOST_BIASES]:
            npz.save_file({**weights, name: np.float32(self.ranks.count) * weights[name]}, Path(file))
            asked = replace(self.question, state=replace(state, weights=file), path=path, once=True)
            losses[name] = self.worker.ask(asked).truth.loss
        return losses


@dataclass(frozen=True)
class RankedStep:
    """A step that all ranks make together.

    step: that of rank 0. taken: the results of every process, as ``Step.taken``. loss: of all ranks. layers: None where one process
        shows them.
    """

    step: Step
    ranks: Ranks
    taken: Sequence[Arrays]
    loss: float
    truths: RankTruths
    layers: RankLayers | None = None

    @classmethod
    def of(cls, step: Step, learner: Learner, loss: float, truths: RankTruths, layers: RankLayers | None) -> RankedStep:
        """That of a subject whose worker has written the step of every rank."""
        taken = [*map(npz.OnDisk, learner.of_ranks(learner.step_file))]
        return cls(step, truths.ranks, taken, loss, truths, layers)

    def judge(self, checks: Sequence[Check]) -> list[Check]:
        """The checks of a step, with what explains those that differ, and the comparison of the ranks."""
        explain = {"loss": self._of_loss, "gradients": self._of_gradients}
        found = [explain[each.name](each) if each.name in explain else each for each in checks]
        return [*found, self._agreement()] if len(self.taken) > 1 else found

    def _agreement(self) -> Check:
        """Compare what the ranks have of each parameter, bit for bit: every plan reduces gradients before the update."""
        number, names = self.step.number, [self.step.own(name) for name in self.step.truth.floors]
        for start, words in KEPT.items():
            for name in names:
                keys = [key for key in self._keys(start, name) if key in self.taken[0]]
                odd = _odd(self.taken, keys)
                if odd:
                    says = f"rank {odd}: {words.format(name)} differs from rank 0's"
                    says += self._explained(name) if start == "gradient/" else ": the ranks no longer train one model"
                    return Check("ranks", number, Verdict.DIFFERENT, None, says, known=len(names))
        return Check("ranks", number, Verdict.EQUAL, compared=len(names), known=len(names))

    def _keys(self, start: str, name: str) -> list[str]:
        return [f"state/{name}/{index}" for index in range(3)] if start == "state/" else [start + name]

    # -- what explains a gradient -------------------------------------------------------------------------------------

    def _of_loss(self, check: Check) -> Check:
        """The check of the loss, with the biases that explain one that is another."""
        if check.verdict != Verdict.DIFFERENT:
            return check
        truth, parts = self.step.truth, [each.truth for each in self.truths.parts]
        mean = sum(share * part.loss for share, part in zip(self.ranks.shares, parts))
        if parts and CLEARLY * abs(self.loss - mean) < abs(self.loss - truth.loss):
            return replace(check, says=f"{check.says}; it is the mean of {NOT_SYNCHRONISED}")
        biases = self.truths.with_biases if self.ranks.plan in OF_FILES else {}
        says = added_by_all(self.loss, self.ranks, truth, biases) or (self.layers.first if self.layers else "")
        return replace(check, says=check.says + says)

    def _of_gradients(self, check: Check) -> Check:
        """The check of gradients, with what explains one of those that are farthest from the exact ones."""
        known = [name for name in self.step.truth.floors if f"gradient/{self.step.own(name)}" in self.taken[0]]
        if check.verdict != Verdict.DIFFERENT or not known:
            return check
        for name in sorted(known, key=self._distance, reverse=True)[:MOST_EXPLAINED]:
            if says := self._explained(name):
                return replace(check, says=f"{check.says}; the gradient of {name}{says}")
        wrong = {name: self._distance(name) > COHERENT_RHO for name in known}
        return replace(check, says=check.says + (backward_order(wrong, self.layers.order) if self.layers else ""))

    def _distance(self, name: str) -> float:
        exact = self.step.exact[f"gradient/{name}"]
        return rms(self.taken[0][f"gradient/{self.step.own(name)}"] - exact) / (
            self.step.truth.floors[name] or math.inf
        )

    def _explained(self, own: str) -> str:
        """What the ranks' gradients of a parameter are in place of the right one, as the end of a sentence; "" if unknown."""
        name, found = self.step.stored(own), [each[f"gradient/{own}"] for each in self.taken]
        right, floor = self.step.exact[f"gradient/{name}"], self.step.truth.floors[name]
        alone = [each.arrays[f"gradient/{name}"] for each in self.truths.parts]
        floors = [each.truth.floors[name] for each in self.truths.parts]
        apart = any(not np.array_equal(each, found[0]) for each in found)
        count, own_items = self.ranks.count, "the gradient of its own items"
        for factor, kept in (
            (1.0, own_items),
            (count, f"{own_items}, divided by {count}" if alone else "a part of the sum"),
        ):
            together = np.sum(
                [factor * share * each for share, each in zip(self.ranks.shares, found)], axis=0, dtype=np.float64
            )
            if apart and all(CLEARLY * rms(together - right) < rms(each - right) for each in found):
                return f": it was not reduced: each rank has {kept}"
        for rank, (theirs, other, noise) in enumerate(zip(found, alone, floors)):
            if not np.array_equal(theirs, found[0]) and _near(theirs, other, noise, right):
                return f": that of rank {rank} was not reduced: it is the gradient of its own items"
        near = {
            says: array
            for says, array, noise in self._known(right, floor, alone, floors)
            if _near(found[0], array, noise, right)
        }
        if near:
            return f": {min(near, key=lambda says: rms(found[0] - near[says]))}"
        return self._weighed(found[0], right, alone, floors) or _rounded(found[0], right, self.ranks.count)

    def _weighed(self, found: Array, right: Array, alone: Sequence[Array], floors: Sequence[float]) -> str:
        """The factors of the ranks' gradients in the sum that a gradient is, as the end of a sentence; "" if it is none.

        alone, floors: of each rank's items alone, and its noise. The factors are those of the least squares.
        """
        shares = self.ranks.shares
        if not alone or right.size < LEAST_VALUES * len(alone) or not found.any():
            return ""
        parts = np.stack([share * each.ravel() for share, each in zip(shares, alone)], axis=1)
        factors = np.linalg.lstsq(parts, found.ravel().astype(np.float64), rcond=None)[0]
        noise = math.hypot(*(share * factor * floor for share, factor, floor in zip(shares, factors, floors)))
        if not _near(found, (parts @ factors).reshape(right.shape), noise, right):
            return ""
        listed = ", ".join(f"that of rank {rank} by {factor:.3g}" for rank, factor in enumerate(factors))
        says = f": the gradients of the ranks are multiplied before they are reduced, {listed}"
        return says + ", as if each were clipped by its own norm" * bool((factors <= 1).all() and (factors > 0).all())

    def _known(
        self, right: Array, floor: float, alone: Sequence[Array], floors: Sequence[float]
    ) -> Iterator[tuple[str, Array, float]]:
        """(what it says, the gradient, its noise) of known mistakes. alone, floors: of each rank's items alone, and its noise."""
        count, shares = self.ranks.count, self.ranks.shares
        if alone:
            means, noise = np.mean(alone, axis=0), math.hypot(*floors) / count
            items = " and ".join(map(str, self.ranks.items))
            if self.ranks.uneven:
                yield (
                    f"it is the mean of the ranks' gradients, which are means over {items} items: weigh each by its items",
                    means, noise,
                )  # fmt: skip
                yield (
                    f"it is the sum of the ranks' gradients, which are means over {items} items",
                    count * means,
                    count * noise,
                )
            else:
                yield (
                    f"it is the mean of {NOT_SYNCHRONISED}", means, noise,
                )  # fmt: skip
            for rank, share in enumerate(shares):
                rest = np.sum(
                    [each * part for other, (each, part) in enumerate(zip(shares, alone)) if other != rank], axis=0
                )
                yield f"the share of rank {rank} is missing in it", rest, floor
                yield f"it is that of the items of rank {rank} alone, on every rank", alone[rank], floors[rank]
                if count > 2:
                    others = f"it is that of the items of the other ranks than rank {rank}"
                    yield others, rest / (1 - share), floor / (1 - share)
        yield (
            f"it is {count} times the right one: it is summed over the ranks and not averaged, reduced twice, or the loss is "
            f"multiplied by {count}",
            count * right, count * floor,
        )  # fmt: skip
        yield (
            f"it is the right one divided by {count}: it is divided by the number of ranks once too often, or is not summed",
            right / count, floor / count,
        )  # fmt: skip


def rank_weights(learner: Learner, known: int) -> Check:
    """The check of the weights with which training begins: those of all ranks, before a step is given the reference's.

    known: number of the weights of the model.
    """
    held = learner.ask_each(ListWeightsHeld()) if learner.in_parts else []
    says = weights_apart([each.whole for each in held], [each.changed for each in held])
    verdict = Verdict.INVALID if says else Verdict.EQUAL
    return Check("weights", 0, verdict, says=says, compared=known, known=known)


def weights_apart(whole: Sequence[Mapping[str, str]], changed: Sequence[Mapping[str, bool]]) -> str:
    """Which weights the ranks do not have in common; "" where all is right. whole, changed: of each rank, see WeightsHeld."""
    for every, words in (
        (whole, "the weights of rank {1} differ from those of rank {0} after parallelize: {2}: broadcast them"),
        (
            changed,
            "after parallelize, rank {1} has other values of its part of {2}, and rank {0} has those that it was given",
        ),
    ):
        names = dict.fromkeys(name for each in every for name in each)
        for one, two in combinations(range(len(every)), 2):
            if odd := [
                name
                for name in names
                if name in every[one] and every[two].get(name, every[one][name]) != every[one][name]
            ]:
                pair = (two, one) if every is changed and every[one][odd[0]] else (one, two)
                return words.format(*pair, few(odd))
    return ""


def _odd(taken: Sequence[Arrays], keys: Sequence[str]) -> int:
    """The first rank that has not the values of rank 0 in all these arrays, to the last bit; 0 when all have them."""

    return next((rank for rank in range(len(taken)) if not all(_same(taken, key, 0, rank) for key in keys)), 0)


def _same(taken: Sequence[Arrays], key: str, first: int, rank: int) -> bool:
    """Whether two ranks have the same array, to the last bit."""
    return key in taken[rank] and np.array_equal(taken[first][key], taken[rank][key], equal_nan=True)


def own_agreement(number: int, watched: Sequence[Arrays], timed: Sequence[Arrays], apart: bool = False) -> Check:
    """Compare the ranks after a step of the model files, bit for bit.

    watched, timed: of every rank, see ``messages.own_step.TakeOwnSteps.path``.
    apart: whether running statistics are those of the items of each rank, and are not compared.
    """
    gradients = dict.fromkeys(key for each in watched for key in each if key.startswith(f"{number}/gradient/"))
    left_out = STATISTICS if apart else ()
    weights = [key for key in timed[0] if key.startswith(f"{number}/weight/") and not key.endswith(left_out)]
    # A parameter may be updated by some ranks alone, which then give it to the others.
    updating = {key: [rank for rank, each in enumerate(watched) if key in each] for key in gradients}
    for key, (first, *others) in updating.items():
        odd, name = next((rank for rank in others if not _same(watched, key, first, rank)), 0), key.rpartition("/")[2]
        if odd:
            unlike = _unlike(watched[odd][key], watched[first][key], first)
            says = f"rank {odd}: the gradient of {name} that an optimizer is given {unlike}"
            return Check("ranks", number, Verdict.DIFFERENT, None, says, known=len(gradients))
    for key in weights:
        odd, name = _odd(timed, [key]), key.rpartition("/")[2]
        if odd:
            says = f"rank {odd}: {name} after the step differs from rank 0's: the ranks no longer train one model"
            ranks = next((each for of, each in updating.items() if of.endswith(f"/{name}")), [])
            idle = [rank for rank in range(len(timed)) if rank not in ranks]
            if idle and ranks:
                says = f"rank {idle[0]} makes no update of {name}, and is not given that of rank {ranks[0]}"
            return Check("ranks", number, Verdict.DIFFERENT, None, says, known=len(weights))
    return Check("ranks", number, Verdict.EQUAL, compared=len(weights), known=len(weights))


def _unlike(found: Array, first: Array, rank: int) -> str:
    """How the gradient of a rank differs from that of the first rank that has it, as the end of a sentence."""
    one, two = first.ravel().astype(np.float64), found.ravel().astype(np.float64)
    factor = float(one @ two) / (float(one @ one) or math.inf)
    if factor > 0 and rms(two - factor * one) <= one.size * UNIT * rms(two):
        return f"is {factor:.3g} times rank {rank}'s, as after clipping by another norm"
    return f"differs from rank {rank}'s: it was not reduced"


def _near(found: Array, known: Array, noise: float, right: Array) -> bool:
    """Whether a gradient is a known one up to rounding, and clearly not the right one."""
    away = rms(found - known)
    return away <= COHERENT_RHO * noise and CLEARLY * away < rms(found - right)


def _rounded(found: Array, right: Array, count: int) -> str:
    """That a gradient of ``count`` ranks was reduced in a lower precision, as the end of a sentence; "" if not."""
    for dtype in ("bfloat16", "float16"):
        if rms(found - right) <= count * UNITS[dtype] * rms(right) and holds(dtype, found.astype(np.float32)):
            return f": all its values are numbers of {dtype}, in which it was reduced"
    return ""


def apart(step: Step, parts: Sequence[Part], ranks: Ranks) -> Step:
    """The step beside the exact one of ranks whose batch norms use their own items: the mean over the ranks' exact steps.

    Running statistics are those of rank 0.
    """
    arrays: dict[str, Array] = {}
    for key, array in parts[0].arrays.items():
        every = [each.arrays[key] for each in parts]
        if key.startswith("gradient/"):
            array = np.sum([share * each for share, each in zip(ranks.shares, every)], axis=0)
        elif key.startswith("noise/gradient/"):
            array = np.sqrt(np.sum([np.square(share * each) for share, each in zip(ranks.shares, every)], axis=0))
        arrays[key] = array
    first, truths = parts[0].truth, [each.truth for each in parts]
    truth = replace(
        first,
        loss=sum(share * each.loss for share, each in zip(ranks.shares, truths)),
        loss_floor=math.hypot(*(share * each.loss_floor for share, each in zip(ranks.shares, truths))),
        floors={name: rms(arrays[f"noise/gradient/{name}"]) for name in first.floors},
        sizes={name: rms(arrays[f"gradient/{name}"]) for name in first.sizes},
        alternatives={},
        accumulated_loss=None,
    )
    return replace(step, exact=arrays, truth=truth)


def added_by_all(loss: float, ranks: Ranks, truth: StepTruth, losses: Mapping[str, float]) -> str:
    """The biases that the ranks seem to add each, so that they count several times, as the end of a sentence; "" for none.

    loss: of the ranks. losses: name of a bias -> the exact loss of a model in which it is multiplied by the number of ranks.
    """
    limit = COHERENT_RHO * truth.loss_floor
    found = [
        name
        for name, other in losses.items()
        if abs(loss - other) <= limit and abs(other - truth.loss) > CLEARLY * limit
    ]
    return f": as if {few(found)} were added on each of the {ranks.count} ranks" if found else ""
