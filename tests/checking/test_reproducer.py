"""``xverify check --reproducer`` with runtimes that compute one node wrong: the piece that it writes fails by itself."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

from helpers import narrowfiles, reproducers, runtimefaults  # noqa: E402
from helpers.reproducers import assert_fails_alone, operators, small  # noqa: E402
from helpers.runtimefaults import FAULTS  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

pytestmark = pytest.mark.usefixtures("in_one_process")


@pytest.fixture
def plant(tmp_path, monkeypatch):
    return partial(reproducers.plant, tmp_path, monkeypatch)


@pytest.fixture
def checked(xverify, tmp_path):
    return partial(reproducers.check, xverify, tmp_path)


def as_fault(name):
    """A fault of FAULTS as a wrong runtime has it."""
    node, attributes, weights = FAULTS[name]
    (found,) = [each for each in runtimefaults.network().graph.node if each.name == node]
    places = {str(list(found.input).index(weight)): ("float32", array.tolist()) for weight, array in weights.items()}
    return found.op_type, {"node": node, "attributes": attributes, "inputs": places}


FIRST = "an epsilon of 1e-3"


@pytest.mark.parametrize("fault", [pytest.param(each, marks=[pytest.mark.slow] * (each != FIRST)) for each in FAULTS])
def test_every_planted_fault_of_a_node_fails_alone(checked, plant, tmp_path, fault):
    kind, described = as_fault(fault)
    plant(**described)
    onnx.save(runtimefaults.network(), tmp_path / "network.onnx")
    done, (row,) = checked(tmp_path / "network.onnx")
    assert done.code == 1, done.out + done.err
    assert row["reproducer"] == str(tmp_path / "piece")
    assert f"network.onnx, runtime: {kind} '{described['node']}' fails by itself" in " ".join(done.out.split())
    assert_fails_alone(tmp_path / "piece", kind)
    report = (tmp_path / "piece" / "report.md").read_text()
    assert f"wrong values of {kind} on the CPU" in report.splitlines()[0]
    assert f"pip install onnxruntime=={row['environment']['onnxruntime']} numpy" in report


QUANTISED = {
    "dynamic": ("ConvInteger", "Add", "int32", 2),
    "QDQ": ("Conv", "Mul", "float32", 0.5),
    "QOperator": ("QLinearConv", None, None, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", QUANTISED)
def test_a_wrong_kernel_of_a_quantised_node_fails_alone(checked, plant, tmp_path, how):
    model = narrowfiles.quantised(tmp_path, how)
    kind, op, dtype, change = QUANTISED[how]
    node = next(each for each in model.graph.node if each.op_type == kind and "conv3" in each.name)
    if op is None:
        zero = numpy_helper.to_array(next(each for each in model.graph.initializer if each.name == node.input[7]))
        plant(node=node.name, inputs={"7": (str(zero.dtype), int(zero) + 2)})
    else:
        values = np.full((16, 1, 1), 1 if op == "Mul" else 0).astype(float)
        values[1] = change
        plant(node=node.name, result=(op, dtype, values.tolist()))
    onnx.save(model, tmp_path / "quantised.onnx")
    done, _ = checked(tmp_path / "quantised.onnx", "--nodes")
    assert done.code == 1, done.out + done.err
    made = operators(tmp_path / "piece")
    assert made[-1] == kind
    assert_fails_alone(tmp_path / "piece", *made)
    assert set(made[:-1]) <= {"DequantizeLinear"}  # of its constants


@pytest.mark.slow
def test_a_wrong_bias_of_a_quantised_convolution_fails_alone(checked, plant, tmp_path):
    model = runtimefaults.quantised_network()
    bias = numpy_helper.to_array(next(each for each in model.graph.initializer if each.name == "b")).copy()
    bias[-1] += 2
    plant(node="conv", inputs={"8": ("int32", bias.tolist())})
    onnx.save(model, tmp_path / "quantised.onnx")
    done, _ = checked(tmp_path / "quantised.onnx")
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "QLinearConv")


def test_a_fault_that_only_joined_nodes_have_is_reproduced_by_these_nodes(checked, plant, tmp_path):
    plant(node="/relu2/Relu", after="/block/block.0/Add", result=("Mul", "float32", 1.5))
    narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx")
    done, (row,) = checked(tmp_path / "network.onnx")
    assert done.code == 1, done.out + done.err
    assert {each["verdict"] for each in row["error"]["layers"]["layers"]} == {"EQUAL"}
    says = "2 nodes up to Relu '/relu2/Relu' fail together with all graph optimisations"
    assert says in " ".join(done.out.split())
    assert_fails_alone(tmp_path / "piece", "Add", "Relu")
    assert (
        "They fail together: without any one of them, the others are right."
        in (tmp_path / "piece" / "report.md").read_text()
    )


@pytest.mark.slow
def test_a_runtime_that_shows_no_values_of_nodes_has_its_faulty_node_found_by_halves(checked, plant, tmp_path):
    pytest.importorskip("openvino")
    plant(node="/conv3/Conv", result=("Mul", "float32", 1.01))
    done, _ = checked(narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx"), "--on", "openvino")
    assert done.code == 1, done.out + done.err
    assert "Conv '/conv3/Conv' fails by itself in float32" in " ".join(done.out.split())
    assert_fails_alone(tmp_path / "piece", "Conv")


FLOATS = (TensorProto.FLOAT, [2, 6])


def test_a_node_within_a_branch_fails_alone(checked, plant, tmp_path):
    """The branch is in the place of the If, as for the verdict on its nodes."""
    taken = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"], "/inner/Relu")],
        "then",
        [],
        [helper.make_tensor_value_info("r", *FLOATS)],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["n"])], "else", [], [helper.make_tensor_value_info("n", *FLOATS)]
    )
    nodes = [
        helper.make_node("If", ["yes"], ["h"], "/If", then_branch=taken, else_branch=other),
        helper.make_node("Exp", ["h"], ["y"], "/Exp"),
    ]
    file = small(tmp_path / "branch.onnx", nodes, {"x": FLOATS}, {"y": FLOATS}, {"yes": np.array(True)})
    plant(node="/Exp", result=("Mul", "float32", 1.5))
    done, _ = checked(file)
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "Exp")


def test_a_loop_is_a_piece_with_its_body(checked, plant, tmp_path):
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Mul", ["state", "factor"], ["next"])], "body",
        [value("trip", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("state", *FLOATS)],
        [value("on", TensorProto.BOOL, []), value("next", *FLOATS)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Abs", ["x"], ["factor"], "/Abs"),
        helper.make_node("Loop", ["three", "", "x"], ["y"], "/Loop", body=body),
    ]
    file = small(tmp_path / "loop.onnx", nodes, {"x": FLOATS}, {"y": FLOATS}, {"three": np.array(3)})
    plant(node="/Loop", result=("Mul", "float32", 1.5))
    done, _ = checked(file)
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "Loop")
    assert sorted(np.load(tmp_path / "piece" / "inputs.npz")) == ["factor", "x"]


def test_only_the_constants_of_the_piece_are_in_it_and_external_ones_too(checked, plant, tmp_path):
    weights = {name: np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32) for name in ("a", "b")}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], "/first/MatMul"),
        helper.make_node("MatMul", ["h", "b"], ["y"], "/second/MatMul"),
    ]
    file = small(tmp_path / "external.onnx", nodes, {"x": FLOATS}, {"y": FLOATS}, weights)
    onnx.save(onnx.load(file), file, save_as_external_data=True, size_threshold=0, location="weights.bin")
    plant(node="/second/MatMul", result=("Mul", "float32", 1.5))
    done, _ = checked(file)
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "MatMul")
    model = onnx.load(tmp_path / "piece" / "model.onnx")
    assert [each.name for each in model.graph.initializer] == ["b"]
    assert not model.graph.initializer[0].external_data


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16], ids=["float16", "bfloat16"])
def test_values_of_narrow_types_go_through_a_piece(checked, plant, tmp_path, kind):
    """numpy lacks bfloat16: a Cast stands at each end of the piece."""
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], "/in/Cast", to=kind),
        helper.make_node("Transpose", ["h"], ["t"], "/Transpose", perm=[1, 0]),
        helper.make_node("Cast", ["t"], ["y"], "/out/Cast", to=TensorProto.FLOAT),
    ]
    square = TensorProto.FLOAT, [6, 6]
    file = small(tmp_path / "narrow.onnx", nodes, {"x": square}, {"y": square}, opset=18)
    plant(node="/Transpose", attributes={"perm": [0, 1]})
    done, _ = checked(file)
    assert done.code == 1, done.out + done.err
    narrow = kind == TensorProto.BFLOAT16
    assert_fails_alone(tmp_path / "piece", *["Cast"] * narrow, "Transpose", *["Cast"] * narrow)


def test_names_from_a_file_are_no_code_and_no_markup(checked, plant, tmp_path):
    name = '"""\nraise SystemExit(0)\n`|<b>'
    nodes = [helper.make_node("Exp", ["x"], ["h/../y"], name), helper.make_node("Abs", ["h/../y"], ["y"], "/Abs")]
    file = small(tmp_path / "names.onnx", nodes, {"x": FLOATS}, {"y": FLOATS})
    plant(node=name, result=("Mul", "float32", 1.5))
    done, _ = checked(file)
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "Exp")
    assert "SystemExit" not in (tmp_path / "piece" / "reproduce.py").read_text()
    assert "<b>" not in (tmp_path / "piece" / "report.md").read_text()


def test_a_result_that_is_no_number_or_beyond_the_type_is_compared(checked, plant, tmp_path):
    nodes = [helper.make_node("Log", ["x"], ["h"], "/Log"), helper.make_node("Sigmoid", ["h"], ["y"], "/Sigmoid")]
    file = small(tmp_path / "log.onnx", nodes, {"x": FLOATS}, {"y": FLOATS})
    plant(node="/Log", result=("Mul", "float32", 1.5))
    np.savez(tmp_path / "in.npz", x=np.array([[-1, 0, 1, 2, 3, np.inf]] * 2, np.float32))
    done, _ = checked(file, "--inputs", tmp_path / "in.npz")
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "Log")
