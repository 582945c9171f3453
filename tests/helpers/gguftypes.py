"""The types of GGUF, and bytes of one in which every number is drawn."""

import numpy as np

from xverify.weights import gguf_steps
from xverify.weights.allowances import GROUPED

STEPPED = tuple(kind for kind in gguf_steps.TYPES if kind not in GROUPED)
TERNARY = ("TQ1_0", "TQ2_0")


def drawn(kind, rows=8):
    """(bytes of a type in which every number is drawn, the values they stand for)."""
    import gguf

    random, of = np.random.default_rng(3), gguf_steps.TYPES[kind]
    data = random.integers(0, 256, (4 * rows, of.bytes), np.uint8)
    scale = random.uniform(1e-3, 2e-3, (4 * rows, 1)).astype(np.float16)
    if kind == "TQ2_0":
        data &= ~(data >> 1 & data & 0x55)  # two bits do not stand for 3
    if kind == "MXFP4":
        data[:, 0] = random.integers(110, 130, 4 * rows)
    elif kind == "IQ1_M":  # four bits each in the last four pairs of bytes
        pieces = data[:, 48:].copy().view(np.uint16) & 0xFFF
        four = np.stack([(scale.view(np.uint16)[:, 0] >> shift & 15) << 12 for shift in (0, 4, 8, 12)], 1)
        data[:, 48:] = (pieces | four.astype(np.uint16)).view(np.uint8)
    else:
        places = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q2_K": (80, 82)}
        places |= {"Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,)}
        for at in places.get(kind, (0,)):
            data[:, at : at + 2] = scale.view(np.uint8)
    return data.reshape(rows, -1), gguf.quants.dequantize(data.reshape(rows, -1), gguf.GGMLQuantizationType[kind])
