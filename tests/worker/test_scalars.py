"""Outputs without axes, of frameworks that have no such tensors."""

import numpy as np
import pytest

from xverify.framework.runner import OnArrays
from xverify.worker.state import State


class WithoutScalars(OnArrays):
    name = "one-axis"
    scalars = False


@pytest.mark.parametrize(
    ("runner", "declared", "returned", "shape"),
    [
        (WithoutScalars, {"y"}, np.ones(1), ()),
        (WithoutScalars, {"y"}, np.ones(2), (2,)),
        (WithoutScalars, {"y"}, np.ones((1, 1)), (1, 1)),
        (WithoutScalars, set(), np.ones(1), (1,)),
        (OnArrays, {"y"}, np.ones(1), (1,)),
    ],
)
def test_a_value_stands_for_an_output_without_axes_where_the_framework_has_none(runner, declared, returned, shape):
    state = State(lambda: 0.0)
    state.runner = object.__new__(runner)
    state.outputs, state.scalars = {"y": None}, frozenset(declared)
    assert state.output_arrays(0, returned)["0/y"].shape == shape
