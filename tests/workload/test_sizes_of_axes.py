"""Names of axes, sizes that are computed from others, and specs at other sizes."""

import pytest

from xverify import ModelSpec, TensorSpec
from xverify.errors import SpecError
from xverify.workload.sizes import names_in, value

SIZES = {"seq": 17, "past": 3, "a.b": 5}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("seq", 17),
        ("past + seq", 20),
        ("past+1", 4),
        ("(seq - 1) // 2 + 1", 9),
        ("2 * seq", 34),
        ("a.b", 5),
        ("other", None),
        ("other + 1", None),
        ("seq / 2", None),
        ("seq // 0", None),
        ("seq ** seq", None),
        ("__import__('os')", None),
        ("seq +", None),
        ("x:2", None),
    ],
)
def test_a_size_is_computed_from_others(expression, expected):
    assert value(expression, SIZES) == expected


def test_only_names_and_whole_numbers_are_expressions():
    assert names_in("past + 2 * seq") == {"past", "seq"}
    for text in ("f(x)", "a.b", "x[0]", "-x", "x if y else z", "", "1.5 * x"):
        with pytest.raises(ValueError, match="is no name of an axis"):
            names_in(text)


def spec(shape=("N", "seq", 8), output=("N", "seq // 2"), **sizes):
    return ModelSpec(inputs={"x": TensorSpec(shape)}, outputs={"y": TensorSpec(output)}, sizes=sizes)


def test_a_spec_has_the_sizes_of_its_axes_and_takes_others():
    first = spec(seq=16)
    assert first.inputs["x"].sized(2) == (2, 16, 8)
    assert first.outputs["y"].sized(2) == (2, 8)
    other = first.at({"seq": 33})
    assert (other.inputs["x"].sized(2), other.outputs["y"].sized(2)) == ((2, 33, 8), (2, 16))
    assert other.declared["outputs"]["y"].shape == ("N", "seq // 2")
    assert other.at({}).sizes == {"seq": 33}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: spec(), r"inputs\['x'\]: the axis 'seq' has no size"),
        (lambda: spec(sep=3), "sizes names 'sep', and no input has an axis of this name; did you mean 'seq'?"),
        (lambda: spec(seq=0), r"sizes\['seq'\] is 0: it must be a positive whole number"),
        (lambda: spec(seq=True), r"sizes\['seq'\] is True"),
        (lambda: spec(seq="16"), r"sizes\['seq'\] is '16'"),
        (lambda: spec(batch=3, seq=2), "sizes has the name 'batch'"),
        (lambda: spec(seq=1), r"outputs\['y'\]: the axis 'seq // 2' has the size 0 at seq=1; it must be at least 1"),
        (lambda: spec(output=("N", "seq + hidden"), seq=2), r"outputs\['y'\]: the axis 'seq \+ hidden' has no size"),
        (lambda: TensorSpec(("N * seq", 8)), "every size is a positive integer, 'N', or the name of an axis"),
        (lambda: TensorSpec(("batch", 8)), "or the name of an axis, not 'batch'"),
        (lambda: TensorSpec(("N", "a b")), "or the name of an axis, not 'a b'"),
        (lambda: ModelSpec(inputs={"x": TensorSpec(("N", 2))}, outputs={"y": TensorSpec(("N",))}, sizes=[3]), "a mapping"),
    ],
)  # fmt: skip
def test_sizes_that_cannot_be_are_refused(make, says):
    with pytest.raises(SpecError, match=says):
        make()


def test_targets_follow_the_names():
    made = ModelSpec(
        inputs={"x": TensorSpec(("N", "seq"))},
        outputs={"y": TensorSpec(("N", "seq"))},
        targets={"t": TensorSpec(("N", "seq"))},
        loss="mse",
        sizes={"seq": 4},
    )
    assert made.at({"seq": 9}).targets["t"].sized(2) == (2, 9)
