"""Tiny language models: their weights with the names of Hugging Face, and files of GGUF made of them.

The files are made with the writer of the package gguf and, for the types that it does not write, with the encoders below. They
follow the description of the types, and share no code with what reads them.
"""

from __future__ import annotations

import numpy as np

HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, VOCABULARY = 256, 512, 2, 4, 2, 96
HEAD = HIDDEN // HEADS

# Module in Hugging Face's files -> in GGUF, within a layer.
IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def llama(seed=0, layers=LAYERS):
    """Name -> float32 array, as after training: no initialiser has these values."""
    random = np.random.default_rng(seed)

    def matrix(rows, columns):
        return (random.standard_t(5, (rows, columns)) * 0.03).astype(np.float32)

    def norm():
        return random.uniform(0.3, 1.7, HIDDEN).astype(np.float32)

    made = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN)}
    for layer in range(layers):
        sizes = {
            "self_attn.q_proj": (HIDDEN, HIDDEN),
            "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
            "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HIDDEN),
            "mlp.gate_proj": (FEED_FORWARD, HIDDEN),
            "mlp.up_proj": (FEED_FORWARD, HIDDEN),
            "mlp.down_proj": (HIDDEN, FEED_FORWARD),
        }
        for module, size in sizes.items():
            made[f"model.layers.{layer}.{module}.weight"] = matrix(*size)
        for module in ("input_layernorm", "post_attention_layernorm"):
            made[f"model.layers.{layer}.{module}.weight"] = norm()
    return {**made, "model.norm.weight": norm(), "lm_head.weight": matrix(VOCABULARY, HIDDEN)}


def neighbours(array, heads):
    """Reorder the rows of q or k so that those which rotate together are neighbours, as files of GGUF have them."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def gguf_names(weights, rotate=True):
    """The weights under GGUF's names, with q and k in its order. rotate: whether to reorder them."""
    made = {}
    for name, array in weights.items():
        module, suffix = name.rsplit(".", 1)
        if module in OUTSIDE:
            made[f"{OUTSIDE[module]}.{suffix}"] = array
            continue
        _, _, layer, inner = module.split(".", 3)
        heads = {"self_attn.q_proj": HEADS, "self_attn.k_proj": KV_HEADS}.get(inner)
        made[f"blk.{layer}.{IN_LAYER[inner]}.{suffix}"] = neighbours(array, heads) if heads and rotate else array
    return made


def write_gguf(path, arrays, kind="F32", architecture="llama", raw=None, important=False, settings=None):
    """Write a file.

    arrays: under GGUF's names. kind: the type of matrices. raw: name -> (bytes (rows, bytes), type), in place of its array.
    important: whether the file says that weights of importance decided on its steps.
    settings: writes further metadata; see ``running``.
    """
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    if important:
        writer.add_string("quantize.imatrix.file", "imatrix.dat")
    if settings:
        settings(writer)
    for name, array in arrays.items():
        if raw and name in raw:
            data, of = raw[name]
            writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[of])
        elif array.ndim == 1 or kind == "F32":
            writer.add_tensor(name, np.ascontiguousarray(array))
        else:
            writer.add_tensor(name, encoded(array, kind), raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def running(base=10000.0, epsilon=1e-6):
    """The metadata without which llama.cpp does not run a file. base: of its rotation. epsilon: of its norms."""

    def settings(writer):
        writer.add_context_length(64)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(FEED_FORWARD)
        writer.add_layer_norm_rms_eps(epsilon)
        writer.add_rope_freq_base(base)
        writer.add_rope_dimension_count(HEAD)
        writer.add_vocab_size(VOCABULARY)
        writer.add_tokenizer_model("none")

    return settings


def encoded(array, kind):
    """The bytes of a matrix in a type of GGUF: (rows, bytes of a row)."""
    import gguf

    own = {"Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "Q3_K": _q3_k, "Q2_K": _q2_k}
    own = {**own, "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs}.get(kind)
    if own is None:
        return gguf.quants.quantize(np.ascontiguousarray(array), gguf.GGMLQuantizationType[kind])
    rows = array.astype(np.float64).reshape(len(array), -1, 32 if kind == "IQ4_NL" else 256)
    return np.stack([np.concatenate([own(block) for block in row]) for row in rows])


def _bytes(number):
    return np.frombuffer(np.float16(number).tobytes(), np.uint8)


def _offset_blocks(block, count, most, levels):
    """(step of the steps, step of the offsets, steps, offsets, numbers) of a super-block in blocks with an offset."""
    parts = block.reshape(count, -1)
    low = np.minimum(parts.min(1), 0)
    step = (parts.max(1).clip(0) - low) / levels
    coarse, coarse_offset = (float(np.float16(each.max() / most)) for each in (step, -low))
    steps, offsets = (
        np.rint(each / (by or 1)).clip(0, most).astype(int) for each, by in ((step, coarse), (-low, coarse_offset))
    )
    real = np.where(steps > 0, steps * coarse, 1)[:, None]
    numbers = np.rint((parts + (offsets * coarse_offset)[:, None]) / real).clip(0, levels).astype(int)
    return coarse, coarse_offset, steps, offsets, numbers.reshape(-1)


def _six_bit_pairs(steps, offsets):
    """The twelve bytes of eight steps and offsets of six bits each."""
    made = np.zeros(12, np.uint8)
    for i in range(4):
        made[i] = steps[i] | (steps[i + 4] >> 4) << 6
        made[i + 4] = offsets[i] | (offsets[i + 4] >> 4) << 6
        made[i + 8] = (steps[i + 4] & 15) | (offsets[i + 4] & 15) << 4
    return made


def _q4_k(block):
    coarse, coarse_offset, steps, offsets, numbers = _offset_blocks(block, 8, 63, 15)
    low, high = numbers.reshape(4, 2, 32).swapaxes(0, 1)
    data = (low | high << 4).astype(np.uint8).reshape(-1)
    return np.concatenate([_bytes(coarse), _bytes(coarse_offset), _six_bit_pairs(steps, offsets), data])


def _q5_k(block):
    coarse, coarse_offset, steps, offsets, numbers = _offset_blocks(block, 8, 63, 31)
    fifth = np.zeros(32, np.uint8)
    for i, part in enumerate(numbers.reshape(8, 32)):
        fifth |= (part >> 4 << i).astype(np.uint8)
    low, high = (numbers & 15).reshape(4, 2, 32).swapaxes(0, 1)
    data = (low | high << 4).astype(np.uint8).reshape(-1)
    return np.concatenate([_bytes(coarse), _bytes(coarse_offset), _six_bit_pairs(steps, offsets), fifth, data])


def _q2_k(block):
    coarse, coarse_offset, steps, offsets, numbers = _offset_blocks(block, 16, 15, 3)
    both = (steps | offsets << 4).astype(np.uint8)
    parts = numbers.reshape(2, 4, 32)
    data = sum(parts[:, i] << 2 * i for i in range(4)).astype(np.uint8).reshape(-1)
    return np.concatenate([both, data, _bytes(coarse), _bytes(coarse_offset)])


def _signed_blocks(block, most, lowest, highest):
    """(step of the steps, steps, numbers) of a super-block in sixteen blocks without an offset."""
    parts = block.reshape(16, 16)
    step = np.abs(parts).max(1) / highest
    coarse = float(np.float16(step.max() / most))
    steps = np.rint(step / coarse).clip(1, most).astype(int)
    numbers = np.rint(parts / (steps * coarse)[:, None]).clip(lowest, highest).astype(int)
    return coarse, steps, (numbers - lowest).reshape(-1)


def _q6_k(block):
    coarse, steps, numbers = _signed_blocks(block, 127, -32, 31)
    parts = numbers.reshape(2, 4, 32)
    low = np.concatenate([np.concatenate([p[0] & 15 | (p[2] & 15) << 4, p[1] & 15 | (p[3] & 15) << 4]) for p in parts])
    high = np.concatenate([sum(p[i] >> 4 << 2 * i for i in range(4)) for p in parts])
    return np.concatenate(
        [low.astype(np.uint8), high.astype(np.uint8), steps.astype(np.int8).view(np.uint8), _bytes(coarse)]
    )


def _q3_k(block):
    coarse, steps, numbers = _signed_blocks(block, 31, -4, 3)
    third = np.zeros(32, np.uint8)
    for i, part in enumerate(numbers.reshape(8, 32)):
        third |= (part >> 2 << i).astype(np.uint8)
    parts = (numbers & 3).reshape(2, 4, 32)
    data = sum(parts[:, i] << 2 * i for i in range(4)).astype(np.uint8).reshape(-1)
    six = steps + 32
    packed = np.zeros(12, np.uint8)
    for i in range(16):
        packed[i % 8] |= (six[i] & 15) << 4 * (i // 8)
        packed[8 + i % 4] |= (six[i] >> 4) << 2 * (i // 4)
    return np.concatenate([third, data, packed, _bytes(coarse)])


def _numbers_of_table(block):
    """(scale, numbers) of 32 values in the table of IQ4_NL. The value of the largest size has the first entry, -127."""
    scale = block[np.argmax(np.abs(block))] / -127
    return scale, lambda scale: np.abs(np.array(TABLE) * scale - block[:, None]).argmin(1)


TABLE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _iq4_nl(block):
    scale, numbers = _numbers_of_table(block)
    low, high = numbers(scale).reshape(2, 16)
    return np.concatenate([_bytes(scale), (low | high << 4).astype(np.uint8)])


def _iq4_xs(block):
    parts = [_numbers_of_table(each) for each in block.reshape(8, 32)]
    scales = np.array([scale for scale, _ in parts])
    coarse = float(np.float16(np.abs(scales).max() / 31))
    six = np.rint(scales / coarse).clip(-32, 31).astype(int)
    low, high = (
        np.stack([numbers(coarse * each) for (_, numbers), each in zip(parts, six)]).reshape(8, 2, 16).swapaxes(0, 1)
    )
    six += 32
    top = np.array([sum((each >> 4) << 2 * i for i, each in enumerate(six))], np.uint16).view(np.uint8)
    bottom = (six[::2] & 15 | (six[1::2] & 15) << 4).astype(np.uint8)
    return np.concatenate([_bytes(coarse), top, bottom, (low | high << 4).astype(np.uint8).reshape(-1)])
