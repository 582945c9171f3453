"""Files that keep something from call to call by design: their input cases are the steps of one sequence."""

import json
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

pytestmark = pytest.mark.slow
WEIGHTS = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
KEEPS = "keeps something from call to call: its input cases are the steps of one sequence"
SEQUENCE = ("--steps", 6, "--state", "s_out=s_in")


class Kept(torch.nn.Module):
    """A leaky sum of its inputs, in a buffer."""

    def __init__(self, share):
        super().__init__()
        self.share = share
        self.register_buffer("w", torch.tensor(WEIGHTS))
        self.register_buffer("s", torch.zeros(1, 4))

    def forward(self, x):
        self.s.copy_(self.share * self.s + torch.tanh(x @ self.w))
        return 2 * self.s


def of_torch(folder, share):
    model, x = Kept(share).eval(), torch.ones(1, 4)
    torch.export.save(torch.export.export(model, (x,)), folder / f"{share}.pt2")
    script = torch.jit.trace(model, x, check_trace=False)
    script.s.zero_()  # a trace has called the model
    script.save(str(folder / f"{share}.pt"))


def of_onnx(folder, share):
    """The same with its state as an input and an output."""
    steps = ("MatMul x w a", "Tanh a b", "Mul s_in share c", "Add c b s_out", "Mul s_out two y")
    nodes = [helper.make_node(kind, given, [made]) for kind, *given, made in map(str.split, steps)]
    values = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in names]
              for names in (("x", "s_in"), ("y", "s_out"))]  # fmt: skip
    constants = {"w": WEIGHTS, "share": np.float32(share), "two": np.float32(2)}
    made = helper.make_graph(nodes, "g", *values, [numpy_helper.from_array(v, k) for k, v in constants.items()])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / f"{share}.onnx")


def of_openvino(folder, share):
    ov = pytest.importorskip("openvino")
    from openvino import opset13 as ops

    x = ops.parameter([1, 4], np.float32, name="x")
    x.output(0).set_names({"x"})
    before = ops.read_value(ops.constant(np.zeros((1, 4), np.float32)), "s", np.float32, [1, 4])
    found = ops.tanh(ops.matmul(x, ops.constant(WEIGHTS), False, False))
    state = ops.add(ops.multiply(before, ops.constant(np.float32(share))), found)
    y = ops.multiply(state, ops.constant(np.float32(2)))
    y.output(0).set_names({"y"})
    model = ov.Model([ops.result(y)], [ops.assign(state, "s")], [x], "m")
    ov.save_model(model, folder / f"{share}.xml", compress_to_fp16=False)


TENSORFLOW = """
import sys
import numpy as np, tensorflow as tf
class Kept(tf.Module):
    def __init__(self, share):
        self.share, self.w, self.s = share, tf.constant(np.load("w.npy")), tf.Variable(tf.zeros((1, 4)))
    @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32, name="x")])
    def step(self, x):
        self.s.assign(self.share * self.s + tf.tanh(x @ self.w))
        return {"y": 2 * self.s.read_value()}
def lite(model, step, path):
    converter = tf.lite.TFLiteConverter.from_concrete_functions([step.get_concrete_function()], model)
    converter.experimental_enable_resource_variables = True
    open(path, "wb").write(converter.convert())
class Recurrent(tf.Module):
    def __init__(self, factor):
        self.w, self.u = tf.constant(np.load("w.npy")), tf.constant(factor * np.load("w.npy").T)
        self.h, self.calls = tf.Variable(tf.zeros((1, 4))), tf.Variable(0.0)
    @tf.function(input_signature=[tf.TensorSpec((1, 3, 4), tf.float32, name="x")])
    def step(self, x):
        h = self.h.read_value()
        for frame in range(3):
            h = tf.tanh(x[:, frame] @ self.w + h @ self.u)
        self.h.assign(h)
        self.calls.assign_add(1.0)
        return {"y": h, "calls": self.calls.read_value() * 1.0}
for share in (0.5, 0.6):
    model = Kept(share)
    tf.saved_model.save(model, f"{share}", signatures=model.step.get_concrete_function())
    lite(model, model.step, f"{share}.tflite")
for name, factor in (("rnn", 0.5), ("rnn-again", 0.5), ("rnn-other", 0.501)):
    model = Recurrent(factor)
    lite(model, model.step, f"{name}.tflite")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the model in every format, as it is (0.5) and with another share (0.6)."""
    folder = tmp_path_factory.mktemp("kept")
    for share in (0.5, 0.6):
        for make in (of_torch, of_onnx, of_openvino):
            make(folder, share)
    pytest.importorskip("tensorflow")
    pytest.importorskip("ai_edge_litert")
    np.save(folder / "w.npy", WEIGHTS)
    done = subprocess.run([sys.executable, "-c", TENSORFLOW], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def verdict(xverify, tmp_path, *arguments):
    """(exit code, verdict on the conversion, or on the runtime without a reference, what was printed)."""
    done = xverify("check", *arguments, "--json", tmp_path / "r.json", "--force")
    row = json.loads((tmp_path / "r.json").read_text())["rows"][-1]
    return done.code, row["error"]["verdict"] if row["error"] else row["reason"], " ".join(done.out.split())


@pytest.mark.parametrize("end", [".tflite", ".pt2", ".pt", ".xml", ""])
def test_its_variables_are_the_state_of_a_reference(xverify, tmp_path, files, end):
    options = ("--against", files / "0.5.onnx", *SEQUENCE, *(("--map", "y=output") if ".pt" in end else ()))
    code, found, said = verdict(xverify, tmp_path, files / f"0.5{end}", *options)
    assert (code, found, KEEPS in said) == (0, "EQUAL", True), said
    assert verdict(xverify, tmp_path, files / f"0.6{end}", *options)[:2] == (1, "DIFFERENT")


def test_two_files_are_compared_in_one_sequence(xverify, tmp_path, files):
    for right, wrong, other in (
        ("0.5.xml", "0.6.xml", "0.5.tflite"),
        ("rnn-again.tflite", "rnn-other.tflite", "rnn.tflite"),
    ):
        code, found, said = verdict(xverify, tmp_path, files / right, "--against", files / other)
        assert (code, found, KEEPS in said) == (0, "EQUAL", True), said
        assert verdict(xverify, tmp_path, files / wrong, "--against", files / other)[:2] == (1, "DIFFERENT")


def test_a_file_alone_is_no_random_one(xverify, tmp_path, files):
    assert verdict(xverify, tmp_path, files / "0.5.pt2")[:2] == (0, "EQUAL")
    assert verdict(xverify, tmp_path, files / "0.5.tflite")[:2] == (4, "UNTESTED")


def test_a_file_that_keeps_nothing_lacks_the_state(xverify, tmp_path, files):
    class Without(Kept):
        def forward(self, x):
            return 2 * torch.tanh(x @ self.w)

    torch.export.save(torch.export.export(Without(0.5).eval(), (torch.ones(1, 4),)), tmp_path / "less.pt2")
    options = ("--against", files / "0.5.onnx", *SEQUENCE, "--map", "y=output")
    code, found, _ = verdict(xverify, tmp_path, tmp_path / "less.pt2", *options)
    assert (code, "keeps nothing from call to call" in found) == (3, True)
    assert verdict(xverify, tmp_path, tmp_path / "less.pt2", "--against", files / "0.5.pt2")[:2] == (1, "DIFFERENT")
