"""Tables of models whose build first makes tensors without values, as libraries do before they read weights from files."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from torch import nn  # noqa: E402

from xverify.float64.arithmetic import float64_arithmetic  # noqa: E402
from xverify.float64.tables import perturbed_tables  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("table", self.computed(), persistent=False)

    @staticmethod
    def computed():
        steps = torch.arange(8, dtype=torch.float32)
        return (100.0 ** (-steps / steps.sum())).softmax(0)


def build():
    with torch.device("meta"):
        model = Net()
    model.to_empty(device="cpu")
    model.table = Net.computed()
    return model.double()


def test_a_build_that_begins_without_values_has_its_tables_perturbed():
    with float64_arithmetic():
        model = build()
    found = perturbed_tables(model, build, seed=0)
    assert list(found) == [("", "table")]
    change = (found["", "table"] / model.table - 1).abs()
    assert 1e-9 < float(change.max()) < 1e-5
