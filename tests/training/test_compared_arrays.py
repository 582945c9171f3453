"""An array of a training step beside the exact one."""

import numpy as np

from xverify.training.compared import Compared
from xverify.verdict.limits import OWN_EQUAL


def test_what_a_step_leaves_as_it_is_agrees_where_the_exact_step_leaves_it_too():
    nothing = np.zeros(40)
    still = Compared.of(nothing, nothing, nothing)
    assert still.ratio == 0.0
    assert still.badness(OWN_EQUAL) <= 1


def test_what_a_step_changes_differs_where_the_exact_step_leaves_it():
    nothing = np.zeros(40)
    moved = Compared.of(np.full(40, 1e-3), nothing, nothing)
    assert moved.ratio == float("inf")
    assert not moved.badness(OWN_EQUAL) <= 1
