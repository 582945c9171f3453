"""The smallest size and the first version of a runtime at which a file differs, and where it does."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..environments.versions import in_order
from ..errors import Refused
from ..results.records import Error
from ..results.verdicts import Verdict
from ..verdict.first_size import AtSize, first_size, where
from ..verdict.limits import UNIT, growth
from ..workload.sizes import said, sentence
from .candidate import Checked
from .judge import Judged
from .steady import LONG_SUM, change
from .subject import File, Opened


def with_refusals(sized: Sequence[Checked], question: str) -> list[Checked]:
    """One file at several sizes. A size that its runtime refuses, although the file leaves it open, is DIFFERENT.

    A file that is refused at every size keeps its failures. question: the one that the user asked.
    """
    if not any(each.answers for each in sized):
        last = [each.failure for each in sized[:1]]
        return [each for index, each in enumerate(sized) if not index or each.failure not in last]
    return [_refused(each, question) if _is_refused(each) else each for each in sized]


def _is_refused(each: Checked) -> bool:
    return bool(each.size) and each.evaluated is None and isinstance(each.failure, Refused)


def _refused(each: Checked, question: str) -> Checked:
    reason = f"{each.file.form.runtime} refuses {said(each.size)}, which the file leaves open: {each.failure}"
    answer = Judged(Error(Verdict.DIFFERENT, reason=reason), {})
    return replace(each, answers={question: answer}, failure=None)


def untested(opened: Opened, question: str, reason: str) -> Checked:
    """A file that was not checked. question: as in ``with_refusals``."""
    answer = Judged(Error(Verdict.UNTESTED, reason=reason), {})
    return Checked(opened, opened.environment, answers={question: answer})


def told(
    files: Sequence[File], checked: Sequence[Sequence[Checked]], sizes: Mapping[str, Sequence[int]]
) -> Iterator[str]:
    """The notes on sizes and versions. checked: each file at every size. sizes: those of --sizes."""
    if sizes:
        yield sentence(sizes)
        for file, every in zip(files, checked):
            yield from first_size(file.label, [AtSize(each.size, _worst(each), _where(each)) for each in every])
    yield from first_versions([each for every in checked for each in every])


def first_versions(checked: Sequence[Checked]) -> Iterator[str]:
    """A sentence on the first version of a runtime that differs from those before it, for each file."""
    groups: defaultdict[tuple[str, str], dict[str, list[Checked]]] = defaultdict(dict)
    for each in checked:
        if each.file.version:
            key = (str(each.file.path), each.file.form.runtime)
            groups[key].setdefault(each.file.version, []).append(each)
    for (_, runtime), versions in groups.items():
        ordered = [(version, versions[version]) for version in in_order(versions)]
        for before, after in itertools.pairwise(ordered):
            says = _between(before[1], after[1])
            if says:
                name = after[1][0].file.path.name
                yield f"{name}: {runtime}=={after[0]} is the first version that differs from those before it: {says}"
                break


def _between(before: Sequence[Checked], after: Sequence[Checked]) -> str:
    """How a version differs from the one before it; "" where it does not. Both are the same file at the same sizes."""
    for one, other in zip(before, after):
        earlier, later = _worst(one), _worst(other)
        at = f" at {said(other.size)}" if other.size else ""
        if earlier != later:
            known = _where(max((one, other), key=_rank))
            return f"it is {later}, and {one.file.version} is {earlier}{at}{known}"
        if (
            isinstance(later, Verdict) and not later.fails and not other.size
        ):  # the outputs of the last size alone are kept
            says = _changed(one, other)
            untold = "none of them is judged, so it is not known which is right"
            if says:
                return f"{says}; {untold if later == Verdict.UNTESTED else f'both are {later}'}"
    return ""


def _changed(one: Checked, other: Checked) -> str:
    """By how much the outputs of two versions differ; "" where the order of the terms of a sum explains it."""
    if one.evaluated is None or other.evaluated is None:
        return ""
    first, second = one.evaluated.computed.own, other.evaluated.computed.own
    shares = {key: change(first[key], second[key]) if key in second else math.inf for key in first}
    worst = max(shares, key=lambda key: shares[key], default="")
    if shares.get(worst, 0.0) <= growth(LONG_SUM) * UNIT:
        return ""
    case, _, name = worst.partition("/")
    return f"its output {name} is away by {shares[worst]:.2g} of its size (case {case}) from that of {one.file.version}"


def _worst(each: Checked) -> Verdict | str:
    """The worst verdict on a file, in which IDENTICAL is EQUAL; its status where it has none."""
    if each.failure is not None or not each.answers:
        return each.failure.status if each.failure else "failed"
    return max(Verdict.EQUAL, *(answer.error.verdict for answer in each.answers.values()))


def _rank(each: Checked) -> int:
    """How bad the worst verdict on a file is."""
    worst = _worst(each)
    return worst.rank if isinstance(worst, Verdict) else len(Verdict)


def _where(each: Checked) -> str:
    """The place of the fault, after a colon; "" where it is not known."""
    places = (where(answer.error) for answer in each.answers.values())
    return next(filter(None, places), f": {each.failure}" if each.failure else "")
