"""Optimizer state is carried to Paddle and back, Paddle itself goes on from the files, and wrong files are found or refused."""

import pickle
import shutil

import numpy as np
import pytest
from helpers import resumed
from helpers.commandline import called
from helpers.withpaddle import NEEDS_PADDLE, inside

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.slow, NEEDS_PADDLE]

NET = """
import sys
from contextlib import nullcontext
import numpy as np
import paddle
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("net", "port/paddle.py")
net = module_from_spec(spec)
spec.loader.exec_module(net)
numbers = np.random.default_rng(3)
O = paddle.optimizer


def steps(model, optimizer, count):
    for _ in range(count):
        x = paddle.to_tensor(numbers.normal(size=(8, 7, 5)).astype("float32"))
        target = paddle.to_tensor(numbers.integers(4, size=8))
        paddle.nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
        optimizer.clear_grad()
"""
# Trains the model as a user does, and saves it in the ways that Paddle's documentation shows. The model of the third file is built
# after another one, so that its layers have other numbers.
TRAIN = (
    NET
    + """
paddle.seed(3)
net.build()
for name in ("second", "trained"):
    with paddle.utils.unique_name.guard() if name == "trained" else nullcontext():
        model = net.build()
    optimizer = O.Adam(2e-3, beta2=0.98, parameters=model.parameters())
    steps(model, optimizer, 20)
    paddle.save(optimizer.state_dict(), name + ".pdopt")
    paddle.save(model.state_dict(), name + ".pdparams")
paddle.save({"model": model.state_dict(), "opt": optimizer.state_dict(), "epoch": 3}, "nested.pdparams")
rate = O.lr.StepDecay(0.01, 5)
optimizer = O.Momentum(rate, 0.8, parameters=model.parameters())
for _ in range(7):
    steps(model, optimizer, 1)
    rate.step()
paddle.save(optimizer.state_dict(), "scheduled.pdopt")
optimizer = O.Adamax(1e-3, parameters=model.parameters())
steps(model, optimizer, 1)
paddle.save(optimizer.state_dict(), "adamax.pdopt")
"""
)
ADAM = ("--optimizer", "adam", "--set", "lr=0.002", "beta2=0.98")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = tmp_path_factory.mktemp("paddle")
    resumed.folder(made)
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the files of a user of Paddle, of the recurrent model."""
    made = tmp_path_factory.mktemp("trained")
    resumed.folder(made, resumed.RECURRENT)
    inside(made, TRAIN)
    return made


def convert(place, *words):
    return called(["convert-state", "port", *words], place, {})


def content(path):
    """What a file that is known to be good holds."""
    return pickle.loads(path.read_bytes())


MAKE = {
    "sgd": (lambda p: torch.optim.SGD(p, 0.05), "SGD(learning_rate=0.05, ", {}, "EQUAL"),
    "nesterov": (
        lambda p: torch.optim.SGD(p, 0.05, 0.9, nesterov=True),
        "Momentum(learning_rate=0.05, momentum=0.9, use_nesterov=True, ",
        {"velocity": "momentum_buffer"},
        "EQUAL",
    ),
    "adam": (lambda p: torch.optim.Adam(p, 2e-3), "Adam(learning_rate=0.002, ", None, "EQUAL"),
    "adamw": (lambda p: torch.optim.AdamW(p, 2e-3, weight_decay=0.1), "AdamW(learning_rate=0.002, ", None, "EQUAL"),
    "adagrad": (lambda p: torch.optim.Adagrad(p, 1e-2), "Adagrad(learning_rate=0.01, ", {"moment": "sum"}, "EQUAL"),
    "rmsprop": (
        lambda p: torch.optim.RMSprop(p, 1e-3, momentum=0.9, centered=True),
        "RMSProp(learning_rate=0.001, rho=0.99, epsilon=1.0000000000000001e-16, momentum=0.9, centered=True",
        {"mean_square": "square_avg", "mean_grad": "grad_avg"},
        "DRIFT",
    ),
}
MOMENTS = {"moment1": "exp_avg", "moment2": "exp_avg_sq"}
BACK = {
    "sgd": ("lr=0.05", "step=20"),
    "nesterov": ("lr=0.05", "nesterov=true", "step=20"),
    "adam": ("lr=0.002",),
    "adamw": ("lr=0.002", "weight_decay=0.1"),
    "adagrad": ("lr=0.01", "eps=1e-10", "step=20"),
    "rmsprop": ("lr=0.001", "eps=1e-16", "momentum=0.9", "alpha=0.99", "step=20"),
}


@pytest.mark.parametrize("name", MAKE)
def test_state_goes_to_paddle_and_comes_back(place, name):
    make, call, arrays, verdict = MAKE[name]
    here = place / name
    here.mkdir()
    _, optimizer, _ = resumed.checkpoint(here, make)
    words = ("--set", "step=20") if name in ("sgd", "nesterov") else ()
    file = f"{name}/resumed.pdopt"
    done = convert(place, "--from", f"torch={name}/checkpoint.pt", "--to", "paddle", "--out", file, *words)
    assert done.code == 0, done.out + done.err
    assert f"go on with paddle.optimizer.{call}" in done.out
    assert f"its weights are in {name}/resumed.pdparams" in done.out
    assert done.out.splitlines()[-1].startswith(verdict)
    stored, parameters = content(place / file), ("conv2d_0.w_0", "conv2d_0.b_0", "linear_0.w_0", "linear_0.b_0")
    states = [optimizer.state[each] for each in optimizer.param_groups[0]["params"]]
    for own, theirs in (MOMENTS if arrays is None else arrays).items():
        for parameter, state in zip(parameters, states):
            array = state[theirs].numpy()
            expected = array.T if parameter == "linear_0.w_0" else array
            assert np.array_equal(stored[f"{parameter}_{own}_0"], expected), (parameter, own)
    kind = ("--optimizer", name) if name.startswith("adam") else ()
    back = ("--to", "torch", "--out", f"{name}/back.pt", *kind, "--set", *BACK[name])
    done = convert(place, "--from", f"paddle={file}", *back)
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[-1].startswith(verdict)
    made = torch.load(here / "back.pt", weights_only=True)["optimizer"]
    for number, state in enumerate(states):
        for key, array in state.items():
            close = torch.allclose(made["state"][number][key], array, rtol=3e-7, atol=0)
            assert close if key == "momentum_buffer" else torch.equal(made["state"][number][key], array), key


def _swap(stored):
    for kind in ("moment1", "moment2"):
        one, other = f"linear_0.w_0_{kind}_0", f"linear_1.w_0_{kind}_0"
        stored[one], stored[other] = stored[other], stored[one]


def _transpose(stored):
    stored["linear_0.w_0_moment1_0"] = np.ascontiguousarray(stored["linear_0.w_0_moment1_0"].T)


def _count(stored):
    for key, beta in (("beta1_pow_acc", 0.9), ("beta2_pow_acc", 0.999)):
        for name in [each for each in stored if key in each]:
            stored[name] = stored[name] * np.float32(beta)


FAULTS = {
    "swapped": (_swap, "mean of a.weight differs: it is that of b.weight"),
    "transposed": (_transpose, "mean of a.weight differs: it is transposed"),
    "counter": (_count, "the number of steps is 21, and should be 20"),
}


@pytest.fixture(scope="module")
def written(place):
    """The file of Paddle that is made of a checkpoint of torch."""
    here = place / "written"
    here.mkdir()
    resumed.checkpoint(here, MAKE["adamw"][0])
    done = convert(place, "--from", "torch=written/checkpoint.pt", "--to", "paddle", "--out", "written/right.pdopt")
    assert done.code == 0, done.out + done.err
    return here / "right.pdopt"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_file_is_found(place, written, fault):
    plant, says = FAULTS[fault]
    stored = content(written)
    plant(stored)
    planted = written.with_name(f"{fault}.pdopt")
    planted.write_bytes(pickle.dumps(stored, 4))
    shutil.copy(written.with_suffix(".pdparams"), planted.with_suffix(".pdparams"))
    done = convert(place, "--from", "torch=written/checkpoint.pt", "--to", f"paddle=written/{planted.name}")
    assert done.code == 1, done.out + done.err
    assert says in done.out
    assert done.out.splitlines()[-1].startswith("DIFFERENT")


def test_a_fault_in_the_weights_beside_is_found(place, written):
    stored = content(written.with_suffix(".pdparams"))
    stored["b.bias"] = stored["b.bias"] + np.float32(1e-6)
    shutil.copy(written, written.with_name("weights.pdopt"))
    written.with_name("weights.pdparams").write_bytes(pickle.dumps(stored, 4))
    done = convert(place, "--from", "torch=written/checkpoint.pt", "--to", "paddle=written/weights.pdopt")
    assert done.code == 1, done.out + done.err
    assert "the weight b.bias differs" in done.out
    shutil.copy(written, written.with_name("alone.pdopt"))
    done = convert(place, "--from", "torch=written/checkpoint.pt", "--to", "paddle=written/alone.pdopt")
    assert done.code == 2, done.out + done.err
    assert "alone.pdopt holds no weights" in done.err


def test_paddle_itself_goes_on_from_the_files(tmp_path):
    """Another process loads both files as Paddle's users do, and makes the step that torch makes."""
    resumed.folder(tmp_path, resumed.RECURRENT)
    model, optimizer, _ = resumed.checkpoint(tmp_path, lambda p: torch.optim.Adam(p, 2e-3), files=resumed.RECURRENT)
    done = convert(tmp_path, "--from", "torch=checkpoint.pt", "--to", "paddle", "--out", "resumed.pdopt")
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[-1].startswith("EQUAL")
    code = """
model = net.build()
optimizer = O.Adam(2e-3, parameters=model.parameters())
model.set_state_dict(paddle.load("resumed.pdparams"))
optimizer.set_state_dict(paddle.load("resumed.pdopt"))
statistics = model.norm._variance.numpy()
steps(model, optimizer, 1)
np.savez("after.npz", weight=model.c.weight.numpy(), gates=model.gru.weight_hh_l0.numpy(), variance=statistics)
second = net.build()
optimizer = O.Adam(2e-3, parameters=second.parameters())
optimizer.set_state_dict(paddle.load("resumed.pdopt"))
try:
    steps(second, optimizer, 1)
except AssertionError as error:
    print(error)
"""
    assert "should in state dict" in inside(tmp_path, NET + code)  # a second model of the process has other names
    numbers = np.random.default_rng(3)
    before = model.norm.running_var.numpy().copy()
    x = torch.tensor(numbers.normal(size=(8, 7, 5)).astype(np.float32))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), torch.tensor(numbers.integers(4, size=8))).backward()
    optimizer.step()
    after = np.load(tmp_path / "after.npz")
    assert np.array_equal(after["variance"], before)
    assert np.allclose(after["weight"].T, model.c.weight.detach().numpy(), rtol=0, atol=2e-6)
    assert np.allclose(after["gates"], model.gru.weight_hh_l0.detach().numpy(), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("file", "more"),
    [
        ("trained.pdopt", ()),
        ("second.pdopt", ()),
        ("nested.pdparams", ()),
        ("moved.pdopt", ("--weights", "trained.pdparams")),
    ],
)
def test_files_of_a_user(trained, file, more):
    if file == "moved.pdopt":
        shutil.copy(trained / "trained.pdopt", trained / file)
    done = convert(trained, "--from", f"paddle={file}", "--to", "torch", "--out", "resumed.pt", "--force", *ADAM, *more)
    assert done.code == 0, done.out + done.err
    assert "12 parameters after 20 steps" in done.out
    assert ("not converted: epoch of nested.pdparams" in done.out) == (file == "nested.pdparams")
    made = torch.load(trained / "resumed.pt", weights_only=True)
    names = made["optimizer"]["param_groups"][0]["param_names"]
    stem = "second" if file == "second.pdopt" else "trained"
    stored, weights = content(trained / f"{stem}.pdopt"), content(trained / f"{stem}.pdparams")
    called_in_file = weights["StructuredToParameterName@@"]
    for name, own in (("c.weight", "c.weight"), ("gru.weight_hh_l0", "gru.weight_hh_l0"), ("norm.bias", "norm.bias")):
        state = made["optimizer"]["state"][names.index(name)]
        assert state["step"] == 20
        for key, array in MOMENTS.items():
            expected = stored[f"{called_in_file[own]}_{key}_0"]
            expected = expected.T if name == "c.weight" else expected
            assert np.array_equal(state[array].numpy(), expected), (name, key)
    assert np.array_equal(made["model"]["norm.running_var"].numpy(), weights["norm._variance"])
    assert np.array_equal(made["model"]["norm.running_mean"].numpy(), weights["norm._mean"])


def test_the_rate_of_a_schedule_is_taken(trained):
    words = (
        "--to",
        "torch",
        "--out",
        "scheduled.pt",
        "--weights",
        "trained.pdparams",
        "--set",
        "momentum=0.8",
        "step=7",
    )
    done = convert(trained, "--from", "paddle=scheduled.pdopt", *words)
    assert done.code == 0, done.out + done.err
    assert "sgd, lr 0.001, momentum 0.8; " in done.out
    assert "not converted: LR_Scheduler of scheduled.pdopt" in done.out
    assert done.out.splitlines()[-1].startswith("EQUAL")


class Calls:
    """Pickles as a call that would make a file."""

    def __reduce__(self):
        return (open, ("harm", "w"))


def _write(trained):
    stored = content(trained / "trained.pdopt")
    some = next(iter(stored))

    def write(name, made, cut=None):
        (trained / f"{name}.pdopt").write_bytes(pickle.dumps(made, 4)[:cut])

    write("calls", {"linear_0.w_0_velocity_0": Calls()})
    write("cut", stored, 500)
    write("list", [])
    write("shape", {**stored, some: np.zeros(2, np.float32)})
    write("short", {key: value for key, value in stored.items() if not key.startswith("linear_0.w_0_moment1")})
    write(
        "powers",
        {key: value * np.float32(1 + ("beta2" in key)) if "pow" in key else value for key, value in stored.items()},
    )
    uneven = [key for key in stored if "_pow_" in key and key.startswith("linear_0.w_0")]
    write("uneven", {**stored, **{key: stored[key] * np.float32(0.98 if "beta2" in key else 0.9) for key in uneven}})


@pytest.mark.parametrize(
    ("file", "words", "says"),
    [
        ("trained", ADAM[2:], "trained.pdopt does not say which optimizer its state is of: give --optimizer NAME"),
        ("trained", ADAM[:2], "which are not the powers of 0.9 and 0.999 after one number of steps"),
        ("trained", (*ADAM[:3], "beta2=0.98"), "does not say the learning rate: give it with --set lr=X"),
        ("trained", ("--optimizer", "rmsprop", *ADAM[2:]), "it holds the state of adam or adamw, and --optimizer is rmsprop"),
        ("trained", (*ADAM, "step=19"), "--set step=19: trained.pdopt says 20; leave it out"),
        ("scheduled", ("--set", "momentum=0"), "it holds velocity of each parameter, and sgd with these settings keeps nothing"),
        ("adamax", ADAM, "it is no state of an optimizer that is converted: it has "),
        ("calls", ADAM, "calls.pdopt: refused, it calls"),
        ("cut", ADAM, "cut.pdopt: not a readable .pdopt file, or truncated"),
        ("list", ADAM, "list.pdopt: holds a list, not a state_dict"),
        ("shape", ADAM, "has the shape (2,), and the parameter"),
        ("short", ADAM, "the state of c.weight has no moment1"),
        ("powers", ADAM, "which are not the powers of 0.9 and 0.98 after one number of steps"),
        ("uneven", ADAM, "lstm_cell_0.w_0 has made 20 steps and linear_0.w_0 21" ),
    ],
)  # fmt: skip
def test_files_that_cannot_be_converted_are_refused(trained, file, words, says):
    _write(trained)
    more = () if file == "trained" else ("--weights", "trained.pdparams")
    done = convert(trained, "--from", f"paddle={file}.pdopt", "--to", "torch", "--out", "refused.pt", *words, *more)
    assert done.code == 2, done.out + done.err
    assert says in done.err, done.err
    assert len(done.err.strip().splitlines()[-1]) < 400
    assert not (trained / "refused.pt").exists()
    assert not (trained / "harm").exists()


@pytest.mark.parametrize(
    ("make", "grouped", "says"),
    [
        (lambda p: torch.optim.Adafactor(p), False, "paddle.optimizer has no Adafactor"),
        (MAKE["adamw"][0], True, "the parameters have several learning rates or weight decays"),
    ],
)
def test_what_paddle_lacks_is_said(place, tmp_path, make, grouped, says):
    resumed.checkpoint(tmp_path, make, 2, grouped)
    done = convert(place, "--from", f"torch={tmp_path / 'checkpoint.pt'}", "--to", "paddle", "--out", "lacks.pdopt")
    assert done.code == 2, done.out + done.err
    assert says in done.err
    assert not (place / "lacks.pdparams").exists()


def test_a_file_of_weights_is_not_replaced_by_accident(place, written):
    other = place / "kept.pdparams"
    other.write_bytes(b"other weights")
    done = convert(place, "--from", "torch=written/checkpoint.pt", "--to", "paddle", "--out", "kept.pdopt")
    assert done.code == 2, done.out + done.err
    assert "kept.pdparams exists" in done.err
    assert other.read_bytes() == b"other weights"


def test_state_goes_from_keras_to_paddle(place):
    pytest.importorskip("tensorflow")
    here = place / "keras"
    here.mkdir()
    resumed.checkpoint(here, MAKE["adam"][0])
    words = ("--to", "keras", "--out", "keras/trained.weights.h5")
    done = convert(place, "--from", "torch=keras/checkpoint.pt", *words)
    assert done.code == 0, done.out + done.err
    words = ("--to", "paddle", "--out", "keras/resumed.pdopt", "--optimizer", "adam")
    done = convert(place, "--from", "keras=keras/trained.weights.h5", *words)
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[-1].startswith("DRIFT")  # Keras adds eps elsewhere
    stored, state = content(here / "resumed.pdopt"), torch.load(here / "checkpoint.pt", weights_only=True)["optimizer"]
    for key, theirs in MOMENTS.items():
        assert np.array_equal(stored[f"linear_2.w_0_{key}_0"], state["state"][6][theirs].numpy().T)
