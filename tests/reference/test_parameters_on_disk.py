"""A reference keeps the large parameters of large models in files, and finds the same as with parameters in memory."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from xverify.frameworks.torch import on_disk  # noqa: E402
from xverify.frameworks.torch.on_disk import parameters_on_disk  # noqa: E402


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    monkeypatch.setattr(on_disk, "IN_MEMORY", 4 * 100 * 100)
    monkeypatch.setattr(on_disk, "SMALL", 4 * 50)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(100, 100)
        self.second = nn.Linear(100, 100)
        self.third = nn.Linear(100, 100, bias=False)
        self.third.weight = self.second.weight
        self.small = nn.Parameter(torch.zeros(24))
        self.double = nn.Linear(100, 100, dtype=torch.float32)


def filed(model):
    return {name for name, parameter in model.named_parameters() if parameter.untyped_storage().filename}


def test_parameters_after_the_first_bytes_are_in_files(tmp_path):
    torch.manual_seed(0)
    with parameters_on_disk(tmp_path):
        stored = Net()
    torch.manual_seed(0)
    with parameters_on_disk(None):
        plain = Net()
    assert filed(stored) == {"first.bias", "second.weight", "second.bias", "double.weight", "double.bias"}
    assert filed(plain) == set()
    assert stored.third.weight is stored.second.weight
    assert all(torch.equal(one, two) for one, two in zip(stored.parameters(), plain.parameters()))
    assert not list(tmp_path.iterdir())  # nothing is left behind, however the process ends
    later = nn.Linear(100, 100)
    assert filed(later) == set()


def test_a_parameter_that_changes_its_dtype_is_moved_again(tmp_path):
    with parameters_on_disk(tmp_path) as move:
        model = Net()
        values = [parameter.detach().double() for parameter in model.parameters()]
        model = model.double()
        for parameter in model.parameters():
            move(parameter)
    assert filed(model) == {name for name, _ in model.named_parameters() if name != "small"}
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), values))
    model.second.weight.data.mul_(2.0)
    loss = model.second(torch.ones(1, 100, dtype=torch.float64)).sum()
    loss.backward()
    assert model.second.weight.grad is not None


FULL = """
import resource, sys
from pathlib import Path
from torch import nn
from xverify.frameworks.torch import on_disk
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
on_disk.IN_MEMORY = 0
with on_disk.parameters_on_disk(Path(sys.argv[1])):
    large, small = nn.Linear(1024, 1024, bias=False), nn.Linear(512, 512, bias=False)
print([bool(layer.weight.untyped_storage().filename) for layer in (large, small)], list(Path(sys.argv[1]).iterdir()))
"""


def test_without_room_on_the_disk_parameters_stay_in_memory(tmp_path):
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[False, True] []\n"), done.stderr
