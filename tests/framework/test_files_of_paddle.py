"""Files of Paddle are read without Paddle, and without running code of them."""

import math

import numpy as np
import pytest

from xverify.errors import WeightsError
from xverify.frameworks.paddle.checkpoint import NAMES, PaddleCheckpoint
from xverify.weights import pickles


def text(value):
    """Pickled text, or bytes."""
    data = value.encode() if isinstance(value, str) else value
    return (b"\x8c" if isinstance(value, str) else b"C") + bytes([len(data)]) + data


def array(values):
    """A pickled array of float32, as numpy 1 writes it."""
    made = np.array(values, np.float32)
    empty = text("numpy.core.multiarray") + text("_reconstruct") + b"\x93" + text("numpy") + text("ndarray") + b"\x93"
    empty += b"K\x00\x85" + text(b"b") + b"\x87R"
    kind = text("numpy") + text("dtype") + b"\x93" + text("f4") + b"\x89\x88\x87R"
    kind += b"(K\x03" + text("<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"(" + b"".join(b"K" + bytes([size]) for size in made.shape) + b"t"
    return empty + b"(K\x01" + shape + kind + b"\x89" + text(made.tobytes()) + b"tb"


def tensor(name, values):
    """A pickled tensor of Paddle in a nested dictionary: a call of tuple with its name and its array."""
    return text("builtins") + text("tuple") + b"\x93(" + text(name) + array(values) + b"t\x85R"


def dictionary(**entries):
    return b"}(" + b"".join(text(name) + value for name, value in entries.items()) + b"u"


def write(path, content):
    path.write_bytes(b"\x80\x04" + content + b".")
    return path


def opened(path, **given):
    checkpoint = PaddleCheckpoint()
    checkpoint.path, checkpoint.given = path, given
    return checkpoint, checkpoint.open(path, None)


def adam(powers, count=2):
    fields = {"moment1": [1, 2], "moment2": [3, 4], "beta1_pow_acc": [powers[0]], "beta2_pow_acc": [powers[1]]}
    names = [f"linear_{number}.w_0" for number in range(count)]
    return {f"{name}_{key}_0": array(values) for key, values in fields.items() for name in names}


def test_the_state_of_an_optimizer_and_the_weights_beside_it(tmp_path):
    path = write(tmp_path / "x.pdopt", dictionary(**adam((0.9**21, 0.98**21))))
    names = dictionary(**{"a.weight": text("linear_1.w_0"), "b.weight": text("linear_0.w_0")})
    write(tmp_path / "x.pdparams", dictionary(**{"a.weight": array([5, 6]), "b.weight": array([7, 8]), NAMES: names}))
    checkpoint, found = opened(path, beta2=0.98)
    assert (found.steps, found.has_weights, found.settings, found.kinds) == (
        20,
        True,
        {"amsgrad": False},
        ("adam", "adamw"),
    )
    assert checkpoint.names == {"a.weight": "linear_1.w_0", "b.weight": "linear_0.w_0"}
    assert checkpoint.model is not None
    assert checkpoint.model["a.weight"].tolist() == [5, 6]
    assert checkpoint.fields["moment2"]["linear_1.w_0"].tolist() == [3, 4]


def test_a_nested_dictionary_holds_names_and_arrays(tmp_path):
    model, state = {"a.weight": tensor("linear_0.w_0", [5, 6])}, {"linear_0.w_0_velocity_0": array([1, 2])}
    whole = dictionary(model=dictionary(**model), opt=dictionary(**state), epoch=b"K\x03", step=b"K\x07")
    checkpoint, found = opened(write(tmp_path / "x.pdparams", whole))
    assert (found.settings, found.left, found.has_weights) == ({"name": "sgd"}, ("epoch",), True)
    assert found.steps == 7
    assert checkpoint.names == {"a.weight": "linear_0.w_0"}
    assert checkpoint.fields["velocity"]["linear_0.w_0"].tolist() == [1, 2]


@pytest.mark.parametrize("steps", [1, 20, 700, 3000, 60_000])
def test_the_number_of_steps_is_that_of_the_powers_as_paddle_multiplies_them(tmp_path, steps):
    powers = [np.float32(beta) for beta in (0.9, 0.999)]
    betas = list(powers)
    for _ in range(steps):
        powers = [power * beta for power, beta in zip(powers, betas)]
    path = write(tmp_path / "x.pdopt", dictionary(**adam([float(each) for each in powers])))
    assert opened(path)[1].steps == steps


def test_powers_that_are_zero_do_not_tell_the_number_of_steps(tmp_path):
    assert opened(write(tmp_path / "x.pdopt", dictionary(**adam((0, 0)))))[1].steps is None


@pytest.mark.parametrize("powers", [(0.9**21, 0.98**21), (0.9**21, 0.999**22), (math.nan, 2.0), (0.9, 0.97)])
def test_powers_of_other_betas_are_refused(tmp_path, powers):
    path = write(tmp_path / "x.pdopt", dictionary(**adam(powers)))
    with pytest.raises(WeightsError, match=r"give the betas of the training with --set beta1=X beta2=Y"):
        opened(path)


def test_what_a_call_makes_is_refused(tmp_path):
    call = text("builtins") + text("tuple") + b"\x93K\x03\x85R"
    with pytest.raises(WeightsError, match="a tuple that is made of something else than a list"):
        pickles.load_stored(write(tmp_path / "x.pdopt", call))
    with pytest.raises(WeightsError, match=r"x.pdopt: refused, it calls builtins.list"):
        pickles.load_stored(write(tmp_path / "x.pdopt", call.replace(text("tuple"), text("list"))))
