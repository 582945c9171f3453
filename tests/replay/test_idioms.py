"""Right ports that are written in another way than the reference draw no explanation and no accusation; wrong ones still do."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from xverify.explain.replay import replay_forward  # noqa: E402
from xverify.float64.layer_kinds import leaves  # noqa: E402
from xverify.float64.stepping import Models  # noqa: E402
from xverify.framework import capture  # noqa: E402
from xverify.replay.tensors import Capture  # noqa: E402
from xverify.verdict.layers import summarise  # noqa: E402


class Dense(nn.Linear):
    """A linear layer that ends in an activation, as Keras' Dense does."""

    def __init__(self, inputs, outputs, activation):
        super().__init__(inputs, outputs)
        self.activation = activation

    def forward(self, x):
        return self.activation(super().forward(x))


class Conv2D(nn.Conv2d):
    """A convolution that ends in an activation, as Keras' Conv2D does."""

    def __init__(self, *args, activation):
        super().__init__(*args)
        self.activation = activation

    def forward(self, x):
        return self.activation(super().forward(x))


class Lstm(nn.LSTM):
    """An LSTM whose sequence ends in an activation."""

    def forward(self, x):
        y, state = super().forward(x)
        return F.relu(y), state


def judge(tmp_path, reference, port, *inputs, planted=None):
    """Replay the port's capture in the reference. Both get the same weights, by their order."""
    torch.manual_seed(1)
    for parameter in reference.parameters():
        nn.init.normal_(parameter, 0.0, 0.5)
    port.load_state_dict(reference.state_dict())
    reference.eval()
    port.eval()
    if planted is not None:
        planted(port)
    recorder = capture.Recorder(tmp_path, lambda v: v.detach().numpy() if isinstance(v, torch.Tensor) else None)
    with torch.no_grad(), capture.recording({n: [m] for n, m in leaves(port).items()}, "forward", recorder):
        returned = port(*(x.clone() for x in inputs))
    records = {(record.name, record.call): record for record in recorder.records}
    models = Models(copy.deepcopy(reference).double(), copy.deepcopy(reference))
    outputs = returned if isinstance(returned, tuple) else (returned,)
    named = {f"y{place}": y.numpy() for place, y in enumerate(outputs)}
    report = replay_forward(models, Capture(tmp_path, False, records), list(inputs), named)
    return report, summarise(report, list(models.layers), "port")


def accused(report):
    return [
        (finding.layer, finding.what, round(finding.ratio, 1))
        for finding in report.findings
        if finding.verdict != "EQUAL"
    ]


class Mlp(nn.Module):
    """Two linear layers with an activation between them: glue code, or a layer of its own."""

    def __init__(self, activation=None, module=None, fused=None, last=None):
        super().__init__()
        self.fc1 = nn.Linear(8, 16) if fused is None else Dense(8, 16, fused)
        if module is not None:
            self.act = module
        self.fc2 = nn.Linear(16, 16)
        self.activation, self.last = activation, last

    def forward(self, x):
        x = self.fc1(x)
        if hasattr(self, "act"):
            x = self.act(x)
        if self.activation is not None:
            x = self.activation(x)
        x = self.fc2(x)
        return x if self.last is None else self.last(x)


def rows(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


# Name -> (activation of the port's layer, the reference's function, the reference's layer).
ACTIVATIONS = {
    "relu": (F.relu, lambda x: x.clamp(min=0), nn.ReLU()),
    "relu in place": (F.relu, lambda x: x.relu_(), nn.ReLU(inplace=True)),
    "silu": (F.silu, lambda x: x * torch.sigmoid(x), nn.SiLU()),
    "gelu": (F.gelu, F.gelu, nn.GELU()),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh"), nn.GELU("tanh")),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + (-x).exp()), nn.Sigmoid()),
    "tanh": (torch.tanh, torch.tanh, nn.Tanh()),
    "softmax": (lambda x: x.softmax(-1), lambda x: F.softmax(x, -1), nn.Softmax(-1)),
    "log-softmax": (lambda x: x.log_softmax(-1), lambda x: F.log_softmax(x, 1), nn.LogSoftmax(-1)),
    "relu6": (F.relu6, lambda x: x.clamp(0, 6), nn.ReLU6()),
    "leaky relu": (lambda x: F.leaky_relu(x, 0.2), lambda x: torch.where(x > 0, x, 0.2 * x), nn.LeakyReLU(0.2)),
    "elu": (F.elu, F.elu, nn.ELU()),
    "selu": (F.selu, F.selu, nn.SELU()),
    "softplus": (F.softplus, F.softplus, nn.Softplus()),
    "mish": (F.mish, F.mish, nn.Mish()),
    "hard swish": (F.hardswish, F.hardswish, nn.Hardswish()),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("as_layer", [False, True])
def test_a_layer_that_ends_in_an_activation_is_judged_together_with_it(tmp_path, name, as_layer):
    fused, function, module = ACTIVATIONS[name]
    reference = Mlp(module=copy.deepcopy(module)) if as_layer else Mlp(function)
    report, layers = judge(tmp_path, reference, Mlp(fused=fused), rows(6, 8))
    assert not accused(report)
    assert not report.explained
    assert layers.missing == ()
    assert next(each.ratio for each in report.findings if each.layer == "fc1" and each.what == "output") < 4
    (note,) = report.notes
    assert note.startswith("fc1 was judged together with the activation ")
    assert ("act after it" in note) == as_layer


class LibraryGelu(nn.Module):
    """An activation as libraries define them: a class of their own around a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


WRITTEN_OUT = 0.7978845608028654  # the square root of 2/pi


@pytest.mark.parametrize(
    ("fused", "function"),
    [
        (F.gelu, F.gelu),
        (
            lambda x: F.gelu(x, approximate="tanh"),
            lambda x: 0.5 * x * (1.0 + torch.tanh(WRITTEN_OUT * (x + 0.044715 * torch.pow(x, 3.0)))),
        ),
        (lambda x: x * torch.sigmoid(1.702 * x), lambda x: x * torch.sigmoid(1.702 * x)),
    ],
)
def test_an_activation_of_a_library_is_judged_with_the_layer_before_it_and_is_not_called_missing(
    tmp_path, fused, function
):
    report, layers = judge(tmp_path, Mlp(module=LibraryGelu(function)), Mlp(fused=fused), rows(6, 8))
    assert not accused(report)
    assert layers.missing == ()
    assert layers.compared == 3
    assert list(report.notes) == [
        "fc1 was judged together with the activation act after it, because the port's layer ends in it"
    ]


def test_another_activation_than_that_of_a_library_is_found(tmp_path):
    report, _ = judge(tmp_path, Mlp(module=LibraryGelu(F.gelu)), Mlp(fused=F.relu), rows(6, 8))
    (found,) = accused(report)
    assert found[:2] == ("act", "output")


def test_the_last_layer_may_end_in_an_activation(tmp_path):
    port = Mlp(F.relu)
    port.fc2 = Dense(16, 16, lambda x: x.softmax(-1))
    report, _ = judge(tmp_path, Mlp(F.relu, last=lambda x: x.softmax(1)), port, rows(6, 8))
    assert not accused(report)
    assert not report.explained


@pytest.mark.parametrize("as_layer", [False, True])
@pytest.mark.parametrize("name", ["relu", "relu in place", "silu", "tanh", "softmax"])
def test_another_activation_is_found_and_named(tmp_path, name, as_layer):
    _, function, module = ACTIVATIONS[name]
    reference = Mlp(module=copy.deepcopy(module)) if as_layer else Mlp(function)
    report, _ = judge(tmp_path, reference, Mlp(fused=F.gelu), rows(6, 8))
    (found,) = accused(report)
    assert found[:2] == (("act", "output") if as_layer else ("fc2", "input"))
    says = report.explained[found[0]].says
    assert says.startswith(
        "`fc1` of the port ends in the activation GELU by the error function; the reference applies "
    )
    assert not as_layer or says.endswith(f"applies {type(module).__name__}")


def test_an_activation_that_the_reference_does_not_have_is_found(tmp_path):
    report, _ = judge(tmp_path, Mlp(), Mlp(fused=F.relu), rows(6, 8))
    (found,) = accused(report)
    assert found[:2] == ("fc2", "input")
    assert (
        report.explained["fc2"].says
        == "`fc1` of the port ends in the activation ReLU; the reference applies none to it"
    )


@pytest.mark.parametrize("as_layer", [False, True])
def test_a_fault_of_a_layer_that_ends_in_an_activation_is_explained(tmp_path, as_layer):
    reference = Mlp(module=nn.ReLU()) if as_layer else Mlp(F.relu)
    report, _ = judge(
        tmp_path, reference, Mlp(fused=F.relu), rows(6, 8), planted=lambda port: port.fc1.bias.data.zero_()
    )
    assert {layer for layer, *_ in accused(report)} == {"fc1"}
    assert report.explained["fc1"].says == "has no bias"


def test_an_unknown_fault_under_an_activation_is_not_called_dropout(tmp_path):
    def spoil(port):
        port.fc1.weight.data.mul_(1 + 0.1 * rows(16, 8))

    report, _ = judge(tmp_path, Mlp(F.relu), Mlp(fused=F.relu), rows(6, 8), planted=spoil)
    assert accused(report)[0][:2] == ("fc1", "output")
    assert not report.explained


def test_dropout_is_named_where_it_is_on(tmp_path):
    reference, port = Mlp(F.relu), Mlp(F.relu)
    port.fc2 = Dense(16, 16, lambda x: F.dropout(x, 0.3, training=True))
    report, _ = judge(tmp_path, reference, port, rows(40, 8))
    assert report.explained["fc2"].kind == "dropout left on"


# -- images, sequences, shared layers ---------------------------------------------------------------------------------


# -- images, sequences, and layers that are called in another order ---------------------------------------------------


class GlobalAveragePooling2D(nn.Module):
    """Keras' layer, which returns (N, C)."""

    def forward(self, x):
        return x.mean((2, 3))


class Images(nn.Module):
    def __init__(self, port=False):
        super().__init__()
        self.conv1 = Conv2D(3, 8, 3, 1, 1, activation=F.silu) if port else nn.Conv2d(3, 8, 3, 1, 1)
        self.conv2 = Conv2D(8, 8, 3, 1, 1, activation=F.relu) if port else nn.Conv2d(8, 8, 3, 1, 1)
        self.relu = nn.ReLU(inplace=True)
        self.avgpool = GlobalAveragePooling2D() if port else nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 5)


class TorchImages(Images):
    def forward(self, x):
        x = F.silu(self.conv1(x))
        x = self.relu(self.conv2(x)) + x
        x = self.relu(x - 0.5)
        return self.fc(self.relu(self.avgpool(x).flatten(1) - 0.1))


class KerasImages(Images):
    """Two of the three calls of the shared ReLU remain: the first is in the convolution."""

    def __init__(self):
        super().__init__(port=True)

    def forward(self, x):
        x = self.conv1(x)
        x = self.conv2(x) + x
        x = self.relu(x - 0.5)
        return self.fc(self.relu(self.avgpool(x) - 0.1))


class FewerLayers(Images):
    """Functions stand for the first and the last call of the shared ReLU."""

    def forward(self, x):
        x = F.silu(self.conv1(x))
        x = F.relu(self.conv2(x)) + x
        x = self.relu(x - 0.5)
        return self.fc(F.relu(self.avgpool(x).flatten(1) - 0.1))


@pytest.mark.parametrize("port", [KerasImages, FewerLayers])
def test_a_shared_activation_may_be_called_less_often(tmp_path, port):
    report, layers = judge(tmp_path, TorchImages(), port(), rows(4, 3, 6, 6))
    assert not accused(report)
    assert not report.explained
    assert layers.missing == ()
    assert report.compared["relu"] == (3 if port is KerasImages else 1)


class Sequence(nn.Module):
    def __init__(self, kind, after):
        super().__init__()
        self.lstm, self.after = kind(4, 6, batch_first=True), after
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.after(self.lstm(x)[0]))


def test_an_lstm_may_end_in_an_activation(tmp_path):
    report, _ = judge(tmp_path, Sequence(nn.LSTM, F.relu), Sequence(Lstm, lambda x: x), rows(3, 5, 4))
    assert not accused(report)
    assert report.notes == (
        "lstm was judged together with the activation ReLU after it, because the port's layer ends in it",
    )
    port = Sequence(Lstm, lambda x: x)
    (tmp_path / "other").mkdir()
    report, _ = judge(tmp_path / "other", Sequence(nn.LSTM, torch.tanh), port, rows(3, 5, 4))
    assert [(layer, what) for layer, what, _ in accused(report)] == [("fc", "input")]


class Towers(nn.Module):
    """Two inputs pass through the same layers; the outputs are (left, right)."""

    def __init__(self, order="left, right", swapped=False):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)
        self.order, self.swapped = order, swapped

    def tower(self, x):
        return self.fc2(self.act(self.fc1(x)))

    def forward(self, left, right):
        if self.order == "left, right":
            left, right = self.tower(left), self.tower(right)
        elif self.order == "right, left":
            right = self.tower(right)
            left = self.tower(left)
        else:  # layer by layer
            left, right = (self.fc2(y) for y in [self.act(self.fc1(x)) for x in (right, left)][::-1])
        return (right, left) if self.swapped else (left, right)


@pytest.mark.parametrize("order", ["right, left", "layer by layer"])
def test_a_shared_layer_may_be_called_in_another_order(tmp_path, order):
    inputs = rows(6, 8), rows(6, 8).flip(0) + 1
    report, _ = judge(tmp_path, Towers(), Towers(order), *inputs)
    assert not accused(report)
    assert report.compared == {"fc1": 2, "act": 2, "fc2": 2}
    assert any(
        note
        == "the port calls fc1 in another order: its calls were compared in the order 2, 1, by the tensors that each was given"
        for note in report.notes
    )
    (tmp_path / "same").mkdir()
    report, _ = judge(tmp_path / "same", Towers(), Towers(), *inputs)
    assert (report.notes, accused(report)) == ((), [])


def test_a_fault_of_a_shared_layer_is_found_in_another_order(tmp_path):
    inputs = rows(6, 8), rows(6, 8).flip(0) + 1
    report, _ = judge(
        tmp_path, Towers(), Towers("right, left"), *inputs, planted=lambda port: port.fc1.bias.data.zero_()
    )
    assert {layer for layer, *_ in accused(report)} == {"fc1"}
    (tmp_path / "glue").mkdir()
    report, _ = judge(tmp_path / "glue", Towers(), Towers("right, left", swapped=True), *inputs)
    assert {layer for layer, *_ in accused(report)} == {"(output) y0", "(output) y1"}
