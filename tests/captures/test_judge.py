"""Through the command line: what a model computed elsewhere is recorded without xverify, and judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.slow
RECORDER = "xverify_recorder.py"
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(torch.relu(self.bn(self.conv(x))).mean((2, 3)))

def build():
    torch.manual_seed(0)
    model = Net().eval()
    model.bn.running_mean.normal_()
    return model
"""
SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec({"x": TensorSpec(("N", 3, 8, 8))}, {"y": TensorSpec(("N", 5))})
"""
# The arguments: what is done to the model, the settings of the recording, and for each call the first and the last item.
RECORD = """
import sys
sys.modules["xverify"] = None  # an import of it is an error
import numpy as np, torch, net, xverify_recorder
model = net.build()
{change}
x = np.random.default_rng(0).standard_normal((7, 3, 8, 8)).astype("float32")
with xverify_recorder.Recording({path!r}, model, {settings}) as recording:
    for _ in range(2):
        recording.call(x[{items}])
        x = x + {step}
"""
TF32 = """
def rounded(t):
    return ((t.detach().contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
model.conv.forward = lambda x: torch.nn.functional.conv2d(rounded(x), rounded(model.conv.weight), model.conv.bias, padding=1)
"""


# A function that computes what the net does, with a tap at its last layer.
FUNCTION = """
def function(x):
    with torch.no_grad():
        x = torch.from_numpy(x)
        h = torch.relu(model.bn(model.conv(x))).mean((2, 3))
        y = torch.nn.functional.linear(h, model.head.weight * {factor}, model.head.bias)
        return recording.tap("head", h.numpy(), y.numpy())
with xverify_recorder.Recording("function.safetensors", function, inputs=["x"]) as recording:
    recording.call(np.random.default_rng(1).standard_normal((4, 3, 8, 8)).astype("float32"))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a net in plain torch, and the recorder that the command writes."""
    folder = tmp_path / "here"  # where commands are run
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "net.py").write_text(NET)
    return folder


@pytest.fixture
def recorded(here, xverify):
    """A function that records the net in a process without xverify. Returns the name of the capture."""
    assert xverify("judge", "--recorder", RECORDER).code == 0

    def record(path="run.safetensors", change="", settings="keep_weights=True", items=":", step=1):
        text = RECORD.format(path=path, change=change, settings=settings, items=items, step=step)
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=here)
        assert done.returncode == 0, done.stderr
        return path

    return record


def judged(xverify, *captures, **options):
    """The result of a command, and its row."""
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    done = xverify("judge", *captures, "--reference", "torch=net.py:build", "--json", "r.json", "--force", *words)
    result = json.loads(Path("r.json").read_text())
    return done, result, result["rows"][0]


def test_a_right_capture_is_equal_layer_by_layer_and_says_where_it_was_made(recorded, xverify):
    done, result, row = judged(xverify, recorded(settings="keep_weights=True, note='a server in Oslo'"))
    assert done.code == 0, done.out + done.err
    assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert [each["layer"] for each in row["error"]["layers"]["layers"]][:3] == ["conv", "bn", "head"]
    assert "with torch" in done.out
    assert "a server in Oslo" in done.out
    assert "a capture has no speed" in done.out
    assert result["settings"]["asked"]["command"] == "judge"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("model.bn.eps = 1e-3", "bn: behaves as eps=0.001; the reference has 1e-05"),
        ("model.head.forward = lambda x: torch.nn.functional.linear(x, model.head.weight)", "head: "),
        ("torch.relu = torch.nn.functional.leaky_relu", "the input of `head` is already wrong"),
    ],
)
def test_a_fault_of_the_recorded_model_is_found_at_its_place(recorded, xverify, change, says):
    done, _, row = judged(xverify, recorded(change=change))
    assert (done.code, row["error"]["verdict"]) == (1, "DIFFERENT")
    assert says in done.out


# From the second call on, a layer has other values where its output does not show them, as below zero before a ReLU.
LATER = """
class Later:
    calls, forward = 0, model.{layer}.forward
    def __call__(self, x):
        self.calls += 1
        y = self.forward(x)
        return y * (1 + {share} * (y < 0)) if self.calls % {every} == 0 else y
model.{layer}.forward = Later()
"""
ACTIVATED = NET.replace("nn.Linear(8, 5)", "nn.Linear(8, 5); self.act = nn.ReLU()").replace("torch.relu", "self.act")
LOOP = """
class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 5)

    def forward(self, x):
        for _ in range(3):
            x = torch.relu(self.conv(x)) + 0.1 * x
        return self.head(x.mean((2, 3)))

def build():
    torch.manual_seed(1)
    return Loop().eval()
"""


@pytest.mark.parametrize(
    ("net", "change", "same", "says"),
    [
        (NET, LATER.format(share=0.5, every=2, layer="bn"), False, "bn differs first"),
        (NET, LATER.format(share=0.1, every=2, layer="head"), True, "head: "),
        (
            ACTIVATED,
            "model.bn.register_forward_hook(lambda m, x, y: y - (y < 0) * len(recording.cases))",
            False,
            "the input of `act`",
        ),
        (
            NET + LOOP,
            LATER.format(share=0.5, every=5, layer="conv"),
            False,
            "conv differs first",
        ),  # the second call in the second case
        (NET, "", True, ""),
        (NET + LOOP, "", False, ""),
    ],
)
def test_every_call_of_a_layer_is_judged_in_every_recorded_call(here, recorded, xverify, net, change, same, says):
    (here / "net.py").write_text(net)
    done, _, row = judged(xverify, recorded(change=change, step=0 if same else 1))
    right = not change
    assert (done.code, row["error"]["verdict"] in ("IDENTICAL", "EQUAL")) == (int(not right), right), done.out
    assert row["error"]["layers"]["cases"] == [0, 1]
    assert says in (row["error"]["reason"] or ""), done.out


def test_products_in_tf32_are_recognised_and_not_accused(recorded, xverify):
    done, _, row = judged(xverify, recorded(change=TF32))
    assert (done.code, row["error"]["verdict"]) == (0, "DRIFT")
    assert "conv: rounds its weights and inputs to float16 or TF32" in done.out


def test_the_ranks_of_one_batch_are_joined_in_any_order(recorded, xverify):
    one = recorded("rank0.safetensors", settings="keep_weights=True, rank=0, ranks=2", items=":4")
    other = recorded("rank1.safetensors", settings="keep_weights=True, rank=1, ranks=2", items="4:")
    done, _, row = judged(xverify, other, one)
    assert (done.code, row["error"]["verdict"]) == (0, "IDENTICAL"), done.out
    assert row["error"]["layers"]["compared"] == 3
    wrong = recorded("rank1.safetensors", "model.bn.eps = 1e-3", "keep_weights=True, rank=1, ranks=2", "4:")
    assert judged(xverify, one, wrong)[2]["error"]["verdict"] == "DIFFERENT"


def test_other_weights_are_named(recorded, xverify):
    capture = recorded(change="model.head.bias.data += 1", settings="")
    done, _, row = judged(xverify, capture, weights="own")
    assert (done.code, row["error"]["verdict"], row["error"]["tensors"]) == (1, "INVALID", [])
    assert "the capture was made with other weights: 1 of 8 differ, head.bias" in row["error"]["reason"]


def test_a_model_in_lower_precision_is_unsupported(recorded, xverify):
    capture = recorded(
        change="model.bfloat16(); np_ = torch.from_numpy; torch.from_numpy = lambda a: np_(a).bfloat16()"
    )
    done, _, row = judged(xverify, capture)
    assert (done.code, row["status"]) == (3, "unsupported")
    assert "recorded in bfloat16, and a forward pass is judged in float32" in row["reason"]


def test_calls_of_other_shapes_are_left_out_and_told(recorded, xverify):
    """The last batch of a data set is mostly a smaller one."""
    done, _, row = judged(xverify, recorded(items=": 7 if x.mean() < 0.5 else 3"))
    assert (done.code, row["error"]["verdict"]) == (0, "IDENTICAL"), done.out
    assert "left out, as their inputs have other shapes than those of the first call: calls 1" in done.out


def test_without_layers_the_outputs_are_compared(recorded, xverify):
    done, _, row = judged(xverify, recorded(settings="keep_weights=True, layers=False"))
    assert (done.code, row["error"]["verdict"]) == (0, "IDENTICAL"), done.out
    assert row["error"]["layers"] is None or row["error"]["layers"]["compared"] == 0


@pytest.mark.parametrize(("factor", "code", "verdict"), [(1.0, 0, "IDENTICAL"), (1.001, 1, "DIFFERENT")])
def test_a_function_without_weights_is_judged_and_its_tapped_layers_too(here, recorded, xverify, factor, code, verdict):
    text = RECORD.format(
        path="unused.safetensors", change=FUNCTION.format(factor=factor), settings="", items=":", step=1
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 0, done.stderr
    done, _, row = judged(xverify, "function.safetensors", weights="own")
    assert (done.code, row["error"]["verdict"]) == (code, verdict), done.out
    assert "the capture has no weights, so that they are those of the reference is not proven" in done.out
    layers = {each["layer"]: each["verdict"] for each in row["error"]["layers"]["layers"]}
    assert layers["head"] == ("EQUAL" if verdict == "IDENTICAL" else verdict)


def damage(path, kind):
    """Damage a capture, and return the sentence that tells it."""
    data = bytearray(path.read_bytes())
    if kind == "another kind of file":
        path.write_bytes(b"not a capture, but text")
        return "it is no .safetensors file"
    if kind == "almost nothing":
        path.write_bytes(b"abc")
        return "it has 3 bytes, and no header"
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    if kind == "cut off":
        path.write_bytes(data[:-100])
        return "cut off"
    if kind == "a changed byte":
        data[-1] ^= 1
        path.write_bytes(data)
        return "is not what was recorded: the file was damaged, or changed"
    text = header["__metadata__"].pop("xverify_capture")
    manifest = json.loads(text)
    says = {
        "no capture": "no capture: it has no xverify_capture in its header",
        "a later version": "a capture of format 2, and this xverify reads format 1",
        "no calls": "the header of the capture lacks calls",
        "reordered": "the calls of layers are not in the order in which they were made",
        "an array is missing": "arrays that it names are not in it",
        "cases of another form": "the header of the capture is not as xverify_recorder.py writes it",
        "another number of inputs": "has the inputs x, y, and the reference takes x",
    }[kind]
    if kind == "a later version":
        manifest["format"] = 2
    elif kind == "no calls":
        del manifest["calls"]
    elif kind == "reordered":
        manifest["calls"].reverse()
    elif kind == "an array is missing":
        manifest["cases"][0]["outputs"][""] = "9999"
    elif kind == "cases of another form":
        manifest["cases"] = [1, 2]
    elif kind == "another number of inputs":
        manifest["cases"][0]["inputs"]["y"] = manifest["cases"][0]["inputs"]["x"]
    if kind != "no capture":
        header["__metadata__"]["xverify_capture"] = json.dumps(manifest)
    new = json.dumps(header).encode()
    path.write_bytes(len(new).to_bytes(8, "little") + new + data[8 + size :])
    return says


@pytest.mark.parametrize(
    "kind",
    [
        "cut off", "a changed byte", "no capture", "a later version", "no calls", "reordered", "an array is missing",
        "another number of inputs", "cases of another form", "another kind of file", "almost nothing",
    ],
)  # fmt: skip
def test_a_damaged_capture_ends_in_one_clear_line(recorded, xverify, here, kind):
    capture = recorded()
    says = damage(here / capture, kind)
    (here / "port").mkdir()
    (here / "port" / "torch.py").write_text(NET)
    (here / "port" / "spec.py").write_text(SPEC)
    done = xverify("judge", capture, "--reference", "port", "--weights", "own")
    assert done.code == 2, done.out
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name a capture"),
        (("run.safetensors",), "--reference is missing"),
        (("absent.safetensors", "--reference", "mlp"), "absent.safetensors: no such file"),
        (("run.safetensors", "--reference", "mlp"), "the input x has the shape (7, 3, 8, 8), and mlp takes ('N', 784)"),
        (("run.safetensors", "--reference", "flax=net.py:build"), "a reference is in torch"),
        (("run.safetensors", "--recorder", "r.py"), "--recorder writes a file and judges nothing"),
        (("rank0.safetensors", "--reference", "torch=net.py:build"), "rank0.safetensors is rank 0 of 2"),
        (
            ("digests.safetensors", "--reference", "torch=net.py:build"),
            "has the digests of its weights, and not the weights",
        ),
    ],
)
def test_a_wrong_command_is_one_clear_line(recorded, xverify, words, says):
    recorded()
    recorded("rank0.safetensors", settings="rank=0, ranks=2")
    recorded("digests.safetensors", settings="")
    done = xverify("judge", *words)
    assert done.code == 2, done.out
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_the_recorder_takes_no_file_of_the_user(here, xverify):
    done = xverify("judge", "--recorder", "net.py")
    assert (done.code, (here / "net.py").read_text()) == (2, NET)
    assert "--recorder net.py exists, and is no recorder that xverify wrote; --force replaces it" in done.err
    assert xverify("judge", "--recorder", RECORDER).code == 0
    assert xverify("judge", "--recorder", RECORDER).code == 0  # an earlier one is replaced
    done = xverify("judge", "--recorder", "absent/recorder.py")
    assert (done.code, len(done.err.strip().splitlines())) == (2, 1), done.err


def test_a_recording_that_fails_leaves_no_file_behind(here, recorded):
    text = RECORD.format(path="failed.safetensors", change="", settings="", items=":, :2", step=1)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 1
    assert not [each for each in here.iterdir() if each.name.startswith("failed")]


def test_the_recorder_needs_numpy_alone(here):
    source = REPOSITORY / "xverify" / "frameworks" / "capture" / RECORDER
    code = f"import sys; sys.path.insert(0, {str(source.parent)!r}); import xverify_recorder as r, numpy as np\n"
    code += "recording = r.Recording('f.safetensors', lambda x: recording.tap('double', x, 2 * x), inputs=['x'])\n"
    code += "with recording:\n    recording.call(np.ones(3, 'float32'))\n"
    code += (
        "print({name.partition('.')[0] for name in sys.modules} & {'torch', 'tensorflow', 'xverify', 'safetensors'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=here)
    assert done.stdout.strip() == "set()", done.stdout + done.stderr
