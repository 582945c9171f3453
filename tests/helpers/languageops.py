"""Operators of language models with drawn shapes and attributes, one node in each graph, and what ONNX Runtime computes of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import ml_dtypes  # noqa: F401  numpy knows int4 by it
import numpy as np
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Case:
    """One node.

    inputs: an array for each, None where it is left out. outputs: how many it has. kinds: output -> its type, where it is no float.
    constants: which inputs are constants of the file.
    """

    op: str
    inputs: tuple
    outputs: int = 1
    attributes: dict = field(default_factory=dict)
    domain: str = MICROSOFT
    opset: int = 21
    kinds: dict = field(default_factory=dict)
    constants: tuple = ()

    def with_attributes(self, **changes):
        return replace(self, attributes={**self.attributes, **changes})

    def with_input(self, place, array):
        return replace(self, inputs=(*self.inputs[:place], array, *self.inputs[place + 1 :]))

    def with_inputs(self, *arrays):
        return replace(self, inputs=arrays)

    @property
    def model(self):
        """The graph as a model."""
        names = self._names
        values = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.given.items()
        ]
        written = [
            numpy_helper.from_array(self.inputs[place], f"x{place}")
            for place in self.constants
            if self.inputs[place] is not None
        ]
        outputs = [f"y{place}" for place in range(self.outputs)]
        present = [array for array in self.inputs if array is not None]
        kind = helper.np_dtype_to_tensor_dtype(next(array.dtype for array in present if array.dtype.kind == "f"))
        kinds = [self.kinds.get(place, kind) for place in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, "node", domain=self.domain, **self.attributes)
        made = helper.make_graph(
            [node],
            "one node",
            values,
            [helper.make_tensor_value_info(*each, None) for each in zip(outputs, kinds)],
            written,
        )
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(made, opset_imports=imports, ir_version=10)

    @property
    def _names(self):
        names = ["" if array is None else f"x{place}" for place, array in enumerate(self.inputs)]
        while not names[-1]:
            names.pop()
        return names

    @property
    def given(self):
        """The inputs by name."""
        places = enumerate(self._names)
        return {name: self.inputs[place] for place, name in places if name and place not in self.constants}

    def computed(self):
        """The outputs of ONNX Runtime by name, without optimisations."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            self.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return dict(zip([each.name for each in session.get_outputs()], session.run(None, self.given)))


DRAWN: dict[str, Callable[[np.random.Generator], Case]] = {}


def drawn(op):
    def register(function):
        DRAWN[op] = function
        return function

    return register


def case(op, seed):
    """A case of an operator with drawn shapes and attributes."""
    return DRAWN[op](np.random.default_rng([seed, len(op)]))


def normal(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def tables(random, positions, pairs):
    """The cosines and sines of a rotary embedding."""
    angles = np.arange(positions)[:, None] * random.uniform(0.01, 1.0, pairs)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def yes(random):
    return bool(random.random() < 0.5)


@drawn("GroupQueryAttention")
def grouped(random):
    shared, groups, size = int(random.integers(1, 3)), int(random.integers(1, 4)), 16 * int(random.integers(1, 3))
    heads, past = shared * groups, int(random.integers(0, 9)) if yes(random) else 0
    batch = 1 if past else int(random.integers(1, 3))
    new = int(random.integers(1, 9))
    total = past + new
    last = np.full(batch, total - 1, np.int32)
    windowed = yes(random)
    if batch > 1 and not windowed:  # padding
        last[1:] = random.integers(0, total, batch - 1)
    packed = yes(random)
    query = normal(random, batch, new, (heads + 2 * shared if packed else heads) * size)
    key, value = (None if packed else normal(random, batch, new, shared * size) for _ in range(2))
    caches = (normal(random, batch, shared, past, size) for _ in range(2)) if past else (None, None)
    rotary = yes(random)
    angles = tables(random, total + 3, size // 2) if rotary else (None, None)
    bias = (
        normal(random, *(batch if yes(random) else 1, heads if yes(random) else 1), new, total) if yes(random) else None
    )
    sink = normal(random, heads) if random.random() < 0.3 else None
    attributes = {"num_heads": heads, "kv_num_heads": shared, "do_rotary": int(rotary)}
    attributes |= {"rotary_interleaved": int(yes(random))} if rotary else {}
    attributes |= {"softcap": float(np.float32(random.uniform(0.5, 30)))} if yes(random) else {}
    attributes |= {"scale": float(np.float32(random.uniform(0.05, 1)))} if yes(random) else {}
    attributes |= {"local_window_size": int(random.integers(1, total + 1))} if windowed else {}
    inputs = (query, key, value, *caches, last, np.array(total, np.int32), *angles, None, bias, sink)
    return Case("GroupQueryAttention", inputs, 3, attributes)


@drawn("MultiHeadAttention")
def multi_head(random):
    heads, size, batch = (int(random.integers(1, 4)) for _ in range(3))
    size, of_values = 4 * size, 4 * int(random.integers(1, 5))
    new, keys, past = (int(random.integers(1, 9)) for _ in range(3))
    unidirectional, of_values = yes(random), size if yes(random) else of_values
    keys, past = new if unidirectional else keys, past if of_values == size and yes(random) else 0
    query, key = normal(random, batch, new, heads * size), normal(random, batch, keys, heads * size)
    value = normal(random, batch, keys, heads * of_values)
    bias = normal(random, heads * (2 * size + of_values)) if yes(random) else None
    total = past + keys
    masks = (
        None,
        random.integers(1, total + 1, batch).astype(np.int32),
        (random.random((batch, total)) < 0.7).astype(np.int32),
        (random.random((batch, new, total)) < 0.7).astype(np.int32),
    )
    added = normal(random, 1, heads, new, total) if yes(random) else None
    caches = (normal(random, batch, heads, past, size), normal(random, batch, heads, past, of_values))
    attributes = {"num_heads": heads, "unidirectional": int(unidirectional)}
    attributes |= {"scale": float(np.float32(random.uniform(0.05, 1)))} if yes(random) else {}
    inputs = (query, key, value, bias, masks[int(random.integers(4))], added, *(caches if past else ()))
    return Case("MultiHeadAttention", inputs, 3 if yes(random) or past else 1, attributes)


@drawn("Attention")
def projected(random):
    heads, size, batch, new, width = (int(random.integers(1, n)) for n in (4, 4, 3, 9, 40))
    size, past = 4 * size, int(random.integers(1, 6)) if yes(random) else 0
    of_values = size if past or yes(random) else 4 * int(random.integers(1, 5))
    joined = heads * (2 * size + of_values)
    x, weights = normal(random, batch, new, width), normal(random, width, joined) / np.float32(np.sqrt(width))
    bias = normal(random, joined)
    total = past + new
    ends = random.integers(1, total + 1, batch).astype(np.int32)
    masks = (
        None,
        ends,
        np.concatenate([ends, np.maximum(0, ends - random.integers(1, 4, batch))]).astype(np.int32),
        (random.random((batch, total)) < 0.7).astype(np.int32),
        (random.random((batch, new, total)) < 0.7).astype(np.int32),
    )
    added = normal(random, 1, heads, new, total) if not past and yes(random) else None
    attributes = {"num_heads": heads, "unidirectional": int(yes(random))}
    attributes |= {"qkv_hidden_sizes": [heads * size, heads * size, heads * of_values]} if of_values != size else {}
    attributes |= {"scale": float(np.float32(random.uniform(0.05, 1)))} if yes(random) else {}
    cache = normal(random, 2, batch, heads, past, size) if past else None
    inputs = (x, weights, bias, masks[int(random.integers(5))], cache, added)
    return Case("Attention", inputs, 2 if past else 1, attributes)


@drawn("RotaryEmbedding")
def rotary(random):
    heads, size, batch, new = (int(random.integers(1, n)) for n in (4, 5, 3, 9))
    size *= 16
    pairs = size // 2
    partial = size > 16 and yes(random)
    pairs = 8 if partial else pairs
    flat = partial or yes(random)
    x = normal(random, batch, new, heads * size) if flat else normal(random, batch, heads, new, size)
    first = np.array([int(random.integers(0, 5))], np.int64)
    positions = random.integers(0, 14, (batch, new)) if yes(random) else first
    attributes = {"interleaved": int(yes(random))}
    attributes |= {"num_heads": heads, "rotary_embedding_dim": 2 * pairs} if partial else {}
    return Case("RotaryEmbedding", (x, positions, *tables(random, 14, pairs)), 1, attributes)


def shifted(random, *shape):
    """Values with a mean that is up to ten times as large as their distance from it."""
    return (normal(random, *shape) + random.uniform(-10, 10) * (random.random() < 0.3)).astype(np.float32)


@drawn("SkipLayerNormalization")
def skip(random):
    batch, new, width = (int(random.integers(1, n)) for n in (4, 9, 200))
    width += 1
    x = shifted(random, batch, new, width)
    other = normal(random, *((batch, new, width), (1, new, width), (new, width))[int(random.integers(3))])
    scale, bias = normal(random, width), normal(random, width) if yes(random) else None
    beta = normal(random, width) if yes(random) else None
    outputs = 4 if yes(random) else 1
    attributes = {"epsilon": float(np.float32(10.0 ** random.uniform(-12, -2)))}
    return Case("SkipLayerNormalization", (x, other, scale, beta, bias), outputs, attributes)


@drawn("SkipSimplifiedLayerNormalization")
def skip_simplified(random):
    case = skip(random)
    return replace(case, op="SkipSimplifiedLayerNormalization", inputs=(*case.inputs[:3], case.inputs[4]))


@drawn("SimplifiedLayerNormalization")
def simplified(random):
    case = skip(random)
    return replace(
        case, op="SimplifiedLayerNormalization", inputs=(case.inputs[0], case.inputs[2]), domain="", outputs=1
    )


@drawn("EmbedLayerNormalization")
def embedded(random):
    batch, new, width, words = (int(random.integers(1, n)) for n in (4, 9, 100, 30))
    width, whole = width + 1, (lambda limit, *shape: random.integers(0, limit, shape).astype(np.int32))
    segments, masked = yes(random), yes(random)
    tables = [normal(random, rows, width) for rows in (words, 12, 2)]
    inputs = (
        whole(words, batch, new),
        whole(2, batch, new) if segments else None,
        *tables[:2],
        tables[2] if segments else None,
        normal(random, width),
        normal(random, width),
        whole(2, batch, new) if masked else None,
        whole(12, batch if yes(random) else 1, new) if yes(random) else None,
    )
    attributes = {"epsilon": float(np.float32(10.0 ** random.uniform(-12, -2)))}
    return Case("EmbedLayerNormalization", inputs, 3, attributes, kinds={1: 6})


@drawn("MatMulNBits")
def matrix(random):
    bits, block = int(random.choice([2, 4, 8])), int(random.choice([16, 32, 64]))
    rows, columns, items = (int(random.integers(1, n)) for n in (60, 200, 6))
    count = -(-columns // block)
    b = random.integers(0, 256, (rows, count, block * bits // 8), np.uint8)
    scales = (0.1 * normal(random, rows, count)).astype(np.float32)
    packed = random.integers(0, 256, (rows, -(-count * bits // 8)), np.uint8)
    plain = random.uniform(0, 2**bits, (rows, count)).astype(np.float32)
    zeros = (None, packed, plain if bits < 8 else None)[int(random.integers(3))]
    bias = normal(random, rows) if yes(random) else None
    attributes = {"bits": bits, "block_size": block, "N": rows, "K": columns}
    attributes |= {"accuracy_level": int(random.choice([1, 4]))} if yes(random) else {}
    # ONNX Runtime's kernel reads the blocks of columns with 4 bits alone, and then ignores packed zero points.
    ordered = bits != 4 or zeros is packed or yes(random)
    groups = None if ordered else random.permutation(np.arange(columns) // block).astype(np.int32)
    inputs = (normal(random, items, columns), b, scales, zeros, groups, bias)
    return Case("MatMulNBits", inputs, 1, attributes, constants=(1, 2, 3, 4, 5))


@drawn("MatMulBnb4")
def matrix_of_sixteen_numbers(random):
    rows, columns, items = (int(random.integers(1, n)) for n in (60, 200, 6))
    block, count = int(random.choice([16, 32, 64])), rows * columns
    b = random.integers(0, 256, -(-count // 2), np.uint8)
    scales = np.abs(0.1 * normal(random, -(-count // block)))
    attributes = {"quant_type": int(random.integers(2)), "block_size": block, "N": rows, "K": columns}
    return Case("MatMulBnb4", (normal(random, items, columns), b, scales), 1, attributes, constants=(1, 2))


@drawn("GatherBlockQuantized")
def table(random):
    kind = ("uint8", "int4", "uint4")[int(random.integers(3))]
    bits = int(random.choice([2, 4, 8])) if kind == "uint8" else 4
    rows, block = int(random.integers(2, 30)), int(random.choice([16, 32]))
    width = 8 * int(random.integers(2, 12))
    across = kind != "uint8" and yes(random)  # blocks lie along the rows
    shape = (rows, -(-width // block)) if not across else (-(-rows // block), width)
    low, high = {"int4": (-8, 8)}.get(kind, (0, 2**bits))
    values, zeros = (random.integers(low, high, each) for each in ((rows, width), shape))
    stored, zeros = (packed(each, bits) if kind == "uint8" else each.astype(kind) for each in (values, zeros))
    indices = random.integers(-rows, rows, (2, int(random.integers(1, 7))))
    attributes = {"block_size": block, "quantize_axis": 0 if across else 1, "gather_axis": int(across), "bits": bits}
    if across:
        indices = random.integers(-width, width, 5)
    inputs = (stored, indices, (0.1 * normal(random, *shape)), zeros if yes(random) else None)
    return Case("GatherBlockQuantized", inputs, 1, attributes, constants=(0, 2, 3))


def packed(values, bits):
    """Numbers of a few bits as bytes, the first ones of the last axis in the lowest bits; the rest of the last byte is 0."""
    each = 8 // bits
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % each)])
    parts = padded.reshape(*values.shape[:-1], -1, each) << (bits * np.arange(each))
    return parts.sum(-1).astype(np.uint8)


@drawn("MoE")
def experts(random):
    count, width, inner, tokens = (int(random.integers(2, n)) for n in (7, 60, 60, 9))
    kind = ("relu", "gelu", "silu", "identity", "swiglu")[int(random.integers(5))]
    wide = inner * (2 if kind == "swiglu" else 1)
    shape = (tokens, width) if yes(random) else (1, tokens, width)
    inputs = (
        normal(random, *shape),
        normal(random, tokens, count),
        normal(random, count, wide, width) / np.float32(np.sqrt(width)),
        normal(random, count, wide) if yes(random) else None,
        normal(random, count, width, inner) / np.float32(np.sqrt(inner)),
        normal(random, count, width) if yes(random) else None,
    )
    attributes = {"activation_type": kind, "k": int(random.integers(1, count + 1))}
    attributes |= {"normalize_routing_weights": int(yes(random))}
    attributes |= swiglu(random) if kind == "swiglu" else {}
    return Case("MoE", inputs, 1, attributes, constants=(2, 3, 4, 5))


def swiglu(random):
    limit = {"swiglu_limit": float(np.float32(random.uniform(1, 7)))} if yes(random) else {}
    alpha, beta = (1.0, 0.0) if yes(random) else (float(np.float32(1.702)), 1.0)
    return {"swiglu_fusion": 1, "activation_alpha": alpha, "activation_beta": beta, **limit}


@drawn("QMoE")
def quantised_experts(random):
    count, tokens = (int(random.integers(2, n)) for n in (5, 7))
    width, inner, bits = 32 * int(random.integers(1, 4)), 32 * int(random.integers(1, 4)), int(random.choice([4, 8]))
    block, kind = 32 if yes(random) else 0, ("silu", "swiglu")[int(yes(random))]
    wide = inner * (2 if kind == "swiglu" else 1)

    def layer(rows, columns):
        scales = (count, rows, columns // block) if block else (count, rows)
        stored = random.integers(0, 256, (count, rows, columns * bits // 8), np.uint8)
        size = 4.0 / 2**bits / np.sqrt(columns)
        bias = normal(random, count, rows) if yes(random) else None
        return stored, (size * random.uniform(0.5, 1.5, scales)).astype(np.float32), bias

    inputs = (normal(random, tokens, width), normal(random, tokens, count), *layer(wide, width), *layer(width, inner))
    attributes = {"activation_type": kind, "k": int(random.integers(1, count + 1)), "expert_weight_bits": bits}
    # ONNX Runtime's kernel divides the shares of the experts by their sum whatever the attribute says.
    attributes |= {"normalize_routing_weights": 1, "weights_prepacked": 0}
    attributes |= swiglu(random) if kind == "swiglu" else {}
    attributes |= {"block_size": block} if block else {}
    attributes |= {"accuracy_level": 4} if block and yes(random) else {}
    return Case("QMoE", inputs, 1, attributes, constants=(2, 3, 4, 5, 6, 7))
