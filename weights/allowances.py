"""What may be outside of half a step in quantised weights whose numbers are not the nearest ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Allowance:
    """What may be outside in a weight whose numbers are not the nearest ones.

    outside: share of its values that may be. far: share of them that may also be more than ``steps`` steps from the reference's
    value, or from the end of the range where that lies beyond it. shifted: steps by which a row may be shifted.
    alike: correlation with the reference's values that it must have.
    """

    outside: float = 0.0
    far: float = 0.0
    steps: float = 0.0
    shifted: float = np.inf
    alike: float = -1.0


NEAREST = Allowance()
# Numbers that compensate the errors of others: layers of 512 inputs of four kinds, which GPTQ quantised to 3, 4 and 8 bits, had at
# most 17.6% outside, 0.31% more than 1.5 steps away, and rows that were shifted by 0.08 steps.
COMPENSATED = Allowance(0.25, 0.01, 1.5, 0.25)
# Weights of importance decided on the steps of the types that use them: values that llama.cpp quantised with such weights, whose
# logarithms had a standard deviation of 3, were outside by at most 4.5%. Types with super-blocks had all of these at the end of a
# range; the others had at most 0.38% more than 1.5 steps away.
IMPORTANT = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "IQ4_XS"), Allowance(0.05, 0.01, 1.5)),
    **dict.fromkeys(("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"), Allowance(0.05)),
}
# Types that choose four or eight neighbours together from a table. Of 390,000 values of eight distributions that llama.cpp rounded
# to each type, with and without weights of importance, at most 57% were outside in IQ3_XXS, 51% in IQ3_S, 32% in IQ2_* and 30% in
# IQ1_*, and their correlation with the right ones was at least 0.6. Values of other rows had one of 0, or of 0.65 where all had the
# same sign; of the latter, at least 80% were outside in IQ3_*, 50% in IQ2_* and 36% in IQ1_*.
GROUPED = {
    "IQ3_XXS": Allowance(0.65, far=1.0, alike=0.5),
    "IQ3_S": Allowance(0.6, far=1.0, alike=0.5),
    **dict.fromkeys(("IQ2_XXS", "IQ2_XS", "IQ2_S"), Allowance(0.4, far=1.0, alike=0.5)),
    **dict.fromkeys(("IQ1_S", "IQ1_M"), Allowance(0.35, far=1.0, alike=0.5)),
}


def allowance(kind: str, facts: Mapping[str, str | int]) -> Allowance:
    """What may be outside in a weight. kind: its type. facts: what its file says; see ``stored.Stored``."""
    if "compensated" in facts and kind.endswith("GPTQ"):
        return COMPENSATED
    return GROUPED.get(kind) or (IMPORTANT.get(kind, NEAREST) if "importance" in facts else NEAREST)
