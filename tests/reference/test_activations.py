"""The sizes of activations are those of the shapes that a model computes, and unknown where shapes depend on values."""

import pytest

from xverify.framework.adapter import Activations

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from xverify.frameworks.torch.activations import activations  # noqa: E402


class Net(nn.Module):
    """An operation in place, a view, a layer with more weights than values, and an operation that is no layer."""

    def __init__(self):
        super().__init__()
        self.conv, self.relu, self.fc = nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Linear(64, 5)

    def forward(self, x):
        self.last = self.relu(self.conv(x))
        return self.fc(self.last.flatten(1)) * 2


@pytest.mark.parametrize("training", [False, True])
def test_sizes_are_those_of_the_shapes(training):
    model = Net().eval()
    found = activations(model, (torch.zeros(2, 3, 6, 6),), training)
    x, conv, fc = 4 * 2 * 3 * 6 * 6, 4 * 2 * 4 * 4 * 4, 4 * 2 * 5
    assert found == Activations(largest=x + conv, total=conv + 2 * fc, unfolded=4 * (2 * 4 * 4) * (3 * 3 * 3))
    assert found.times(3).total == 3 * found.total
    assert not model.training
    assert "last" not in vars(model), "the model is called on fake tensors"


@pytest.mark.parametrize(
    ("layer", "shape", "columns"),
    [
        (nn.Conv2d(4, 6, 1), (2, 4, 5, 5), 0),
        (nn.Conv2d(4, 8, 3, groups=2), (2, 4, 5, 5), 2 * 9),
        (nn.Conv1d(4, 8, 3), (4, 7), 4 * 3),
    ],
)
def test_the_matrix_of_a_convolution_has_a_column_for_each_weight_of_an_output(layer, shape, columns):
    places = {(2, 4, 5, 5): 2 * 3 * 3, (4, 7): 5}[shape]
    assert activations(layer, (torch.zeros(shape),), False).unfolded == 4 * places * columns


def test_a_transposed_convolution_makes_no_matrix_of_the_batch():
    assert activations(nn.ConvTranspose2d(4, 6, 3), (torch.zeros(2, 4, 5, 5),), False).unfolded == 0


def test_sizes_that_depend_on_values_are_not_known():
    class Dependent(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(RuntimeError):
        activations(Dependent(), (torch.zeros(2),), False)


def test_dropout_returns_new_values_in_training_only():
    inputs = (torch.zeros(8),)
    assert activations(nn.Dropout(), inputs, False).total == 0
    assert activations(nn.Dropout(), inputs, True).total >= 4 * 8
