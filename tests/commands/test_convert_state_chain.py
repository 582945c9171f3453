"""Optimizer state goes from torch to Keras, from there to optax, and back to torch: RMSprop with all its settings, and Adagrad."""

import shutil

import numpy as np
import pytest
from helpers import resumed
from helpers.commandline import called

from xverify.environments import store as environments
from xverify.framework import discovery

torch = pytest.importorskip("torch")
pytest.importorskip("tensorflow")
h5py = pytest.importorskip("h5py")
FLAX = environments.chosen(discovery.load("flax"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FLAX is None, reason="flax is not installed; type: xverify env create jax"),
]

RATE = 1e-3
# Optimizer -> how torch makes it, and the settings that a file of Keras or optax does not hold.
MAKE = {
    "rmsprop": (
        lambda p: torch.optim.RMSprop(p, RATE, momentum=0.9, centered=True),
        ("--optimizer", "rmsprop", "--set", "lr=0.001", "alpha=0.99", "eps=1e-16", "momentum=0.9", "centered=true"),
    ),
    "momentum": (
        lambda p: torch.optim.RMSprop(p, RATE, momentum=0.9),
        ("--optimizer", "rmsprop", "--set", "lr=0.001", "alpha=0.99", "eps=1e-16", "momentum=0.9"),
    ),
    "adagrad": (
        lambda p: torch.optim.Adagrad(p, RATE, initial_accumulator_value=0.1, eps=1e-8),
        ("--optimizer", "adagrad", "--set", "lr=0.001", "eps=1e-16"),
    ),
}


def convert(place, *words):
    return called(["convert-state", "port", *words], place, {})


@pytest.fixture(scope="module", params=MAKE)
def chain(request, tmp_path_factory):
    """Convert a checkpoint to Keras, the file to optax, and that one to torch. Returns the folder and the state of torch."""
    place = tmp_path_factory.mktemp(request.param)
    resumed.folder(place)
    make, told = MAKE[request.param]
    _, optimizer, _ = resumed.checkpoint(place, make)
    without_rate = tuple(word for word in told if not word.startswith("lr="))
    for source, target, words in (
        ("torch=checkpoint.pt", ("keras", "k.weights.h5"), ()),
        ("keras=k.weights.h5", ("optax", "o.msgpack"), (*without_rate, "weight_decay=0")),
        ("optax=o.msgpack", ("torch", "back.pt"), (*told, "step=20", "weight_decay=0")),
    ):
        done = convert(place, "--from", source, "--to", target[0], "--out", target[1], *words)
        assert done.code == 0, done.out + done.err
        verdict = "EQUAL" if source.startswith("keras") else ("EQUAL", "DRIFT")  # torch adds eps to the root
        assert done.out.splitlines()[-1].startswith(verdict), done.out
    return request.param, place, [optimizer.state[each] for each in optimizer.param_groups[0]["params"]]


# Optimizer -> arrays of torch's state, and what each is multiplied by in Keras.
SCALES = {
    "rmsprop": {"square_avg": 1, "momentum_buffer": RATE, "grad_avg": 1},
    "momentum": {"square_avg": 1, "momentum_buffer": RATE},
    "adagrad": {"sum": 1},
}


def test_the_state_of_keras_is_that_of_torch(chain):
    name, place, states = chain
    with h5py.File(place / "k.weights.h5") as file:
        arrays = [np.array(each) for each in file["optimizer/vars"].values()]
    assert len(arrays) == 2 + 8 * len(SCALES[name])
    for key, scale in SCALES[name].items():
        wanted = states[7][key].numpy() * np.float32(scale)  # of the last bias, which alone has 4 values
        assert sum(each.shape == (4,) and np.allclose(wanted, each, rtol=1e-6, atol=0) for each in arrays) == 1, key


def test_the_way_back_gives_the_same_state(chain):
    _, place, states = chain
    back = torch.load(place / "back.pt", weights_only=True)["optimizer"]
    (group,) = back["param_groups"]
    assert group["eps"] == pytest.approx(1e-8)
    for number, state in enumerate(states):
        assert state.keys() == back["state"][number].keys()
        for key, value in state.items():
            np.testing.assert_allclose(back["state"][number][key].numpy(), value.numpy(), rtol=1e-6, err_msg=key)


@pytest.mark.parametrize("chain", ["momentum"], indirect=True)
def test_a_momentum_of_torch_in_a_file_of_keras_is_found(chain):
    _, place, states = chain
    shutil.copy(place / "k.weights.h5", place / "unscaled.weights.h5")
    with h5py.File(place / "unscaled.weights.h5", "r+") as file:
        for value in file["optimizer/vars"].values():
            for state in states:
                momentum = state["momentum_buffer"].numpy()
                axes = {4: (2, 3, 1, 0), 2: (1, 0)}.get(momentum.ndim, (0,))
                own = momentum.transpose(axes)
                if own.shape == value.shape and np.allclose(own * np.float32(RATE), value, rtol=1e-6, atol=0):
                    value[...] = own
    done = convert(place, "--from", "torch=checkpoint.pt", "--to", "keras=unscaled.weights.h5")
    assert done.code == 1, done.out + done.err
    assert "momentum of conv.weight differs" in done.out
    assert done.out.splitlines()[-1].startswith("DIFFERENT")


@pytest.mark.parametrize("chain", ["momentum"], indirect=True)
def test_a_momentum_that_is_not_told_is_not_dropped(chain):
    _, place, _ = chain
    words = ("--optimizer", "rmsprop", "--set", "lr=0.001", "step=20")
    done = convert(place, "--from", "optax=o.msgpack", "--to", "torch", "--out", "dropped.pt", *words)
    assert done.code == 2, done.out + done.err
    assert "the state has trace" in done.err
    assert "give --set momentum=X" in done.err
