"""A layer whose axes are in another order in a port is read in that order; an order that is wrong is a fault at its place."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.replayednets import failing, judged  # noqa: E402
from torch import nn  # noqa: E402

TIME = 4


class Rows(nn.Module):
    """Layers of rows, between which nothing mixes items and positions."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b, self.c = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 3)

    def rows(self, x):
        return self.b(self.norm(self.a(x).relu()))

    def forward(self, x):
        return self.c(self.rows(x).cumsum(1))


class TimeFirst(Rows):
    def forward(self, x):
        return self.c(self.rows(x.transpose(0, 1)).transpose(0, 1).cumsum(1))


class RowsTimeFirst(Rows):
    def forward(self, x):
        rows = self.rows(x.transpose(0, 1).flatten(0, 1))
        return self.c(rows.unflatten(0, (x.shape[1], x.shape[0])).transpose(0, 1).cumsum(1))


class RowsItemsFirst(Rows):
    def forward(self, x):
        return self.c(self.rows(x.flatten(0, 1)).unflatten(0, x.shape[:2]).cumsum(1))


class Forgotten(Rows):
    """It does not put the items first again."""

    def forward(self, x):
        return self.c(self.rows(x.transpose(0, 1)).cumsum(1))


class Reshaped(Rows):
    """It reshapes where it would have to transpose."""

    def forward(self, x):
        rows = self.rows(x.transpose(0, 1).flatten(0, 1))
        return self.c(rows.unflatten(0, x.shape[:2]).cumsum(1))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.act, self.out = nn.Conv2d(5, 5, 3, padding=1), nn.GELU(), nn.Conv2d(5, 2, 1)

    def forward(self, x):
        return self.out(self.act(self.conv(x)))


class ChannelsLast(Images):
    def forward(self, x):
        return self.out(self.act(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


class ChannelsForgotten(Images):
    def forward(self, x):
        return self.out(self.act(self.conv(x).permute(0, 2, 3, 1)))


def ported(tmp_path, reference, port, *shape):
    torch.manual_seed(0)
    model, port = reference().eval(), port().eval()
    port.load_state_dict(model.state_dict())
    return judged(tmp_path, port, model, torch.randn(*shape))


@pytest.mark.parametrize("items", [TIME, 3])
@pytest.mark.parametrize(
    ("reference", "port"),
    [
        (Rows, TimeFirst),
        (TimeFirst, Rows),
        (Rows, RowsTimeFirst),
        (RowsTimeFirst, Rows),
        (RowsItemsFirst, RowsTimeFirst),
        (RowsTimeFirst, TimeFirst),
    ],
)
def test_axes_in_another_order_are_no_fault(tmp_path, reference, port, items):
    done = ported(tmp_path, reference, port, items, TIME, 6)
    assert not failing(done)
    assert done.compared["c"] == 1


@pytest.mark.parametrize("size", [5, 4])
def test_images_with_channels_last_within_a_port_are_no_fault(tmp_path, size):
    assert not failing(ported(tmp_path, Images, ChannelsLast, 5, 5, size, size))


@pytest.mark.parametrize(
    ("reference", "port", "shape", "layer"),
    [
        (TimeFirst, Forgotten, (TIME, TIME, 6), "c"),
        (RowsTimeFirst, Reshaped, (TIME, TIME, 6), "c"),
        (RowsTimeFirst, Reshaped, (3, TIME, 6), "c"),
        # A port that changes the order where the reference does not, and does not change it back, has two places: the first one.
        (Rows, Forgotten, (TIME, TIME, 6), "a"),
        (Rows, Reshaped, (3, TIME, 6), "a"),
        (Images, ChannelsForgotten, (5, 5, 5, 5), "act"),
    ],
)
def test_an_order_that_is_not_put_back_is_a_fault_at_its_place(tmp_path, reference, port, shape, layer):
    assert {(finding.layer, finding.what) for finding in failing(ported(tmp_path, reference, port, *shape))} == {
        (layer, "input")
    }


def test_a_fault_within_a_layer_of_another_order_is_the_only_one(tmp_path):
    class Other(RowsTimeFirst):
        def __init__(self):
            super().__init__()
            self.norm.eps = 0.01

    done = ported(tmp_path, Rows, Other, 3, TIME, 6)
    assert {(finding.layer, finding.what) for finding in failing(done)} == {("norm", "output")}


SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 4, 12))}, outputs={"y": TensorSpec(("N", 4, 12))}, batch=BATCH)
"""
ATTENTION = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(12, 2, 16, batch_first=True)
    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.encoder(x)
def build():
    return Net()
"""


@pytest.mark.slow
@pytest.mark.parametrize("batch", [3, 4])
def test_an_exported_attention_that_has_time_first_is_equal_and_a_port_that_forgets_it_is_not(xverify, tmp_path, batch):
    pytest.importorskip("onnxruntime")
    wrong = ATTENTION.replace("return self.encoder(x)", "return self.encoder(x.transpose(0, 1).reshape(x.shape))")
    files = {"spec": SPEC.replace("BATCH", str(batch)), "torch": ATTENTION, "torch-wrong": wrong}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    done = xverify("run", tmp_path, "--subjects", "torch:eager,onnxruntime,torch-wrong:eager", "--no-timing", "--quiet")
    right, other = (done.row(name)["error"] for name in ("onnxruntime", "torch-wrong:eager"))
    assert right["verdict"] == "EQUAL", done.out
    assert right["layers"]["compared"] > 5, right["layers"]
    assert other["verdict"] == "DIFFERENT"
    assert "Fault between `attention.out_proj` and `encoder.self_attn" in other["reason"]
