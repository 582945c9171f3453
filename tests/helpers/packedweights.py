"""Weights in the layouts of GPTQ, AWQ and compressed-tensors, written without the code that reads them."""

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
