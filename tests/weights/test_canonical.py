import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xverify.errors import WeightsError
from xverify.weights import check, diff, digest, to_canonical
from xverify.weights.names import rename

FLOATS = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=0, max_dims=4, max_side=4),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}(\.[a-z0-9_]{1,8}){0,3}", fullmatch=True)
SETS = st.dictionaries(NAMES, FLOATS, min_size=1, max_size=5)


@given(SETS)
def test_the_digest_depends_on_names_shapes_and_bytes(arrays):
    first = digest(arrays)
    assert digest({name: arrays[name].copy() for name in reversed(list(arrays))}) == first
    name = sorted(arrays)[0]
    others = {key: value for key, value in arrays.items() if key != name}
    assert digest({**others, name + "x": arrays[name]}) != first
    assert digest({**others, name: arrays[name][None]}) != first
    assert digest({**others, name: np.nextafter(arrays[name], np.float32(np.inf))}) != first
    assert digest({**others, name: arrays[name].astype(np.float64)}) != first


@given(SETS)
def test_canonical_weights_keep_float32_values(arrays):
    result = to_canonical(arrays)
    assert digest(result) == digest({name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()})
    assert diff(arrays, result) == []


def test_the_digest_does_not_depend_on_memory_order():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digest({"w": array}) == digest({"w": np.asfortranarray(array)})


def test_float16_is_converted_exactly_and_float64_only_when_nothing_is_lost():
    half = np.array([0.1, 1.5], np.float16)
    assert np.array_equal(to_canonical({"w": half})["w"], half.astype(np.float32))
    assert to_canonical({"w": np.array([0.5, 3.0])})["w"].dtype == np.float32
    with pytest.raises(WeightsError, match=r"w is float64 and 1 of 2 values change"):
        to_canonical({"w": np.array([0.1, 3.0])})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_named_with_its_index(bad):
    array = np.zeros((2, 3), np.float32)
    array[1, 2] = bad
    with pytest.raises(WeightsError, match=r"fc\.weight\[1, 2\] is"):
        to_canonical({"fc.weight": array})


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({}, "no weights"),
        ({"bn.num_batches_tracked": np.array(3)}, "no weights"),
        ({"w": np.zeros((0, 3), np.float32)}, "empty"),
        ({"w": np.array(["a"])}, "dtype"),
        ({"w": np.array([True])}, "dtype"),
    ],
)
def test_arrays_that_are_not_weights_are_refused(arrays, says):
    with pytest.raises(WeightsError, match=says):
        to_canonical(arrays)


def test_check_lists_missing_and_unexpected_names():
    expected = {"a": (2,), "b": (3,), "c": (1, 2)}
    arrays = {"a": np.zeros(2), "bb": np.zeros(3), "c": np.zeros((2, 1))}
    with pytest.raises(WeightsError) as failure:
        check(arrays, expected, source="f.pt")
    text = str(failure.value)
    assert "f.pt do not fit the model" in text
    assert "1 missing (b)" in text
    assert "1 unexpected (bb)" in text
    assert "c: given (2, 1), model (1, 2)" in text
    check({name: np.zeros(shape) for name, shape in expected.items()}, expected)


@pytest.mark.parametrize(
    ("buffers", "says"),
    [
        ((), "3 unexpected (d, e, f)"),
        (("f",), "; of these, f is a buffer of torch.py: where the port computes it itself, register it "),
        (
            ("e", "d", "x"),
            "; of these, d, e are buffers of torch.py: where the port computes them itself, register them ",
        ),
        (("f", "e", "d"), "; all are buffers of torch.py: where the port computes them itself, register them "),
    ],
)
def test_check_says_which_unexpected_weights_are_buffers(buffers, says):
    with pytest.raises(WeightsError) as failure:
        check({name: np.zeros(1) for name in "adef"}, {"a": (1,)}, buffers=buffers)
    assert str(failure.value).endswith(f"{says}there with persistent=False" if buffers else says)


def test_diff_names_every_difference():
    left = {"a": np.zeros(3, np.float32), "b": np.zeros(2, np.float32), "same": np.ones(1, np.float32)}
    right = {"a": np.array([0, 0, 1e-3], np.float32), "c": np.zeros(2, np.float32), "same": np.ones(1, np.float32)}
    assert [(d.name, d.kind) for d in diff(left, right)] == [("a", "values"), ("b", "missing"), ("c", "extra")]
    assert "1 of 3 values differ" in diff(left, right)[0].detail
    negative_zero = {"a": np.array([-0.0], np.float32)}
    assert [d.kind for d in diff({"a": np.array([0.0], np.float32)}, negative_zero)] == ["values"]


def test_rename_uses_only_the_entries_of_the_table():
    own = ["dense.weight", "dense.bias", "out.kernel"]
    table = {"fc1": "dense", "fc2.weight": "out.kernel"}
    assert rename(own, table) == {"dense.weight": "fc1.weight", "dense.bias": "fc1.bias", "out.kernel": "fc2.weight"}
    with pytest.raises(WeightsError, match="'fc9' is said to be 'nothing', which does not exist in the model"):
        rename(own, {"fc9": "nothing"})
