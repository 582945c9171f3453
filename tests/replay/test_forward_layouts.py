"""A layer that a port calls in another layout than the reference is judged, by itself or with the code around it."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.replayednets import Net, failing, judged, make  # noqa: E402
from torch import nn  # noqa: E402

from xverify.replay.layout import first_layout, layouts  # noqa: E402


class Sequence(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=batch_first)
        self.fc = nn.Linear(5, 3)

    def forward(self, x):
        if not self.lstm.batch_first:
            return self.fc(self.lstm(x.transpose(0, 1))[0].transpose(0, 1))
        return self.fc(self.lstm(x)[0])


@pytest.mark.parametrize("steps", [7, 2])
def test_a_recurrent_layer_with_time_before_batch_is_judged_by_itself(tmp_path, steps):
    model, port = Sequence().eval(), Sequence(batch_first=False).eval()
    port.load_state_dict(model.state_dict())
    x = torch.randn(2, steps, 4, generator=torch.Generator().manual_seed(0))
    done = judged(tmp_path, port, model, x)
    assert not failing(done)
    assert (dict(done.compared), dict(done.missing)) == ({"lstm": 1, "fc": 1}, {})
    port.lstm.bias_hh_l0.data.zero_()
    assert {(finding.layer, finding.what) for finding in failing(judged(tmp_path, port, model, x))} == {
        ("lstm", "output")
    }


class Mixed(Sequence):
    """It gives the batch where the layer takes the time."""

    def forward(self, x):
        return self.fc(self.lstm(x)[0])


@pytest.mark.parametrize("steps", [7, 2])
def test_a_recurrent_layer_that_takes_the_batch_for_the_time_is_caught(tmp_path, steps):
    model, port = Sequence().eval(), Mixed(batch_first=False).eval()
    port.load_state_dict(model.state_dict())
    x = torch.randn(2, steps, 4, generator=torch.Generator().manual_seed(0))
    assert failing(judged(tmp_path, port, model, x))[0].layer == "lstm"


class Turned(nn.Module):
    def __init__(self, activation, turned=False):
        super().__init__()
        self.activation, self.turned = activation, turned
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.activation(x.mT).mT if self.turned else self.activation(x))


def test_a_layer_in_another_layout_is_judged_with_the_next_layer(tmp_path):
    model, port = Turned(nn.Tanh()).eval(), Turned(nn.Tanh(), turned=True).eval()
    port.load_state_dict(model.state_dict())
    x = torch.randn(2, 7, 4, generator=torch.Generator().manual_seed(0))
    done = judged(tmp_path, port, model, x)
    assert not failing(done)
    assert dict(done.missing) == {"activation": 1}
    port.activation = nn.ReLU()
    assert [(finding.layer, finding.what) for finding in failing(judged(tmp_path, port, model, x))] == [("fc", "input")]


class Padded(Net):
    """The same model, with its padding in glue code before the convolution."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 1, 0)

    def forward(self, x):
        return super().forward(nn.functional.pad(x, (1, 1, 1, 1), value=self.value))

    value = 0.0


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_an_image_padded_before_its_convolution_is_judged_with_it(tmp_path, value):
    port = Padded().eval()
    port.value = value
    port.load_state_dict(make().state_dict())
    done = judged(tmp_path, port)
    assert {finding.layer for finding in failing(done)} == ({"conv"} if value else set())
    assert done.compared["conv"] == 1


def test_captured_images_with_channels_last_are_transposed():
    theirs = torch.arange(2 * 4 * 4 * 4.0).reshape(2, 4, 4, 4)  # both layouts fit, so the kind of layer decides
    turned = first_layout(theirs, (2, 4, 4, 4), nn.Conv2d(4, 4, 1), channels_last=True)
    assert torch.equal(turned, theirs.permute(0, 3, 1, 2))
    assert first_layout(theirs, (2, 4, 4, 4), nn.Softmax(-1), channels_last=True) is theirs
    assert first_layout(theirs, (2, 4, 4, 4), nn.Conv2d(4, 4, 1), channels_last=False) is theirs
    assert len(layouts(theirs, (2, 4, 4, 4), nn.ReLU(), channels_last=True)) == 2  # the caller takes the nearer one
    assert first_layout(theirs, (2, 4, 5, 4), nn.Conv2d(4, 4, 1), channels_last=True) is None


def test_rows_of_all_items_together_have_the_layout_of_items():
    x = torch.randn(2, 3, 5)
    assert torch.equal(first_layout(x.flatten(0, 1), (2, 3, 5), nn.Linear(5, 4), channels_last=False), x)
    assert torch.equal(first_layout(x, (6, 5), nn.Linear(5, 4), channels_last=False), x.flatten(0, 1))
    assert first_layout(x.flatten(1), (2, 3, 5), nn.Linear(5, 4), channels_last=False) is None


@pytest.mark.parametrize("faulty", [False, True])
def test_a_layer_that_is_given_the_rows_of_all_items_is_judged(tmp_path, faulty):
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.out = nn.Linear(5, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.out(self.fc(x).relu())

    class Flat(Rows):
        def forward(self, x):
            rows = x.transpose(0, 1) if faulty else x
            return super().forward(rows.flatten(0, 1)).view(*x.shape[:2], 3)

    torch.manual_seed(0)
    model = Rows().eval()
    port = Flat().eval()
    port.load_state_dict(model.state_dict())
    done = judged(tmp_path, port, model, torch.randn(2, 3, 5))
    assert done.compared == {"fc": 1, "out": 1}
    assert bool(failing(done)) is faulty
    assert not faulty or failing(done)[0].layer == "fc"
