"""The judgement of dropout layers and their masks, without a framework."""

import math

import numpy as np
import pytest

from xverify.framework.dropout import DropoutCall, DropoutLayer, mask_key
from xverify.messages.training import DropoutsListed
from xverify.results.records import Check
from xverify.training.dropout import draw, in_layout, judge_dropout

SHAPE = (8, 6, 5, 5)


def listed(*names, rate=0.25, scale=4 / 3, channels=False, shape=SHAPE, before="a", after="b"):
    layers = tuple(DropoutLayer(name, rate, scale, channels, 2**15) for name in dict.fromkeys(names))
    calls = tuple(DropoutCall(name, names[:i].count(name), shape, before, after) for i, name in enumerate(names))
    return DropoutsListed(layers, calls)


def judged(reference, subject, verdict="EQUAL", channels_last=False):
    given = {}

    def compare(masks):
        given.update(masks)
        return [
            Check("loss", 0, "EQUAL", 1.0),
            Check("gradients", 0, verdict, 2.0, "fc is off" if verdict != "EQUAL" else ""),
        ]

    masks = draw(reference, seed=3, step=2)
    return judge_dropout(2, reference, subject, masks, channels_last, compare), masks, given


def test_masks_are_zero_or_the_scale_and_differ_by_call_and_step():
    masks = draw(listed("drop", "drop"), seed=3, step=0)
    first, second = masks[mask_key("drop", 0)], masks[mask_key("drop", 1)]
    assert set(np.unique(first)) == {0.0, np.float32(4 / 3)}
    assert np.mean(first == 0) == pytest.approx(0.25, abs=0.05)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, draw(listed("drop"), seed=3, step=1)[mask_key("drop", 0)])
    assert np.array_equal(first, draw(listed("drop"), seed=3, step=0)[mask_key("drop", 0)])


def test_masks_of_channels_are_the_same_in_a_whole_channel():
    mask = draw(listed("drop", channels=True), seed=3, step=0)[mask_key("drop", 0)]
    assert (mask == mask[:, :, :1, :1]).all()


def test_masks_take_the_layout_of_the_subject():
    mask = draw(listed("drop"), seed=3, step=0)[mask_key("drop", 0)]
    assert np.array_equal(in_layout(mask, (8, 5, 5, 6), True), np.moveaxis(mask, 1, -1))
    assert in_layout(mask, (8, 150), True) is None
    square = np.arange(2 * 4**3).reshape(2, 4, 4, 4)
    assert np.array_equal(in_layout(square, square.shape, True), np.moveaxis(square, 1, -1))
    assert in_layout(square, square.shape, False) is square


def test_equal_layers_get_the_masks_of_the_reference_under_their_own_names():
    check, masks, given = judged(listed("drop", "drop"), listed("first", "second"))
    assert (check.name, check.step, check.verdict, check.compared, check.known) == ("dropout", 2, "EQUAL", 2, 2)
    assert np.array_equal(given[mask_key("second", 0)], masks[mask_key("drop", 1)])


@pytest.mark.parametrize(
    ("subject", "says"),
    [
        (listed("drop"), "it has no dropout layer where the reference has `more`"),
        (listed("drop", "more", "third"), "it drops in third, and the reference does not"),
        (listed("drop", "more", rate=0.3, scale=1 / 0.7), "drop drops 0.3 of the values; the reference's drops 0.25"),
        (
            listed("drop", "more", scale=1.0),
            "drop multiplies what it keeps by 1; the reference's by 1.333: it is not divided by 1 - p",
        ),
        (listed("drop", "more", scale=1.2), "drop multiplies what it keeps by 1.2; the reference's by 1.333"),
        (listed("drop", "more", channels=True), "drop drops whole channels; the reference's drops single values"),
        (listed("drop", "more", scale=math.nan), "drop does not make zeros and one other value"),
    ],
)
def test_a_wrong_layer_is_different(subject, says):
    check, _, given = judged(listed("drop", "more"), subject)
    assert check.verdict == "DIFFERENT"
    assert check.says.startswith(says)
    assert not given


def test_a_share_that_is_off_by_chance_is_right():
    assert judged(listed("drop"), listed("drop", rate=0.25 + 4 * math.sqrt(0.25 * 0.75 / 2**15)))[0].verdict == "EQUAL"


def test_another_place_explains_other_gradients_and_is_no_fault_by_itself():
    elsewhere = listed("drop", before="", after="a")
    assert judged(listed("drop"), elsewhere)[0].verdict == "EQUAL"
    check, *_ = judged(listed("drop"), elsewhere, "DIFFERENT")
    assert check.verdict == "DIFFERENT"
    assert (
        check.says
        == "drop is called before a; the reference's drop between a and b; with the same masks, gradients: fc is off"
    )


def test_a_layer_of_the_reference_that_makes_no_zeros_is_untested():
    check, *_ = judged(listed("alpha", scale=math.nan, rate=0.0), listed("alpha"))
    assert (check.verdict, check.says) == (
        "UNTESTED",
        "alpha of the reference does not make zeros and one other value, and gets no masks",
    )


def test_a_tensor_of_another_shape_gets_no_masks():
    check, *_ = judged(listed("drop"), listed("drop", shape=(8, 150)))
    assert check.verdict == "UNTESTED"
    assert "drop drops in a tensor of shape (8, 150); the reference's in (8, 6, 5, 5)" in check.says
