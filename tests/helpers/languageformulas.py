"""What operators of language models compute, written as loops over single values in float64."""

import math

import numpy as np


def rotated(vector, cos, sin, interleaved):
    """One vector with its first values turned in pairs, as a product of complex numbers. cos, sin: of each pair."""
    pairs = len(cos)
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (
        slice(0, pairs), slice(pairs, 2 * pairs)
    )  # fmt: skip
    turned = (vector[first] + 1j * vector[second]) * (cos + 1j * sin.astype(np.float64))
    found = vector.copy()
    found[first], found[second] = turned.real, turned.imag
    return found


def attended(query, keys, values, scale, visible, bias=None, softcap=0.0, sink=None):
    """The result of one query. keys, values: (T, H). visible: which keys it sees. bias: (T,)."""
    scores = np.array([scale * sum(query * key) for key in keys])
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    scores = scores if bias is None else scores + bias
    powers = {place: math.exp(scores[place]) for place in range(len(keys)) if visible[place]}
    total = sum(powers.values()) + (0.0 if sink is None else math.exp(sink))
    return sum(power / total * values[place] for place, power in powers.items())


def grouped_attention(case):
    """The first output of GroupQueryAttention, for one item."""
    query, key, value, past_key, past_value, _, _, cos, sin, _, bias, sink = case.inputs
    get, new = case.attributes.get, query.shape[1]
    heads, shared = get("num_heads"), get("kv_num_heads")
    joined = query if key is None else np.concatenate([query, key, value], 2)
    rows = joined[0].astype(np.float64).reshape(new, heads + 2 * shared, -1)
    size, past = rows.shape[-1], 0 if past_key is None else past_key.shape[2]
    if get("do_rotary"):
        for place in range(new):
            for head in range(heads + shared):
                angles = cos[past + place], sin[past + place]
                rows[place, head] = rotated(rows[place, head], *angles, get("rotary_interleaved"))
    found = np.zeros((new, heads, size))
    for place in range(new):
        for head in range(heads):
            group = head // (heads // shared)
            keys, values = rows[:, heads + group], rows[:, heads + shared + group]
            if past:
                keys, values = (
                    np.concatenate([past_key[0, group], keys]),
                    np.concatenate([past_value[0, group], values]),
                )
            end = past + place
            window = get("local_window_size", -1)
            visible = [end - window < at <= end if window >= 0 else at <= end for at in range(past + new)]
            added = None if bias is None else bias[0, head % bias.shape[1], place].astype(np.float64)
            found[place, head] = attended(
                rows[place, head], keys, values, get("scale") or 1 / math.sqrt(size), visible, added,
                get("softcap", 0.0), None if sink is None else float(sink[head]),
            )  # fmt: skip
    return found.reshape(1, new, -1)


def n_bits_product(case):
    """MatMulNBits, with the bits of a row written one after the other."""
    a, b, scales, zeros, groups, bias = case.inputs
    bits, block, rows, columns = (case.attributes[name] for name in ("bits", "block_size", "N", "K"))

    def fields(stored):
        written = "".join(f"{byte:08b}"[::-1] for byte in stored)
        return [int(written[at : at + bits][::-1], 2) for at in range(0, len(written), bits)]

    weights = np.zeros((columns, rows))
    for row in range(rows):
        values = [value for part in b[row] for value in fields(part)[:block]]
        for column in range(columns):
            at = column // block if groups is None else groups[column]
            zero = 2 ** (bits - 1)
            if zeros is not None:
                zero = fields(zeros[row])[at] if zeros.dtype == np.uint8 else float(zeros[row, at])
            weights[column, row] = (values[column] - zero) * float(scales[row, at])
    found = a.astype(np.float64) @ weights
    return found if bias is None else found + bias


def bnb4_product(case):
    """MatMulBnb4, with the numbers of both types written out, by the four bits that stand for each."""
    a, b, scales = case.inputs
    block, rows, columns = (case.attributes[name] for name in ("block_size", "N", "K"))
    fp4 = [0.0, 0.005208333333333333, 0.6666666666666666, 1.0, 0.3333333333333333, 0.5, 0.16666666666666666, 0.25]
    nf4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
           -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
           0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023,
           1.0]  # fmt: skip
    levels = nf4 if case.attributes["quant_type"] else fp4 + [-each for each in fp4]
    weights = np.zeros((columns, rows))
    for place in range(rows * columns):
        byte = int(b[place // 2])
        code = byte & 15 if place % 2 else byte >> 4
        weights[place % columns, place // columns] = levels[code] * float(scales[place // block])
    return a.astype(np.float64) @ weights


def gathered(case):
    """GatherBlockQuantized, value by value."""
    stored, indices, scales, zeros = case.inputs
    get = case.attributes.get
    bits, axis, block, along = get("bits"), get("quantize_axis"), get("block_size"), get("gather_axis")
    per_byte = 8 // bits if stored.dtype == np.uint8 else 1

    def field(array, row, column):
        if array.dtype != np.uint8:
            return float(array[row, column])
        return int(array[row, column // per_byte]) >> bits * (column % per_byte) & 2**bits - 1

    rows, columns = stored.shape[0], stored.shape[1] * per_byte
    real = np.zeros((rows, columns))
    for row, column in np.ndindex(rows, columns):
        at = (row // block, column) if axis == 0 else (row, column // block)
        zero = 2 ** (bits - 1) if stored.dtype == np.uint8 else 0
        zero = zero if zeros is None else field(zeros, *at)
        real[row, column] = (field(stored, row, column) - zero) * float(scales[at])
    return real[indices] if along == 0 else real[:, indices]


def mixture(case):
    """MoE, token by token."""
    x, router, first, first_bias, second, second_bias = case.inputs
    get = case.attributes.get
    rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
    found = np.zeros((len(rows), second.shape[1]))
    for token, row in enumerate(rows):
        powers = np.exp(router[token].astype(np.float64))
        chosen = sorted(range(len(powers)), key=lambda expert: -powers[expert])[: get("k")]
        total = sum(powers[expert] for expert in chosen) if get("normalize_routing_weights") else powers.sum()
        for expert in chosen:
            inner = first[expert].astype(np.float64) @ row + (0 if first_bias is None else first_bias[expert])
            result = second[expert].astype(np.float64) @ activated(inner, get)
            result = result if second_bias is None else result + second_bias[expert]
            found[token] += powers[expert] / total * result
    return found.reshape(x.shape)


def activated(x, get):
    """The values of an inner layer of an expert behind its activation. get: gives an attribute."""
    kind = get("activation_type")
    if kind == "swiglu":
        gate, linear, limit = x[::2], x[1::2], get("swiglu_limit", math.inf)
        gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
        return gate / (1 + np.exp(-get("activation_alpha") * gate)) * (linear + get("activation_beta"))
    if kind == "gelu":
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return {"relu": np.maximum(x, 0), "silu": x / (1 + np.exp(-x)), "identity": x}[kind]


def quantised_mixture(case):
    """QMoE, as MoE with the real numbers of its weights."""
    x, router, *layers = case.inputs
    bits = case.attributes["expert_weight_bits"]
    plain = []
    for stored, scales, bias in (layers[:3], layers[3:]):
        steps = np.stack([stored >> shift & 2**bits - 1 for shift in range(0, 8, bits)], -1)
        steps = steps.reshape(*stored.shape[:2], -1) - 2.0 ** (bits - 1)
        blocks = scales.reshape(*steps.shape[:2], -1, 1).astype(np.float64)
        plain += [(steps.reshape(*blocks.shape[:3], -1) * blocks).reshape(steps.shape), bias]
    return mixture(case.with_inputs(x, router, *plain))
