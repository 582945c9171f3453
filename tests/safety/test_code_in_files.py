"""A model file reaches nothing but itself without --trust: what it may use is listed, and not what it may not."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xverify.errors import UsageError
from xverify.framework import formats

SUITES = Path(__file__).parents[2] / "suites"
sys.path.insert(0, str(SUITES))
import hostile_code  # noqa: E402
import operators  # noqa: E402

TRUST = "If you trust its author, say so with --trust"


def folder(path, content):
    """A SavedModel of this graph."""
    (path / "variables").mkdir(parents=True)
    (path / "saved_model.pb").write_bytes(content)
    return path


def refused(path):
    with pytest.raises(UsageError) as raised:
        formats.examine(path)
    said = str(raised.value)
    assert "\n" not in said
    return said


def test_every_graph_with_an_effect_is_refused(tmp_path):
    graphs = list(hostile_code.risky_graphs())
    assert len(graphs) > 100
    for number, (name, content) in enumerate(graphs):
        said = refused(folder(tmp_path / str(number), content))
        assert TRUST in said or "lies outside of the folder" in said, name
        assert "damaged" not in said, name  # the graph is sound
        assert "looked through" not in said, name


def test_no_graph_without_an_effect_is_refused(tmp_path):
    graphs = list(hostile_code.right_graphs())
    assert graphs
    for number, (_, content) in enumerate(graphs):
        assert formats.examine(folder(tmp_path / str(number), content)).name == "savedmodel"


@pytest.mark.parametrize(
    "content",
    [
        b"\x0b\x12\x09WriteFile\x0c",  # a group
        b"\x12\xff\xff\xff\xff\x7f",  # a length that no message has
        b"\xfa\xff\xff\xff\x7f\x00",  # a field whose number protobuf shortens
        b"\x92\x80\x80\x80\x80\x01\x00",  # the same: TensorFlow would read field 2
    ],
)
def test_what_protobuf_reads_otherwise_is_refused(tmp_path, content):
    refused(folder(tmp_path / "saved", hostile_code.saved(hostile_code.field(2, content))))


def test_a_file_that_is_refused_ends_with_exit_code_2(xverify, tmp_path):
    done = xverify("check", folder(tmp_path / "saved", dict(hostile_code.risky_graphs())["PrintV2 to a file"]))
    assert (done.code, TRUST in done.err, len(done.err.splitlines())) == (2, True, 1)
    done = xverify("check", hostile_code.script(tmp_path / "m.pt", 'torch .save(y, "ran")'))
    assert (done.code, TRUST in done.err, len(done.err.splitlines())) == (2, True, 1)


@pytest.mark.parametrize("line", hostile_code.LINES)
def test_every_script_that_reaches_outside_is_refused(tmp_path, line):
    assert TRUST in refused(hostile_code.script(tmp_path / "m.pt", line))


def test_the_state_of_a_script_is_looked_at_before_it_is_restored(tmp_path):
    assert "calls torch.save" in refused(hostile_code.script(tmp_path / "m.pt", "", hostile_code.STATE))
    data = b"\x80\x02c__torch__.torch.classes.mine\nPacked\nq\x00."
    assert "torch.classes.mine" in refused(hostile_code.script(tmp_path / "m.pt", data=data))
    formats.examine(
        hostile_code.script(tmp_path / "m.pt", data=data.replace(b"mine\nPacked", b"quantized\nLinearPackedParamsBase"))
    )


@pytest.mark.parametrize(
    "line", ['print("torch.save(x)")', "_0 = __torch__.f\n    y = _0(y, )", "y = (y).relu()", "save = self.save"]
)
def test_no_script_that_computes_is_refused(tmp_path, line):
    assert formats.examine(hostile_code.script(tmp_path / "m.pt", line)).name == "torchscript"


@pytest.mark.parametrize("end", ["another directory", "a comment"])
def test_an_archive_in_which_programs_find_different_members_is_refused(tmp_path, end):
    """Python takes the directory that lies just before the end of an archive, and PyTorch the one that the end names."""
    content = hostile_code.script(tmp_path / "m.pt").read_bytes()
    other = content[:-22] + content if end == "another directory" else content[:-2] + b"\x04\0text"
    (tmp_path / "m.pt").write_bytes(other)
    assert "does not lie where its end says" in refused(tmp_path / "m.pt")


# -- files of the frameworks ---------------------------------------------------------------------------------------------

TENSORFLOW = """
import tensorflow as tf, keras
v1 = tf.compat.v1
file = "words.txt"
open(file, "w").write("a\\nb\\n")
def save(name, x, y):
    keras.Model(x, y).export(name, verbose=False)
x = keras.Input((6, 4), name="x")
y = keras.layers.LSTM(3)(keras.layers.BatchNormalization()(keras.layers.GRU(5, return_sequences=True)(x)))
save("recurrent", x, keras.layers.Dense(2)(y))
for name, words in (("strings", ["a", "b"]), ("file", file)):
    x = keras.Input((3,), dtype="string", name="x")
    save(name, x, keras.layers.Embedding(8, 4)(keras.layers.StringLookup(vocabulary=words)(x)))
x = keras.Input((3,), dtype="int64", name="x")
save("numbers", x, keras.layers.Embedding(8, 4)(keras.layers.IntegerLookup(vocabulary=[4, 5])(x)))

def table():
    source = tf.lookup.TextFileInitializer(
        file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER)
    return tf.lookup.StaticHashTable(source, -1)

class Loops(tf.Module):
    def __init__(self):
        self.w, self.calls, self.table = tf.Variable(tf.eye(4)), tf.Variable(0), table()

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def __call__(self, x):
        self.calls.assign_add(1)
        for i in tf.range(3):
            x = tf.matmul(x, self.w)
            if tf.reduce_sum(x) > 0:
                x = tf.nn.relu(x)
        tf.print("sum", tf.reduce_sum(x))
        tf.debugging.Assert(tf.size(x) >= 0, [x])
        y = tf.map_fn(lambda row: row * 2, x) + tf.random.normal(tf.shape(x)) * 0
        return {"y": y + tf.cast(self.table.lookup(tf.constant("b")), tf.float32)}

tf.saved_model.save(Loops(), "loops")
with tf.Graph().as_default(), v1.Session() as session:
    x = v1.placeholder(tf.float32, [None, 4], "x")
    y = tf.matmul(x, v1.get_variable("w", (4, 3)))
    session.run(v1.global_variables_initializer())
    v1.saved_model.simple_save(session, "first", {"x": x}, {"y": y})
"""
TORCH = """
import enum, torch
from typing import Dict, List, NamedTuple, Optional

class Kind(enum.Enum):
    ONE = 1

class Pair(NamedTuple):
    first: torch.Tensor
    save: torch.Tensor

@torch.jit.interface
class Part(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor: pass

class Plus(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor: return x + 1

def twice(x, k: float): return torch.sin(x) * k

class Model(torch.nn.Module):
    part: Part
    def __init__(self):
        super().__init__()
        self.part, self.kind = Plus(), Kind.ONE
        self.lstm, self.attention = torch.nn.LSTM(4, 4, bidirectional=True), torch.nn.MultiheadAttention(8, 2)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 2), torch.nn.BatchNorm1d(2), torch.nn.Tanh())
        self.register_buffer("save", torch.ones(2))

    @torch.jit.export
    def more(self, x): return x * self.save

    def forward(self, x, n: int = 2, extra: Optional[torch.Tensor] = None) -> Dict[str, torch.Tensor]:
        y = self.lstm(self.part.forward(x))[0]
        y = twice(self.attention(y, y, y)[0], 2.0)
        found: List[torch.Tensor] = []
        for i in range(n):
            found.append(y if y.sum() > 0 and self.kind == Kind.ONE else -y)
        while bool(y.sum() < 0): y = y + 1
        future, other = torch.jit.fork(torch.relu, y), torch.jit.fork(self.more, y[..., :2])
        torch.jit.wait(other)
        print("torch.save({})".format(n))
        assert n > 0, "no numbers"
        pair = Pair(self.layers(torch.jit.wait(future)[0]), y)
        return {"y": self.more(pair.first), "z": torch.stack(found)}

torch.jit.script(Model().eval()).save("model.pt")
torch.jit.freeze(torch.jit.script(Plus().eval())).save("frozen.pt")
torch.jit.trace(torch.nn.TransformerEncoderLayer(4, 2, 8).eval(), torch.ones(3, 2, 4)).save("traced.pt")
quantised = torch.ao.quantization
class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out, self.linear = quantised.QuantStub(), quantised.DeQuantStub(), torch.nn.Linear(4, 2)
    def forward(self, x): return self.out(self.linear(self.into(x)))
small = Small().eval()
small.qconfig = quantised.get_default_qconfig("x86")
small = quantised.prepare(small)
small(torch.randn(2, 4))
torch.jit.script(quantised.convert(small)).save("static.pt")
dynamic = quantised.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(4, 4)).eval(), {torch.nn.Linear})
torch.jit.script(dynamic).save("dynamic.pt")
"""
MADE = {
    "tensorflow": (TENSORFLOW, ("recurrent", "strings", "file", "numbers", "loops", "first")),
    "torch": (TORCH, ("model.pt", "frozen.pt", "traced.pt", "static.pt", "dynamic.pt")),
}


@pytest.fixture(scope="module", params=MADE)
def made(request, tmp_path_factory):
    """The files that a framework made."""
    pytest.importorskip(request.param)
    place, (code, names) = tmp_path_factory.mktemp("made"), MADE[request.param]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
    (place / "make.py").write_text(code)
    command = [sys.executable, "make.py"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return [place / name for name in names]


@pytest.mark.slow
def test_what_frameworks_write_is_opened_without_trust(xverify, made):
    for path in made:
        formats.examine(path)
    path = next(each for each in made if each.name in ("loops", "static.pt"))
    done = xverify("check", path, "--shape", "x=2x4")
    assert (done.code != 2, "--trust" in done.out + done.err) == (True, False), done.out + done.err


@pytest.mark.slow
@pytest.mark.parametrize("name", operators.LISTS)
def test_the_lists_are_what_the_rules_make_of_the_installed_framework(name):
    if importlib.util.find_spec(name.partition("-")[0]) is None:
        pytest.skip("the framework is not installed")
    done = subprocess.run(
        [sys.executable, "-c", f"import operators, sys; sys.stdout.write(operators.text(operators.LISTS[{name!r}]()))"],
        capture_output=True, text=True, check=True, cwd=SUITES,
    )  # fmt: skip
    assert set(done.stdout.split()) == set((operators.FORMATS / f"{name}.txt").read_text().split())
