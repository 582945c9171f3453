"""Every module of jittor.nn: its weights have torch's names and layout, or a reason says why not.

Jittor runs in a process of its own, because it and torch load different libraries for threads.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from xverify.framework import discovery
from xverify.weights import npz

torch = pytest.importorskip("torch")
if importlib.util.find_spec("jittor") is None:
    pytest.skip("needs Jittor", allow_module_level=True)

pytestmark = pytest.mark.slow

LIMIT = 1e-5  # relative; float32

# Class of Jittor -> (name of torch's class, arguments of both, shapes of the inputs).
CASES: Mapping[str, tuple[str, str, list[tuple[int, ...]]]] = {
    "Linear": ("Linear", "3, 4", [(2, 3)]),
    "Bilinear": ("Bilinear", "3, 4, 5", [(2, 3), (2, 4)]),
    "Embedding": ("Embedding", "7, 4", [(2, 5)]),
    "PReLU": ("PReLU", "4", [(2, 4, 5, 6)]),
    "BatchNorm": ("BatchNorm2d", "4", [(2, 4, 5, 6)]),
    "InstanceNorm": ("InstanceNorm2d", "4, affine=True", [(2, 4, 5, 6)]),
    "LayerNorm": ("LayerNorm", "6", [(2, 4, 6)]),
    "GroupNorm": ("GroupNorm", "2, 4", [(2, 4, 5, 6)]),
    "Conv": ("Conv2d", "4, 6, (2, 3)", [(2, 4, 5, 6)]),
    "Conv1d": ("Conv1d", "4, 6, 3", [(2, 4, 7)]),
    "Conv3d": ("Conv3d", "4, 6, (2, 3, 2)", [(2, 4, 4, 5, 3)]),
    "ConvTranspose": ("ConvTranspose2d", "4, 6, (2, 3), 2", [(2, 4, 5, 6)]),
    "ConvTranspose3d": ("ConvTranspose3d", "4, 6, (2, 3, 2), 2", [(2, 4, 4, 5, 3)]),
    "RNNCell": ("RNNCell", "3, 5", [(2, 3), (2, 5)]),
    "GRUCell": ("GRUCell", "3, 5", [(2, 3), (2, 5)]),
    "LSTMCell": ("LSTMCell", "3, 5", [(2, 3)]),
    "RNN": ("RNN", "3, 5, 2, bidirectional=True", [(4, 2, 3)]),
    "GRU": ("GRU", "3, 5, 2, bidirectional=True", [(4, 2, 3)]),
    "LSTM": ("LSTM", "3, 5, 2, bidirectional=True", [(4, 2, 3)]),
}

REASONS = {
    "Conv1d_sp": "a linear layer over the channels: its weight is (out, in), that of torch's Conv1d is (out, in, 1)",
    "RNNBase": "the base class of RNN, LSTM and GRU",
}

SCRIPT = """
import inspect, json, re, sys
import numpy as np
from xverify.framework.discovery import load
from xverify.weights import jittor as weights, npz

framework = load("jittor")(2, "cpu")
import jittor as jt
from jittor import nn

cases, given, results = json.loads(sys.argv[1]), npz.load_file(sys.argv[2]), {}
for name, (_, arguments, shapes) in cases.items():
    module = eval(f"nn.{name}({arguments})")
    module.eval()
    own = {key.split("/", 2)[2]: a for key, a in given.items() if key.startswith(f"{name}/weight/")}
    found = {key: tuple(a.shape) for key, a in weights.from_model(module).items()}
    assert found == {key: a.shape for key, a in own.items()}, (name, found)
    weights.to_model(module, own)
    y = module(*(jt.array(given[f"{name}/input/{i}"]) for i in range(len(shapes))))
    results[name] = np.array((y[0] if isinstance(y, tuple) else y).numpy())
npz.save_file(results, sys.argv[3])
kinds = {}
for kind in vars(nn).values():
    if inspect.isclass(kind) and issubclass(kind, jt.Module) and kind is not jt.Module:
        parents = [each for each in kind.__mro__ if issubclass(each, jt.Module) and each is not jt.Module]
        code = "".join(map(inspect.getsource, parents))
        made = r"(self\\.\\w+ = |setattr\\(self, name, )(jt\\.|nn\\.)?(init\\.|empty\\(|array\\()|\\[Conv\\("
        kinds[kind.__name__] = bool(re.search(made, code))
print("\\nKINDS " + json.dumps(kinds))
"""


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """(class of Jittor -> output, the same of torch, class -> whether its code makes weights)."""
    folder = tmp_path_factory.mktemp("jittor")
    given, exact = {}, {}
    random = np.random.default_rng(0)
    for name, (kind, arguments, shapes) in CASES.items():
        module = eval(f"torch.nn.{kind}({arguments})").eval()
        for key, value in module.state_dict().items():
            if value.is_floating_point():
                drawn = torch.from_numpy(random.standard_normal(tuple(value.shape)).astype(np.float32))
                value.copy_(drawn.abs() + 0.5 if key == "running_var" else drawn)
                given[f"{name}/weight/{key}"] = value.numpy()
        whole = kind == "Embedding"
        for index, shape in enumerate(shapes):
            drawn = random.integers(0, 7, shape) if whole else random.standard_normal(shape).astype(np.float32)
            given[f"{name}/input/{index}"] = drawn
        with torch.no_grad():
            y = module(*(torch.from_numpy(given[f"{name}/input/{index}"]) for index in range(len(shapes))))
        exact[name] = (y[0] if isinstance(y, tuple) else y).numpy()
    npz.save_file(given, folder / "given.npz")
    arguments = [json.dumps(CASES), str(folder / "given.npz"), str(folder / "results.npz")]
    environment = {**os.environ, **discovery.load("jittor").variables(2, "cpu")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, env=environment, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("KINDS "))
    return npz.load_file(Path(arguments[2])), exact, json.loads(line.removeprefix("KINDS "))


@pytest.mark.parametrize("name", CASES)
def test_a_module_with_the_weights_of_torch_computes_the_same(computed, name):
    found, exact, _ = computed
    assert found[name].shape == exact[name].shape
    assert np.abs(found[name] - exact[name]).max() <= LIMIT * np.abs(exact[name]).max()


def test_every_module_of_jittor_is_known_or_has_a_reason(computed):
    *_, kinds = computed
    for name, makes_weights in kinds.items():
        assert (name in CASES) + (name in REASONS) + (not makes_weights) == 1, name
    assert {*CASES, *REASONS} <= set(kinds)
