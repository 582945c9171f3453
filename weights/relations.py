"""Finds how the weights of one model follow from those of another: by name, by content in any order of axes, and after folding.

A relation that a correct converter makes (another name, another order of axes, a folded batch norm) is right; another one, such as
a rounded or an old weight, is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .canonical import Array, shape_of
from .closeness import Fit, fit_of, rounded_to, scaled_by
from .origins import (
    Origin,
    all_origins,
    buckets,
    floats,
    folded_layer,
    folded_origins,
    key,
    rms,
    share,
    turned,
    turned_back,
    varies,
)
from .stored import EPSILONS, BatchNorm, Fold, Stored, factors, fold

SAME = 1e-5  # relative difference (rms) up to which two arrays differ by the rounding of folding in float32
NEAR = 0.02  # up to which two arrays may be the same one in lower precision
# Up to which two arrays of other names are taken for states of one weight. Unrelated ones are 1.4 apart, but vectors of factors
# that are all near 1 are not.
RELATED, RELATED_VECTORS = 0.7, 0.1
# Kinds of relations that no correct conversion makes, the most telling first; and those that say little where others are found.
WRONG = ("dropped norm", "twice", "eps", "scale", "zero", "scaled", "stale", "rounded", "quantised")
QUIET = ("extra", "missing")
SIZES = 0.02  # relative difference of the sizes (rms) of two arrays that are compared in the first place


@dataclass(frozen=True)
class Relation:
    """What an array of a file has to do with the reference.

    name: the array in the file; "" when the file lacks it. other: the array in the reference; "" when the reference lacks it.
    kind: "same", "folded", or one of WRONG and of QUIET. away: relative difference (rms).
    says: how they are related, as a phrase that follows "is"; "" for equal arrays.
    right: whether a correct conversion may do this. norm: the batch norm of the reference that it is about.
    uses: the names of the reference's arrays that are folded into it.
    """

    name: str
    other: str
    kind: str
    away: float = 0.0
    says: str = ""
    right: bool = True
    norm: str = ""
    uses: frozenset[str] = frozenset()


def relate(file: Stored, reference: Stored) -> list[Relation]:
    """The relation of every floating-point array of a file to the reference, and of every array that the file lacks."""
    return _Relating(file, reference).run()


class _Relating:
    def __init__(self, file: Stored, reference: Stored) -> None:
        self.file, self.reference = floats(file), floats(reference)
        self.origins = buckets(all_origins(self.reference))
        self.own_folded = buckets(folded_origins(self.file))
        self.used: set[str] = set()
        self.explained: set[str] = set()
        self.found: dict[str, Relation] = {}

    def run(self) -> list[Relation]:
        for first in (True, False):
            # Arrays of one value are in many places; what is left of them is matched last.
            for name, array in self.file.arrays.items():
                if name not in self.found and (not first or varies(array)):
                    self._equal(name, array)
        self._folded_here()
        # Weights before biases: a batch norm that is folded into a weight in a wrong way explains the bias, too.
        for name in sorted(self.file.arrays, key=lambda name: -len(shape_of(self.file.arrays, name))):
            if name not in self.found:
                self.found[name] = self._different(name, self.file.arrays[name])
                self.used.add(self.found[name].other)
        relations = [self.found[name] for name in self.file.arrays if name in self.found]
        relations = self._kept_norms(self._dropped_norms(relations))
        told = {each.norm for each in relations if each.norm}
        return [*relations, *self._missing(told)]

    # -- equal arrays -------------------------------------------------------------------------------------------------

    def _equal(self, name: str, array: Array) -> None:
        """Match an array with an equal one: of the same name, else one that has no partner yet, else any."""
        near = [
            (fit, each)
            for each in self._similar(array)
            if (fit := fit_of(array, each.array, SAME)) and fit.away <= SAME
        ]
        if not near:
            return

        def order(found: tuple[Fit, Origin]) -> tuple[bool, bool, bool, float]:
            fit, each = found
            return (
                each.of != name or each.kind != "same",
                each.kind not in ("same", "folded"),
                each.of in self.used,
                fit.away,
            )

        fit, each = min(near, key=order)
        self.used |= each.uses
        norm = each.norm.name if each.norm else ""
        self.found[name] = Relation(name, each.of, each.kind, fit.away, *self._says(each, fit), norm, each.uses)

    def _similar(self, array: Array) -> Iterator[Origin]:
        size = rms(array)
        for other, each in self.origins.get(key(array.shape), ()):
            if abs(other - size) <= SIZES * max(other, size):
                yield each

    def _says(self, each: Origin, fit: Fit) -> tuple[str, bool]:
        turned = f", with its axes in the order {fit.order}" if fit.order else ""
        if each.kind == "same" or each.norm is None:
            return turned.removeprefix(", "), True
        if each.kind == "folded":
            return f"equal after folding batch norm {each.norm.name} into {each.of}{turned}", True
        return f"{each.of} with batch norm {each.norm.name} folded in {each.kind}", False

    def _folded_here(self) -> None:
        """Find arrays of the reference that are equal to layers of the file after folding a batch norm of the file."""
        for other, array in self.reference.arrays.items():
            if other in self.used or not varies(array):
                continue
            for size, each in self.own_folded.get(key(array.shape), ()):
                if abs(size - rms(array)) > SIZES * size or each.of in self.found:
                    continue
                fit = fit_of(each.array, array, SAME)
                if fit is not None and fit.away <= SAME and each.norm is not None:
                    says = f"equal after folding batch norm {each.norm.name} of the file into it"
                    self.found[each.of] = Relation(each.of, other, "folded", fit.away, says)
                    self.used.add(other)
                    self.explained |= each.uses
                    break
        for name in self.explained:
            if name not in self.found:
                self.found[name] = Relation(name, "", "folded", 0.0, "folded into another weight of the reference")

    # -- other arrays -------------------------------------------------------------------------------------------------

    def _different(self, name: str, array: Array) -> Relation:
        """The relation of an array that is equal to none of the reference."""
        nearest = self._nearest(name, array)
        if nearest is None:
            return Relation(name, "", "extra", math.inf, f"only in the file, shape {array.shape}")
        each, fit = nearest
        other, right = each.of, turned(each.array, fit.order, array.shape)
        plain = Relation(name, other, each.kind, fit.away)
        if each.kind not in ("same", "folded") and each.norm is not None:
            return replace(plain, kind="eps", says=self._says(each, fit)[0], right=False, norm=each.norm.name)
        if not array.any():
            return replace(plain, kind="zero", says="zero", right=not right.any())
        if name in self.file.quantised:
            return self._quantised(plain, array, right)
        to = rounded_to(array, right)
        if to:
            return replace(plain, kind="rounded", says=f"rounded to {to}", right=False)
        wrong = self._wrongly_folded(name, array, each) or _scaled(plain, array, right)
        if wrong is not None:
            return wrong
        return replace(plain, kind="stale", says=f"has other values, {share(fit.away)} (rms) away", right=False)

    def _nearest(self, name: str, array: Array) -> tuple[Origin, Fit] | None:
        """The array of the same name and size, else the nearest one that is related."""
        options = [each for _, each in self.origins.get(key(array.shape), ()) if each.kind != "twice"]
        named = [each for each in options if each.of == name]
        fits = [(fit, each) for each in named or options if (fit := fit_of(array, each.array))]
        if not fits:
            return None
        fit, each = min(fits, key=lambda found: (found[0].away, found[1].kind != "same"))
        if named or fit.away <= (RELATED if array.ndim > 1 else RELATED_VECTORS):
            return each, fit
        free = [each for each in options if each.of not in self.used and each.kind == "same"]
        fit = fit_of(array, free[0].array) if len(free) == 1 else None
        wide = fit is not None and array.ndim > 1
        return (free[0], fit) if wide and fit is not None else None

    def _quantised(self, plain: Relation, array: Array, right: Array) -> Relation:
        """A weight that is stored as whole numbers: its error is a few per cent unless its scale is wrong."""
        dtype = self.file.quantised[plain.name]
        factor = scaled_by(array, right)
        if abs(factor - 1.0) > NEAR * 5 and rms(array - factor * right) <= NEAR * 5 * rms(array):
            says = f"quantised to {dtype} with a scale {factor:.3g} times the right one"
            return replace(plain, kind="scale", says=says, right=False)
        says = f"quantised to {dtype}, {share(plain.away)} (rms) away"
        return replace(plain, kind="quantised", says=says, right=plain.away < 5 * NEAR)

    def _wrongly_folded(self, name: str, array: Array, each: Origin) -> Relation | None:
        """The relation when every output channel is the reference's times a factor that another eps gives."""
        for norm in self.reference.norms:
            if each.of != norm.weight:
                continue
            weight = self.reference.arrays[norm.weight].astype(np.float64)
            fit = fit_of(array, weight)
            if fit is None or weight.shape[norm.axis] != self.reference.arrays[norm.var].size:
                continue
            mine = np.moveaxis(turned_back(array, fit.order, weight.shape), norm.axis, 0).reshape(
                weight.shape[norm.axis], -1
            )
            theirs = np.moveaxis(weight, norm.axis, 0).reshape(mine.shape)
            ratio = (mine * theirs).sum(1) / np.maximum((theirs * theirs).sum(1), np.finfo(float).tiny)
            if rms(mine - ratio[:, None] * theirs) > 10 * SAME * rms(mine):
                continue
            return self._eps(Relation(name, each.of, "eps", fit.away, right=False, norm=norm.name), norm, ratio)
        return None

    def _eps(self, plain: Relation, norm: BatchNorm, ratio: Array) -> Relation:
        """The relation of a weight with a batch norm folded in. ratio: the factor of each output channel."""
        gamma = self.reference.arrays[norm.gamma].astype(np.float64) if norm.gamma else 1.0
        var = self.reference.arrays[norm.var].astype(np.float64)
        with np.errstate(all="ignore"):
            eps = float(np.median((gamma / ratio) ** 2 - var))
        if eps > -1e-6 and rms(factors(self.reference, norm, eps) - ratio) <= 10 * SAME * rms(ratio):
            has = f"eps {eps:.2g}" + ("" if norm.eps is None else f", and the reference has {norm.eps:.2g}")
            how = Fold(norm, norm.weight, norm.bias, norm.axis, eps)
            for shape, several in buckets(folded_layer(self.reference, how, f"with {has}")).items():
                self.origins.setdefault(shape, []).extend(several)
            return replace(plain, says=f"{norm.weight} with batch norm {norm.name} folded in with {has}")
        says = (
            f"{norm.weight} with every output channel multiplied by a factor that batch norm {norm.name} does not have"
        )
        return replace(plain, says=says)

    # -- what is not there --------------------------------------------------------------------------------------------

    def _dropped_norms(self, found: list[Relation]) -> list[Relation]:
        """The relations, with the layers whose batch norm is neither folded in nor there."""
        partner = {each.other: each.name for each in found}
        kept = {norm.weight for norm in self.file.norms} | {
            "" if norm.weight else norm.name for norm in self.file.norms
        }
        result = list(found)
        for norm in self.reference.norms:
            name = partner.get(norm.weight)
            absent = not any(each in partner and varies(self.reference.arrays[each]) for each in norm.arrays)
            if norm.weight not in self.reference.arrays or not self._changes(norm):
                continue
            if name and absent and name not in kept and not self._has_factors(norm):
                index = next(i for i, each in enumerate(result) if each.name == name)
                if result[index].kind == "same":
                    says = f"batch norm {norm.name} of the reference is neither folded into it nor in the file"
                    result[index] = replace(result[index], kind="dropped norm", says=says, right=False, norm=norm.name)
        return result

    def _kept_norms(self, found: list[Relation]) -> list[Relation]:
        """The relations, with the layers into which a batch norm is folded although the file still has it behind the layer."""
        by_name = {norm.name: norm for norm in self.reference.norms}
        behind = {norm.weight: norm.name for norm in self.file.norms if norm.weight}
        result = []
        for each in found:
            if (
                each.kind == "folded"
                and each.norm in by_name
                and each.name in behind
                and self._changes(by_name[each.norm])
            ):
                says = f"{each.other} with batch norm {each.norm} folded in, and {behind[each.name]} is still behind it"
                each = replace(each, kind="twice", says=says, right=False)
            result.append(each)
        return result

    def _changes(self, norm: BatchNorm) -> bool:
        """Whether folding a batch norm of the reference changes its layer; one that was never trained has nothing to fold."""
        if norm.weight not in self.reference.arrays:
            return False
        eps = EPSILONS[0] if norm.eps is None else norm.eps
        made, shift = fold(self.reference, Fold(norm, norm.weight, norm.bias, norm.axis, eps))
        weight = self.reference.arrays[norm.weight]
        return rms(made - weight) > 100 * SAME * rms(weight) or rms(shift) > 100 * SAME

    def _has_factors(self, norm: BatchNorm) -> bool:
        """Whether the file has the factors of a batch norm as an array: some converters write it as a product and a sum."""
        known = [factors(self.reference, norm, eps) for eps in ((norm.eps,) if norm.eps is not None else EPSILONS)]
        return any(
            (fit := fit_of(self.file.arrays[name], each)) is not None and fit.away <= 10 * SAME
            for name in self.file.arrays
            for each in known
            if key(shape_of(self.file.arrays, name)) == key(each.shape)
        )

    def _missing(self, told: set[str]) -> Iterator[Relation]:
        """The arrays that the file lacks. told: batch norms about which something is said already."""
        for name, array in self.reference.arrays.items():
            if name not in self.used and array.any() and varies(array):
                norm = next((norm for norm in self.reference.norms if name in norm.arrays), None)
                if norm is not None and norm.name in told:
                    continue
                says = f"only in the reference, shape {array.shape}"
                yield Relation("", name, "missing", math.inf, says, False, norm.name if norm else "")


def _scaled(plain: Relation, array: Array, right: Array) -> Relation | None:
    factor = scaled_by(array, right)
    if factor and rms(array - factor * right) <= 10 * SAME * rms(array):
        return replace(plain, kind="scaled", says=f"multiplied by {factor:.6g}", right=False)
    return None
