"""Every layer of Keras: its weights are those of a module of torch with the same output, or a reason says why not."""

import inspect
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "tensorflow":
    pytest.skip("Keras keeps float64 on TensorFlow only", allow_module_level=True)

from helpers.keras_cases import CASES, NAMED, Case, inputs  # noqa: E402

from xverify.errors import WeightsError  # noqa: E402
from xverify.frameworks.keras.base import canonical, native  # noqa: E402
from xverify.weights import check, keras_table, normal_form  # noqa: E402
from xverify.weights import tensorflow as weights  # noqa: E402
from xverify.weights.proposals import Undeclared, with_proposal  # noqa: E402

LIMIT = 1e-12  # relative; float64
LAYERS = {
    kind.__name__: kind
    for kind in vars(keras.layers).values()
    if inspect.isclass(kind) and issubclass(kind, keras.layers.Layer) and kind is not keras.layers.Layer
}


def compare(case: Case) -> None:
    """Load the weights of torch's module into Keras' layer, and compare their outputs."""
    random = np.random.default_rng(1)
    module, given = case.torch().double().eval(), inputs(case)
    for name, value in module.state_dict().items():
        # Multiples of 1/64, so that the sum of two biases has no rounding error.
        drawn = torch.from_numpy(np.asarray(random.integers(-48, 48, tuple(value.shape)) / 64))
        value.copy_(drawn.abs() + 0.5 if "var" in name else drawn)
    layer = case.keras()
    own = [native(x, layout) for x, (_, layout) in zip(given, case.inputs)]
    case.call(layer, *own)  # builds it
    arrays = {f"m.{name}": value.numpy() for name, value in module.state_dict().items() if value.is_floating_point()}
    arrays = normal_form(arrays, weights.fused_parameters(layer))
    named = weights.named_variables(layer)
    check(arrays, {each.name: each.shape() for each in named})
    weights.to_model(layer, arrays)
    assert all(np.array_equal(array, arrays[name]) for name, array in weights.from_model(layer).items())
    found = canonical(np.asarray(case.call(layer, *own)), case.output)
    with torch.no_grad():
        exact = case.whole(module, *(torch.from_numpy(x) for x in given)).numpy()
    assert found.shape == exact.shape
    assert np.abs(found - exact).max() <= LIMIT * np.abs(exact).max()


@pytest.mark.parametrize("name", CASES)
def test_a_layer_with_the_weights_of_torch_computes_the_same(name):
    compare(CASES[name])


def test_every_layer_of_keras_is_known_or_has_a_reason():
    tested = {type(case.keras()).__name__ for case in CASES.values()}
    computed = {"STFTSpectrogram"}  # its variables are constants, which Keras computes
    for name, kind in LAYERS.items():
        known = name in keras_table.RULES or name in keras_table.LAYERS
        assert known + (name in keras_table.UNKNOWN) + (not makes_weights(kind)) == 1, name
        assert not known or name in tested | computed, f"no case for {name}"
    assert {*keras_table.RULES, *keras_table.LAYERS, *keras_table.UNKNOWN} <= set(LAYERS)


def makes_weights(kind: type) -> bool:
    """Whether the code of a class makes variables, by itself or in layers that it makes. A generator of random numbers is none."""
    parents = [each for each in kind.__mro__ if issubclass(each, keras.layers.Layer) and each is not keras.layers.Layer]
    code = "\n".join(inspect.getsource(each) for each in parents if each.__module__ != "keras.src.layers.layer")
    return bool(re.search(r"\badd_weight\(|\badd_variable\(|= (EinsumDense|Dense|Embedding|Conv\w+)\(", code)) or any(
        each.__name__ in ("RNN", "Bidirectional", "TimeDistributed", "SpectralNormalization", *keras_table.UNKNOWN)
        for each in parents
    )


def swapped_gates(layer):
    return keras_table.Known(
        {
            "kernel": ("weight_ih", "i [z r n] -> [z r n] i"),
            "recurrent_kernel": ("weight_hh", "i [z r n] -> [r z n] i"),
            "bias": keras_table._gru_cell(layer).weights["bias"],
        }
    )


@pytest.mark.parametrize(
    ("case", "table", "kind", "wrong"),
    [
        ("GRU", "RULES", "GRUCell", swapped_gates),
        ("Conv2D in groups", "LAYERS", "Conv2D", {"kernel": ("weight", (3, 2, 1, 0)), "bias": ("bias", None)}),
        ("DepthwiseConv2D", "LAYERS", "DepthwiseConv2D", {
            "kernel": ("weight", "h w c m -> (m c) 1 h w"), "bias": ("bias", None)}),
        ("EinsumDense to heads", "RULES", "EinsumDense", lambda layer: keras_table.Known(
            {"kernel": ("weight", "c d e -> (e d) c"), "bias": ("bias", "d e -> (d e)")})),
        ("MultiHeadAttention", "RULES", "MultiHeadAttention", lambda layer: right_attention(layer)._replace(
            stacks={f"in_proj_{kind}": [f"{part}_proj_{kind}" for part in "kqv"] for kind in ("weight", "bias")})),
    ],
)  # fmt: skip
def test_a_wrong_order_of_gates_axes_or_parts_is_seen(monkeypatch, case, table, kind, wrong):
    monkeypatch.setitem(getattr(keras_table, table), kind, wrong)
    with pytest.raises(AssertionError):
        compare(CASES[case])


right_attention = keras_table._multi_head_attention


# -- names ------------------------------------------------------------------------------------------------------------


def names(layer, shape):
    layer.build(shape)
    return {each.name: tuple(each.shape()) for each in weights.named_variables(layer)}


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.layers.TimeDistributed(keras.layers.Dense(4), name="fc"),
        lambda: keras.layers.TimeDistributed(keras.layers.Dense(4, name="fc")),
        lambda: keras.layers.SpectralNormalization(keras.layers.Dense(4), name="fc"),
    ],
)
def test_a_wrapper_has_the_name_that_the_user_gave(make):
    layer = make()
    assert names(layer, (None, 5, 3)) == {"fc.weight": (4, 3), "fc.bias": (4,)}


def test_the_layers_inside_of_a_known_one_are_not_layers_of_their_own():
    x = keras.Input((5, 8))
    y = keras.layers.MultiHeadAttention(2, 4, name="attn")(x, x)
    y = keras.layers.Bidirectional(keras.layers.LSTM(3, name="lstm"))(y)
    model = keras.Model(x, keras.layers.Dense(2, name="fc")(y))
    assert list(weights.layers(model)) == ["attn", "lstm", "fc"]
    found = [each.name for each in weights.named_variables(model)]
    assert found[:4] == ["attn.out_proj.weight", "attn.out_proj.bias", "attn.in_proj_bias", "attn.in_proj_weight"]
    assert weights.fused_parameters(model) == {
        f"lstm.bias_l0{end}": (f"lstm.bias_ih_l0{end}", f"lstm.bias_hh_l0{end}") for end in ("", "_reverse")
    }


class Tokens(keras.Model):
    def __init__(self):
        super().__init__()
        self.fc = keras.layers.Dense(4, name="fc")
        self.cls_token = self.add_weight(shape=(1, 1, 8), name="cls_token")

    def call(self, x):
        return self.fc(x + self.cls_token)


def test_a_variable_of_the_model_itself_is_the_parameter_of_this_name():
    model = Tokens()
    model(np.zeros((2, 3, 8)))
    assert {each.name for each in weights.named_variables(model)} == {"cls_token", "fc.weight", "fc.bias"}
    assert list(weights.layers(model)) == ["fc"]


# -- what is not known ------------------------------------------------------------------------------------------------


class Projection(keras.layers.Layer):
    def __init__(self, shape, **more):
        super().__init__(**more)
        self.kernel = self.add_weight(shape=shape, name="kernel")


@pytest.mark.parametrize(
    ("shape", "expected", "says"),
    [
        ((3, 5), {"proj.weight": (5, 3), "proj.bias": (5,)}, '{"kernel": ("weight", (1, 0))}'),
        ((4, 4), {"proj.weight": (4, 4)}, '{"kernel": ("weight", None)} (the shape fits ("weight", (1, 0)), too)'),
        ((6, 2, 4), {"proj.weight": (8, 6)}, '{"kernel": ("weight", "a b c -> (b c) a")}'),
        ((3, 5), {"proj.weight": (5, 4)}, "the reference has proj.weight (5, 4), and no order of its axes gives such a shape"),
        ((1, 4), {"kernel": (4, 1)}, 'declare canonical_name = "" and canonical_weights = {"kernel": ("kernel", (1, 0))}'),
        ((3, 5), {}, '{"kernel": ("weight", None)}'),
    ],
)  # fmt: skip
def test_an_unknown_variable_is_told_with_the_axes_that_fit(shape, expected, says):
    with pytest.raises(Undeclared) as failure:
        weights.named_variables(Projection(shape, name="proj"))
    text = str(with_proposal(failure.value, expected, {}))
    assert f"Projection 'proj' has the variable 'kernel' of shape {shape}, whose canonical form is not known" in text
    assert says in text


def test_a_declaration_that_does_not_fit_is_told_with_the_one_that_does():
    layer = Projection((2, 3, 5), name="proj")
    layer.canonical_weights = {"kernel": ("weight", "a b c -> (a b) c")}
    assert [each.shape() for each in weights.named_variables(layer)] == [(6, 5)]
    assert '"kernel": ("weight", "a b c -> c (a b)")' in weights.advice(layer, "proj.weight", (5, 6))
    assert weights.advice(layer, "proj.weight", (5, 7)) == ""


def test_a_variable_of_which_only_some_blocks_are_declared_is_an_error():
    layer = Projection((2, 6), name="proj")
    layer.canonical_weights = {"kernel": [("q", "i [q k] -> [q] i"), ("k", "i [q k] -> [k] i")]}
    assert {each.name: each.shape() for each in weights.named_variables(layer)} == {"proj.q": (3, 2), "proj.k": (3, 2)}
    layer.canonical_weights = {"kernel": ("q", "i [q k] -> [q] i")}
    with pytest.raises(
        WeightsError, match=r"proj.q: canonical_weights declares 6 of the 12 values of the variable 'kernel'"
    ):
        weights.named_variables(layer)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: keras.layers.GRU(3, reset_after=False, **NAMED), "reset gate"),
        (lambda: keras.layers.EinsumDense("abc,bcd->abd", (5, 4), **NAMED), "an axis of the input and of the output"),
    ],
)
def test_a_layer_without_a_counterpart_says_why(make, says):
    layer = make()
    layer.build((2, 5, 3))
    with pytest.raises(WeightsError, match=says):
        weights.named_variables(layer)
