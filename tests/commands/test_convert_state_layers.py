"""Optimizer state goes through the gates of an LSTM and of a GRU, batch norms keep their statistics, and a .keras file is read."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from helpers import resumed
from helpers.commandline import called

torch = pytest.importorskip("torch")
pytest.importorskip("tensorflow")
h5py = pytest.importorskip("h5py")

pytestmark = pytest.mark.slow

# Trains the model as a user does, and saves it whole.
TRAIN = """
import numpy as np
import keras
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("net", "port/tensorflow.py")
net = module_from_spec(spec)
spec.loader.exec_module(net)
keras.utils.set_random_seed(3)
numbers = np.random.default_rng(3)
model = net.build()
for clipnorm in (None, 1.0):
    optimizer = keras.optimizers.AdamW(2e-3, beta_2=0.98, weight_decay=0.05, clipnorm=clipnorm)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(numbers.normal(size=(160, 7, 5)), numbers.integers(4, size=160), batch_size=8, verbose=0)
    model.save("clipped.keras" if clipnorm else "trained.keras")
"""


def convert(place, *words):
    return called(["convert-state", "port", *words], place, {})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = tmp_path_factory.mktemp("layers")
    resumed.folder(made, resumed.RECURRENT)
    return made


def _adam(parameters):
    return torch.optim.Adam(parameters, 2e-3, (0.9, 0.98))


@pytest.fixture(scope="module")
def converted(place):
    """The names and state of a checkpoint of torch by parameter, and the file of Keras that is made of it."""
    model, optimizer, _ = resumed.checkpoint(place, _adam, files=resumed.RECURRENT)
    done = convert(place, "--from", "torch=checkpoint.pt", "--to", "keras", "--out", "resumed.weights.h5")
    assert done.code == 0, done.out + done.err
    return model, {name: optimizer.state[each] for name, each in model.named_parameters()}, done.out


def _update_gate_first(rows):
    """Put the gates of a GRU in Keras' order. rows: (3 × units, ...), in torch's order."""
    reset, update, new = np.split(rows, 3)
    return np.concatenate([update, reset, new])


def test_state_goes_through_the_gates_of_an_lstm_and_of_a_gru(converted, place):
    model, state, out = converted
    assert "is one parameter in tensorflow, and lstm.bias_ih_l0 and lstm.bias_hh_l0 are two in torch" in out
    with h5py.File(place / "resumed.weights.h5") as file:
        own = {int(number): np.array(value) for number, value in file["optimizer/vars"].items()}
        moving = [np.array(file[_norm(file)][each]) for each in "23"]
    assert len(own) == 2 + 2 * 10
    for kind, key in enumerate(("exp_avg", "exp_avg_sq")):
        moments = {name: each[key].numpy() for name, each in state.items()}
        expected = [
            moments["lstm.weight_ih_l0"].T,
            moments["lstm.weight_hh_l0"].T,
            moments["lstm.bias_ih_l0"],
            _update_gate_first(moments["gru.weight_ih_l0"]).T,
            _update_gate_first(moments["gru.weight_hh_l0"]).T,
            np.stack([_update_gate_first(moments[f"gru.bias_{each}_l0"]) for each in ("ih", "hh")]),
            moments["norm.weight"],
            moments["norm.bias"],
            moments["c.weight"].T,
            moments["c.bias"],
        ]
        for index, each in enumerate(expected):
            assert np.array_equal(own[2 + 2 * index + kind], each), (key, index)
    for array, name in zip(moving, ("running_mean", "running_var")):
        assert np.array_equal(array, getattr(model.norm, name).numpy())


def _norm(file):
    """The place of the batch norm in a file of Keras."""
    return next(f"layers/{name}/vars" for name in file["layers"] if "norm" in name)


def test_the_way_back_gives_the_same_state(converted, place):
    model, state, _ = converted
    words = ("--optimizer", "adam", "--set", "beta2=0.98", "eps=1e-8", "weight_decay=0")
    done = convert(place, "--from", "keras=resumed.weights.h5", "--to", "torch", "--out", "back.pt", *words)
    assert done.code == 0, done.out + done.err
    back = torch.load(place / "back.pt", weights_only=True)
    for number, name in enumerate(back["optimizer"]["param_groups"][0]["param_names"]):
        for key in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(back["optimizer"]["state"][number][key], state[name][key]), (name, key)
    for name in ("norm.running_mean", "norm.running_var", "gru.weight_hh_l0"):
        assert torch.equal(back["model"][name], model.state_dict()[name])


def test_gates_that_are_turned_in_the_file_are_found(converted, place):
    shutil.copy(place / "resumed.weights.h5", place / "turned.weights.h5")
    with h5py.File(place / "turned.weights.h5", "r+") as file:
        mean = file["optimizer/vars/8"]  # of the GRU's kernel
        update, reset, new = np.split(np.array(mean), 3, axis=1)
        mean[...] = np.concatenate([reset, update, new], axis=1)
    done = convert(place, "--from", "torch=checkpoint.pt", "--to", "keras=turned.weights.h5")
    assert done.code == 1, done.out + done.err
    assert "mean of gru.weight_ih_l0 differs" in done.out
    assert done.out.splitlines()[-1].startswith("DIFFERENT")


def test_a_keras_file_holds_weights_state_and_settings(place):
    variables = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run([sys.executable, "-c", TRAIN], cwd=place, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = convert(place, "--from", "keras=trained.keras", "--to", "torch", "--out", "of-keras.pt")
    assert done.code == 0, done.out + done.err
    assert "adamw, lr 0.002, betas 0.9 and 0.98, eps 1e-07, weight decay 0.05; 11 parameters after 20 steps" in done.out
    assert "not in the file" not in done.out
    import keras

    model = keras.saving.load_model(place / "trained.keras")
    made = torch.load(place / "of-keras.pt", weights_only=True)
    names = made["optimizer"]["param_groups"][0]["param_names"]
    mean = made["optimizer"]["state"][names.index("c.weight")]["exp_avg"].numpy()
    assert np.array_equal(mean.T, model.optimizer._momentums[8])
    assert np.array_equal(made["model"]["c.weight"].numpy().T, model.get_layer("c").kernel)
    assert np.array_equal(made["model"]["norm.running_var"].numpy(), model.get_layer("norm").moving_variance)
    done = convert(place, "--from", "keras=clipped.keras", "--to", "torch", "--out", "clipped.pt")
    assert done.code == 2
    assert "its optimizer has clipnorm=1.0, which is not converted" in done.err


def test_weights_come_from_a_file_of_their_own(place):
    here = place / "apart"
    here.mkdir()
    model, optimizer, _ = resumed.checkpoint(here, _adam, files=resumed.RECURRENT)
    torch.save(optimizer.state_dict(), here / "state.pt")
    np.savez(here / "weights.npz", **{name: each.numpy() for name, each in model.state_dict().items()})
    words = ("--from", "torch=apart/state.pt", "--to", "keras", "--out", "apart/resumed.weights.h5")
    done = convert(place, *words, "--weights", "apart/weights.npz")
    assert done.code == 0, done.out + done.err
    with h5py.File(here / "resumed.weights.h5") as file:
        assert np.array_equal(file["layers/dense/vars/0"], model.c.weight.detach().numpy().T)
        assert np.array_equal(file["optimizer/vars/18"], optimizer.state[model.c.weight]["exp_avg"].numpy().T)
        assert np.array_equal(file[_norm(file)]["3"], model.norm.running_var.numpy())
    other = {name: each.numpy() for name, each in model.state_dict().items() if name != "c.bias"}
    np.savez(here / "weights.npz", **other)
    done = convert(place, *words, "--weights", "apart/weights.npz", "--force")
    assert done.code != 0
    assert "c.bias" in done.err
