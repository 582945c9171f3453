"""Files whose outputs change from call to call are INVALID, alone and as a reference: nothing passes beside them."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

WEIGHTS = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
pytestmark = pytest.mark.slow


def graph(path, weights=WEIGHTS, kind=""):
    """A product; kind: "dropout" that is left on, "noise" of a fixed seed, or an `If` whose branch draws numbers."""
    constants = {"w": weights, "ratio": np.float32(0.5), "on": np.array(True)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z" if kind else "y"])]
    noise = helper.make_node("RandomNormalLike", ["z"], ["n"], "noise", scale=1e-5, seed=3.0)
    if kind == "dropout":
        nodes.append(helper.make_node("Dropout", ["z", "ratio", "on"], ["y"], "drop"))
    if kind == "noise":
        nodes += [noise, helper.make_node("Add", ["z", "n"], ["y"])]
    if kind == "branch":
        out = [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2, 6])]
        inner = helper.make_graph([noise, helper.make_node("Add", ["z", "n"], ["b"])], "inner", [], out)
        nodes.append(helper.make_node("If", ["on"], ["y"], then_branch=inner, else_branch=inner))
    made = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 6])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


class Net(torch.nn.Module):
    """A linear layer, and what changes from call to call."""

    def __init__(self, kind: str):
        super().__init__()
        torch.manual_seed(0)
        self.fc = torch.nn.Linear(8, 6)
        self.drops = kind == "dropout"
        self.noise = 1e-6 if kind == "noise" else 0.0
        self.counts = kind == "counter"
        self.register_buffer("calls", torch.zeros(1))
        self.eval()

    def forward(self, x):
        y = self.fc(x)
        if self.drops:
            y = torch.nn.functional.dropout(y, 0.3, training=True)
        if self.noise > 0:
            y = y + self.noise * torch.randn_like(y)
        if self.counts:
            self.calls.add_(1.0)
            y = y + self.calls
        return y


def torch_file(path, kind):
    if path.suffix == ".pt2":
        torch.export.save(torch.export.export(Net(kind), (torch.ones(2, 8),)), path)
    else:
        torch.jit.trace(Net(kind), torch.ones(2, 8), check_trace=False).save(str(path))
    return path


def verdicts(path):
    return [(row["task"], row["error"]["verdict"]) for row in json.loads(path.read_text())["rows"]]


def check(xverify, tmp_path, *arguments):
    done = xverify("check", *arguments, "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    found = verdicts(tmp_path / "r.json")
    assert {verdict for _, verdict in found} == {"INVALID"}, found
    return " ".join(done.out.split())


@pytest.mark.parametrize(
    ("kind", "says"), [("dropout", "drop (Dropout)"), ("noise", "noise (RandomNormalLike)"), ("branch", "noise")]
)
def test_a_graph_that_draws_numbers_is_invalid_and_so_is_everything_beside_it(xverify, tmp_path, kind, says):
    random = graph(tmp_path / "random.onnx", kind=kind)
    wrong = graph(tmp_path / "wrong.onnx", -WEIGHTS)
    assert says in check(xverify, tmp_path, random)
    assert "the reference is random" in check(xverify, tmp_path, wrong, "--against", random)


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
@pytest.mark.parametrize(
    ("kind", "says"),
    [("dropout", "dropout"), ("noise", "randn_like")],
)
def test_a_file_of_torch_that_is_random_is_invalid(xverify, tmp_path, suffix, kind, says):
    path = torch_file(tmp_path / f"random{suffix}", kind)
    assert says in check(xverify, tmp_path, path, "--shape", "x=2x8")
    if kind == "noise":
        wrong = graph(tmp_path / "wrong.onnx", -WEIGHTS)
        check(xverify, tmp_path, wrong, "--against", path, "--shape", "x=2x8", "--accept", "cosine>=-2")


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
def test_the_same_files_without_it_pass(xverify, tmp_path, suffix):
    path = torch_file(tmp_path / f"plain{suffix}", "")
    done = xverify("check", path, "--shape", "x=2x8")
    assert done.code == 0, done.out + done.err


def test_a_single_given_case_shows_it_too(xverify, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((2, 8), np.float32))
    random = graph(tmp_path / "random.onnx", kind="noise")
    check(xverify, tmp_path, random, "--inputs", tmp_path / "x.npz")


def test_code_that_is_random_is_no_reference(xverify, tmp_path):
    code = tmp_path / "code.py"
    code.write_text(
        "import torch\n\n\nclass Net(torch.nn.Linear):\n    def forward(self, x):\n"
        "        return super().forward(x) + 0.1 * torch.randn(6)\n\n\ndef build():\n    return Net(8, 6)\n"
    )
    says = check(xverify, tmp_path, graph(tmp_path / "a.onnx"), "--against", f"torch={code}:build")
    assert "the reference is random" in says


SAVED = """
import sys
import numpy as np, tensorflow as tf
class Model(tf.Module):
    def __init__(self):
        self.w = tf.Variable(np.load(sys.argv[1]))
        self.calls = tf.Variable(0.0)
    @tf.function(input_signature=[tf.TensorSpec([2, 8], tf.float32, name="x")])
    def random(self, x):
        return {"y": x @ self.w + 1e-3 * tf.random.normal([2, 6])}
    @tf.function(input_signature=[tf.TensorSpec([2, 8], tf.float32, name="x")])
    def counter(self, x):
        self.calls.assign_add(1e-3)
        return {"y": x @ self.w + self.calls}
    @tf.function(input_signature=[tf.TensorSpec([2, 8], tf.float32, name="x")])
    def clock(self, x):
        return {"y": x @ self.w + 1e-3 * tf.cast(tf.math.floormod(tf.timestamp() * 1e3, 1.0), tf.float32)}
    @tf.function(input_signature=[tf.TensorSpec([2, 8], tf.float32, name="x")])
    def plain(self, x):
        return {"y": x @ self.w}
model = Model()
for name in ("random", "counter", "clock", "plain"):
    tf.saved_model.save(model, name, signatures=getattr(model, name).get_concrete_function())
converter = tf.lite.TFLiteConverter.from_concrete_functions([model.random.get_concrete_function()], model)
open("random.tflite", "wb").write(converter.convert())
"""


def test_a_saved_model_and_a_lite_file_that_change_from_call_to_call_are_invalid(xverify, tmp_path):
    import subprocess
    import sys

    pytest.importorskip("tensorflow")
    np.save(tmp_path / "w.npy", WEIGHTS)
    subprocess.run([sys.executable, "-c", SAVED, "w.npy"], cwd=tmp_path, check=True, capture_output=True)
    right, wrong = graph(tmp_path / "right.onnx"), graph(tmp_path / "wrong.onnx", -WEIGHTS)
    assert xverify("check", tmp_path / "plain", "--against", right).code == 0
    for name, says in (("random", "RandomStandardNormal"), ("clock", "a clock")):
        assert says in check(xverify, tmp_path, tmp_path / name, "--against", right)
        check(xverify, tmp_path, wrong, "--against", tmp_path / name)
    # What counts its calls is no random file: it differs from one that does not, and everything beside it does.
    for one, other in ((tmp_path / "counter", right), (right, tmp_path / "counter"), (wrong, tmp_path / "counter")):
        done = xverify("check", one, "--against", other)
        assert (done.code, "keeps something from call to call" in " ".join(done.out.split())) == (1, True), done.out
    pytest.importorskip("ai_edge_litert")
    assert "RANDOM" in check(xverify, tmp_path, tmp_path / "random.tflite", "--against", right).upper()
