"""Whether dropout of several ranks draws what it must: equal numbers for equal values, and others for other values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ..framework.ranks import DropoutDrawn
from ..messages.training import DrawDropouts
from ..results.records import Check
from ..results.verdicts import Verdict
from .dropout import NAME
from .learner import Learner

LEAST = 20  # values that are dropped, at least: fewer are dropped at the same places by chance


def rank_dropout(learner: Learner) -> list[Check]:
    """The check of the dropout layers; none where they are not seen.

    Ranks begin with one seed, and then with a seed for each: a training program may do either. What is wrong in both is a fault.
    """
    drawn = learner.ask_each(DrawDropouts())
    known = len({call.name for each in drawn for call in each.one_seed})
    if not known:
        return []
    found = [contradiction(each) for each in ([one.one_seed for one in drawn], [one.own_seed for one in drawn])]
    if all(found):
        return [Check(NAME, 0, Verdict.DIFFERENT, says=found[0], compared=known, known=known)]
    return [Check(NAME, 0, Verdict.EQUAL, compared=known, known=known)]


def contradiction(drawn: Sequence[Sequence[DropoutDrawn]]) -> str:
    """What two ranks draw that they must not; "" where all is right. drawn: the calls of each rank."""
    by_call = [{(each.name, each.call): each for each in calls} for calls in drawn]
    for (first, one), (second, two) in combinations(enumerate(by_call), 2):
        for key in one.keys() & two.keys():
            same, also = one[key].given == two[key].given, one[key].dropped == two[key].dropped
            if same and not also:
                return (
                    f"rank {second}: {key[0]} gets the same values as on rank {first}, and drops others: ranks that have the same "
                    "values must draw the same random numbers"
                )
            if also and not same and min(one[key].count, two[key].count) >= LEAST:
                return (
                    f"rank {second}: {key[0]} gets other values than on rank {first}, and drops them at the same places: ranks "
                    "that have other values must draw other random numbers"
                )
    return ""
