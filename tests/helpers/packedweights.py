"""Weights in the layouts of GPTQ, AWQ, compressed-tensors and of floats of few bits, written without the code that reads them."""

import json

import numpy as np

GROUP, BITS = 32, 4
AWQ_OUTPUTS = (0, 2, 4, 6, 1, 3, 5, 7)  # the output, of eight, in each place of an int32


def quantised(weight, groups=None, symmetrical=False):
    """(numbers, scales in float16, zero points, group of each input) of a weight (outputs, inputs) with four bits."""
    groups = np.arange(weight.shape[1]) // GROUP if groups is None else groups
    count = int(groups.max()) + 1
    low, high = (
        np.stack([each(weight[:, groups == group], axis=1) for group in range(count)], axis=1)
        for each in (np.min, np.max)
    )
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    if symmetrical:
        scales = (2 * np.maximum(-low, high) / 15).astype(np.float16)
        zeros = np.full(scales.shape, 8)
    else:
        scales = ((high - low) / 15).astype(np.float16)
        zeros = np.rint(-low / scales).clip(0, 15).astype(int)
    numbers = np.rint(weight / scales[:, groups].astype(np.float64)) + zeros[:, groups]
    return numbers.clip(0, 15).astype(int), scales, zeros, groups


def packed(numbers, order=range(8)):
    """int32 with eight numbers each along the last axis; order: which of them is in each place, the lowest bits first."""
    eights = numbers.reshape(*numbers.shape[:-1], -1, 8)
    words = sum((eights[..., number].astype(np.int64) & 15) << 4 * place for place, number in enumerate(order))
    return words.astype(np.uint32).view(np.int32)


def gptq(name, weight, groups=None, one=1, symmetrical=False):
    """The arrays of a layer as GPTQ stores them. one: what is subtracted from the zero points, 1 in the first version."""
    numbers, scales, zeros, groups = quantised(weight, groups, symmetrical)
    return {
        f"{name}.qweight": np.ascontiguousarray(packed(numbers).T),
        f"{name}.qzeros": packed((zeros.T - one) % 16),
        f"{name}.scales": np.ascontiguousarray(scales.T),
        f"{name}.g_idx": groups.astype(np.int32),
    }


def awq(name, weight, order=AWQ_OUTPUTS, zero=lambda zeros: zeros):
    """The arrays of a layer as AWQ stores them. order: see ``packed``. zero: changes the zero points."""
    numbers, scales, zeros, _ = quantised(weight)
    return {
        f"{name}.qweight": packed(numbers.T, order),
        f"{name}.qzeros": packed(zero(zeros).T, order),
        f"{name}.scales": np.ascontiguousarray(scales.T),
    }


def compressed(name, weight, symmetrical=True):
    """The arrays of a layer as compressed-tensors stores them, with four bits."""
    numbers, scales, zeros, _ = quantised(weight, symmetrical=symmetrical)
    made = {
        f"{name}.weight_packed": packed(numbers),
        f"{name}.weight_scale": scales,
        f"{name}.weight_shape": np.array(weight.shape, np.int64),
    }
    if not symmetrical:
        made[f"{name}.weight_zero_point"] = np.ascontiguousarray(packed(zeros.T).T)
    return made


def model(weights, layout, **settings):
    """The arrays of a model whose matrices in layers are quantised. layout: one of the functions above."""
    made = {}
    for name, array in weights.items():
        module = name.removesuffix(".weight")
        made |= layout(module, array, **settings) if array.ndim == 2 and "layers" in name else {name: array}
    return made


# -- floats of few bits -------------------------------------------------------------------------------------------------

FOUR_BITS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
FLOAT8 = {"float8_e4m3fn": ("F8_E4M3", 448.0), "float8_e5m2": ("F8_E5M2", 57344.0)}


def float8(name, weight, block=None, kind="float8_e4m3fn", end="_scale"):
    """The arrays of a weight in float8.

    block: (rows, columns) with a scale of their own; None: one scale. end: of the name of the scales.
    """
    import ml_dtypes

    rows, columns = block or weight.shape
    high, wide = (-(-size // each) for size, each in zip(weight.shape, (rows, columns)))
    padded = np.zeros((high * rows, wide * columns))
    padded[: weight.shape[0], : weight.shape[1]] = weight
    largest = np.abs(padded).reshape(high, rows, wide, columns).max((1, 3))
    scales = (largest / FLOAT8[kind][1]).astype(np.float32)
    each = np.repeat(np.repeat(scales, rows, 0), columns, 1)[: weight.shape[0], : weight.shape[1]]
    numbers = (weight / each).astype(np.float32).astype(getattr(ml_dtypes, kind))
    return {f"{name}.weight": numbers, f"{name}.weight{end}": scales if block else scales.reshape(())}


def nearest_of_four_bits(array):
    """The bits of the nearest float of four bits, and two of them in each byte, the low half first."""
    bits = np.abs(array[..., None] - FOUR_BITS).argmin(-1).astype(np.uint8)
    return bits[..., ::2] | bits[..., 1::2] << 4


def mxfp4(name, weight, ends=("_blocks", "_scales"), blocks=True):
    """The arrays of a weight in MXFP4, as gpt-oss has them. blocks: whether those have an axis of their own."""
    parts = weight.reshape(*weight.shape[:-1], -1, 32).astype(np.float64)
    power = np.floor(np.log2(np.abs(parts).max(-1))) - 2
    packed_so = nearest_of_four_bits(parts / 2.0 ** power[..., None])
    if not blocks:
        packed_so = packed_so.reshape(*weight.shape[:-1], -1)
    return {name + ends[0]: packed_so, name + ends[1]: (power + 127).astype(np.uint8)}


def nvfp4(name, weight):
    """The arrays of a weight in NVFP4, as compressed-tensors has them."""
    import ml_dtypes

    parts = weight.reshape(len(weight), -1, 16).astype(np.float64)
    whole = np.float32(448 * 6 / np.abs(weight).max())
    scales = (np.abs(parts).max(-1) / 6 * whole).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    steps = scales.astype(np.float64) / whole
    packed_so = nearest_of_four_bits(parts / steps[..., None]).reshape(len(weight), -1)
    return {
        f"{name}.weight_packed": packed_so,
        f"{name}.weight_scale": scales,
        f"{name}.weight_global_scale": whole.reshape(1),
    }


def write_safetensors(path, arrays):
    """Write arrays whose dtypes may be those of ml_dtypes, with the names of the format's description."""
    names = {
        "float32": "F32",
        "float16": "F16",
        "uint8": "U8",
        "int64": "I64",
        "int32": "I32",
        "int8": "I8",
        "bfloat16": "BF16",
    }
    names |= {kind: name for kind, (name, _) in FLOAT8.items()} | {"float8_e8m0fnu": "F8_E8M0"}
    header, data = {}, b""
    for name, array in arrays.items():
        own = np.ascontiguousarray(array).tobytes()
        places = [len(data), len(data) + len(own)]
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape), "data_offsets": places}
        data += own
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path
