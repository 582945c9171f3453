"""``xverify init``: model folders that are written from code, and that run at once."""

import pytest

from xverify.errors import UsageError
from xverify.framework.outline import Outlined, Step
from xverify.scaffold import api, inputs, keras
from xverify.workload.spec import TensorSpec, load_folder

MODEL = """
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(8 * 8 * 8, 10)

    def forward(self, image):
        x = F.relu(self.bn1(self.conv1(image)))
        x = self.pool(x + F.gelu(self.conv2(x)))
        return self.fc(torch.flatten(x, 1))


def build():
    return nn.Sequential(
        nn.Embedding(100, 32), nn.LayerNorm(32), nn.Linear(32, 64), nn.SiLU(), nn.Dropout(0.1), nn.Linear(64, 10), nn.Softmax(-1)
    )


def example_inputs():
    return torch.randint(0, 100, (4, 16))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(4, 8)

    def forward(self, x: Annotated[torch.Tensor, "N,4"], y: Annotated[torch.Tensor, "N,4"]):
        h = torch.tanh(self.a(x)) + self.b(y)
        return h, torch.sigmoid(h)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.lstm, self.head = nn.Embedding(50, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, ids):
        x, _ = self.lstm(self.emb(ids))
        return self.head(x)[:, ::2], x.mean(1)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.first(x)
        if x.sum() > 1e9:
            x = -x
        return self.second(x)
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def made(xverify, tmp_path, code, name, *options):
    done = xverify("init", tmp_path / "port", "--from", f"torch={code}:{name}", *options)
    assert done.code == 0, done.out + done.err
    return done, tmp_path / "port"


def ran(xverify, folder, subjects, *options):
    done = xverify("run", folder, "--subjects", subjects, "--no-timing", "--cases", 2, *options)
    assert done.result is not None, done.err
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Net", ("--input", "image=N,3,16,16")),
        ("build", ()),
        ("Two", ()),
    ],
)
def test_a_model_of_known_layers_gets_a_complete_port_that_is_equal(xverify, tmp_path, code, name, options):
    if name == "Two":
        code.write_text(MODEL.replace("def example_inputs", "def other"))
    done, folder = made(xverify, tmp_path, code, name, *options, "--port", "tensorflow")
    assert "incomplete" not in done.out
    assert "next: xverify run" in done.out
    ran_once = ran(xverify, folder, "torch:eager,tensorflow:graph")
    assert ran_once.code == 0, ran_once.out
    layers = ran_once.row("tensorflow:graph")["error"]["layers"]
    assert layers["compared"] == layers["known"] > 0


@pytest.mark.slow
def test_a_model_with_other_layers_gets_a_port_that_says_what_is_missing(xverify, tmp_path, code):
    options = ("--input", "ids=N,seq:int64:0:50", "--sizes", "seq=8", "--port", "tensorflow,jittor")
    done, folder = made(xverify, tmp_path, code, "Recurrent", *options)
    assert "tensorflow.py: incomplete: xverify init writes no lstm (LSTM)" in done.out
    assert "jittor.py: incomplete" in done.out
    spec = load_folder(folder).spec
    assert spec.declared["inputs"]["ids"] == TensorSpec(("N", "seq"), "int64", 0, 50)
    assert [each.shape for each in spec.declared["outputs"].values()] == [("N", "(seq - 1) // 2 + 1", 4), ("N", 8)]
    text = (folder / "tensorflow.py").read_text()
    assert 'layers.Embedding(50, 8, name="emb")' in text
    assert "# head: Linear(in_features=8, out_features=4" in text
    done = ran(xverify, folder, "torch:eager,tensorflow:eager", "--sizes", "seq=8,5")
    assert done.code == 3
    assert {row["error"]["verdict"] for row in done.result["rows"] if row["framework"] == "torch"} == {"IDENTICAL"}
    row = done.row("tensorflow:eager")
    assert row["status"] == "failed"
    assert "NotImplementedError: xverify init writes no lstm (LSTM)" in row["reason"]


@pytest.mark.slow
def test_a_model_that_cannot_be_traced_gets_the_list_of_its_layers(xverify, tmp_path, code):
    done, folder = made(xverify, tmp_path, code, "Branches", "--input", "x=N,8", "--port", "tensorflow")
    assert "tensorflow.py: incomplete: the code of the reference cannot be traced (TraceError" in done.out
    text = (folder / "tensorflow.py").read_text()
    assert text.index("# first: Linear(in_features=8") < text.index("# second: Linear(in_features=8")
    assert "raise NotImplementedError(" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "options", "code_of_exit", "says"),
    [
        ("torch=model.py:Branches", ("--input", "x=N,9"), 3, "cannot be called with x ('N', 9)"),
        ("torch=model.py:Branches", ("--input", "x=N,8", "--input", "y=N,8"), 2, "takes x"),
        ("torch=model.py:Recurrent", (), 3, "cannot be called"),
        ("torch=model.py:Bild", ("--input", "x=N,8"), 3, "has no 'Bild'; did you mean 'build'?"),
        ("torch=plain.py:Plain", (), 2, "does not say the shapes of its inputs (x): give each in the order of forward"),
    ],
)
def test_a_model_that_cannot_be_called_leaves_no_folder(xverify, tmp_path, code, source, options, code_of_exit, says):
    here = tmp_path / "here"
    here.mkdir()
    (here / "model.py").write_text(MODEL.replace("(4, 16)", "(4, 16, 2, 2, 2)"))
    (here / "plain.py").write_text(
        "from torch import nn\nclass Plain(nn.Module):\n    def forward(self, x):\n        return x\n"
    )
    done = xverify("init", tmp_path / "port", "--from", source, *options, "--port", "tensorflow")
    assert done.code == code_of_exit, done.out + done.err
    assert says in done.err
    assert not (tmp_path / "port").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "--from is missing"),
        (("--from", "model.h5"), "write FRAMEWORK=FILE.py:NAME"),
        (("--from", "torch=absent.py:build"), "there is no file absent.py"),
        (("--from", "jittor=CODE:build"), "the reference is in torch"),
        (("--from", "torch=CODE:Net", "--port", "tensorflov"), "did you mean 'tensorflow'?"),
        (("--from", "torch=CODE:Net", "--port", "onnxruntime"), "no framework of that name has a model file"),
        (("--from", "torch=CODE:Net", "--input", "x"), "write NAME=SIZES"),
        (("--from", "torch=CODE:Net", "--input", "x=N,0"), "every size is a positive integer"),
        (("--from", "torch=CODE:Net", "--input", "x=N,3:int63:0:4"), "did you mean 'int64'?"),
        (("--from", "torch=CODE:Net", "--input", "x=N,3:int64"), "int64 needs the range of its values"),
        (("--from", "torch=CODE:Net", "--input", "x=N,3:int64:5:5"), "not below"),
        (("--from", "torch=CODE:Net", "--input", "x=N,3:int64:a:b"), "write NAME=SIZES"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_refused(xverify, tmp_path, code, options, says):
    done = xverify("init", tmp_path / "port", *(each.replace("CODE", str(code)) for each in options))
    assert done.code == 2, done.out + done.err
    assert says in done.err
    assert not (tmp_path / "port").exists()


def test_a_folder_that_exists_is_refused(xverify, tmp_path, code):
    (tmp_path / "port").mkdir()
    done = xverify("init", tmp_path / "port", "--from", f"torch={code}:Net")
    assert done.code == 2
    assert "it exists; name a new folder" in done.err
    done = xverify("init", tmp_path / "absent" / "port", "--from", f"torch={code}:Net")
    assert done.code == 2
    assert "there is no folder" in done.err


def test_inputs_are_read_from_their_text():
    assert inputs.parse("ids=N,16:int64:0:1000") == ("ids", TensorSpec(("N", 16), "int64", 0, 1000))
    assert inputs.parse("x=N,3,seq") == ("x", TensorSpec(("N", 3, "seq")))
    assert inputs.parse("x=2:float32:-1:0.5") == ("x", TensorSpec((2,), "float32", -1.0, 0.5))


def test_axes_of_inputs_need_sizes():
    tensors = {"x": TensorSpec(("N", "seq"))}
    assert inputs.sizes_of(tensors, {"seq": (4,)}) == {"seq": 4}
    with pytest.raises(UsageError, match="the axis 'seq' of an input has no size"):
        inputs.sizes_of(tensors, {})
    with pytest.raises(UsageError, match=r"no input has an axis 'sec'; did you mean 'seq'\?"):
        inputs.sizes_of(tensors, {"sec": (4,)})
    with pytest.raises(UsageError, match="give one"):
        inputs.sizes_of(tensors, {"seq": (4, 5)})


@pytest.mark.parametrize(
    ("size", "changed", "expected"),
    [
        (7, {}, 7),
        (2, {"batch": 3}, "N"),
        (4, {"batch": 6}, None),
        (16, {"seq": 33}, "seq"),
        (8, {"seq": 17}, "(seq - 1) // 2 + 1"),
        (17, {"seq": 34}, "seq + 1"),
        (32, {"seq": 66}, "2 * seq"),
        (5, {"seq": 100}, None),
        (32, {"batch": 48, "seq": 66}, None),
    ],
)
def test_the_size_of_an_output_is_told_by_those_of_the_inputs(size, changed, expected):
    first, others = {"batch": 2, "seq": 16}, {"batch": 3, "seq": 33}
    found = {name: (first, others[name], changed.get(name, size)) for name in first}
    assert api._axis(size, found) == expected


CONV = {"in_channels": 4, "out_channels": 4, "kernel_size": [3, 3], "stride": [1, 1], "padding": [0, 0], "groups": 1}
CONV |= {"dilation": [1, 1], "padding_mode": "zeros", "bias": True}


@pytest.mark.parametrize(
    "step",
    [
        Step("conv", "Conv2d", {**CONV, "dilation": [2, 2]}, (-1,), (2, 4, 6, 6)),
        Step("conv", "Conv2d", {**CONV, "groups": 2}, (-1,), (2, 4, 6, 6)),
        Step("conv", "Conv2d", {**CONV, "padding_mode": "reflect"}, (-1,), (2, 4, 6, 6)),
        Step("fc", "Linear", {"out_features": 3, "bias": True}, (-1,), (2, 4, 8, 3)),
        Step("", "flatten", {"args": [2]}, (-1,), (2, 4, 64)),
        Step("", "softmax", {"dim": 1}, (-1,), (2, 4, 8, 8)),
        Step("", "mean", {"args": [1]}, (-1,), (2, 8, 8)),
        Step("norm", "LayerNorm", {"normalized_shape": [8], "eps": 1e-5, "elementwise_affine": True}, (-1,), (2, 4, 8, 8)),
    ],
)  # fmt: skip
def test_a_setting_without_a_counterpart_ends_the_port(step):
    outlined = Outlined((step,), (0,))
    text, missing = keras.source(outlined, {"x": TensorSpec(("N", 4, 8, 8), layout="NCHW")}, "model")
    assert missing
    assert "raise NotImplementedError(" in text
    compile(text, "port", "exec")


def test_a_layer_that_is_called_twice_is_one_layer():
    step = Step("fc", "Linear", {"out_features": 8, "bias": False}, (-1,), (2, 8))
    outlined = Outlined((step, Step("fc", "Linear", step.settings, (0,), (2, 8))), (1,))
    text, missing = keras.source(outlined, {"x": TensorSpec(("N", 8))}, "model")
    assert not missing
    assert text.count("layers.Dense(8, use_bias=False") == 1
    assert text.count("layer_fc(") == 2
