"""``xverify check`` on files as people bring them: sizes left open, approximated operators, branches, unknown operators."""

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

RANDOM = np.random.default_rng(0)


def save(path, nodes, inputs, outputs, arrays=None, opsets=(("", 17),)):
    """Write a model. inputs, outputs: name -> shape, of float32."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (arrays or {}).items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in opsets], ir_version=9), path
    )
    return path


def check(xverify, file, *more):
    """Run the command. Returns (what the process did, the rows)."""
    report = file.with_suffix(".json")
    done = xverify("check", file, "--json", report, *more)
    return done, json.loads(report.read_text())["rows"]


@pytest.mark.parametrize(("shift", "code", "verdict"), [(0.0, 0, "DRIFT"), (1e-5, 1, "DIFFERENT")])
@pytest.mark.slow
def test_a_sigmoid_near_zero_drifts_and_a_wrong_one_differs(xverify, tmp_path, shift, code, verdict):
    """ONNX Runtime's Sigmoid is 0 below -17. Its results there are far from the exact ones, in a way that is named."""
    nodes = [
        helper.make_node("MatMul", ["x", "matrix"], ["m"], "/fc/MatMul"),
        helper.make_node("Sub", ["m", "far"], ["low"], "/shift/Sub"),
        helper.make_node("Sigmoid", ["low"], ["y"], "/act/Sigmoid"),
    ]
    arrays = {"matrix": RANDOM.standard_normal((8, 16)).astype(np.float32), "far": np.float32([16.0])}
    right = save(tmp_path / "right.onnx", nodes, {"x": ["batch", 8]}, {"y": ["batch", 16]}, arrays)
    done, (row,) = check(xverify, right)
    assert (done.code, row["error"]["verdict"]) == (0, "DRIFT"), done.out
    assert "results near 0 have few digits" in row["error"]["reason"]
    if shift:  # the same absolute size of results, and an error that no approximation has
        more = [*nodes[:2], helper.make_node("Sigmoid", ["low"], ["s"], "/act/Sigmoid")]
        more += [helper.make_node("Add", ["s", "wrong"], ["y"], "/wrong/Add")]
        arrays["wrong"] = np.float32([shift])
        wrong = save(tmp_path / "wrong.onnx", more, {"x": ["batch", 8]}, {"y": ["batch", 16]}, arrays)
        done, rows = check(xverify, wrong, "--against", right)
        row = rows[-1]
    assert (done.code, row["error"]["verdict"]) == (code, verdict), done.out


@pytest.mark.slow
def test_a_size_that_the_guess_does_not_fit_is_found_or_asked_for(xverify, tmp_path):
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], "/Reshape"),
        helper.make_node("MatMul", ["r", "matrix"], ["y"], "/fc/MatMul"),
    ]
    arrays = {"shape": np.int64([-1, 96]), "matrix": RANDOM.standard_normal((96, 4)).astype(np.float32)}
    # 2 x 5 x any is a multiple of 96 for 48 and not for the first guess.
    file = save(tmp_path / "open.onnx", nodes, {"x": ["batch", 5, "any"]}, {"y": ["rows", 4]}, arrays)
    done, _ = check(xverify, file)
    assert done.code == 0, done.out
    assert "chosen: --shape x=2x5x48" in done.out
    arrays["shape"] = np.int64([-1, 97])
    arrays["matrix"] = RANDOM.standard_normal((97, 4)).astype(np.float32)
    file = save(tmp_path / "none.onnx", nodes, {"x": ["batch", 5, "any"]}, {"y": ["rows", 4]}, arrays)
    done, (row,) = check(xverify, file)
    assert done.code == 3
    assert "--shape x=2x5x8 was tried first, then other sizes; give sizes that fit with --shape" in row["reason"]
    assert check(xverify, file, "--shape", "x=97x5x8")[0].code == 0


def test_nodes_are_judged_although_one_has_no_implementation_in_float64(xverify, tmp_path):
    """A file with an operator that float64 lacks is no pass, and its other nodes are compared."""
    nodes = [
        helper.make_node("MatMul", ["x", "matrix"], ["m"], "/fc/MatMul"),
        helper.make_node("Inverse", ["m"], ["y"], "/Inverse", domain="com.microsoft"),
    ]
    arrays = {"matrix": RANDOM.standard_normal((8, 8)).astype(np.float32)}
    opsets = (("", 17), ("com.microsoft", 1))
    file = save(tmp_path / "contrib.onnx", nodes, {"x": [8, 8]}, {"y": [8, 8]}, arrays, opsets)
    done, (row,) = check(xverify, file)
    assert (done.code, row["error"]["verdict"]) == (4, "UNTESTED"), done.out
    assert "1 of 2 nodes were compared, and the outputs were not" in row["error"]["reason"]
    assert "the operator Inverse" in done.out


def with_branches(path):
    """A model that takes another layer for each sign of ``flag``, with a branch inside of the branch."""

    def branch(name, nodes, output, arrays=None):
        tensors = [numpy_helper.from_array(array, key) for key, array in (arrays or {}).items()]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], tensors
        )

    matrices = {name: RANDOM.standard_normal((8, 8)).astype(np.float32) for name in ("one", "two")}
    inner = branch("inner", [helper.make_node("Tanh", ["m"], ["t"], "/inner/Tanh")], "t")
    other = branch("other", [helper.make_node("Neg", ["m"], ["n"], "/other/Neg")], "n")
    first = [
        helper.make_node("MatMul", ["x", "one"], ["m"], "/first/MatMul"),
        helper.make_node("If", ["yes"], ["y1"], "/first/If", then_branch=inner, else_branch=other),
    ]
    second = [helper.make_node("MatMul", ["x", "two"], ["y2"], "/second/MatMul")]
    nodes = [
        helper.make_node("Greater", ["flag", "zero"], ["yes"], "/Greater"),
        helper.make_node(
            "If", ["yes"], ["y"], "/If",
            then_branch=branch("then", first, "y1", {"one": matrices["one"]}),
            else_branch=branch("else", second, "y2", {"two": matrices["two"]}),
        ),
    ]  # fmt: skip
    return save(path, nodes, {"x": ["batch", 8], "flag": []}, {"y": ["batch", 8]}, {"zero": np.float32(0)})


@pytest.mark.slow
def test_the_nodes_of_the_branches_that_are_taken_are_judged(xverify, tmp_path):
    file = with_branches(tmp_path / "branches.onnx")
    np.savez(tmp_path / "flag.npz", flag=np.float32(1))
    done, (row,) = check(xverify, file, "--inputs", tmp_path / "flag.npz")
    assert done.code == 0, done.out
    assert {each["layer"] for each in row["error"]["layers"]["layers"]} == {"/Greater", "/first/MatMul", "/inner/Tanh"}
    assert "flag: from flag.npz; drawn: x" in done.out
    np.savez(tmp_path / "flag.npz", flag=np.float32(-1))
    done, (row,) = check(xverify, file, "--inputs", tmp_path / "flag.npz")
    assert {each["layer"] for each in row["error"]["layers"]["layers"]} == {"/Greater", "/second/MatMul"}


def test_arrays_for_an_input_that_does_not_exist_are_refused(xverify, tmp_path):
    np.savez(tmp_path / "flag.npz", flagg=np.float32(1))
    done = xverify("check", with_branches(tmp_path / "b.onnx"), "--inputs", tmp_path / "flag.npz")
    assert done.code == 2
    assert "has flagg, which is no input. Inputs: flag, x" in done.err


SCRIPT = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 3)
    def forward(self, x, sampling_rate: int):
        if sampling_rate != int(sys_rate):
            raise ValueError("the sampling rate has to be RATE")
        return self.fc(x)
"""


@pytest.mark.parametrize(("rate", "code"), [(16000, 0), (8000, 3)])
def test_a_sampling_rate_is_guessed_and_the_error_of_a_script_is_told(xverify, tmp_path, rate, code):
    torch = pytest.importorskip("torch")
    source = tmp_path / "net.py"
    source.write_text(SCRIPT.replace("int(sys_rate)", str(rate)).replace("RATE", str(rate)))
    spec = importlib.util.spec_from_file_location("scripted_net", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.jit.script(module.Net()).save(str(tmp_path / "net.pt"))
    done, (row,) = check(xverify, tmp_path / "net.pt", "--shape", "x=4x8")
    assert done.code == code, done.out
    if code:
        assert "ValueError: the sampling rate has to be 8000" in row["reason"]
    else:
        assert "taken for a sampling rate from its name: 16000" in done.out


@pytest.mark.slow
def test_rounding_inside_of_a_torchscript_file_is_noise(xverify, tmp_path):
    """Adding and subtracting 100 rounds far more than the inputs do, and is what the file says."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(8, 16)

        def forward(self, x):
            return torch.tanh((self.fc(x) * 0.01 + 100) - 100)

    with torch.no_grad():
        torch.jit.trace(Net(), torch.zeros(2, 8)).save(str(tmp_path / "net.pt"))
    done, (row,) = check(xverify, tmp_path / "net.pt", "--shape", "x=64x8")
    assert (done.code, row["error"]["verdict"]) == (0, "EQUAL"), done.out
    assert 0.1 < row["error"]["noise_ratio"] < 3


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--layout", "same"), 3)])
def test_torchscript_without_shapes_takes_images_in_the_order_that_it_can_compute(xverify, tmp_path, options, code):
    """The reference takes NHWC. The file declares no shape, and takes NCHW."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 4 * 5, 6)).eval()
    x = torch.randn(2, 3, 6, 7)
    with torch.no_grad():
        torch.jit.trace(net, x).save(str(tmp_path / "net.pt"))
        recorded = {"input/x": x.permute(0, 2, 3, 1).numpy(), "output/y": net(x).numpy()}
    np.savez(tmp_path / "recorded.npz", **recorded)
    done = xverify("check", tmp_path / "net.pt", "--against", tmp_path / "recorded.npz", *options, "--details")
    assert done.code == code, done.out + done.err
    assert ("axes NHWC→NCHW" in done.out) == (code == 0)
    if code:
        assert "expected input[2, 6, 7, 3] to have 3 channels" in done.out


def test_the_nodes_of_a_long_graph_are_given_the_values_that_are_written(xverify, tmp_path):
    """ONNX Runtime keeps float32 between float16 nodes that are not exposed, and one session exposes not all of these nodes."""
    nodes, arrays, name = [helper.make_node("Cast", ["x"], ["0"], "/cast", to=TensorProto.FLOAT16)], {}, "0"
    for index in range(150):
        arrays[f"w{index}"] = np.linalg.qr(RANDOM.standard_normal((16, 16)))[0].astype(np.float16)[..., None, None]
        nodes.append(helper.make_node("Conv", [name, f"w{index}"], [f"c{index}"], f"/{index}/Conv"))
        name = f"t{index}"
        nodes.append(helper.make_node("Transpose", [f"c{index}"], [name], f"/{index}/Transpose", perm=[0, 1, 3, 2]))
    nodes.append(helper.make_node("Cast", [name], ["y"], "/cast_back", to=TensorProto.FLOAT))
    file = save(tmp_path / "long.onnx", nodes, {"x": (4, 16, 3, 3)}, {"y": (4, 16, 3, 3)}, arrays)
    done, (row,) = check(xverify, file)
    layers = row["error"]["layers"]
    assert layers["compared"] == layers["known"] == len(nodes)
    assert [layer["layer"] for layer in layers["layers"] if layer["verdict"] not in ("EQUAL", "IDENTICAL")] == []
    assert done.code == 0, done.out


def test_a_sequence_that_crosses_the_parts_of_a_long_graph_is_computed(xverify, tmp_path):
    nodes = [helper.make_node("SplitToSequence", ["x"], ["parts"], "/split", axis=1)]
    name = "x"
    for index in range(300):
        nodes.append(helper.make_node("Add", [name, "one"], [f"a{index}"], f"/{index}/Add"))
        name = f"a{index}"
    nodes.append(helper.make_node("ConcatFromSequence", ["parts"], ["joined"], "/join", axis=1))
    nodes.append(helper.make_node("Add", [name, "joined"], ["y"], "/add"))
    file = save(tmp_path / "sequence.onnx", nodes, {"x": (4, 8)}, {"y": (4, 8)}, {"one": np.ones(8, np.float32)})
    done, (row,) = check(xverify, file)
    layers = row["error"]["layers"]
    assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL"), row["error"]["reason"]
    assert layers["known"] - layers["compared"] <= 1  # the sequence itself is no tensor
    assert done.code == 0, done.out


def test_a_reference_of_which_fewer_cases_were_evaluated_is_compared_in_those(tmp_path, monkeypatch):
    """On a slow machine, the time for the evaluation in float64 may end after fewer cases in one file than in the other."""
    torch = pytest.importorskip("torch")
    assert torch
    weight = {"w": RANDOM.standard_normal((16, 4)).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "/matmul")]
    files = [
        save(tmp_path / f"{name}.onnx", nodes, {"x": (2, 16)}, {"y": (2, 4)}, weight) for name in ("own", "reference")
    ]
    from xverify.checking import api, meaning

    question = meaning.EvaluateGraph

    def evaluate(file, *arguments, **more):
        asked = question(file, *arguments, **more)
        return replace(asked, enough=0.0) if str(asked.file).endswith("reference.onnx") else asked

    monkeypatch.setattr(meaning, "EvaluateGraph", evaluate)
    result = api.check(files[0], against=str(files[1]))
    assert [row.error.verdict.name for row in result.rows if row.error] == ["EQUAL", "EQUAL"]


@pytest.mark.slow
def test_a_reference_that_says_no_shapes_takes_those_of_the_file(xverify, tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()).eval()
    torch.jit.trace(model, torch.zeros(2, 4)).save(str(tmp_path / "traced.pt"))
    torch.export.save(torch.export.export(model, (torch.zeros(2, 4),)), str(tmp_path / "exported.pt2"))
    done, rows = check(xverify, tmp_path / "exported.pt2", "--against", tmp_path / "traced.pt")
    assert done.code == 0, done.out + done.err
    assert rows[-1]["task"] == "conversion"
    assert rows[-1]["error"]["verdict"] in ("EQUAL", "IDENTICAL")
    assert rows[0]["batch"] == 2
    done = xverify("check", tmp_path / "traced.pt", "--against", tmp_path / "traced.pt")
    assert done.code == 2
    assert "no shape: give it" in done.err
