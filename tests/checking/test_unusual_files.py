"""Files and recorded tensors that are unusual or made to harm, and right files that were accused."""

import numpy as np
import pytest

from xverify.checking import cases
from xverify.checking.computing import Computed
from xverify.checking.input_cases import make_cases
from xverify.checking.judge import Judged, conversion
from xverify.checking.matching import Matching, Pair, decide, matchings
from xverify.checking.meaning import Meaning
from xverify.checking.options import CheckSettings
from xverify.checking.reference import read
from xverify.checking.rounding import with_rounding
from xverify.errors import UsageError
from xverify.framework.modelfile import Tensor
from xverify.results.records import Error
from xverify.results.verdicts import Verdict

onnx = pytest.importorskip("onnx")
RANDOM = np.random.default_rng(0)


def test_axes_of_one_size_have_one_order():
    (found,) = matchings("output", [Tensor("y", (1, 1, 1, 1), "float32")], [Tensor("y", (1, 1, 1, 1), "float32")])
    assert [pair.order for pair in found.pairs] == [None]


def possibility(order, own="y"):
    return (Matching((Pair("x", "x", order, "name"),)), Matching((Pair("y", own, order, "name"),)))


def test_the_order_of_axes_of_both_files_is_taken_where_another_fits_as_well():
    turned = (0, 2, 3, 1)
    assert decide([possibility(None), possibility(turned)], [1e-8, 1e-8]) == (0, "")
    with pytest.raises(UsageError, match="do not tell"):  # not where names are open, too
        decide([possibility(None), possibility(None, "z")], [1e-8, 1e-8])
    with pytest.raises(UsageError, match="do not tell"):
        decide([possibility(None), possibility(turned)], [0.5, 0.5])


def folder_of(path, name, **tensors):
    """A folder of ONNX test data."""
    folder = path / name
    folder.mkdir()
    for file, tensor in tensors.items():
        (folder / f"{file}.pb").write_bytes(tensor.SerializeToString())
    return folder


def test_recorded_tensors_without_inputs_and_of_dtypes_that_numpy_lacks(tmp_path):
    narrow = onnx.helper.make_tensor("y", onnx.TensorProto.BFLOAT16, [2], [1.5, -2.0])
    found = read(folder_of(tmp_path, "narrow", output_0=narrow), (), (Tensor("y", (2,), "bfloat16"),))
    assert found.inputs == {}
    assert found.outputs["0/y"].dtype == np.float32
    assert found.outputs["0/y"].tolist() == [1.5, -2.0]


@pytest.mark.parametrize("kind", ["external", "strings", "sequence", "empty sequence"])
def test_recorded_tensors_that_are_never_read(tmp_path, kind):
    (tmp_path / "secret").write_bytes(bytes(8))
    tensor = onnx.TensorProto(name="y", dims=[2], data_type=onnx.TensorProto.FLOAT)
    if kind == "external":
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=str(tmp_path / "secret"))
        says = "lie in another file"
    elif "sequence" in kind:
        items = [np.float32([1, 2])] if kind == "sequence" else []
        tensor = onnx.numpy_helper.from_list(items, "y", onnx.SequenceProto.TENSOR)
        says = "it holds a sequence"
    else:
        tensor = onnx.helper.make_tensor("y", onnx.TensorProto.STRING, [1], [b"text"])
        says = "it holds strings"
    with pytest.raises(UsageError, match=says):
        read(folder_of(tmp_path, "folder", output_0=tensor), (), (Tensor("y", (2,), "float32"),))


def computed(arrays):
    names = {key[2:]: key[2:] for key in arrays}
    return Computed(None, arrays, arrays, names)


def meaning(arrays, floors):
    return Meaning(arrays, arrays, floors, True, "float64", "exact")


def test_empty_outputs_and_whole_numbers_are_compared():
    exact = {"0/none": np.zeros((0, 3)), "0/ids": np.array([1, 2, 3]), "0/y": RANDOM.standard_normal(9)}
    found = conversion(computed(exact), meaning(exact, {"0/y": 1e-7}), None, 1)
    assert {each.output: each.verdict for each in found.error.tensors} == {
        "none": Verdict.UNTESTED, "ids": Verdict.IDENTICAL, "y": Verdict.IDENTICAL
    }  # fmt: skip
    changed = {**exact, "0/ids": np.array([1, 2, 4])}
    assert conversion(computed(changed), meaning(exact, {"0/y": 1e-7}), None, 1).error.verdict == Verdict.DIFFERENT


@pytest.mark.parametrize(
    ("away", "verdict", "expected"),
    [
        (8.0, Verdict.EQUAL, Verdict.EQUAL),  # rounding that the runtime made, and that was found right
        (8.0, Verdict.DIFFERENT, Verdict.DRIFT),  # of a wrong runtime nothing is excused
        (90.0, Verdict.EQUAL, Verdict.DIFFERENT),  # more than rounding can be
    ],
)
def test_the_rounding_of_a_right_runtime_is_no_fault_of_the_conversion(away, verdict, expected):
    right = {"0/y": RANDOM.standard_normal(1000)}
    outputs = {"0/y": right["0/y"] + away * 1e-7}
    own = meaning(right, {"0/y": 1e-7})
    own = with_rounding(own, computed(outputs), Judged(Error(verdict), {}), recorded=False)
    assert conversion(computed(outputs), meaning(right, None), own, 1).error.verdict == expected


def test_inputs_that_no_array_can_hold():
    settings = CheckSettings()
    for shape, says in (((10**6, 10**6), "cases of the inputs take"), ((1,) * 40, "has 40 dimensions")):
        with pytest.raises(UsageError, match=says):
            make_cases([Tensor("x", shape, "float32")], {}, settings)
    assert make_cases([], {}, settings).count == 1
    assert cases.KINDS  # the number of cases is counted in the size


def test_control_characters_are_written_out():
    assert str(UsageError("a\x1b[2Jb\rc")) == "a\\x1b[2Jb c"
