"""Ports that are written in another way than the reference, from the command line."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("greenlet")

FAST = ("--subjects", "torch:eager,torch_port:eager", "--warmup", 1, "--rerun", 4, "--cases", 2, "--details")

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=4,
    inputs={"left": TensorSpec(("N", 8)), "right": TensorSpec(("N", 8))},
    outputs={"sum": TensorSpec(("N", 5)), "difference": TensorSpec(("N", 5))},
)
"""

MODEL = """
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 16)
        self.relu = nn.ReLU()
        self.fc3 = nn.Linear(16, 5)

    def tower(self, x):
        return self.fc3(self.relu(self.fc2(F.silu(self.fc1(x)))))

    def forward(self, left, right):
        left, right = self.tower(left), self.tower(right)
        return left + right, left - right


def build():
    return Net()
"""

PORT = """
import torch.nn.functional as F
from torch import nn


class Dense(nn.Linear):
    def __init__(self, inputs, outputs, activation):
        super().__init__(inputs, outputs)
        self.activation = activation

    def forward(self, x):
        return self.activation(super().forward(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = Dense(8, 16, F.silu)
        self.fc2 = Dense(16, 16, F.relu)
        self.fc3 = nn.Linear(16, 5)

    def tower(self, x):
        return self.fc3(self.fc2(self.fc1(x)))

    def forward(self, left, right):
        right = self.tower(right)
        left = self.tower(left)
        return left + right, left - right


def build():
    return Net()
"""


@pytest.fixture
def ported(xverify, tmp_path):
    def run(*changes, model=MODEL, port=PORT, names=""):
        for old, new in changes:
            assert old in port
            port = port.replace(old, new)
        folder = tmp_path / "port"
        folder.mkdir(exist_ok=True)
        for name, text in (("spec.py", SPEC), ("torch.py", model), ("torch_port.py", port), ("names.toml", names)):
            (folder / name).write_text(text)
        return xverify("run", folder, *FAST)

    return run


@pytest.mark.slow
def test_a_port_with_fused_activations_that_calls_its_towers_in_another_order_is_equal(ported):
    done = ported()
    error = done.row("torch_port:eager")["error"]
    assert done.code == 0, done.out
    assert (error["layers"]["compared"], error["layers"]["missing"]) == (4, [])
    assert not any(layer["explanation"] for layer in error["layers"]["layers"])
    for note in (
        "fc1 was judged together with the activation SiLU after it, because the port's layer ends in it",
        "fc2 was judged together with the activation relu after it, because the port's layer ends in it",
        "the port calls fc1 in another order: its calls were compared in the order 2, 1, by the tensors that each was given",
    ):
        assert note in error["layers"]["notes"]
        assert note in done.out


PASSIVE = (
    ("self.relu = nn.ReLU()", "self.relu = nn.Sequential(nn.ReLU(), nn.Dropout(0.5), nn.Identity(), nn.Sequential())"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("port", "missing"), [("nn.Sequential(nn.ReLU())", []), ("F.relu", ["relu.0"])], ids=["as a layer", "as a function"]
)
def test_a_layer_that_returns_its_input_is_not_missing_in_a_port_without_it(ported, port, missing):
    model = MODEL
    for old, new in PASSIVE:
        model = model.replace(old, new)
    done = ported(model=model, port=MODEL.replace("nn.ReLU()", port))
    assert done.code == 0, done.out
    layers = done.row("torch_port:eager")["error"]["layers"]
    assert (layers["known"], layers["compared"], layers["missing"]) == (4, 4 - len(missing), missing)
    whole = done.row("torch:eager")["error"]["layers"]
    assert (whole["known"], whole["compared"]) == (7, 7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "F.silu", "F.gelu",
            "`fc1` of the port ends in the activation GELU by the error function; the reference applies SiLU",
        ),
        ("F.relu)", "F.softplus)", "`fc2` of the port ends in the activation Softplus; the reference applies ReLU"),
        (
            "return left + right, left - right", "return left - right, left + right",
            "the outputs are swapped: `sum` holds the reference's `difference`, `difference` holds the reference's `sum`",
        ),
    ],
)  # fmt: skip
def test_a_wrong_port_that_is_written_in_another_way_is_different_and_named(ported, old, new, says):
    done = ported((old, new))
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (1, "DIFFERENT")
    assert says in error["reason"]
    assert says in done.out
    assert "besides" not in error["reason"]  # nothing else is said about the same fault
    assert "passes on" not in error["reason"]


LAYERS = """
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.relu = nn.ReLU()
        self.relu2 = nn.ReLU()
        self.fc3 = nn.Linear(16, 5)

    def forward(self, left, right):
        left, right = (self.fc3(self.relu2(self.relu(self.fc1(x)) - 0.5)) for x in (left, right))
        return left + right, left - right


def build():
    return Net()
"""


@pytest.mark.slow
def test_layers_whose_matching_is_in_doubt_are_asked_for_by_names_toml(ported):
    """One ReLU of the port is a function, and the other one has another name and a fault."""
    port = LAYERS.replace("self.relu2 = nn.ReLU()", "self.act = nn.LeakyReLU()").replace(
        "self.relu = nn.ReLU()\n", "\n"
    )
    port = port.replace("self.relu2(self.relu(self.fc1(x))", "self.act(F.relu(self.fc1(x))")
    port = port.replace("class Net", "class ReLU(nn.LeakyReLU):\n    pass\n\n\nclass Net").replace(
        "nn.LeakyReLU()", "ReLU()"
    )
    done = ported(model=LAYERS, port=port)
    layers = done.row("torch_port:eager")["error"]["layers"]
    assert done.code == 1
    assert layers["matched"] == {}
    assert [layer["layer"] for layer in layers["layers"] if layer["verdict"] == "DIFFERENT"] == ["fc3"]
    note = "relu may be act; relu2 may be act"
    assert note in done.out
    assert 'write which is which into names.toml under [torch_port], for example "relu" = "act"' in done.out
    done = ported(model=LAYERS, port=port, names='[torch_port]\n"relu2" = "act"\n')
    error = done.row("torch_port:eager")["error"]
    assert error["layers"]["notes"] == []
    assert "relu2: computes LeakyReLU(0.01); the reference ReLU" in error["reason"]


@pytest.mark.slow
def test_weights_that_do_not_fit_are_asked_for_by_names_toml(ported):
    port = LAYERS.replace("self.fc1", "self.first")
    done = ported(model=LAYERS, port=port)
    reason = done.row("torch_port:eager")["reason"]
    assert (
        "the weights do not fit the model: 2 missing (first.bias, first.weight), 2 unexpected (fc1.bias, fc1.weight)"
        in reason
    )
    assert 'names.toml of the model folder which is which: under [torch_port], "fc1" = "first"' in reason
    done = ported(model=LAYERS, port=port, names='[torch_port]\n"fc1" = "first"\n')
    assert done.code == 0, done.out
