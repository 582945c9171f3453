"""The checks of a user's own training step: its losses, the gradients that optimizers are given, and the weights after it.

Pure functions. All of them compare one step of a subject with the exact step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import median

import numpy as np

from ..results.figures import shown_ratio
from ..results.records import Check
from ..results.verdicts import Verdict
from ..verdict import limits as rules
from ..verdict.limits import NULL, OWN_DRIFT, OWN_EQUAL
from ..workload.optimizers import VARIANTS
from ..workload.recipe import DIFFERENCES
from .checks import VAGUE
from .compared import Coverage, quotient, rms, share_of
from .own_made import SAME, Gradients, Made, Weight, factor_says, scale, shared
from .step import OWN, Distance

# Finds (a clause for the report, the name of a known difference) for a place of explain.own_mistakes.PLACES. Its second argument is
# the factor by which the gradients are multiples of the right ones; None where they are not, or are not known.
Explain = Callable[[str, float | None], tuple[str, str]]


def judge_losses(made: Made) -> Check:
    """Judge every loss that the step returned."""
    right, losses, count = made.truth.losses, made.losses, len(made.truth.losses)
    shares = {name: share_of(made.truth.loss_floors[name], abs(loss)) for name, loss in right.items()}
    most = NULL[made.truth.precision]
    vague = [name for name, share in shares.items() if not share <= most]
    limits = {name: OWN_EQUAL * share for name, share in shares.items() if name not in vague}

    def check(verdict: Verdict, ratio: float | None, says: str = "") -> Check:
        return Check("loss", made.number, verdict, ratio, says, "", len(limits), count, detection_limits=limits)

    if set(right) != set(losses):
        says = f"the step returns the losses {_listed(losses)}; the reference's returns {_listed(right)}"
        return check(Verdict.INVALID, math.inf, says)
    broken = next((name for name, loss in losses.items() if not math.isfinite(loss)), None)
    if broken is not None:
        says = f"loss {broken!r} is {losses[broken]}; the reference's is {right[broken]:.6g}"
        return check(Verdict.INVALID, math.inf, says)
    ratios, failing = _loss_ratios(made), wrong_losses(made)
    if not failing:
        says = f"rounding alone may change {_listed(vague)} by over {most:.0%}" if vague else ""
        return check(Verdict.EQUAL, max(ratios.values()), says) if limits else check(Verdict.UNTESTED, None, says)
    first, worst = failing[0], max(ratios.values())
    away = f"{shown_ratio(ratios[first], 3)} x its noise floor away"
    says = f"loss {first!r} is {losses[first]:.8g}; the reference's is {right[first]:.8g}, {away}"
    says += _multiple(losses[first], right[first])
    agree = [name for name in right if name not in failing]
    says += f"; {_listed(agree)} {'agrees' if len(agree) == 1 else 'agree'}" if agree else ""
    return check(rules.failing(worst, rules.OWN), worst, says)


def _loss_ratios(made: Made) -> dict[str, float]:
    """Loss -> residual / noise floor."""
    return {
        name: quotient(abs(made.losses[name] - right), made.truth.loss_floors[name])
        for name, right in made.truth.losses.items()
    }


def wrong_losses(made: Made) -> list[str]:
    """The losses that differ."""
    return [name for name, ratio in _loss_ratios(made).items() if not ratio <= OWN_EQUAL]


def _listed(names: Sequence[str] | Mapping[str, float]) -> str:
    return ", ".join(repr(name) for name in names)


KNOWN = {**VARIANTS, **DIFFERENCES}  # known difference of an optimizer -> what it means
_ratio, _group_ratio = attrgetter("ratio"), attrgetter("groups.ratio")


# -- weights ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weights:
    """The weights after a step: all of them, and those that differ.

    kinked: whether activations that cross their kinks explain all that differed.
    """

    name: str
    every: Sequence[Weight]
    failing: Sequence[Weight]
    kinked: bool = False

    @classmethod
    def of(cls, made: Made, statistics: bool) -> Weights:
        """Compare the parameters, or the running statistics, after a step."""
        every = made.weights(statistics)
        return cls("statistics" if statistics else "update", every, [each for each in every if each.differs])

    @property
    def broken(self) -> Weight | None:
        """The first weight that is not finite."""
        return next((each for each in self.every if not each.finite), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The weights that the reference has under the same name."""
        return tuple(each.name for each in self.every if each.parts == (each.name,))

    @property
    def badness(self) -> tuple[int, float]:
        """The number of weights that differ, and by how much."""
        return len(self.failing), sum(each.compared.badness(OWN_EQUAL) for each in self.failing)

    def check(self, made: Made, verdict: Verdict, says: str = "", difference: str = "") -> Check:
        """The check of these weights with this verdict."""
        judged = [each for each in self.every if not each.rounding_alone]
        moved = [each for each in judged if each.size]
        if made.truth.skipped and not moved and verdict <= Verdict.EQUAL:
            says = f"the step is skipped as the reference's: its gradients times {made.truth.skipped:g} are infinite"
            return Check(self.name, made.number, verdict, 0.0, says, compared=len(judged), known=len(self.every))
        if not self.failing and not any(
            each.size for each in self.every
        ):  # as between updates with accumulated gradients
            return Check(self.name, made.number, verdict, 0.0, says, difference, len(judged), len(self.every))
        if not moved and verdict <= Verdict.EQUAL:
            return Check(self.name, made.number, Verdict.UNTESTED, says=VAGUE, known=len(self.every))
        of_all, of_groups = ([get(each.compared) for each in self.every] for get in (_ratio, _group_ratio))
        limits = {each.name: each.compared.limit() for each in moved}
        return Check(
            self.name, made.number, verdict, max(of_all, default=0.0), says, difference, len(judged), len(self.every),
            max(of_groups, default=0.0), limits, max((each.compared.worst_limit() for each in moved), default=None),
        )  # fmt: skip

    @property
    def verdict(self) -> Verdict:
        """The verdict by the worst ratio."""
        if not self.failing:
            return Verdict.EQUAL
        return Verdict.DRIFT if all(each.compared.drifts(OWN_DRIFT) for each in self.failing) else Verdict.DIFFERENT

    def says(self, made: Made) -> str:
        """What differs: the first weight, and what is common to all that do."""
        first = self.failing[0]
        plain = (
            f"{made.whose(first.name)}: its error after the step is {first.compared.says(OWN_EQUAL)} its noise floor"
        )
        if not first.moved and first.size:
            plain = f"{made.whose(first.name)} is not changed by the step"
            if not any(each.moved for each in self.every):
                return "the step changes no weight"
        elif not first.size:
            plain = f"{made.whose(first.name)} is changed by the step; the reference's step {_leaves(made)}"
        return plain + made.only([each.name for each in self.failing])

    def blamed(self, made: Made) -> list[Weight]:
        """The weights that differ and that the same optimizer updates as the first of them: others may differ because of these."""
        first = made.optimizer(self.failing[0].name) if self.failing else ""
        return [each for each in self.failing if made.optimizer(each.name) == first]

    def hidden(self, gradients: Gradients) -> list[str]:
        """The parameters whose gradients differ by more than rounding, where their changes could not show it."""
        vague = {each.name for each in self.every if each.rounding_alone or each.compared.groups.undetermined}
        names = [name for name in gradients.differing if gradients.shares.get(name, math.inf) > SAME and name in vague]
        return [] if self.kinked else names

    @property
    def unchanged(self) -> bool:
        """Whether there are weights that differ, and the step has changed none of these."""
        return bool(self.failing) and not any(each.moved for each in self.failing)

    def one_bias(self) -> bool:
        """Whether each weight that differs is a sum of the reference's, and changes as one of its parts does."""
        return all(
            len(each.parts) > 1
            and rms(each.own_change - each.change / len(each.parts)) <= OWN_EQUAL * each.compared.floor
            for each in self.failing
        )

    def scaled(self, made: Made) -> str:
        """How the changes of the blamed weights are multiples of the right ones; "" when they are not."""
        factors = [scale(each.own_change.astype(np.float64), each.change) for each in self.blamed(made) if each.size]
        factor = shared(factors)
        return factor_says(factor, "its change is {} times the right one").removeprefix(": ") if factor else ""

    def add(self, distance: Distance, coverage: Coverage, without: Collection[str]) -> None:
        """Add the changes of all weights to a distance, without those that are rounding alone; and all of them to the coverage.

        without: weights of the reference that do not count, because their gradients are zero.
        """
        for each in self.every:
            if each.size and each.parts[0] not in without:
                coverage.add(self.name, each.name, each.change.size, each.judged)
            if each.rounding_alone:
                coverage.untested.append(each.name)
            else:
                distance.add(each.own_change - each.change, each.change)


def _leaves(made: Made) -> str:
    """Why the reference's step does not change a weight, as the end of a sentence."""
    if not made.truth.skipped:
        return "leaves it as it is"
    return (
        f"is skipped, because its gradients times the scale of its loss, {made.truth.skipped:g}, are infinite: skip such a step, "
        "and begin with the same scale"
    )


def judge_update(
    made: Made, weights: Weights, gradients: Gradients, explain: Explain, variants: Sequence[str] = ()
) -> list[Check]:
    """The checks of gradients and weights.

    explain: called when weights differ.
    variants: the known differences of optimizers that the exact step has.
    """
    if weights.broken is not None:
        says = f"{made.whose(weights.broken.name)} has NaN or infinity"
        says += f"; the reference's step {_leaves(made)}" if made.truth.skipped else ""
        return [Check("update", made.number, Verdict.INVALID, math.inf, says, known=len(weights.every))]
    if not weights.failing:
        return _agreeing(made, weights, gradients, variants)
    if made.truth.skipped and not weights.failing[0].size:
        return [weights.check(made, weights.verdict, weights.says(made))]
    if weights.one_bias():
        return [weights.check(made, Verdict.DRIFT, f"one bias: {OWN['one bias']}", "one bias")]
    blamed = [each.name for each in weights.blamed(made)]
    differing = [name for name in gradients.differing if name in blamed]
    place = "gradients" if differing else "settings" if gradients.seen else "update"
    factors = [gradients.factors.get(name, math.nan) for name in differing]
    finite = [factor for factor in factors if math.isfinite(factor)]
    says, difference = explain(place, median(finite) if finite else None)
    says = says or ("" if differing else weights.scaled(made))
    if difference:
        return [weights.check(made, Verdict.DRIFT, says, difference)]
    clause = f": {says}" if says else ""
    if differing:
        of_gradients = f"{gradients.says(made, differing)}{f'; {says}' if says else ''}"
        plain = weights.check(made, weights.verdict, weights.says(made))
        return [gradients.check(made, Verdict.DIFFERENT, of_gradients), plain]
    if not gradients.seen:
        return [weights.check(made, weights.verdict, f"{weights.says(made)}{clause}")]
    agree = "; the gradients that its optimizer is given agree, so the optimizer differs"
    of_weights = weights.check(made, weights.verdict, f"{weights.says(made)}{agree}{clause}")
    return [replace(gradients, ratio=0.0).check(made, Verdict.EQUAL), of_weights]


def _agreeing(made: Made, weights: Weights, gradients: Gradients, variants: Sequence[str]) -> list[Check]:
    """The checks of gradients and weights where the weights agree. variants: see ``judge_update``."""
    found = [gradients.check(made, Verdict.EQUAL)] if gradients.seen else []
    hidden = weights.hidden(gradients)
    if hidden:
        return [
            gradients.check(made, Verdict.DIFFERENT, gradients.says(made, hidden)),
            weights.check(made, Verdict.EQUAL),
        ]
    share = max((gradients.shares.get(name, math.inf) for name in gradients.differing), default=0.0)
    if share > SAME:  # less is rounding: the weights agree
        says = f"other gradients: {gradients.says(made, list(gradients.differing))}"
        says = f"{says}, and yet the weights after the step agree: the optimizer makes up for it".replace("; ", ", ")
        found = [gradients.check(made, Verdict.DRIFT, says, "other gradients")]
    return [*found, _agreeing_weights(made, weights, variants)]


def _agreeing_weights(made: Made, weights: Weights, variants: Sequence[str]) -> Check:
    """The check of weights that agree with those of a step with these variants."""
    says = "; ".join(f"{name}: {KNOWN[name]}" for name in variants)
    return weights.check(made, Verdict.DRIFT if variants else Verdict.EQUAL, says, ", ".join(variants))


def judge_optimizer(made: Made, weights: Weights, explain: Explain, variants: Sequence[str] = ()) -> Check:
    """The check of what the optimizers make of the gradients that they are given, whatever the precision of these.

    weights: after the step, beside those that the reference's optimizers make of the same gradients.
    explain, variants: see ``judge_update``.
    """
    weights = replace(weights, name="optimizer")
    if not weights.failing:
        return _agreeing_weights(made, weights, variants)
    if weights.one_bias():
        return weights.check(made, Verdict.DRIFT, f"one bias: {OWN['one bias']}", "one bias")
    says = explain("settings", None)[0] or weights.scaled(made)
    plain = f"{weights.says(made)}; torch.py's optimizer makes another step of the same gradients"
    return weights.check(made, weights.verdict, f"{plain}: {says}" if says else plain)


def unseen_optimizer(made: Made, weights: Weights) -> list[Check]:
    """The check of what the optimizers make of their gradients, where these cannot be seen; none where the weights show as much.

    weights: after the step, whose noise is that of the precision.
    """
    limits = {each.name: each.compared.limit() for each in weights.every if each.size and not each.rounding_alone}
    worst = max(limits.values(), default=0.0)
    if worst <= NULL["float32"]:
        return []
    says = (
        f"the gradients that the optimizers are given cannot be seen, and rounding to {made.truth.precision} may hide that an "
        f"update is wrong by up to {100 * worst:.2g}%, as with another learning rate"
    )
    return [Check("optimizer", made.number, Verdict.UNTESTED, says=says, known=len(limits))]


def _multiple(found: float, right: float) -> str:
    """What a report says of a loss with the opposite sign, or that is a whole multiple or part of the right one."""
    factor = found / right if right else math.nan
    whole = max(abs(factor), 1 / abs(factor)) if math.isfinite(factor) and factor else math.nan
    if not math.isfinite(whole) or abs(whole - round(whole)) > SAME * whole:
        return ""
    return factor_says(factor, "it is {} times the right one")


def losses_first(made: Made, losses: Check, update: Weights) -> bool:
    """Whether a wrong loss comes before the wrong weights, and not after them.

    A loss that is computed after an update is wrong because of that update when the loss that made the update is right.
    """
    if not update.failing or losses.verdict == Verdict.INVALID:
        return True
    trained_by = made.truth.trained_by.get(update.failing[0].parts[0])
    return trained_by is None or trained_by in wrong_losses(made)


def judge_statistics(made: Made, weights: Weights, explain: Explain) -> Check:
    """The check of running statistics. explain: called when they differ."""
    if weights.broken is not None:
        return weights.check(made, Verdict.INVALID, f"{weights.broken.name} has NaN or infinity")
    if not weights.failing:
        return weights.check(made, Verdict.EQUAL)
    says, difference = explain("statistics", None)
    if difference:
        return weights.check(made, Verdict.DRIFT, says, difference)
    first = weights.failing[0]
    if weights.unchanged:
        says = "they do not change: batch norm is in inference mode"
    plain = f"{first.name}: its error after the step is {first.compared.says(OWN_EQUAL)} its noise floor"
    return weights.check(made, weights.verdict, f"{plain}: {says}" if says else plain)
