"""Weights that a port stores otherwise: there and back without a changed bit, and lines that do not fit a model."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from xverify.errors import WeightsError
from xverify.weights.arrangement import Arrangement, arrange, read_table
from xverify.weights.channels import channels

PLACE = "names.toml: [x.stored]"
ROTARY = {"heads": 2, "rotary": "half-to-interleaved"}
REFERENCE = {
    "l.0.q.weight": (8, 6), "l.0.q.bias": (8,), "l.0.k.weight": (4, 6), "l.0.k.bias": (4,), "l.0.v.weight": (4, 6),
    "l.0.v.bias": (4,), "l.0.o.weight": (6, 8), "all.weight": (6, 4), "all.bias": (6,), "e.0.w": (3, 2), "e.1.w": (3, 2),
    "stacked": (2, 5, 3), "norm.weight": (6,),
}  # fmt: skip
PORT = {
    "h.0.qkv.weight": (16, 6), "h.0.qkv.bias": (16,), "h.0.out.weight": (8, 6), "first.weight": (2, 4), "first.bias": (2,),
    "rest.weight": (4, 4), "rest.bias": (4,), "e": (2, 3, 2), "s.0": (5, 3), "s.1": (5, 3), "norm.weight": (6,), "copy": (6, 4),
}  # fmt: skip
TABLE = {
    "h.*.qkv": {"fuse": [{"of": "l.*.q", **ROTARY}, {"of": "l.*.k", "heads": 1, "rotary": ROTARY["rotary"]}, "l.*.v"], "groups": 2},
    "h.*.out.weight": {"of": "l.*.o.weight", "permute": [1, 0]},
    "first": {"of": "all", "part": "0:2"},
    "rest": {"of": "all", "part": "2:6"},
    "e": {"stack": "e.*.w"},
    "s.*": {"of": "stacked", "item": "*"},
    "copy": {"of": "all.weight", "copy": True},
}  # fmt: skip


@pytest.fixture
def arrangement():
    return arrange(TABLE, PORT, REFERENCE, PLACE)


def arrays():
    random = np.random.default_rng(0)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in REFERENCE.items()}


def test_every_weight_comes_back_as_it_was(arrangement):
    given = arrays()
    own = dict(arrangement.to_own(given, {"norm.weight": "norm.weight"}))
    assert {name: array.shape for name, array in own.items()} == PORT
    assert all(array.dtype == np.float32 for array in own.values())
    back = dict(arrangement.to_canonical(own))
    assert set(back) == set(given)
    for name, array in given.items():
        assert back[name].dtype == np.float32
        assert np.array_equal(back[name], array), name
    arrangement.check_copies(back, own)


def test_gradients_that_lack_the_frozen_weights_go_there_and_back(arrangement):
    """A recipe may freeze all biases, and a gradient that is missing for one part of a weight leaves the whole weight out."""
    given = {name: array for name, array in arrays().items() if not name.endswith("bias") and name != "e.1.w"}
    own = dict(arrangement.to_own(given, {"norm.weight": "norm.weight"}))
    assert own.keys() == {name for name in PORT if not name.endswith("bias")} - {"e"}
    assert arrangement.to_canonical(own).keys() == given.keys() - {"e.0.w"}


def test_one_wrong_value_of_the_port_is_one_wrong_value_of_the_reference(arrangement):
    given = arrays()
    own = dict(arrangement.to_own(given, {"norm.weight": "norm.weight"}))
    own["h.0.qkv.weight"][5, 2] += 1  # the second row of k's first half, by groups: q0..q3, k0, k1, v0, v1, ...
    back = arrangement.to_canonical(own)
    wrong = {name: int((back[name] != array).sum()) for name, array in given.items()}
    assert {name for name, count in wrong.items() if count} == {"l.0.k.weight"}
    assert wrong["l.0.k.weight"] == 1


def test_a_copy_with_another_value_is_an_error(arrangement):
    given = arrays()
    own = dict(arrangement.to_own(given, {"norm.weight": "norm.weight"}))
    own["copy"][0, 0] += 1
    with pytest.raises(WeightsError, match=r"copy has other values than all\.weight, of which it is a copy"):
        arrangement.check_copies(arrangement.to_canonical(own), own)


def test_equal_weights_are_one_and_others_are_an_error():
    found = arrange({"emb": {"same": ["a", "b"]}}, {"emb": (3,)}, {"a": (3,), "b": (3,)}, PLACE)
    one = np.arange(3, dtype=np.float32)
    back = found.to_canonical(found.to_own({"a": one, "b": one.copy()}, {}))
    assert np.array_equal(back["a"], one)
    assert np.array_equal(back["b"], one)
    with pytest.raises(WeightsError, match="the model has emb in place of a and b, which have different values"):
        dict(found.to_own({"a": one, "b": one + 1}, {}))


def test_gradients_of_some_weights_go_back(arrangement):
    gradients = {"h.0.out.weight": np.ones((8, 6), np.float64), "norm.weight": np.zeros(6), "first.bias": np.zeros(2)}
    back = dict(arrangement.to_canonical(gradients))
    assert set(back) == {"l.0.o.weight", "norm.weight"}
    assert (back["l.0.o.weight"].shape, back["l.0.o.weight"].dtype) == ((6, 8), np.float64)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"h.*.qkv": {"fuse": ["l.*.q", "l.*.k"]}}, "'h.*.qkv': l.0.q.weight, l.0.k.weight make the shape (12, 6); "
         "h.0.qkv.weight of the model has (16, 6)"),
        ({"h.*.qkv": {"fuse": ["l.*.q", "l.*.k", "l.*.k"]}}, "24 of the 24 values of l.0.k.weight are used twice"),
        ({"h.*.qkv": {"fuse": ["l.*.q", "l.*.k", "l.*.w"]}}, "'l.0.w.weight', for h.0.qkv.weight, is no weight of the reference"),
        ({"h.*.kqv": "l.*.q"}, "'h.*.kqv' is no weight and no layer with weights of the model; did you mean 'h.0.qkv"),
        ({"h.0.qkv": "l.0.q", "h.*.qkv": TABLE["h.*.qkv"]}, "'h.*.qkv' and 'h.0.qkv' both fit h.0.qkv.weight: write one of them"),
        ({"rest": {"of": "all", "part": "1:5"}}, "values of all.weight are used twice, in first.weight and rest.weight"),
        ({"first": {"of": "norm"}}, "'norm.bias', for first.bias, is no weight of the reference"),
        ({"h.*.out.weight": {"of": "l.*.o.weight", "permute": [0, 1]}}, "make the shape (6, 8); h.0.out.weight of the model has"),
        ({"h.*.out.weight": {"of": "l.*.o.weight", "permute": [0, 2]}}, "permute = [0, 2] does not name every axis"),
        ({"e": {"stack": "e.*.w", "axis": 5}}, "'e': axis = 5 is out of range for 3 axes"),
    ],
)  # fmt: skip
def test_a_line_that_does_not_fit_is_an_error_with_its_place(change, says):
    with pytest.raises(WeightsError) as failure:
        arrange({**TABLE, **change}, PORT, REFERENCE, PLACE)
    assert str(failure.value).startswith(PLACE)
    assert says in str(failure.value)


def test_a_value_that_goes_nowhere_is_an_error():
    table = {"first": {"of": "all", "part": "0:2"}}
    own = {"first.weight": (2, 4), "first.bias": (2,)}
    with pytest.raises(WeightsError, match=r"16 of the 24 values of all.weight are not in first.weight"):
        arrange(table, own, REFERENCE, PLACE)


def test_the_longest_line_counts():
    table = {"a": "x", "a.weight": {"of": "y", "permute": [1, 0]}}
    found = arrange(table, {"a.weight": (3, 2), "a.bias": (3,)}, {"y": (2, 3), "x.bias": (3,)}, PLACE)
    assert list(found.moves["a.weight"].names()) == ["y"]
    assert list(found.moves["a.bias"].names()) == ["x.bias"]


# -- layers -----------------------------------------------------------------------------------------------------------


def test_the_channels_of_layers_follow_from_the_places_of_their_weights(arrangement):
    found = channels(arrangement)
    assert found.made_by("h.0.qkv") == {"l.0.q", "l.0.k", "l.0.v"}
    (q,), (v,) = found.pieces["l.0.q"], found.pieces["l.0.v"]
    assert list(q.places) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert list(q.rows) == [0, 2, 1, 3, 4, 6, 5, 7]
    assert (list(v.places), list(v.rows), v.inputs) == ([6, 7, 14, 15], [0, 1, 2, 3], None)
    assert [(piece.own, list(piece.rows)) for piece in found.pieces["all"]] == [
        ("first", [0, 1]),
        ("rest", [2, 3, 4, 5]),
    ]
    (out,) = found.pieces["l.0.o"]
    assert (list(out.rows), out.inputs) == (list(range(6)), None)


def test_a_layer_whose_inputs_have_another_order_says_so():
    table = {"o.weight": {"of": "o.weight", "permute": [1, 0], "axis": 0}}
    turned = {"o": {"of": "o", "layout": "o (h=2 r=2 k) -> o (h k r)"}}
    assert channels(arrange(table, {"o.weight": (8, 6)}, {"o.weight": (6, 8)}, PLACE)).pieces["o"][0].inputs is None
    (piece,) = channels(arrange(turned, {"o.weight": (6, 8)}, {"o.weight": (6, 8)}, PLACE)).pieces["o"]
    x, weight = np.arange(8.0), np.random.default_rng(0).standard_normal((6, 8))
    own = weight[:, [0, 2, 1, 3, 4, 6, 5, 7]]
    assert np.allclose(own @ x, weight @ x[piece.inputs])


@pytest.mark.parametrize(
    ("table", "own", "reference"),
    [
        ({"m.w": {"stack": "e.*.weight"}}, {"m.w": (2, 3, 4)}, {f"e.{i}.weight": (3, 4) for i in range(2)}),
        ({"q.weight": {"of": "a.in_proj_weight", "part": "1/2"}, "k.weight": {"of": "a.in_proj_weight", "part": "2/2"}},
         {"q.weight": (3, 4), "k.weight": (3, 4)}, {"a.in_proj_weight": (6, 4)}),
        ({"c.weight": {"of": "c.weight", "layout": "(o a=2) i -> (i a) o"}}, {"c.weight": (6, 2)}, {"c.weight": (4, 3)}),
        ({"c": {"of": "c", "batch_norm": "n"}}, {"c.weight": (4, 3)}, {"c.weight": (4, 3)}),
    ],
    ids=["stack", "no weight of a plain layer", "rows are torn", "batch norm"],
)  # fmt: skip
def test_a_layer_whose_channels_are_not_known_is_left_out(table, own, reference):
    found = channels(arrange(table, own, reference, PLACE))
    assert not found.pieces
    assert found.own


def test_a_layer_with_a_batch_norm_in_its_weights_computes_the_batch_norm():
    table = {"b.*.conv": {"of": "l.*.conv", "batch_norm": "l.*.bn"}}
    own = {"b.1.conv.weight": (4, 3, 2, 2), "b.1.conv.bias": (4,)}
    found = channels(arrange(table, own, {"l.1.conv.weight": (4, 3, 2, 2), "l.1.conv.bias": (4,)}, PLACE))
    assert found.made_by("b.1.conv") == {"l.1.bn"}
    (piece,) = found.pieces["l.1.bn"]
    assert (list(piece.places), piece.spatial, piece.folded) == ([0, 1, 2, 3], True, True)
    assert found.elsewhere("b.1.bn", "l.1.bn")
    assert not found.elsewhere("b.1.conv", "l.1.bn")
    assert not found.elsewhere("b.1.norm", "l.1.norm")


def test_a_model_that_stores_nothing_otherwise_has_no_such_layers():
    assert not Arrangement()
    assert not channels(Arrangement()).own


def test_the_examples_of_the_documentation_are_lines_that_make_sense():
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    page = Path(__file__).parents[2] / "docs" / "stored-otherwise.md"
    tables = [tomllib.loads(text) for text in re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]
    lines = [read_table(table["stored"], PLACE) for each in tables for table in each.values()]
    assert len(lines) == 3
    assert sum(map(len, lines)) == 14
