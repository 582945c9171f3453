import math

import numpy as np
import pytest

from xverify.checking.figures import conditions, decided, figures, unmet
from xverify.errors import UsageError
from xverify.results.figures import Figures

RANDOM = np.random.default_rng(0)


def test_equal_outputs_agree_in_every_figure():
    scores = RANDOM.standard_normal((8, 10)).astype(np.float32)
    found = figures([(scores, scores)])
    assert (found.top1, found.top5, found.kl, found.max_abs) == (1.0, 1.0, 0.0, 0.0)
    assert found.sqnr == math.inf
    assert found.cosine == pytest.approx(1.0)


def test_top1_counts_the_items_whose_best_class_changed_and_top5_asks_the_references_best_five():
    scores = np.eye(10)[[0, 1, 2, 3]] * 9 - np.arange(10) * 0.1
    other = scores.copy()
    other[0, 9] = 99  # class 9 is the reference's last
    other[1, 2] = 99  # class 2 is the reference's third
    found = figures([(scores, other)])
    assert (found.top1, found.top5) == (0.5, 0.75)


def test_sqnr_is_the_ratio_of_powers_over_all_cases():
    signal = [np.full((2, 4), 10.0), np.full((2, 4), 20.0)]
    found = figures((each, each + 1) for each in signal)
    assert found.sqnr == pytest.approx(10 * math.log10(250))
    assert found.max_abs == 1.0


def test_the_divergence_of_probabilities_and_of_their_logits_is_the_same():
    a, b = RANDOM.standard_normal((2, 4, 6))
    softmax = [np.exp(each) / np.exp(each).sum(1, keepdims=True) for each in (a, b)]
    expected = (softmax[0] * np.log(softmax[0] / softmax[1])).sum(1).mean()
    assert figures([(a, b)]).kl == pytest.approx(expected)
    assert figures([tuple(softmax)]).kl == pytest.approx(expected)


def test_whole_numbers_and_images_have_no_class_figures():
    assert figures([(np.array([[1, 2, 3]]), np.array([[1, 2, 5]]))]) == Figures(max_abs=2.0)
    assert figures([(np.ones((1, 3, 4, 4)), np.ones((1, 3, 4, 4)))]).top1 is None


def test_conditions_are_read_and_those_that_do_not_hold_are_told():
    wanted = conditions("top1>=0.99, sqnr>=30,max_abs<1e-3")
    assert [str(each) for each in wanted] == ["top1>=0.99", "sqnr>=30", "max_abs<0.001"]
    found = unmet(wanted, {"y": Figures(top1=0.98, sqnr=40.0, max_abs=1e-4), "z": Figures(sqnr=20.0, max_abs=0.0)})
    assert found == ["top1>=0.99: top1 of y is 0.98", "sqnr>=30: sqnr of z is 20"]
    assert "no output has this figure" in unmet(conditions("top5>=1"), {"y": Figures(sqnr=1.0)})[0]


@pytest.mark.parametrize(
    ("text", "says"), [("top2>=1", "did you mean"), ("top1", "write FIGURE"), ("top1>=x", "write")]
)
def test_a_condition_that_cannot_be_read_is_refused(text, says):
    with pytest.raises(UsageError, match=says):
        conditions(text)


def test_a_vector_of_scores_may_have_axes_of_length_1_behind_it():
    scores = RANDOM.standard_normal((4, 10, 1, 1)).astype(np.float32)
    other = scores.copy()
    other[0, 3] = 99
    assert figures([(scores, other)]).top1 == 0.75


def test_a_probability_that_float16_rounds_to_0_makes_no_infinite_divergence():
    logits = np.array([[0.0, 1.0, 20.0]])
    exact = np.exp(logits) / np.exp(logits).sum()
    rounded = exact.astype(np.float16)
    assert rounded[0, 0] == 0
    assert figures([(exact, rounded)]).kl == pytest.approx(0, abs=1e-7)


def test_a_note_says_by_which_value_each_condition_was_decided():
    outputs = {"y": Figures(top1=0.98, sqnr=40.0), "z": Figures(sqnr=20.0)}
    assert decided(conditions("top1>=0.9,sqnr>=30,top5>=1"), outputs) == (
        "top1>=0.9 holds: 0.98 (y); sqnr>=30 does not hold: 20 (z); top5>=1 does not hold, because no output has this figure"
    )
