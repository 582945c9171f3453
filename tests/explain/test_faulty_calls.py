"""Faulty outputs of layers in the layout of the framework whose calls were captured."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from torch import nn  # noqa: E402

from xverify.errors import Failed  # noqa: E402
from xverify.explain.faults import catalogue  # noqa: E402
from xverify.explain.faulty_calls import faulty_calls  # noqa: E402
from xverify.float64.stepping import Models  # noqa: E402
from xverify.float64.structures import flatten  # noqa: E402
from xverify.framework.capture import LayerCall  # noqa: E402
from xverify.replay.tensors import Capture  # noqa: E402


class Net(nn.Module):
    """Calls one layer twice."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x), self.layer(x.flip(0))


def models(layer):
    wide, plain = Net(layer).eval(), Net(type(layer)(*layer.made_of)).eval()
    plain.load_state_dict(wide.state_dict())
    return Models(wide.double(), plain)


def made(kind, *arguments):
    torch.manual_seed(0)
    layer = kind(*arguments)
    layer.made_of = arguments
    return layer


def written(folder, calls):
    """The capture of calls, each with its inputs and outputs as arrays."""
    records = {}
    for number, arrays in enumerate(calls):
        names = []
        for side, values in zip("io", arrays):
            names.append(tuple(f"{number}{side}{place}.npy" for place in range(len(values))))
            for name, value in zip(names[-1], values):
                np.save(folder / name, np.ascontiguousarray(value))
        records["layer", number] = LayerCall("layer", number, *names)
    return Capture(folder, channels_last=True, records=records)


def last(tensor):
    """A tensor N,C,H,W as an array with the channels last."""
    return tensor.detach().numpy().transpose(0, 2, 3, 1)


def index_of(layer, kind):
    return next(index for index, fault in enumerate(catalogue.plantable_faults(layer)) if fault.kind == kind)


@pytest.mark.parametrize("kind", ["bias missing", "kernel flipped", "stride"])
def test_images_with_the_channels_last_get_the_fault(tmp_path, kind):
    x = torch.randn(2, 3, 5, 5)
    both = models(made(nn.Conv2d, 3, 5, 3, 1, 1))
    layer = both.float32_layers["layer"]
    with torch.no_grad():
        given = [x + 1, x - 1]  # not what the reference itself is given
        capture = written(tmp_path, [([last(each)], [last(both.forwards[layer](each))]) for each in given])
        index = index_of(layer, kind)
        found = faulty_calls(both, capture, "layer", index, [x])
        fault = catalogue.plantable_faults(layer)[index]
        wanted = [last(fault.forward(layer, both.forwards[layer], each)) for each in given]
    assert set(found) == {(0, 0), (1, 0)}
    for call in (0, 1):
        np.testing.assert_array_equal(found[call, 0], wanted[call])
        right = np.load(tmp_path / f"{call}o0.npy")
        assert found[call, 0].shape != right.shape or not np.allclose(found[call, 0], right)


def test_states_keep_the_places_that_the_framework_gives_them(tmp_path):
    x = torch.randn(4, 7, 3)
    both = models(made(nn.LSTM, 3, 6, 1, True, True))
    layer = both.float32_layers["layer"]
    with torch.no_grad():
        sequence, (_, c) = both.forwards[layer](x)
        # This framework returns the cell state first, and states without the axis of the layers.
        capture = written(tmp_path, [([x.numpy()], [c[0].numpy(), sequence.numpy()])])
        fault = catalogue.plantable_faults(layer)[0]
        found = faulty_calls(both, capture, "layer", 0, [x])
        wrong = flatten(fault.forward(layer, both.forwards[layer], x))
    np.testing.assert_array_equal(found[0, 0], wrong[2][0].numpy())
    np.testing.assert_array_equal(found[0, 1], wrong[0].numpy())


def test_a_layer_that_computes_something_else_is_refused(tmp_path):
    x = torch.randn(2, 3)
    both = models(made(nn.Linear, 3, 5))
    layer = both.float32_layers["layer"]
    with torch.no_grad():
        capture = written(tmp_path, [([x.numpy()], [both.forwards[layer](x).relu().numpy()])])
        with pytest.raises(Failed, match="computes something else than the reference's"):
            faulty_calls(both, capture, "layer", 0, [x])
        with pytest.raises(Failed, match="no call of layer could be captured"):
            faulty_calls(both, Capture(tmp_path), "layer", 0, [x])
