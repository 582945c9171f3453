"""The table of Paddle's layers, on stand-ins for its classes. tests/models/test_paddle.py has the real ones."""

import numpy as np
import pytest

from xverify.errors import WeightsError
from xverify.weights import paddle as weights


class Tensor:
    def __init__(self, array, stop_gradient=False):
        self.array, self.stop_gradient = np.asarray(array, np.float32), stop_gradient
        self.shape, self.dtype = list(self.array.shape), "paddle.float32"

    def numpy(self):
        return self.array

    def set_value(self, array):
        assert array.shape == self.array.shape
        self.array = array


class Layer:
    """Its tensors and sublayers are its attributes, in the order in which they are set."""

    def state_dict(self, include_sublayers):
        assert not include_sublayers
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def named_sublayers(self, include_self=False, prefix=""):
        if include_self:
            yield prefix, self
        for name, value in vars(self).items():
            if isinstance(value, Layer):
                yield from value.named_sublayers(True, f"{prefix}.{name}" if prefix else name)

    def __iter__(self):
        return (value for value in vars(self).values() if isinstance(value, Layer))


def layer(kind, module="paddle.nn.layer", parent=Layer, **attributes):
    """An instance of a class of this name."""
    made = type(kind, (parent,), {"__module__": module})()
    vars(made).update(attributes)
    return made


Layer.__module__ = "paddle.nn.layer.layers"


def tensor(*shape, **settings):
    return Tensor(np.random.default_rng(sum(shape)).normal(size=shape), **settings)


def linear(inputs, outputs):
    return layer("Linear", weight=tensor(inputs, outputs), bias=tensor(outputs))


def test_every_kind_gets_torch_s_names_and_layout_and_comes_back():
    cells = {name: tensor(12, 3) for name in ("weight_ih", "weight_hh")}
    model = layer(
        "Net",
        "model",
        scale=tensor(4),
        fc=linear(3, 5),
        bn=layer(
            "BatchNorm2D", parent=type(layer("_BatchNormBase")), weight=tensor(5), _mean=tensor(5), _variance=tensor(5)
        ),
        norm=layer("LayerNorm", _normalized_shape=(2, 3), weight=tensor(6)),
        lstm=layer("LSTM", parent=type(layer("RNNBase"))),
        attn=layer("MultiHeadAttention", embed_dim=4, kdim=4, vdim=4),
    )
    absent = Tensor(np.zeros(12), stop_gradient=True)
    vars(model.lstm)["0"] = layer(
        "BiRNN", cell_fw=layer("LSTMCell", **cells, bias_ih=absent), cell_bw=layer("LSTMCell", weight_ih=tensor(12, 3))
    )
    for name in (*weights.PROJECTIONS, "out_proj"):
        setattr(model.attn, name, linear(4, 4))
    arrays = weights.from_model(model)
    assert {name: array.shape for name, array in arrays.items()} == {
        "scale": (4,),
        "fc.weight": (5, 3),
        "fc.bias": (5,),
        "bn.weight": (5,),
        "bn.running_mean": (5,),
        "bn.running_var": (5,),
        "norm.weight": (2, 3),
        "lstm.weight_ih_l0": (12, 3),
        "lstm.weight_hh_l0": (12, 3),
        "lstm.weight_ih_l0_reverse": (12, 3),
        "attn.in_proj_weight": (12, 4),
        "attn.in_proj_bias": (12,),
        "attn.out_proj.weight": (4, 4),
        "attn.out_proj.bias": (4,),
    }
    assert np.array_equal(arrays["fc.weight"], model.fc.weight.array.T)
    assert np.array_equal(arrays["attn.in_proj_weight"][4:8], model.attn.k_proj.weight.array.T)
    other = {name: array + 1 for name, array in arrays.items()}
    weights.to_model(model, other)
    assert all(np.array_equal(array, other[name]) for name, array in weights.from_model(model).items())
    assert list(weights.layers(model)) == [
        *("fc", "bn", "norm", "lstm", "attn", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj")
    ]


def test_an_attention_layer_of_several_sizes_or_that_says_so_is_not_packed():
    projections = {name: linear(4, 4) for name in (*weights.PROJECTIONS, "out_proj")}
    other = {**projections, "k_proj": linear(6, 4)}
    several = layer("MultiHeadAttention", embed_dim=4, kdim=6, vdim=4, **other)
    names = [each.name for each in weights.named_weights(several)]
    assert names[:4] == ["q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias"]
    apart = layer("MultiHeadAttention", embed_dim=4, kdim=4, vdim=4, canonical_weights={}, **projections)
    assert [each.name for each in weights.named_weights(apart)][:2] == ["q_proj.weight", "q_proj.bias"]


def test_a_tied_weight_occurs_once():
    tied = tensor(7, 3)
    model = layer("Net", "model", tok=layer("Embedding", weight=tied), head=layer("Head", "model", weight=tied))
    assert [each.name for each in weights.named_weights(model)] == ["tok.weight"]


def test_an_unknown_layer_is_named_unless_it_declares_its_weights():
    strange = layer("HSigmoidLoss", weight=tensor(2, 3))
    model = layer("Net", "model", loss=strange)
    with pytest.raises(WeightsError, match=r"HSigmoidLoss 'loss' has the parameter 'weight', .*known layers: .*Linear"):
        weights.named_weights(model)
    strange.canonical_weights = {"weight": ("kernel", (1, 0))}
    assert weights.from_model(model)["loss.kernel"].shape == (3, 2)
