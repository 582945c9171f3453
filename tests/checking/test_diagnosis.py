import numpy as np
import pytest

from xverify.checking.diagnosis import FUNCTIONS, diagnose

RANDOM = np.random.default_rng(0)
LOGITS = [RANDOM.standard_normal((4, 6)) * 3 for _ in range(3)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_missing_and_an_added_function_are_named(name):
    function = FUNCTIONS[name]
    assert diagnose([(function(x), x) for x in LOGITS]).startswith(f"{name} is missing at the end")
    assert f"{name} is applied once more" in diagnose([(x, function(x)) for x in LOGITS])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda x: x.clip(-1, 1.5), "values are clipped to [-1, 1.5]"),
        (lambda x: x + np.arange(6), "a constant is added to every item"),
        (lambda x: 0.5 * x, "every value is multiplied by 0.5"),
    ],
)
def test_a_known_change_is_named(change, says):
    assert says in diagnose([(x, change(x)) for x in LOGITS])


def test_swapped_axes_are_named():
    squares = [RANDOM.standard_normal((2, 5, 5)) for _ in range(2)]
    assert diagnose([(x, x.swapaxes(1, 2)) for x in squares]) == "the last two axes are swapped"


def test_outputs_that_follow_from_no_known_change_draw_no_sentence():
    assert diagnose([(x, x + 0.1 * RANDOM.standard_normal(x.shape)) for x in LOGITS]) == ""
    assert diagnose([(x, x * (1 + 1e-7)) for x in LOGITS]) == ""
    assert diagnose([(x, np.full_like(x, np.nan)) for x in LOGITS]) == ""
    assert diagnose([]) == ""
