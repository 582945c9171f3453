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
    assert "y has no top5" in unmet(conditions("top5>=1"), {"y": Figures(sqnr=1.0, max_abs=1.0)})[0]


def test_every_output_must_have_a_figure_that_decides_on_it():
    outputs = {"scores": Figures(top1=1.0, sqnr=50.0, max_abs=1e-3), "boxes": Figures(sqnr=50.0, max_abs=1e-3)}
    assert unmet(conditions("sqnr>=30"), outputs) == []
    (says,) = unmet(conditions("top1>=0.9"), outputs)
    assert says.startswith("top1>=0.9: boxes has no top1")
    assert unmet(conditions("scores:top1>=0.9,boxes:sqnr>=30"), outputs) == []
    assert unmet(conditions("scores:top1>=0.9"), outputs) == ["no condition decides on the output boxes"]
    assert "the outputs are scores, boxes" in unmet(conditions("score:top1>=0.9,sqnr>=1"), outputs)[0]


def test_an_item_that_is_zero_on_one_side_alone_has_the_cosine_0_and_is_named():
    right = np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]])
    given = right * np.array([[1], [0], [1]])
    found = figures([(right, right), (right, given)], [0, 3])
    assert found.cosine == 0.0
    assert found.says == "item 1 of case 3 is zero in the file alone"
    assert "item 1 of case 3" in unmet(conditions("cosine>=0.9"), {"y": found})[0]
    assert figures([(given, right)]).says == "item 1 of case 0 is zero in the reference alone"
    assert figures([(right, right)]).cosine == pytest.approx(1.0)
    assert figures([(right, right)]).says == ""


def test_an_output_that_should_be_zero_has_no_good_ratio_when_it_is_not():
    assert figures([(np.zeros((2, 2)), np.ones((2, 2)))]).sqnr == -math.inf
    assert figures([(np.zeros((2, 2)), np.zeros((2, 2)))]).sqnr == math.inf


def test_tiny_and_huge_outputs_have_figures():
    values = RANDOM.standard_normal((4, 6))
    for scale in (1e-200, 1e200):
        found = figures([(values * scale, values * scale * 1.01)])
        assert found.sqnr == pytest.approx(40.0, abs=1e-6)
        assert found.cosine == pytest.approx(1.0)
        assert figures([(values * scale, -values * scale)]).cosine == pytest.approx(-1.0)


def test_classes_that_a_mask_takes_out_on_both_sides_leave_the_other_figures():
    right, given = RANDOM.standard_normal((2, 4, 6))
    right[:, 2] = given[:, 2] = -np.inf
    found = figures([(right, given)])
    assert math.isfinite(found.cosine)
    assert math.isfinite(found.kl)
    assert math.isfinite(found.sqnr)
    assert found.top1 is not None


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
    outputs = {"y": Figures(top1=0.98, sqnr=40.0), "z": Figures(top1=0.99, sqnr=20.0)}
    assert decided(conditions("top1>=0.9,sqnr>=30,top5>=1"), outputs) == (
        "top1>=0.9 holds: 0.98 (y); sqnr>=30 does not hold: 20 (z); top5>=1 does not hold, because y has no such figure"
    )


def test_a_divergence_of_rounding_alone_is_not_negative():
    """The terms are rounded, and their sum was -2.2e-18 here."""
    right = np.random.default_rng(0).standard_normal((4, 10))
    assert figures([(right, np.nextafter(right, 9))]).kl == 0.0
