import numpy as np
import pytest

from xverify.checking.matching import content, decide, matchings, turn, turn_back
from xverify.errors import UsageError
from xverify.framework.modelfile import Tensor


def f32(name, *shape):
    return Tensor(name, shape, "float32")


def pairs(found):
    return [{pair.reference: pair.own for pair in each.pairs} for each in found]


def test_equal_names_are_matched_also_in_another_order_and_with_decoration():
    mine = [f32("a", 2, 3), f32("b", 2, 3)]
    theirs = [f32("serving_default_b:0", 2, 3), f32("a", 2, 3)]
    assert pairs(matchings("input", mine, theirs)) == [{"a": "a", "b": "serving_default_b:0"}]


def test_other_names_are_matched_by_shape_and_dtype_and_never_by_position():
    mine = [f32("image", 2, 3), Tensor("ids", (2, 3), "int64")]
    theirs = [Tensor("x1", (2, None), "int32"), f32("x0", None, 3)]
    found = matchings("input", mine, theirs)
    assert pairs(found) == [{"image": "x0", "ids": "x1"}]
    assert found[0].pairs[0].how == "shape and dtype"


def test_every_possible_matching_is_returned_where_shapes_do_not_tell():
    found = matchings("output", [f32("a", 2, 3), f32("b", 2, 3)], [f32("p", 2, 3), f32("q", 2, 3)])
    assert pairs(found) == [{"a": "p", "b": "q"}, {"a": "q", "b": "p"}]


def test_the_content_decides_and_says_so():
    found = matchings("output", [f32("a", 2, 3), f32("b", 2, 3)], [f32("p", 2, 3), f32("q", 2, 3)])
    possible = [[each] for each in found]
    index, says = decide(possible, [1.4, 1e-7])
    assert pairs([found[index]]) == [{"a": "q", "b": "p"}]
    assert "allow 2 matchings; the outputs decide" in says
    for errors in ([1.4, 1.2], [1e-7, 1e-7]):
        with pytest.raises(UsageError, match="--map"):
            decide(possible, errors)


def test_the_user_decides():
    mine, theirs = [f32("a", 2, 3), f32("b", 2, 3)], [f32("p", 2, 3), f32("q", 2, 3)]
    assert pairs(matchings("output", mine, theirs, {"a": "q"})) == [{"a": "q", "b": "p"}]
    with pytest.raises(UsageError, match="the file has no output 'qq'; did you mean 'q'"):
        matchings("output", mine, theirs, {"a": "qq"})
    with pytest.raises(UsageError, match="--map a=p: the output is float32 2x3 in the reference and int64 2x3"):
        matchings("output", mine, [Tensor("p", (2, 3), "int64")], {"a": "p"})


def test_what_one_side_lacks_is_told():
    (found,) = matchings("output", [f32("a", 2, 3), f32("b", 5)], [f32("a", 2, 3), f32("c", 7)])
    assert (found.missing, found.extra) == (("b",), ("c",))


def test_an_output_with_transposed_axes_is_compared_and_not_left_out():
    for theirs in ("y", "z"):
        (found,) = matchings("output", [f32("y", 2, 3)], [f32(theirs, 3, 2)])
        assert [(pair.own, pair.order) for pair in found.pairs] == [(theirs, None)]
    assert matchings("output", [f32("y", 2, 3)], [f32("z", 2, 4)])[0].missing == ("y",)


def test_an_equal_name_with_another_shape_is_an_error():
    with pytest.raises(UsageError, match="'x' is float32 2x3 in the reference and float32 2x4 in the file"):
        matchings("input", [f32("x", 2, 3)], [f32("x", 2, 4)])


def test_images_with_the_channels_last_are_found_and_turned():
    (found,) = matchings("input", [f32("x", 2, 3, 8, 9)], [f32("x", None, 8, 9, 3)])
    order = found.pairs[0].order
    array = np.arange(2 * 3 * 8 * 9).reshape(2, 3, 8, 9)
    assert turn(array, order).shape == (2, 8, 9, 3)
    assert np.array_equal(turn_back(turn(array, order), order), array)
    assert "NCHW→NHWC" in str(found.pairs[0])


def test_a_layout_that_the_shape_does_not_tell_is_left_open():
    mine, theirs = [f32("x", 1, 3, 3, 3)], [f32("x", 1, 3, 3, 3)]
    assert len(matchings("input", mine, theirs)) > 1
    assert [each.pairs[0].order for each in matchings("input", mine, theirs, layout="same")] == [None]


def test_too_many_possibilities_ask_the_user():
    many = [f32(f"a{index}", 2) for index in range(6)]
    with pytest.raises(UsageError, match="--map a0=b0"):
        matchings("input", many, [f32(f"b{index}", 2) for index in range(6)])


def test_the_error_of_outputs_of_other_shapes_is_infinite():
    assert content([(np.ones(3), np.ones(4))]) == float("inf")
    assert content([(np.ones(4), np.ones(4))]) == 0.0
