"""Optimizer state is carried to Jittor and back, and files of Jittor that are wrong are found or refused."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from helpers import resumed
from helpers.commandline import called

from xverify.framework import discovery
from xverify.weights import pickles

torch = pytest.importorskip("torch")
pytest.importorskip("jittor_utils")

pytestmark = pytest.mark.slow

# Trains the model as a user does, whose optimizer has the running statistics, too.
TRAIN = """
import sys
import numpy as np
import jittor as jt
sys.path.insert(0, "port")
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("net", "port/jittor.py")
net = module_from_spec(spec)
spec.loader.exec_module(net)
jt.set_global_seed(3)
numbers = np.random.default_rng(3)
model = net.build()
parameters = model.parameters()
optimizer = jt.optim.Adam(parameters, 2e-3, betas=(0.9, 0.98))
for _ in range(20):
    x = jt.array(numbers.normal(size=(8, 7, 5)).astype("float32"))
    optimizer.step(jt.nn.cross_entropy_loss(model(x), jt.array(numbers.integers(4, size=8).astype("int32"))))
jt.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, "trained.pkl")
group = optimizer.param_groups[0]
group["params"][0], group["params"][1] = group["params"][1], group["params"][0]
jt.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "turned.pkl")
jt.save({"optimizer": jt.optim.Adan(parameters, 1e-3).state_dict()}, "adan.pkl")
jt.save({"optimizer": jt.optim.Adam([{"params": parameters}, {"params": parameters}], 1e-3).state_dict()}, "groups.pkl")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = tmp_path_factory.mktemp("jittor")
    resumed.folder(made)
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the files of a user of Jittor, of the recurrent model."""
    made = tmp_path_factory.mktemp("trained")
    resumed.folder(made, resumed.RECURRENT)
    variables = {**os.environ, **discovery.load("jittor").variables(1, "cpu")}
    done = subprocess.run([sys.executable, "-c", TRAIN], cwd=made, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


def convert(place, *words):
    return called(["convert-state", "port", *words], place, {})


MAKE = {
    "sgd": (lambda p: torch.optim.SGD(p, 0.05), "jittor.optim.SGD(lr=0.05, momentum=0.0, ", "EQUAL"),
    "nesterov": (lambda p: torch.optim.SGD(p, 0.05, 0.9, nesterov=True), "nesterov=True)", "EQUAL"),
    "adam": (lambda p: torch.optim.Adam(p, 2e-3, eps=1e-6), "jittor.optim.Adam(lr=0.002, eps=1e-06, ", "DRIFT"),
    "adamw": (lambda p: torch.optim.AdamW(p, 2e-3, weight_decay=0.1), "betas=(0.9, 0.999), weight_decay=0.1)", "EQUAL"),
    "rmsprop": (lambda p: torch.optim.RMSprop(p, 1e-3), "jittor.optim.RMSprop(lr=0.001, eps=1e-08, ", "EQUAL"),
}
LISTS = {"sgd": {}, "nesterov": {"values": "momentum_buffer"}, "rmsprop": {"values": "square_avg"}}
ADAM = {"m": "exp_avg", "values": "exp_avg_sq"}


@pytest.mark.parametrize("name", MAKE)
def test_state_goes_to_jittor_and_comes_back(place, name):
    make, call, verdict = MAKE[name]
    here = place / name
    here.mkdir()
    _, optimizer, _ = resumed.checkpoint(here, make)
    file = f"{name}/resumed.pkl"
    steps = ("--set", "step=20") if name in ("sgd", "nesterov") else ()
    done = convert(place, "--from", f"torch={name}/checkpoint.pt", "--to", "jittor", "--out", file, *steps)
    assert done.code == 0, done.out + done.err
    assert call in done.out
    assert done.out.splitlines()[-1].startswith(verdict)
    stored = pickles.load_stored(place / file)["optimizer"]["defaults"]
    assert stored["n_step"] == 20
    (group,) = stored["param_groups"]
    states = [optimizer.state[each] for each in optimizer.param_groups[0]["params"]]
    lists = LISTS.get(name, ADAM)
    assert group.keys() == {"lr", "weight_decay", *lists}
    for own, theirs in lists.items():
        assert len(group[own]) == 8
        assert all(np.array_equal(one, other[theirs].numpy()) for one, other in zip(group[own], states))
    kind = ("--optimizer", name) if name.startswith("adam") else ()
    done = convert(place, "--from", f"jittor={file}", "--to", "torch", "--out", f"{name}/back.pt", *kind)
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[-1].startswith(verdict)
    back = torch.load(here / "back.pt", weights_only=True)["optimizer"]
    for number, state in enumerate(states):
        assert all(torch.equal(back["state"][number][theirs], state[theirs]) for theirs in lists.values())


def _changed(path, plant):
    """Write a copy of a file with a fault in the group of its optimizer. Returns its name."""
    stored = pickles.load_stored(path)
    plant(stored["optimizer"]["defaults"], stored["optimizer"]["defaults"]["param_groups"][0])
    made = path.with_name("planted.pkl")
    made.write_bytes(pickle.dumps(stored, 4))
    return made.name


def _swap(defaults, group):
    group["m"][2], group["m"][4] = group["m"][4], group["m"][2]


def _count(defaults, group):
    defaults["n_step"] += 1


FAULTS = {"swapped": (_swap, "mean of a.weight differs: it is that of b.weight"), "counter": (_count, "steps is 21")}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_file_is_found(place, fault):
    plant, says = FAULTS[fault]
    here = place / fault
    here.mkdir()
    resumed.checkpoint(here, MAKE["adamw"][0])
    words = ("--from", f"torch={fault}/checkpoint.pt")
    done = convert(place, *words, "--to", "jittor", "--out", f"{fault}/right.pkl")
    assert done.code == 0, done.out + done.err
    planted = _changed(here / "right.pkl", plant)
    done = convert(place, *words, "--to", f"jittor={fault}/{planted}")
    assert done.code == 1, done.out + done.err
    assert says in done.out
    assert done.out.splitlines()[-1].startswith("DIFFERENT")


def test_a_file_of_a_user_with_running_statistics(trained):
    words = ("--from", "jittor=trained.pkl", "--to", "torch", "--out", "resumed.pt")
    done = convert(trained, *words)
    assert done.code == 2
    assert "trained.pkl does not say which optimizer its state is of: give --optimizer NAME" in done.err
    done = convert(trained, *words, "--optimizer", "adam")
    assert done.code == 0, done.out + done.err
    assert "not converted: epoch of trained.pkl" in done.out
    made = torch.load(trained / "resumed.pt", weights_only=True)
    stored = pickles.load_stored(trained / "trained.pkl")
    names = list(stored["model"])
    lists = stored["optimizer"]["defaults"]["param_groups"][0]
    assert "norm.running_mean" in names
    assert len(lists["m"]) == len(names)
    for number, name in enumerate(made["optimizer"]["param_groups"][0]["param_names"]):
        state = made["optimizer"]["state"][number]
        assert state["step"] == 20
        assert np.array_equal(state["exp_avg"].numpy(), lists["m"][names.index(name)])
        assert np.array_equal(state["exp_avg_sq"].numpy(), lists["values"][names.index(name)])
    assert np.array_equal(made["model"]["norm.running_mean"].numpy(), stored["model"]["norm.running_mean"])


class Calls:
    """Pickles as a call that would make a file."""

    def __reduce__(self):
        return (open, ("harm", "w"))


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("turned.pkl", "the optimizer was given its parameters in another order"),
        ("adan.pkl", "it is the state of an optimizer that is not converted: its settings are betas"),
        ("groups.pkl", "its optimizer has 2 parameter groups, and one can be converted"),
        ("calls.pkl", "calls.pkl: refused, it calls"),
        ("list.pkl", "list.pkl: holds a list, not a state_dict"),
        ("empty.pkl", "it holds no state_dict of an optimizer of Jittor"),
        ("short.pkl", "its optimizer has 3 parameters, and the model 12"),
        ("shape.pkl", "m of lstm.weight_ih_l0 has the shape (2,), and the model's parameter (24, 5)"),
    ],
)
def test_files_that_cannot_be_converted_are_refused(trained, file, says):
    def write(name, content):
        (trained / name).write_bytes(pickle.dumps(content, 4))

    write("calls.pkl", {"optimizer": Calls()})
    write("list.pkl", [])
    write("empty.pkl", {"model": {}})
    short = {"m": [np.zeros(2, np.float32)] * 3, "values": []}
    defaults = {"lr": 0.1, "eps": 1e-8, "betas": (0.9, 0.99), "weight_decay": 0, "n_step": 2}
    write("short.pkl", {"defaults": {**defaults, "param_groups": [short]}})
    wrong = {key: [np.zeros(2, np.float32)] * 12 for key in ("m", "values")}
    write("shape.pkl", {"defaults": {**defaults, "param_groups": [wrong]}})
    np.savez(trained / "w.npz", **pickles.load_stored(trained / "trained.pkl")["model"])
    words = ("--to", "torch", "--out", "refused.pt", "--optimizer", "adam", "--weights", "w.npz")
    done = convert(trained, "--from", f"jittor={file}", *words)
    assert done.code == 2, done.out + done.err
    assert says in done.err, done.err
    assert not (trained / "refused.pt").exists()
    assert not (trained / "harm").exists()


def test_the_state_of_adam_is_not_taken_for_that_of_another_optimizer(trained):
    words = ("--from", "jittor=trained.pkl", "--to", "torch", "--out", "refused.pt", "--optimizer", "rmsprop")
    done = convert(trained, *words)
    assert done.code == 2, done.out + done.err
    assert "trained.pkl: it holds the state of adam or adamw, and --optimizer is rmsprop" in done.err


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: torch.optim.Adam(p, 1e-3, amsgrad=True), "jittor.optim has no AMSGrad"),
        (lambda p: torch.optim.RMSprop(p, 1e-3, weight_decay=0.1), "jittor.optim.RMSprop has no weight decay"),
        (lambda p: torch.optim.RMSprop(p, 1e-3, momentum=0.9), "jittor.optim.RMSprop has no momentum"),
        (lambda p: torch.optim.Adagrad(p), "jittor.optim has no Adagrad"),
    ],
)
def test_what_jittor_lacks_is_said(place, tmp_path, make, says):
    resumed.checkpoint(tmp_path, make, 2)
    done = convert(place, "--from", f"torch={tmp_path / 'checkpoint.pt'}", "--to", "jittor", "--out", "lacks.pkl")
    assert done.code == 2, done.out + done.err
    assert says in done.err
