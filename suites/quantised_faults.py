"""Mistakes of quantising, planted in files that ONNX Runtime's quantisers wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from quantised_files import BLOCK, Array

SUMS = (
    "Conv", "MatMul", "Gemm", "QLinearConv", "QLinearMatMul", "QGemm", "ConvInteger", "MatMulInteger", "MatMulNBits",
)  # fmt: skip
# Operators on whole numbers -> the inputs that are the weights, their scale and their zero point; None: found by name.
PLACES = {
    "QLinearConv": (3, 4, 5),
    "QLinearMatMul": (3, 4, 5),
    "QGemm": (3, 4, 5),
    "ConvInteger": (1, None, 3),
    "MatMulInteger": (1, None, 3),
    "MatMulNBits": (1, 2, 3),
}
BIASES = {"QLinearConv": 8, "QGemm": 6, "Gemm": 2, "Conv": 2}
INT4 = TensorProto.UINT4


def unpacked(packed: Array) -> Array:
    """Numbers of 4 bits from bytes that hold two of them, the lower half first."""
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1).astype(np.int64)


def packed(values: Array) -> Array:
    """Bytes that hold two numbers of 4 bits each."""
    return (values[..., ::2] | (values[..., 1::2] << 4)).astype(np.uint8)


class File:
    """A quantised file that is changed. layer: the layer whose weights are changed."""

    def __init__(self, model: onnx.ModelProto, layer: str) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.graph = self.model.graph
        self.tensors = {tensor.name: tensor for tensor in self.graph.initializer}
        self.makers = {name: node for node in self.graph.node for name in node.output}
        self.node = next(n for n in self.graph.node if n.op_type in SUMS and n.name.startswith(layer))
        self.steps, self.scale, self.zero = self._places()

    def _places(self) -> tuple[str, str, str]:
        """The names of the whole numbers, the scale and the zero point of the weights."""
        if self.node.op_type in PLACES:
            steps, scale, zero = PLACES[self.node.op_type]
            given = [*self.node.input, "", ""]
            name = given[steps].removesuffix("_quantized")
            return given[steps], f"{name}_scale" if scale is None else given[scale], given[zero]
        maker = self.makers[self.node.input[1]]
        while maker.op_type != "DequantizeLinear":
            maker = self.makers[maker.input[0]]
        return maker.input[0], maker.input[1], [*maker.input, ""][2]

    @property
    def bias(self) -> str:
        """The name of the constant that is the bias of the layer, in whole numbers or in real ones; "" for none."""
        place = BIASES.get(self.node.op_type, 99)
        name = self.node.input[place] if place < len(self.node.input) else ""
        if name in self.makers:
            name = self.makers[name].input[0]
        return name or self._added(self.node)

    def _added(self, node: onnx.NodeProto) -> str:
        """The constant that is added behind a layer."""
        for _ in range(4):
            users = [user for user in self.graph.node if node.output[0] in user.input]
            if len(users) != 1:
                return ""
            (node,) = users
            if node.op_type == "Add":
                return self._constant(next(n for n in node.input if self._constant(n)))
        return ""

    def _constant(self, name: str) -> str:
        while name not in self.tensors:
            if name not in self.makers or not self.makers[name].input:
                return ""
            name = self.makers[name].input[0]
        return name

    def get(self, name: str) -> Array:
        """A constant; numbers of 4 bits as bytes, each by itself."""
        tensor = self.tensors[name]
        if tensor.data_type == INT4:
            return numpy_helper.to_array(tensor).astype(np.int64)
        array = numpy_helper.to_array(tensor)
        if self.node.op_type == "MatMulNBits" and name in (self.steps, self.zero):
            return unpacked(array)
        return array.astype(np.int64) if array.dtype.kind in "iu" else array

    def put(self, name: str, values: Array) -> None:
        """Change a constant. Values beyond the range of its type become its ends."""
        tensor = self.tensors[name]
        low, high = self.limits(name)
        values = np.clip(np.rint(values), low, high) if low is not None else values
        if tensor.data_type == INT4:
            flat = values.reshape(-1).astype(np.int64)
            raw = packed(np.concatenate([flat, np.zeros(flat.size % 2, np.int64)])).tobytes()
            made = helper.make_tensor(name, INT4, values.shape, raw, raw=True)
        elif self.node.op_type == "MatMulNBits" and name in (self.steps, self.zero):
            made = numpy_helper.from_array(packed(values.astype(np.int64)), name)
        else:
            made = numpy_helper.from_array(values.astype(numpy_helper.to_array(tensor).dtype), name)
        tensor.CopyFrom(made)

    def limits(self, name: str) -> tuple[Any, Any]:
        """The ends of the range of a constant's type; None for real numbers."""
        tensor = self.tensors[name]
        if tensor.data_type == INT4 or (self.node.op_type == "MatMulNBits" and name in (self.steps, self.zero)):
            return 0, 15
        dtype = numpy_helper.to_array(tensor).dtype
        return (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (None, None)

    # -- the axes of the weights ---------------------------------------------------------------------------------------

    @property
    def axis(self) -> int:
        """The axis of the output channels of the weights."""
        return (
            0 if self.get(self.steps).ndim == 4 or self.node.op_type == "MatMulNBits" else self.get(self.steps).ndim - 1
        )

    def wide(self, parameter: str) -> Array:
        """A scale or zero point in the shape in which it goes with the whole numbers."""
        array, steps = self.get(parameter), self.get(self.steps)
        if array.size == 1:
            return array.reshape(())
        if self.node.op_type == "MatMulNBits":
            rows, blocks = steps.shape[:2]
            return array.reshape(rows, -1)[:, :blocks, None]
        if array.ndim == steps.ndim > 1:  # blocks along the first axis
            return np.repeat(array, BLOCK, 0)[: steps.shape[0]]
        return array.reshape([-1 if axis == self.axis else 1 for axis in range(steps.ndim)])

    def centre(self) -> Array:
        """The zero point in the shape of the whole numbers; blocks without one have the middle of their range."""
        if not self.zero:
            return np.asarray(8 if self.node.op_type == "MatMulNBits" else 0)
        return self.wide(self.zero)

    def row(self, index: int) -> tuple[Any, ...]:
        """The place of an output channel in the whole numbers."""
        return (slice(None),) * self.axis + (index,)


# -- mistakes in weights ------------------------------------------------------------------------------------------------


def exchanged_scales(file: File) -> None:
    """The scales of other channels or blocks; of a tensor with one scale: that of another layer."""
    scale = file.get(file.scale)
    if scale.size > 1:
        file.put(file.scale, np.roll(scale.reshape(-1), 1).reshape(scale.shape))
        return
    others = [n for n in file.tensors if n.endswith("_scale") and n != file.scale and not n.startswith("b")]
    near = [
        file.get(n)
        for n in others
        if file.get(n).size == 1 and abs(np.log(float(file.get(n).reshape(())) / float(scale.reshape(())))) > 0.1
    ]
    file.put(file.scale, near[0].reshape(scale.shape))


def halved_bias(file: File) -> None:
    """A bias of half its size."""
    file.put(file.bias, file.get(file.bias) * 0.5)


def dropped_bias(file: File) -> None:
    """A bias of zeros."""
    file.put(file.bias, np.zeros_like(file.get(file.bias)))


def shifted_zero(file: File) -> None:
    """A zero point that is too large: by 3 of 256 steps, by 1 of 16."""
    if file.zero:
        file.put(file.zero, file.get(file.zero) + (1 if file.limits(file.steps)[1] == 15 else 3))
    else:
        file.put(file.steps, file.get(file.steps) - 1)


def larger_scale(file: File) -> None:
    """A scale that is 1.3 times too large."""
    file.put(file.scale, file.get(file.scale) * 1.3)


def negated_channel(file: File) -> None:
    """The other sign in one channel."""
    steps, place = file.get(file.steps), file.row(1)
    centre = np.broadcast_to(file.centre(), steps.shape)
    steps[place] = 2 * centre[place] - steps[place]
    file.put(file.steps, steps)


def exchanged_channels(file: File) -> None:
    """Two channels in each other's place, without their scales."""
    steps = file.get(file.steps)
    steps[file.row(1)], steps[file.row(2)] = steps[file.row(2)].copy(), steps[file.row(1)].copy()
    file.put(file.steps, steps)


def saturated_weights(file: File) -> None:
    """A scale that is a third of the right one, so that large weights are cut off."""
    centre = file.centre()
    file.put(file.steps, (file.get(file.steps) - centre) * 3 + centre)
    file.put(file.scale, file.get(file.scale) / 3)
    _same_bias(file, 3)


def coarse_weights(file: File) -> None:
    """A scale that is 8 times larger than the values need, or 3 times for 16 steps, with values rounded to it."""
    factor, centre = (3 if file.limits(file.steps)[1] == 15 else 8), file.centre()
    file.put(file.steps, (file.get(file.steps) - centre) / factor + centre)
    file.put(file.scale, file.get(file.scale) * factor)
    _same_bias(file, 1 / factor)


def _same_bias(file: File, factor: float) -> None:
    """Keep the value of a bias whose scale follows from that of the weights, or is a constant beside it."""
    scale = f"{file.bias}_scale"
    if (
        file.node.op_type in ("QLinearConv", "QGemm", "Conv", "Gemm")
        and file.bias
        and file.limits(file.bias)[0] is not None
    ):
        file.put(file.bias, file.get(file.bias) * factor)
        if scale in file.tensors:
            file.put(scale, file.get(scale) / factor)


def other_checkpoint(file: File) -> None:
    """One channel of eight from another checkpoint: other numbers of the same size."""
    steps, random = file.get(file.steps), np.random.default_rng(9)
    for index in range(0, steps.shape[file.axis], 8):
        steps[file.row(index)] = random.permuted(steps[file.row(index)].reshape(-1)).reshape(
            steps[file.row(index)].shape
        )
    file.put(file.steps, steps)


def shifted_channels(file: File) -> None:
    """Every channel in the place of the next one."""
    file.put(file.steps, np.roll(file.get(file.steps), 1, file.axis))


def one_bit(file: File) -> None:
    """One weight with another highest bit."""
    steps = file.get(file.steps)
    low, high = file.limits(file.steps)
    place = np.unravel_index(steps.size // 3, steps.shape)
    half = (high - low + 1) // 2
    steps[place] = steps[place] + half if steps[place] < (low + high) / 2 else steps[place] - half
    file.put(file.steps, steps)


def exchanged_halves(file: File) -> None:
    """The two halves of every byte in each other's place."""
    steps = file.get(file.steps)
    pairs = steps.reshape(*steps.shape[:-1], -1, 2)
    file.put(file.steps, pairs[..., ::-1].reshape(steps.shape))


def unsigned(file: File) -> None:
    """Numbers with a sign that are read without one: all values lie half of the range beside the right ones."""
    if file.zero:
        file.put(file.zero, file.get(file.zero) + (8 if file.limits(file.steps)[1] == 15 else 100))
    else:
        file.put(file.steps, file.get(file.steps) - 8)


# -- mistakes in the ranges of activations ----------------------------------------------------------------------------------


def _input_scale(file: File) -> tuple[str, str]:
    """The names of the scale and the zero point of the layer's input."""
    if file.node.op_type in PLACES:
        return file.node.input[1], file.node.input[2]
    maker = file.makers[file.node.input[0]]
    while maker.op_type != "DequantizeLinear":
        maker = file.makers[maker.input[0]]
    return maker.input[1], maker.input[2]


def _wider(file: File, factor: float) -> None:
    """A range of the layer's input of another size, with biases that fit."""
    scale, _ = _input_scale(file)
    file.put(scale, file.get(scale) * factor)
    for name in (f"{_bias_of(file, node)}_scale" for node in file.graph.node if _reads(file, node, scale)):
        file.put(name, file.get(name) * factor)
        file.put(name.removesuffix("_scale"), file.get(name.removesuffix("_scale")) / factor)
    for node in file.graph.node:
        own = {"QLinearConv": (1, 8), "QGemm": (1, 6)}.get(node.op_type)
        if own and node.input[own[0]] == scale and own[1] < len(node.input):
            file.put(node.input[own[1]], file.get(node.input[own[1]]) / factor)


def _reads(file: File, node: onnx.NodeProto, scale: str) -> bool:
    """Whether a layer on real numbers has an input of this scale, and a bias with a scale of its own."""
    maker = file.makers.get(node.input[0]) if node.op_type in ("Conv", "Gemm") else None
    while maker is not None and maker.op_type != "DequantizeLinear":
        maker = file.makers.get(maker.input[0])
    return maker is not None and maker.input[1] == scale and f"{_bias_of(file, node)}_scale" in file.tensors


def _bias_of(file: File, node: onnx.NodeProto) -> str:
    """The name of the whole numbers of a layer's bias; "" for none."""
    maker = file.makers.get(node.input[2]) if len(node.input) > 2 else None
    return maker.input[0] if maker is not None else ""


def wide_range(file: File) -> None:
    """A range of the layer's input that is 8 times too wide."""
    _wider(file, 8.0)


def narrow_range(file: File) -> None:
    """A range of the layer's input that is 6 times too narrow: large values are cut off."""
    _wider(file, 1 / 6)


def undone_relu(file: File) -> None:
    """A zero point in the middle, where the end of the range has the place of a ReLU."""
    _scale, zero = _input_scale(file)
    low, high = file.limits(zero)
    assert int(file.get(zero)) == low
    file.put(zero, np.asarray((low + high + 1) // 2))
    _wider(file, 2.0)


def one_sided_scale(file: File) -> None:
    """A layer that reads its input by a scale 1.3 times as large as the one by which it was written."""
    old = _input_scale(file)[0]
    new = f"{old}_read"
    tensor = numpy_helper.from_array(file.get(old) * np.float32(1.3), new)
    file.graph.initializer.append(tensor)
    users = [file.node] if file.node.op_type in PLACES else _dequantisers(file)
    for node in users:
        node.input[1] = new


def _dequantisers(file: File) -> list[onnx.NodeProto]:
    maker = file.makers[file.node.input[0]]
    while maker.op_type != "DequantizeLinear":
        maker = file.makers[maker.input[0]]
    return [maker]


@dataclass(frozen=True)
class Mistake:
    """A mistake. plant: changes a file. coarse: whether the file is right, and only coarse: then it is a warning.

    where: "weights", "static" for those of ranges, "blocks" for those of 4 bits. relu: whether it needs a layer behind a ReLU.
    """

    plant: Callable[[File], None]
    where: str = "weights"
    coarse: bool = False
    relu: bool = False

    @property
    def name(self) -> str:
        """In words."""
        return self.plant.__name__.replace("_", " ")


MISTAKES = (
    Mistake(exchanged_scales),
    Mistake(halved_bias),
    Mistake(dropped_bias),
    Mistake(shifted_zero),
    Mistake(larger_scale),
    Mistake(negated_channel),
    Mistake(exchanged_channels),
    Mistake(saturated_weights),
    Mistake(coarse_weights, coarse=True),
    Mistake(other_checkpoint),
    Mistake(shifted_channels),
    Mistake(one_bit),
    Mistake(unsigned),
    Mistake(wide_range, "static", coarse=True),
    Mistake(narrow_range, "static"),
    Mistake(undone_relu, "static", relu=True),
    Mistake(one_sided_scale, "static"),
    Mistake(exchanged_halves, "blocks"),
)
