"""What no input reaches is not EQUAL without a word: branches, trips, rows, both signs, sides of clips and of comparisons."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
from onnx import TensorProto as T  # noqa: E402  it is there
from onnx import helper as h  # noqa: E402
from onnx import numpy_helper as nh  # noqa: E402

N, F, L, B, RANDOM = h.make_node, T.FLOAT, T.INT64, T.BOOL, np.random.default_rng(0)
W = (RANDOM.standard_normal((8, 8)) * 0.4).astype("f")
TABLE = RANDOM.standard_normal((3000, 8)).astype("f")


def info(name, kind=F, shape=None):
    return h.make_tensor_value_info(name, kind, shape)


def save(path, nodes, inputs, **arrays):
    """Nodes from named inputs, name -> (type, shape), to the output y, which is made a float."""
    nodes = [*nodes, N("Cast", ["out"], ["y"], "last", to=F)]
    graph = h.make_graph(
        nodes,
        "g",
        [info(name, *each) for name, each in inputs.items()],
        [info("y")],
        [nh.from_array(np.asarray(a), n) for n, a in arrays.items()],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9), path)
    return path


def body(nodes, output, arrays=(), inputs=()):
    return h.make_graph(
        nodes, "b", list(inputs), [info(each) for each in output], [nh.from_array(a, n) for n, a in arrays]
    )


# -- models; wrong: whether it has the fault -------------------------------------------------------------------------------


def branch(path, wrong):
    """The else branch of a graph, where a sum is hardly ever negative enough, has another kernel."""
    kernel = W + wrong * 0.5
    other = body([N("MatMul", ["a", "v"], ["t"]), N("Tanh", ["t"], ["e"])], ["e"], [("v", kernel)])
    nodes = [
        N("MatMul", ["x", "w"], ["a"]), N("ReduceSum", ["x"], ["s"], keepdims=0), N("Greater", ["s", "t0"], ["c"]),
        N("If", ["c"], ["out"], "gate", then_branch=body([N("Relu", ["a"], ["r"])], ["r"]), else_branch=other),
    ]  # fmt: skip
    return save(path, nodes, {"x": (F, [2, 8])}, w=W, t0=np.float32(-9000))


def threshold(path, wrong):
    nodes = [
        N("MatMul", ["x", "w"], ["a"]), N("Greater", ["a", "t0"], ["c"], "gate"), N("Neg", ["a"], ["n"]),
        N("Where", ["c", "n", "a"], ["out"]),
    ]  # fmt: skip
    return save(path, nodes, {"x": (F, [2, 8])}, w=W, t0=np.float32(8000 if wrong else 7000))


def clipped(path, wrong):
    nodes = [N("MatMul", ["x", "w"], ["a"]), N("Clip", ["a", "low", "high"], ["out"], "gate")]
    low, high = np.float32(-1e4), np.float32(2e4 if wrong else 1e4)
    return save(path, nodes, {"x": (F, [2, 8])}, w=W, low=low, high=high)


def row(path, wrong):
    table = TABLE + 0
    table[2718, 3] += wrong
    return save(
        path,
        [N("Gather", ["e", "i"], ["g"]), N("Mul", ["g", "scale"], ["out"])],
        {"i": (L, ["N", 6])},
        e=table,
        scale=W[0],
    )


def rows_renamed(path, wrong):
    """The same under another name, behind a position table."""
    table = TABLE[:500] + 0
    table[[77, 450]] += wrong
    nodes = [N("Gather", [f"tok{wrong}", "i"], ["g"]), N("Add", ["g", "pos"], ["a"]), N("MatMul", ["a", "w"], ["out"])]
    return save(path, nodes, {"i": (T.INT32, [2, 6])}, **{f"tok{wrong}": table}, pos=TABLE[500:506], w=W)


def trips(path, wrong):
    """A recurrence of n steps: from the second step on, the wrong one has another weight."""
    late = N("Add", ["p", "one" if wrong else "zero"], ["later"])
    inner = body(
        [N("MatMul", ["v", "w"], ["p"]), late, N("Cast", ["i"], ["again"], to=B), N("Where", ["again", "later", "p"], ["q"]),
         N("Tanh", ["q"], ["r"]), N("Identity", ["ci"], ["co"])],
        [], inputs=[info("i", L, []), info("ci", B, []), info("v")],
    )  # fmt: skip
    inner.output.extend([info("co", B, []), info("r")])
    nodes = [N("Cast", ["n"], ["k"], to=L), N("Loop", ["k", "", "x"], ["out"], "steps", body=inner)]
    return save(path, nodes, {"x": (F, [2, 8]), "n": (T.INT32, [])}, w=W, one=np.float32(0.5), zero=np.float32(0))


def halves(path, wrong):
    """i // 2: ONNX truncates; the wrong one rounds down, by an arithmetic of its own."""
    if not wrong:
        return save(path, [N("Div", ["i", "c"], ["out"])], {"i": (L, [4, 8])}, c=np.int64(2))
    nodes = [N("Mod", ["i", "c"], ["m"]), N("Sub", ["i", "m"], ["s"]), N("Div", ["s", "c"], ["out"])]
    return save(path, nodes, {"i": (L, [4, 8])}, c=np.int64(2))


def hashed(path, wrong):
    """Buckets of a hash, whose products are beyond 32 bits."""
    kind = T.INT32 if wrong else L
    nodes = [
        N("Cast", ["i"], ["a"], to=kind), N("Mul", ["a", "c"], ["p"]), N("Cast", ["p"], ["b"], to=L), N("Mod", ["b", "n"], ["out"]),
    ]  # fmt: skip
    return save(
        path, nodes, {"i": (T.INT32, [4, 8])}, c=np.array(2654435, np.int32 if wrong else np.int64), n=np.int64(97)
    )


def short(path, wrong):
    """A sum that is kept in 16 bits."""
    nodes = [
        N("Add", ["i", "c"], ["a"]),
        N("Cast", ["a"], ["b"], to=T.INT16 if wrong else T.INT32),
        N("Cast", ["b"], ["out"], to=F),
    ]
    return save(path, nodes, {"i": (T.INT32, [4, 8])}, c=np.int32(3))


def ignored(path, wrong):
    """Ids of which one, the padding, has a row of zeros in the place of its own."""
    nodes = [N("Gather", ["e", "i"], ["g"])]
    nodes += [
        N("Equal", ["i", "pad"], ["p"]), N("Unsqueeze", ["p", "last"], ["u"]),
        N("Where", ["u", "zero" if wrong else "one", "g"], ["out"]),
    ]  # fmt: skip
    constants = {"pad": np.int64(1987), "last": np.int64([-1]), "zero": np.float32(0), "one": np.float32(1)}
    return save(path, nodes, {"i": (L, [2, 8])}, e=TABLE, **constants)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (branch, "gate/else_branch/v has other values"),
        (threshold, "t0 has other values: t0 is 8000"),
        (clipped, "high has other values"),
        (row, "in 1 of 3,000 rows (2718)"),
        (rows_renamed, "in 2 of 500 rows (77, 450)"),
        (trips, ""),
        (halves, ""),
        (hashed, ""),
        (short, ""),
        (ignored, ""),
    ],
)
def test_a_fault_where_no_input_went_is_told(xverify, tmp_path, make, says):
    right, wrong = make(tmp_path / "right.onnx", 0), make(tmp_path / "wrong.onnx", 1)
    again = make(tmp_path / "again.onnx", 0)
    done = xverify("check", wrong, again, "--against", right, "--json", tmp_path / "r.json")
    rows = {
        (row["subject"], row["task"]): row["error"] for row in json.loads((tmp_path / "r.json").read_text())["rows"]
    }
    assert rows["wrong.onnx", "conversion"]["verdict"] == "DIFFERENT", done.out
    assert says in rows["wrong.onnx", "conversion"]["reason"]
    assert {rows["again.onnx", task]["verdict"] for task in ("runtime", "conversion")} <= {"IDENTICAL", "EQUAL"}, (
        done.out
    )


@pytest.mark.parametrize(
    ("make", "places"),
    [
        (branch, ["c (Greater): it is never false", "gate (If): its else branch did not run"]),
        (threshold, ["gate (Greater): it is never true"]),
        (clipped, ["gate (Clip): no value is below its lower bound", "gate (Clip): no value is above its upper bound"]),
        (trips, []),
        (row, []),
    ],
)
def test_what_no_input_reaches_is_named_and_is_untested_with_strict(xverify, tmp_path, make, places):
    path = make(tmp_path / "model.onnx", 0)
    done = xverify("check", path, "--json", tmp_path / "r.json")
    (error,) = (row["error"] for row in json.loads((tmp_path / "r.json").read_text())["rows"])
    assert done.code == 0
    assert error["unreached"] == places
    assert ("not covered by any input case" in done.out) == bool(places)
    strict = xverify("check", path, "--strict", "--details")
    assert strict.code == (4 if places else 0), strict.out
    assert "Calls: 6 of each subject compared" in " ".join(strict.out.split())


def masked(path, name="valid"):
    """Attention with a mask of whole numbers whose name does not say so: (1 - mask) * min."""
    nodes = [
        N("Sub", ["one", name], ["m"]), N("Cast", ["m"], ["f"], to=F), N("Mul", ["f", "least"], ["z"]),
        N("Unsqueeze", ["z", "first"], ["u"]), N("MatMul", ["x", "w"], ["s"]), N("Add", ["s", "u"], ["t"]),
        N("Softmax", ["t"], ["out"], axis=-1),
    ]  # fmt: skip
    constants = {"one": np.int64(1), "least": np.float32(np.finfo("f").min), "first": np.int64([1]), "w": W}
    return save(path, nodes, {"x": (F, [2, 4, 8]), name: (L, [2, 8])}, **constants)


def pooled(path):
    """A mean over the items that a mask of whole numbers leaves: its sum is a divisor."""
    nodes = [
        N("Cast", ["keep"], ["k"], to=F), N("Unsqueeze", ["k", "last"], ["u"]), N("Mul", ["x", "u"], ["p"]),
        N("ReduceSum", ["p", "one"], ["s"], keepdims=0), N("ReduceSum", ["keep", "one"], ["c"]), N("Max", ["c", "least"], ["d"]),
        N("Cast", ["d"], ["e"], to=F), N("Div", ["s", "e"], ["out"]),
    ]  # fmt: skip
    constants = {"last": np.int64([-1]), "one": np.int64([1]), "least": np.int64(1)}
    return save(path, nodes, {"x": (F, [2, 6, 8]), "keep": (L, [2, 6])}, **constants)


def steps(path):
    """The time step of a diffusion model: sines of its products."""
    nodes = [
        N("Cast", ["t"], ["f"], to=F), N("Unsqueeze", ["f", "last"], ["u"]), N("Mul", ["u", "w"], ["a"]), N("Sin", ["a"], ["s"]),
        N("MatMul", ["s", "v"], ["out"]),
    ]  # fmt: skip
    return save(path, nodes, {"t": (L, [2])}, last=np.int64([-1]), w=W[0], v=W)


def ends(path):
    """The last state of each sequence, by its length."""
    nodes = [
        N("Sub", ["n", "one"], ["k"]), N("Unsqueeze", ["k", "last"], ["u"]), N("GatherND", ["x", "u"], ["out"], batch_dims=1),
    ]  # fmt: skip
    return save(path, nodes, {"x": (F, [2, 6, 8]), "n": (L, [2])}, one=np.int64(1), last=np.int64([-1]))


@pytest.mark.parametrize("make", [masked, pooled, steps, ends])
def test_masks_lengths_and_time_steps_get_values_that_they_can_have(xverify, tmp_path, make):
    done = xverify("check", make(tmp_path / "model.onnx"), "--json", tmp_path / "r.json")
    (error,) = (row["error"] for row in json.loads((tmp_path / "r.json").read_text())["rows"])
    assert done.code == 0
    assert error["verdict"] in ("IDENTICAL", "EQUAL"), done.out
    assert any("whose range the file does not tell: 0 or 1" in each for each in error["unreached"]), error["unreached"]


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_row_is_compared_with_that_of_a_model_in_code(xverify, tmp_path, wrong):
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.e = torch.nn.Embedding.from_pretrained(torch.arange(24000.).reshape(3000, 8) * 1e-3)\n"
        "    def forward(self, i):\n        return self.e(i).tanh()\n"
        "def build():\n    return Net()\n"
    )
    table = (np.arange(24000, dtype="f") * np.float32(1e-3)).reshape(3000, 8)
    table[1999, 5] += wrong
    nodes = [N("Gather", ["e.weight", "i"], ["g"]), N("Tanh", ["g"], ["out"])]
    path = save(tmp_path / "net.onnx", nodes, {"i": (L, [2, 6])}, **{"e.weight": table})
    done = xverify("check", path, "--against", f"torch={tmp_path / 'net.py'}:build", "--json", tmp_path / "r.json")
    (error,) = (
        row["error"] for row in json.loads((tmp_path / "r.json").read_text())["rows"] if row["task"] == "conversion"
    )
    assert done.code == wrong, done.out
    assert not wrong or "in 1 of 3,000 rows (1999)" in error["reason"]
