import time

import numpy as np
import pytest

from xverify.checking.cases import Input, make, narrower, settle
from xverify.errors import UsageError
from xverify.framework.modelfile import Tensor
from xverify.workload.wholes import Whole

IMAGE = Tensor("x", ("batch", 3, "h", "w"), "float32")
IDS = Tensor("ids", ("batch", "seq"), "int64")


def shapes(*tensors, given=None, **options):
    found, notes = settle(tensors, given or {}, **options)
    return [each.shape for each in found], notes


def test_open_dimensions_are_guessed_and_every_guess_is_told():
    found, notes = shapes(IMAGE)
    assert found == [(2, 3, 224, 224)]
    assert notes == ["x: the file leaves batch, h, w open; chosen: --shape x=2x3x224x224"]


def test_a_named_dimension_has_one_size_in_all_inputs():
    found, _ = shapes(IDS, Tensor("mask", ("batch", "seq"), "int64"), given={"mask": (3, 7)})
    assert found == [(3, 7), (3, 7)]


@pytest.mark.parametrize(
    ("tensors", "given", "says"),
    [
        ([IMAGE], {"y": (1,)}, "no input is called 'y'"),
        ([IMAGE], {"x": (1, 4, 8, 8)}, "x=1x4x8x8: the file says batchx3xhxw"),
        ([IMAGE], {"x": (1, 3, 8)}, "the file says"),
        ([IDS, Tensor("m", ("batch",), "int64")], {"ids": (2, 4), "m": (3,)}, "'batch' two sizes, 2 and 3"),
        ([Tensor("x", None, "float32")], {}, "--shape x=1x3x224x224"),
        ([Tensor("s", (1,), "string")], {}, "takes strings"),
    ],
)
def test_shapes_that_cannot_be_are_refused(tensors, given, says):
    with pytest.raises(UsageError, match=says):
        settle(tensors, given)


def test_the_cases_are_as_their_kinds_say():
    inputs, _ = settle([Tensor("x", (4, 5), "float32")], {})
    arrays = [make(inputs, seed=0)[f"{case}/x"] for case in range(6)]
    assert all(array.dtype == np.float32 and array.shape == (4, 5) for array in arrays)
    assert not np.array_equal(arrays[0], arrays[1])
    assert not arrays[2].any()
    assert np.abs(arrays[3]).max() > 10 > np.abs(arrays[0]).max()
    assert 0 < np.abs(arrays[4]).max() < 0.01
    assert set(arrays[5].ravel()) == {-1.0, 1.0}


def test_values_stay_within_the_range_that_the_user_names():
    inputs, _ = settle([Tensor("x", (100,), "float16")], {}, limits=(0.0, 255.0))
    arrays = list(make(inputs, seed=0).values())
    assert len(arrays) > 1
    for array in arrays:
        assert array.dtype == np.float16
        assert array.min() >= 0
        assert array.max() <= 255


def test_ids_are_below_the_size_of_their_table():
    inputs, notes = settle([IDS, Tensor("attention_mask", ("batch", "seq"), "int64")], {}, vocabulary={"ids": 30})
    arrays = make(inputs, seed=0)
    assert arrays["0/ids"].max() < 30
    assert len(set(arrays["0/ids"].ravel())) > 10
    assert any("ids below 30" in note for note in notes)


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
@pytest.mark.parametrize("shape", [(3, 12), (3, 1, 12, 12), (12,)])
def test_masks_have_a_tail_of_zeros_in_each_row_and_are_all_ones_in_one_case(dtype, shape):
    inputs, notes = settle([Tensor("attention_mask", shape, dtype)], {})
    masks = [make(inputs, seed=0)[f"{case}/attention_mask"] for case in range(6)]
    assert all(mask.dtype == np.dtype(dtype) and mask.shape == shape for mask in masks)
    for case in (0, 3, 4, 5):
        assert masks[case][..., 0].all()
        assert not masks[case][..., -1].any()
        assert (np.diff(masks[case].astype(int), axis=-1) <= 0).all()
    assert masks[1].all()
    assert masks[2].all() == (dtype != "bool")
    assert len({mask.tobytes() for mask in masks}) >= 4
    assert "ones and then zeros in each row, and all ones in cases 1 and 2" in notes[0]


def test_a_mask_of_one_value_and_the_range_of_a_spec_stay_as_they_are():
    (has_mask,), _ = settle([Tensor("has_mask", (1,), "int64")], {})
    assert make([has_mask], 0)["0/has_mask"].tolist() == [1]
    assert settle([Tensor("masked_image", (1, 3, 8, 8), "float32")], {})[0][0].kind == ""


def test_lengths_are_shorter_than_the_sequence_but_in_one_case_the_longest():
    x, lengths = Tensor("x", ("batch", "time", 80), "float32"), Tensor("lengths", ("batch",), "int64")
    inputs, _ = settle([x, lengths], {"x": (2, 20, 80)})
    drawn = make(inputs, seed=0)
    assert all(10 <= drawn[f"{case}/lengths"].min() <= drawn[f"{case}/lengths"].max() < 20 for case in (0, 3, 4, 5))
    assert drawn["1/lengths"].tolist() == [20, 20]


def test_a_loop_is_repeated_never_once_and_several_times():
    (count,), notes = settle([Tensor("n", (), "int64")], {}, wholes={"n": Whole(Whole.COUNT)})
    assert [int(make([count], 0)[f"{case}/n"]) for case in range(6)] == [3, 9, 0, 7, 1, 5]
    assert "how often a loop is repeated" in notes[0]
    (count,), _ = settle([Tensor("n", (), "int64")], {}, wholes=narrower({"n": Whole(Whole.COUNT)}))
    assert {int(make([count], 0)[f"{case}/n"]) for case in range(6)} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("dtype", "least"), [("int64", -(2**31)), ("int32", -(2**31)), ("int16", -(2**15)), ("uint32", 0)]
)
def test_numbers_that_a_graph_computes_with_have_every_size_and_both_signs(dtype, least):
    (each,), notes = settle([Tensor("i", (4, 32), dtype)], {}, wholes={"i": Whole(Whole.NUMBERS)})
    drawn = make([each], 0)
    values = np.stack([drawn[f"{case}/i"] for case in range(6)]).astype(np.int64)
    assert drawn["0/i"].dtype == dtype
    assert "both signs" in notes[0]
    assert not drawn["2/i"].any()
    assert values.max() > abs(values).max() / 2
    assert values.min() > least if least else values.min() == 0
    assert least == 0 or values.min() < least // 8
    (each,), _ = settle([Tensor("i", (4, 32), dtype)], {}, wholes={"i": Whole(Whole.NUMBERS, divides=True)})
    assert all(make([each], 0)[f"{case}/i"].all() for case in range(6))


def test_ids_have_the_last_row_and_those_that_they_are_compared_with():
    ids, _ = settle([IDS], {}, {"ids": 5000}, wholes={"ids": Whole("", False, (-1, 1))})
    drawn = make(ids, 0)
    assert all({1, 4999} <= set(drawn[f"{case}/ids"].flat) for case in (0, 1, 3, 4, 5))
    labels, notes = settle([Tensor("label", (8,), "int64")], {}, wholes={"label": Whole("", False, (-100,))})
    assert all(set(make(labels, 0)[f"{case}/label"].flat) <= {0, 1, -100} for case in range(6))
    assert "-100" in notes[0]


def test_a_format_that_numpy_lacks_is_made_in_float32():
    inputs, _ = settle([Tensor("x", (2, 2), "bfloat16"), Tensor("b", (2,), "bool")], {})
    arrays = make(inputs, seed=0)
    assert arrays["0/x"].dtype == np.float32
    assert arrays["0/b"].dtype == np.bool_


def test_a_signal_is_long_and_lengths_fit_into_it():
    signal, lengths = Tensor("waveforms", ("batch", "N"), "float32"), Tensor("waveforms_lens", ("batch",), "int64")
    (first, second), notes = settle([signal, lengths], {})
    assert first.shape == (2, 4000)
    assert (second.low, second.high) == (2000, 4001)
    assert any("taken for lengths from its name: 2000 to 4000" in note for note in notes)


def test_another_size_takes_the_place_of_every_guess_but_the_batch():
    assert shapes(IMAGE, size=48)[0] == [(2, 3, 48, 48)]


def test_large_inputs_are_made_in_seconds():
    """A pattern of two values was repeated one by one, which took minutes."""
    inputs = [Input("x", (2, 8_000_000), "float32")]
    begun = time.process_time()
    made = make(inputs, 0, ("alternating", "zeros", "tiny"))
    assert time.process_time() - begun < 5
    assert made["0/x"][0, :3].tolist() == [1, -1, 1]
    assert not made["1/x"].any()
    assert 0 < abs(made["2/x"]).max() < 1
