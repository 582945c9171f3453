"""The operators of TensorFlow Lite that move, select or make values, in operators of ONNX."""

from __future__ import annotations

import numpy as np

from xverify.formats._graph_writer import Untranslated
from xverify.formats._tflite_graph import Writer
from xverify.formats._tflite_nodes import Operator
from xverify.formats._tflite_translation import given, narrowed, translation


@translation("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def _reshape(w: Writer, op: Operator) -> str:
    return w.shaped(given(w, op, 0), w.shape(op.outputs[0]))


@translation("TRANSPOSE")
def _transpose(w: Writer, op: Operator) -> str:
    return w.turned(given(w, op, 0), *w.whole(op.inputs[1]))


@translation("CONCATENATION")
def _concat(w: Writer, op: Operator) -> str:
    return w.add("Concat", *(w.real(index) for index in op.inputs), axis=op.option("axis"))


@translation("PACK")
def _pack(w: Writer, op: Operator) -> str:
    axis, shape = op.option("axis"), list(w.shape(op.outputs[0]))
    shape[axis] = 1
    return w.add("Concat", *(w.shaped(w.real(index), shape) for index in op.inputs), axis=axis)


@translation("UNPACK")
def _unpack(w: Writer, op: Operator) -> list[str]:
    parts = [w.array(place) for place in range(len(op.outputs))]
    return [w.add("Gather", given(w, op, 0), part, axis=op.option("axis")) for part in parts]


@translation("SPLIT", "SPLIT_V")
def _split(w: Writer, op: Operator) -> list[str]:
    value, axis = (0, 2) if op.kind == "SPLIT_V" else (1, 0)
    (along,) = w.whole(op.inputs[axis])
    sizes = [w.shape(index)[along] for index in op.outputs]
    w.add("Split", given(w, op, value), w.array(sizes), outputs=len(sizes), axis=along)
    return list(w.nodes[-1].output)


@translation("GATHER", "EMBEDDING_LOOKUP")
def _gather(w: Writer, op: Operator) -> str:
    table, indices = (1, 0) if op.kind == "EMBEDDING_LOOKUP" else (0, 1)
    if op.option("batchDims"):
        raise Untranslated
    return w.add("Gather", given(w, op, table), given(w, op, indices), axis=op.option("axis"))


@translation("SLICE")
def _slice(w: Writer, op: Operator) -> str:
    starts, shape = w.whole(op.inputs[1]), w.shape(op.outputs[0])
    ends = [start + size for start, size in zip(starts, shape)]
    return w.add("Slice", given(w, op, 0), w.array(starts), w.array(ends), w.array(range(len(starts))))


@translation("STRIDED_SLICE")
def _strided_slice(w: Writer, op: Operator) -> str:
    if op.option("ellipsisMask") or op.option("newAxisMask") or op.option("offset", False):
        raise Untranslated
    begins, ends, strides = (w.whole(index) for index in op.inputs[1:4])
    starts, stops = [], []
    for axis, (size, begin, end, stride) in enumerate(zip(w.shape(op.inputs[0]), begins, ends, strides)):
        if op.option("shrinkAxisMask") >> axis & 1:
            end, stride = begin % size + 1, 1
            begin %= size
        else:
            first, last = ((op.option(mask) >> axis & 1) for mask in ("beginMask", "endMask"))
            begin = (0 if stride > 0 else size - 1) if first else begin
            end = (size if stride > 0 else -size - 1) if last else end
        starts.append(begin)
        stops.append(end)
        strides[axis] = stride
    axes = w.array(range(len(starts)))
    value = w.add("Slice", given(w, op, 0), w.array(starts), w.array(stops), axes, w.array(strides))
    return w.shaped(value, w.shape(op.outputs[0])) if op.option("shrinkAxisMask") else value


@translation("PAD", "PADV2", "MIRROR_PAD")
def _pad(w: Writer, op: Operator) -> str:
    if op.kind == "MIRROR_PAD" and op.option("mode"):
        raise Untranslated  # ONNX has no symmetric padding
    pads = np.reshape(w.whole(op.inputs[1]), (-1, 2)).T.reshape(-1)
    value = [given(w, op, 2)] if op.kind == "PADV2" else []
    return w.add("Pad", given(w, op, 0), w.array(pads), *value, mode="reflect" if op.kind == "MIRROR_PAD" else None)


@translation("REVERSE_V2")
def _reverse(w: Writer, op: Operator) -> str:
    axes = w.whole(op.inputs[1])
    begins, ends, steps = ([each] * len(axes) for each in (-1, np.iinfo(np.int64).min, -1))
    return w.add("Slice", given(w, op, 0), w.array(begins), w.array(ends), w.array(axes), w.array(steps))


@translation("TILE")
def _tile(w: Writer, op: Operator) -> str:
    return w.add("Tile", given(w, op, 0), w.array(w.whole(op.inputs[1])))


@translation("BROADCAST_TO", "FILL")
def _expand(w: Writer, op: Operator) -> str:
    return w.add("Expand", given(w, op, 1 if op.kind == "FILL" else 0), w.array(w.shape(op.outputs[0])))


@translation("SHAPE")
def _shape(w: Writer, op: Operator) -> str:
    return narrowed(w, op, w.add("Shape", given(w, op, 0)))


@translation("RANGE")
def _range(w: Writer, op: Operator) -> str:
    return w.add("Range", *(given(w, op, place) for place in range(3)))


@translation("CUMSUM")
def _cumsum(w: Writer, op: Operator) -> str:
    settings = {name: int(op.option(name, False)) for name in ("exclusive", "reverse")}
    return w.add("CumSum", given(w, op, 0), given(w, op, 1), **settings)
