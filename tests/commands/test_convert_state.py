"""Optimizer state is carried to another framework by the command line, and faults that are planted in the file are found."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import resumed

from xverify.environments import store as environments
from xverify.framework import discovery

torch = pytest.importorskip("torch")
pytest.importorskip("tensorflow")
h5py = pytest.importorskip("h5py")

pytestmark = pytest.mark.slow

MAKE = {
    "nesterov": lambda p: torch.optim.SGD(p, 0.05, 0.9, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, 2e-3, (0.9, 0.98), weight_decay=0.05),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3),
    "adafactor": lambda p: torch.optim.Adafactor(p),
}
NEEDS_FLAX = pytest.mark.skipif(
    environments.chosen(discovery.load("flax")) is None, reason="flax is not installed; type: xverify env create jax"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = tmp_path_factory.mktemp("resumed")
    resumed.folder(made)
    return made


@pytest.fixture(scope="module")
def converted(place, xverify_of_module):
    """A checkpoint of AdamW, and the file of Keras that is made of it."""
    _, optimizer, path = resumed.checkpoint(place, MAKE["adamw"])
    done = xverify_of_module(
        ["convert-state", "port", "--from", f"torch={path.name}", "--to", "keras", "--out", "resumed.weights.h5"], place
    )
    return optimizer, path, place / "resumed.weights.h5", done


@pytest.fixture(scope="module")
def xverify_of_module():
    from helpers.commandline import called

    return lambda words, here: called(words, here, {})


def test_state_goes_to_keras_and_is_read_by_keras_alone(converted):
    optimizer, _, path, done = converted
    assert done.code == 0, done.out + done.err
    assert "adamw, lr 0.002, betas 0.9 and 0.98, eps 1e-08, weight decay 0.05; 8 parameters after 20 steps" in done.out
    assert "not converted: epoch of checkpoint.pt" in done.out
    assert "keras.optimizers.AdamW(learning_rate=0.002, beta_1=0.9, beta_2=0.98, epsilon=1e-08" in done.out
    assert done.out.splitlines()[-1].startswith(("EQUAL", "DRIFT"))  # Keras adds eps elsewhere
    with h5py.File(path) as file:
        own = [np.array(file["optimizer/vars"][str(number)]) for number in range(18)]
    assert own[0] == resumed.STEPS
    moments = [optimizer.state[each] for each in optimizer.param_groups[0]["params"]]
    for index, axes in ((0, (2, 3, 1, 0)), (2, (1, 0)), (4, (1, 0)), (6, (1, 0))):
        for kind, name in enumerate(("exp_avg", "exp_avg_sq")):
            assert np.array_equal(own[2 + 2 * index + kind], moments[index][name].numpy().transpose(axes))
            assert np.array_equal(own[4 + 2 * index + kind], moments[index + 1][name].numpy())


def test_the_way_back_gives_the_same_state(converted, place, xverify_of_module):
    optimizer, _, path, _ = converted
    words = ["--optimizer", "adamw", "--set", "beta2=0.98", "eps=1e-8", "weight_decay=0.05", "--quiet"]
    done = xverify_of_module(
        ["convert-state", "port", "--from", f"keras={path.name}", "--to", "torch", "--out", "back.pt", *words], place
    )
    assert done.code == 0, done.out + done.err
    back = torch.load(place / "back.pt", weights_only=True)["optimizer"]
    for number, (_, mine) in enumerate(optimizer.state.items()):
        assert back["state"][number]["step"] == resumed.STEPS
        for name in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(back["state"][number][name], mine[name])
    (group,) = back["param_groups"]
    assert group["lr"] == 0.002
    assert tuple(group["betas"]) == (0.9, 0.98)


def _swap(own):
    for kind in (0, 1):
        (a, b) = (f"{6 + kind}", f"{10 + kind}")
        own[a][...], own[b][...] = np.array(own[b]), np.array(own[a])


def _count(own):
    own["0"][...] = np.array(own["0"]) + 1


def _root(own):
    own["7"][...] = np.sqrt(np.array(own["7"]))


def _transpose(own):
    own["6"][...] = np.array(own["6"]).T


FAULTS = {
    "swapped": (_swap, "mean of a.weight differs: it is that of b.weight"),
    "counter": (_count, "the number of steps is 21, and should be 20"),
    "root": (_root, "square of a.weight differs: it is the square root"),
    "transposed": (_transpose, "mean of a.weight differs: it is transposed"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_file_is_found(converted, place, xverify_of_module, fault):
    plant, says = FAULTS[fault]
    file = place / f"{fault}.weights.h5"
    shutil.copy(converted[2], file)
    with h5py.File(file, "r+") as opened:
        plant(opened["optimizer/vars"])
    done = xverify_of_module(
        ["convert-state", "port", "--from", "torch=checkpoint.pt", "--to", f"keras={file.name}"], place
    )
    assert done.code == 1, done.out + done.err
    assert says in done.out
    assert done.out.splitlines()[-1].startswith("DIFFERENT")
    steps = [line for line in done.out.splitlines() if line.startswith("step 21:")]
    assert float(steps[0].split()[2].replace(",", "")) > 10  # by the step alone, too


@pytest.mark.parametrize("name", ["nesterov", "rmsprop", "adafactor"])
def test_other_optimizers_go_on_in_keras(place, xverify_of_module, name):
    here = place / name
    here.mkdir()
    resumed.checkpoint(here, MAKE[name])
    words = ["--from", f"torch={name}/checkpoint.pt", "--to", "keras", "--out", f"{name}.weights.h5"]
    done = xverify_of_module(["convert-state", "port", *words], place)
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[-1].startswith("EQUAL" if name == "nesterov" else "DRIFT")


@NEEDS_FLAX
def test_parameter_groups_and_flax(place, xverify_of_module):
    here = place / "flax"
    here.mkdir()
    resumed.checkpoint(here, MAKE["adamw"])
    words = ["--from", "torch=flax/checkpoint.pt", "--to", "optax", "--out", "state.msgpack"]
    done = xverify_of_module(["convert-state", "port", *words], place)
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[-1].startswith("EQUAL")
    resumed.checkpoint(here, MAKE["adamw"], grouped=True)
    done = xverify_of_module(["convert-state", "port", *words, "--force"], place)
    assert done.code == 2
    assert "an optimizer of optax has one of each" in done.err


def test_parameter_groups_go_to_keras(place, xverify_of_module):
    here = place / "groups"
    here.mkdir()
    resumed.checkpoint(here, MAKE["adamw"], grouped=True)
    words = ["--from", "torch=groups/checkpoint.pt", "--to", "keras", "--out", "groups.weights.h5"]
    done = xverify_of_module(["convert-state", "port", *words], place)
    assert done.code == 0, done.out + done.err
    assert "a.bias: lr 0.002 and weight decay 0" in done.out


def test_the_example_of_the_page(tmp_path, xverify_of_module):
    page = (Path(__file__).parents[2] / "docs" / "resuming.md").read_text()
    scripts = re.findall(r"```python\n(# (\w+\.py)\n.*?)```", page, re.DOTALL)
    for text, name in scripts:
        (tmp_path / name).write_text(text)
    [words] = re.findall(r"^xverify (convert-state mlp .*)$", page, re.MULTILINE)

    def run(name):
        variables = {**os.environ, "KERAS_BACKEND": "tensorflow"}
        return subprocess.run(
            [sys.executable, name], cwd=tmp_path, capture_output=True, text=True, check=True, env=variables
        )

    run("begin.py")
    done = xverify_of_module(words.split(), tmp_path)
    assert done.code == 0, done.out + done.err
    assert "EQUAL: training goes on in tensorflow as in torch" in done.out
    assert "keras.optimizers.SGD(learning_rate=0.05, momentum=0.9, nesterov=True" in done.out
    assert run("resume.py").stdout.endswith("steps so far: 20\n")
