"""Patterns of axes: what they make, the way back, and what is wrong with one."""

import numpy as np
import pytest

from xverify.errors import WeightsError
from xverify.weights.layout import Layout, fitting
from xverify.weights.names import rename, rename_all, rename_layers

CASES = [
    ((1, 0), (3, 4), lambda x: x.T),
    (None, (3, 4), lambda x: x),
    ((3, 2, 0, 1), (2, 3, 4, 5), lambda x: x.transpose(3, 2, 0, 1)),
    ("d h k -> (h k) d", (3, 4, 5), lambda x: x.reshape(3, 20).T),
    ("h w c m -> (c m) 1 h w", (2, 3, 4, 5), lambda x: x.reshape(2, 3, 20).transpose(2, 0, 1)[:, None]),
    ("1 1 c -> c", (1, 1, 4), lambda x: x[0, 0]),
    ("d (h=2 k) -> h k d", (3, 8), lambda x: x.reshape(3, 2, 4).transpose(1, 2, 0)),
    ("i [z r n] -> [r z n] i", (4, 6), lambda x: x[:, [2, 3, 0, 1, 4, 5]].T),
    ("(h=2 [q k v]) d -> (h [q k v]) d", (12, 3), lambda x: x),
    ("1 -> ()", (1,), lambda x: x),
]


@pytest.mark.parametrize(("axes", "shape", "made"), CASES, ids=[str(axes) for axes, *_ in CASES])
def test_a_layout_makes_the_canonical_array_and_its_inverse(axes, shape, made):
    array = np.random.default_rng(0).standard_normal(shape)
    layout = Layout(axes)
    canonical = layout.to_canonical(array)
    assert np.array_equal(canonical, made(array))
    assert layout.shape(shape) == canonical.shape
    back = np.zeros(shape)
    layout.write(back, canonical)
    assert np.array_equal(back, array)


def test_a_variable_is_made_of_its_blocks():
    array = np.arange(12.0).reshape(2, 6)
    parts = [Layout(f"[ih hh] [z r n] -> ([{which}] [r z n])") for which in ("ih", "hh")]
    assert parts[1].to_canonical(array).tolist() == [8, 9, 6, 7, 10, 11]
    back = np.zeros((2, 6))
    for part in parts:
        part.write(back, part.to_canonical(array))
    assert np.array_equal(back, array)


@pytest.mark.parametrize(
    ("axes", "shape", "says"),
    [
        ("a b", (2, 3), 'has no "->"'),
        ("a b -> b c", (2, 3), "takes 'c', which is no axis on its left"),
        ("a b -> a", (2, 3), "does not name every axis once"),
        ("a b -> (a (b))", (2, 3), "cannot be read at"),
        ("a b -> (a b", (2, 3), "no closing parenthesis"),
        ("a - b -> a b", (2, 3), r"cannot be read at '- b'"),
        ("a b -> b a", (2, 3, 4), r"has 2 axes, and the variable has shape \(2, 3, 4\)"),
        ("1 b -> b", (2, 3), "does not fit"),
        ("(a=2 b) -> a b", (5,), "does not fit"),
        ("(a b) -> a b", (6,), "does not fit"),
        ("[x y] -> [x y]", (5,), "5 is no multiple of 2 blocks"),
        ((1, 0), (2, 3, 4), r"\(1, 0\) has 2 axes"),
    ],
)
def test_a_layout_that_makes_no_sense_is_refused(axes, shape, says):
    with pytest.raises(WeightsError, match=says):
        Layout(axes).shape(shape)


def test_the_axes_that_fit_are_proposed():
    assert fitting((3, 5), (5, 3)) == [(1, 0)]
    assert fitting((4, 4), (4, 4)) == [None, (1, 0)]
    assert fitting((3, 5), (5, 4)) == []
    assert fitting((3, 3, 8, 2), (16, 1, 3, 3))[0] == "a b c d -> (c d) 1 a b"
    assert fitting((1, 1, 4), (4,)) == ["1 1 c -> c"]
    for shape, wanted in (((2, 3, 4), (12, 2)), ((6, 2, 4), (8, 6)), ((3, 3, 8, 1), (8, 1, 3, 3))):
        found = fitting(shape, wanted)
        assert found
        assert all(Layout(axes).shape(shape) == wanted for axes in found)


# -- names.toml -------------------------------------------------------------------------------------------------------

TWO = {"lstm.*_l0": "there.*_l0", "lstm.*_l0_reverse": "back.*_l0"}


def test_a_star_in_names_toml_makes_two_layers_one():
    own = [f"{layer}.{kind}_l0" for layer in ("there", "back") for kind in ("weight_ih", "bias")]
    assert rename(own, TWO) == {
        "there.weight_ih_l0": "lstm.weight_ih_l0",
        "there.bias_l0": "lstm.bias_l0",
        "back.weight_ih_l0": "lstm.weight_ih_l0_reverse",
        "back.bias_l0": "lstm.bias_l0_reverse",
    }
    assert rename_layers(["there", "back", "fc"], TWO) == {"there": "lstm", "back": "lstm", "fc": "fc"}
    assert rename_all(["back.bias_ih_l0"], TWO) == {"back.bias_ih_l0": "lstm.bias_ih_l0_reverse"}


def test_the_longest_match_decides_and_an_exact_entry_before_a_star():
    table = {"a": "x", "b.*": "x.y*", "c": "x.y1"}
    assert rename_all(["x.z", "x.y2.w", "x.y1.w"], table) == {"x.z": "a.z", "x.y2.w": "b.2.w", "x.y1.w": "c.w"}


def test_two_weights_with_one_name_and_an_unused_star_are_errors():
    with pytest.raises(WeightsError, match=r"'a.w' and 'b.w' are both 'b.w'"):
        rename(["a.w", "b.w"], {"b": "a"})
    with pytest.raises(WeightsError, match=r"'lstm.\*_l0' is said to be 'there.\*_l0', which does not exist"):
        rename(["back.bias_l0"], TWO)
