"""Every named loss and its gradient in every framework that computes it by name, against torch in float64."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from losscases import CASES

from xverify.framework.discovery import load

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
import numpy as np
from losscases import CASES
from xverify.framework.discovery import load

name = sys.argv[1]
framework, found = load(name)(1, "cpu"), []

def differentiated(function, x):
    if name == "tensorflow":
        import tensorflow as tf
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        return value, tape.gradient(value, x)
    if name == "jittor":
        import jittor
        value = function(x)
        return value, jittor.grad(value, x)
    if name == "jax":
        import jax
        return jax.value_and_grad(function)(x)
    x.requires_grad_()
    value = function(x)
    value.backward()
    return value, x.grad

for loss, x, t, axis in CASES:
    if loss.name == "ctc" and name == "jax":
        found.append(None)
        continue
    t = framework.to_native(t.astype("float32") if t.dtype.kind == "f" else t, None)
    x = framework.to_native(x.astype("float32"), None)
    value, gradient = differentiated(lambda x: framework.loss_value(loss, x, t, axis, None), x)
    arrays = [np.asarray(framework.to_numpy(each, None)) for each in (value, gradient)]
    found.append([float(arrays[0].reshape(())), arrays[1].tolist()])
print("FOUND " + json.dumps(found))
"""


@pytest.mark.parametrize("name", ["torch", "keras-torch", "tensorflow", "jittor", "jax"])
def test_named_losses_are_those_of_torch(name, tmp_path):
    adapter = load(name)
    absent = [package for package, module in adapter.needs.items() if importlib.util.find_spec(module) is None]
    if absent:
        pytest.skip(f"{absent[0]} is not installed")
    from xverify.frameworks._torch_losses import torch_loss

    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = {**os.environ, **adapter.variables(1, "cpu"), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, name], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-2000:]
    for (loss, x, t, axis), found in zip(CASES, json.loads(lines[0][6:])):
        if found is None:
            continue
        exact, labels = torch.tensor(x, requires_grad=True), torch.tensor(t)
        right = torch_loss(loss, exact, labels, axis, None)
        right.backward()
        assert found[0] == pytest.approx(right.item(), rel=2e-5), loss
        scale = exact.grad.abs().max().item()
        np.testing.assert_allclose(found[1], exact.grad, rtol=1e-4, atol=1e-5 * scale, err_msg=str(loss))
