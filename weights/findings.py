"""Sentences on the weights of a file that do not follow from a reference's as in a correct conversion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .origins import share
from .relations import QUIET, WRONG, Relation
from .stored import Stored

LISTED = 3  # weights that one sentence names


def sentences(relations: Sequence[Relation], file: Stored, reference: Stored) -> list[str]:
    """What is wrong with the weights of a file, the most telling first; [] when a correct conversion explains them all."""
    return list(_sentences(relations, file, reference))


def _sentences(relations: Sequence[Relation], file: Stored, reference: Stored) -> Iterator[str]:
    wrong = [each for each in relations if not each.right and each.kind not in QUIET]
    missing = [each for each in relations if each.kind == "missing"]
    norms: set[str] = set()
    for kind in sorted({each.kind for each in wrong}, key=_order):
        several = [each for each in wrong if each.kind == kind]
        if len(several) > LISTED:
            yield _together(several, file)
            continue
        for each in several:
            if (
                not each.norm or each.norm not in norms
            ):  # one sentence about a batch norm: its bias says the same as its weight
                yield _sentence(each, file, len(wrong) == 1 and not missing and len(relations) > 2)
            norms.add(each.norm)
    if len(missing) > LISTED:
        names = ", ".join(each.other for each in missing[:LISTED])
        yield f"{len(missing)} weights of the reference have no partner in the file: {names} and others"
        return
    for each in missing:
        of = f", which belongs to batch norm {each.norm}" if each.norm else ""
        yield f"{reference.called(each.other)} of the reference has no partner in the file{of}"


def _order(kind: str) -> int:
    return WRONG.index(kind) if kind in WRONG else 0


def _together(several: Sequence[Relation], file: Stored) -> str:
    """One sentence about many weights of one kind."""
    names = ", ".join(each.name for each in several[:LISTED])
    if several[0].kind == "rounded":
        return f"{len(several)} weights are {several[0].says}: {names} and others"
    worst = max(several, key=lambda each: each.away)
    return f"{len(several)} weights are not the reference's: {names} and others; {_sentence(worst, file, False)}"


def _sentence(each: Relation, file: Stored, alone: bool) -> str:
    """alone: whether all other weights are right."""
    name = file.called(each.name)
    also = f", the reference's {each.other}," if each.other not in ("", each.name) else ""
    if each.kind == "stale":
        return (
            f"stale: only {name}{also} differs, by {share(each.away)} (rms)" if alone else f"{name}{also} {each.says}"
        )
    return f"{name}: {each.says}" if each.kind == "dropped norm" else f"{name}{also} is {each.says}"
