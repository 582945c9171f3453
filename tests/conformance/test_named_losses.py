"""Every named loss and its gradient in every framework that computes it by name, against torch in float64."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from helpers.losscases import CASES
from helpers.marks import with_long

from xverify import host
from xverify.environments import store as environments
from xverify.framework.discovery import load
from xverify.processes.command import interpreter, worker_command

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
import numpy as np
from helpers.losscases import CASES
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
    if name == "mlx":
        return framework.core.value_and_grad(function)(x)
    if name == "paddle":
        x.stop_gradient = False
    else:
        x.requires_grad_()
    value = function(x)
    value.backward()
    return value, x.grad

for loss, x, t, axis in CASES:
    t = framework.to_native(t.astype("float32") if t.dtype.kind == "f" else t, None)
    x = framework.to_native(x.astype("float32"), None)
    value, gradient = differentiated(lambda x: framework.loss_value(loss, x, t, axis, None), x)
    arrays = [np.asarray(framework.to_numpy(each, None)) for each in (value, gradient)]
    found.append([float(arrays[0].reshape(())), arrays[1].tolist()])
print("FOUND " + json.dumps(found))
"""


@pytest.mark.parametrize(
    "name", with_long(["torch", "keras-torch", "tensorflow", "jittor", "jax", "paddle", "mlx"], "jittor")
)
def test_named_losses_are_those_of_torch(name, tmp_path):
    adapter = load(name)
    if host.missing(adapter) and environments.chosen(adapter) is None:
        pytest.skip(f"{name} is not installed")
    from xverify.float64.named_losses import torch_loss

    command = worker_command(adapter, tmp_path, 1, "cpu", interpreter(adapter))
    path = os.pathsep.join(filter(None, [command.environment.get("PYTHONPATH"), str(Path(__file__).parents[1])]))
    done = subprocess.run(
        [command.arguments[0], "-c", SCRIPT, name],
        env={**command.environment, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-2000:]
    for (loss, x, t, axis), found in zip(CASES, json.loads(lines[0][6:])):
        exact, labels = torch.tensor(x, requires_grad=True), torch.tensor(t)
        right = torch_loss(loss, exact, labels, axis, None)
        right.backward()
        assert found[0] == pytest.approx(right.item(), rel=2e-5), loss
        scale = exact.grad.abs().max().item()
        np.testing.assert_allclose(found[1], exact.grad, rtol=1e-4, atol=1e-5 * scale, err_msg=str(loss))
