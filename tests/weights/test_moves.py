"""What a line of the table ``stored`` makes of the reference's weights, and which lines make no sense."""

import numpy as np
import pytest

from xverify.errors import WeightsError
from xverify.weights.moves import read

ARRAYS = {
    "q": np.arange(24.0).reshape(8, 3),
    "k": 100 + np.arange(12.0).reshape(4, 3),
    "v": 200 + np.arange(12.0).reshape(4, 3),
    "e.0": np.arange(6.0).reshape(2, 3),
    "e.1": 10 + np.arange(6.0).reshape(2, 3),
    "b": np.arange(8.0),
}
Q, K, V, E, B = (ARRAYS[name] for name in ("q", "k", "v", "e.1", "b"))
INTERLEAVED = [0, 2, 1, 3, 4, 6, 5, 7]  # rows of two heads of four


def made(value, texts=(), suffix=""):
    return read(value).of_weight(texts, suffix, ARRAYS).make(ARRAYS.__getitem__)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("q", Q),
        ({"of": "q", "permute": [1, 0]}, Q.T),
        ({"of": "q", "layout": "(h=2 k) i -> h k i"}, Q.reshape(2, 4, 3)),
        ({"of": "b", "layout": "(h=2 r=2 k) ... -> (h k r) ..."}, B[INTERLEAVED]),
        ({"of": "q", "layout": "(h=2 r=2 k) ... -> (h k r) ..."}, Q[INTERLEAVED]),
        ({"fuse": ["q", "k", "v"]}, np.concatenate([Q, K, V])),
        ({"fuse": ["k", "v"], "axis": 1}, np.concatenate([K, V], 1)),
        ({"fuse": ["k", "v"], "axis": -1, "permute": [1, 0]}, np.concatenate([K, V], 1).T),
        ({"fuse": ["q", "k", "v"], "groups": 2}, np.concatenate([Q[:4], K[:2], V[:2], Q[4:], K[2:], V[2:]])),
        ({"fuse": [{"of": "q", "heads": 2, "rotary": "half-to-interleaved"}, "k"]}, np.concatenate([Q[INTERLEAVED], K])),
        ({"of": "b", "heads": 2, "rotary": "half-to-interleaved"}, B[INTERLEAVED]),
        ({"of": "b", "heads": 2, "rotary": "interleaved-to-half"}, B[np.argsort(INTERLEAVED)]),
        ({"stack": ["k", "v"]}, np.stack([K, V])),
        ({"stack": ["k", "v"], "axis": -1}, np.stack([K, V], -1)),
        ({"stack": "e.*"}, np.stack([ARRAYS["e.0"], E])),
        ({"of": "q", "part": "2/4"}, Q[2:4]),
        ({"of": "q", "part": "1:4"}, Q[1:4]),
        ({"of": "q", "part": "0:2", "axis": 1}, Q[:, :2]),
        ({"of": "q", "part": "2/2", "groups": 2}, Q[[2, 3, 6, 7]]),
        ({"of": "q", "item": 3}, Q[3]),
        ({"of": "q", "item": 1, "axis": 1}, Q[:, 1]),
        ({"same": ["k", "v"]}, K),
    ],
)  # fmt: skip
def test_what_a_line_makes(value, wanted):
    assert np.array_equal(made(value), wanted)


def test_names_with_stars_and_layers_are_those_of_one_weight():
    move = read({"fuse": ["l.*.q", {"of": "l.*.k"}]}).of_weight(["7"], ".bias", ())
    assert list(move.names()) == ["l.7.q.bias", "l.7.k.bias"]
    assert np.array_equal(made({"of": "*", "item": "*"}, ["q", "2"]), Q[2])
    assert list(read({"stack": "l.*.e.*.w"}).of_weight(["3"], "", [f"l.3.e.{i}.w" for i in range(12)]).names()) == [
        f"l.3.e.{i}.w" for i in range(12)
    ]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (3, "it is made of a name, or of a table such as"),
        ({}, "it needs exactly one of of, fuse, stack, same; it has none"),
        ({"of": "q", "fuse": ["k"]}, "it has of and fuse"),
        ({"of": "q", "transpose": True}, "it has 'transpose'; it takes of, fuse, stack, same, axis"),
        ({"of": ["q", "k"]}, "of takes one name"),
        ({"fuse": []}, "fuse takes a list of names"),
        ({"fuse": ["q", ""]}, "it is made of a name"),
        ({"of": "q", "axis": 1.0}, "axis takes a whole number; it is 1.0"),
        ({"of": "q", "axis": True}, "axis takes a whole number; it is True"),
        ({"fuse": ["q", "k"], "groups": 0}, "groups takes a whole number above 0; it is 0"),
        ({"of": "q", "groups": 2}, "groups is used by fuse and by part, and it has neither"),
        ({"of": "q", "part": "a third"}, "part takes a text such as"),
        ({"of": "q", "rotary": "half", "heads": 2}, 'rotary takes "half-to-interleaved" or'),
        ({"of": "q", "heads": 2}, "rotary and heads stand together"),
        ({"of": "q", "permute": [1, 0], "layout": "a b -> b a"}, "it has permute and layout; write one of them"),
        ({"of": "q", "permute": "10"}, "permute takes a list of axes"),
        ({"of": "q", "layout": "a b"}, 'has no "->"'),
        ({"of": "q", "copy": False}, "copy takes true; it is False"),
        ({"of": "q", "add": "1"}, "add takes a number; it is '1'"),
        ({"of": "q", "add": float("nan")}, "add takes a number; it is nan"),
        ({"of": "q", "eps": 1e-3}, "eps is that of batch_norm, which it does not have"),
        ({"fuse": ["q", "k"], "add": 1}, "add needs of with one name"),
        ({"fuse": [{"of": "q", "add": 1}, "k"]}, "stand in the line itself, not in one of its parts"),
    ],
)  # fmt: skip
def test_a_line_that_makes_no_sense_says_why(value, says):
    with pytest.raises(WeightsError) as failure:
        read(value)
    assert says in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"fuse": ["q", "b"]}, "the parts of fuse have the shapes (8, 3) and (8,), which do not fit together"),
        ({"fuse": ["q", "k"], "axis": 1}, "the parts of fuse have the shapes (8, 3) and (4, 3), which do not fit together"),
        ({"stack": ["q", "k"]}, "the parts of stack have the shapes (8, 3) and (4, 3)"),
        ({"fuse": ["q", "k"], "axis": 2}, "axis = 2 is out of range for 2 axes"),
        ({"fuse": ["q", "k"], "groups": 3}, "the size 8 of axis 0 is no multiple of 3 groups"),
        ({"of": "q", "part": "1/3"}, 'part = "1/3" does not fit the size 8 of axis 0'),
        ({"of": "q", "part": "4:9"}, 'part = "4:9" is out of range: axis 0 has the size 8'),
        ({"of": "q", "item": 8}, "item 8 is out of range: there are 8"),
        ({"of": "q", "item": "*"}, 'item = "*" needs a number'),
        ({"of": "b", "permute": [1, 0]}, "permute = [1, 0] does not name every axis of the shape (8,) once"),
        ({"of": "q", "heads": 3, "rotary": "half-to-interleaved"}, "the size 8 of axis 0 is no multiple of 2 x 3 heads"),
        ({"of": "q", "layout": "a -> a"}, "has 1 axes, and the variable has shape (8, 3)"),
        ({"stack": "f.*"}, "'f.*' stands for weights with the numbers 0, 1, 2, …; the reference has: none"),
    ],
)  # fmt: skip
def test_a_line_that_does_not_fit_the_weights_says_why(value, says):
    with pytest.raises(WeightsError) as failure:
        made(value)
    assert says in str(failure.value)
