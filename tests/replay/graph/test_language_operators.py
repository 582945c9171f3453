"""Operators of language models: what ONNX Runtime computes is EQUAL at its node, a wrong attribute or weight is DIFFERENT."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from helpers.languageformulas import (  # noqa: E402
    bnb4_product,
    gathered,
    grouped_attention,
    mixture,
    n_bits_product,
    quantised_mixture,
    rotated,
)
from helpers.languageops import DRAWN, case  # noqa: E402

from xverify.replay.graph.evaluation import evaluate  # noqa: E402
from xverify.replay.graph.judge.replay import replay  # noqa: E402
from xverify.replay.graph.model import Graph  # noqa: E402
from xverify.results.verdicts import Verdict  # noqa: E402

CASES = 30  # drawn for each operator


def judged(one, computed):
    """The findings on a node of which a runtime computed these outputs."""
    report = replay(Graph(one.model), one.given, computed)
    assert dict(report.unsupported) == {}
    return report.findings


def exact(one):
    """The outputs of a node in float64."""
    return list(evaluate(Graph(one.model), one.given).values())


@pytest.mark.parametrize("op", DRAWN)
def test_a_right_kernel_is_equal(op):
    found = []
    for seed in range(CASES):
        one = case(op, seed)
        found += [(seed, each) for each in judged(one, one.computed())]
    assert len(found) >= CASES
    assert [(seed, f.index, f.ratio, f.reason) for seed, f in found if f.verdict != Verdict.EQUAL] == []
    assert all(f.judged for _, f in found)


# -- formulas ---------------------------------------------------------------------------------------------------------


def test_grouped_attention_is_that_of_the_formula():
    kinds = set()
    for seed in range(60):
        one = case("GroupQueryAttention", seed)
        if one.inputs[0].shape[0] == 1:
            kinds |= {name for name in ("softcap", "scale", "local_window_size") if name in one.attributes}
            kinds |= {place for place in (1, 3, 7, 10, 11) if one.inputs[place] is not None}
            np.testing.assert_allclose(exact(one)[0], grouped_attention(one), rtol=1e-10, atol=1e-12)
    assert len(kinds) == 8


@pytest.mark.parametrize(
    ("op", "formula"),
    [
        ("MatMulNBits", n_bits_product),
        ("MatMulBnb4", bnb4_product),
        ("GatherBlockQuantized", gathered),
        ("MoE", mixture),
        ("QMoE", quantised_mixture),
    ],
)
def test_an_operator_is_that_of_the_formula(op, formula):
    for seed in range(12):
        one = case(op, seed)
        np.testing.assert_allclose(exact(one)[0], formula(one), rtol=1e-7, atol=1e-7)


def test_a_place_beyond_a_table_is_a_row_of_zeros():
    one = first("GatherBlockQuantized", lambda one: one.attributes["gather_axis"] == 0)
    one = one.with_input(1, np.array([0, len(one.inputs[0]), -1 - len(one.inputs[0])]))
    np.testing.assert_array_equal(exact(one)[0][1:], 0)
    assert {f.verdict for f in judged(one, one.computed())} <= {Verdict.EQUAL, Verdict.IDENTICAL}


@pytest.mark.parametrize("op", ["MoE", "QMoE"])
def test_experts_of_equal_scores_are_chosen_as_the_runtime_does(op):
    one = first(op, lambda one: one.attributes["k"] < one.inputs[1].shape[1])
    one = one.with_input(1, np.zeros_like(one.inputs[1]))
    assert {f.verdict for f in judged(one, one.computed())} == {Verdict.EQUAL}


def rounded_to_8_bits(one):
    """The case with inputs that a kernel of 8 bits makes of its own: each block in steps of its largest value / 127."""
    x, block = one.inputs[0].copy(), one.attributes["block_size"]
    for row in x:
        for start in range(0, len(row), block):
            step = np.abs(row[start : start + block]).max() / 127
            row[start : start + block] = np.rint(row[start : start + block] / step) * step
    return one.with_input(0, x)


@pytest.mark.parametrize("seed", range(6))
def test_inputs_of_8_bits_are_right_where_the_file_allows_them(seed):
    fits = lambda one: one.attributes.get("accuracy_level") == 1 and one.inputs[0].shape[1] > 40  # noqa: E731
    plain = next(one for one in (case("MatMulNBits", each) for each in range(seed, 500)) if fits(one))
    allowed = plain.with_attributes(accuracy_level=4)
    whole, coarse = plain.computed(), rounded_to_8_bits(plain).computed()
    assert {f.verdict for f in judged(allowed, whole)} == {Verdict.EQUAL}  # a runtime without such a kernel
    assert {f.verdict for f in judged(allowed, coarse)} == {Verdict.EQUAL}
    assert {f.verdict for f in judged(plain, coarse)} == {Verdict.DIFFERENT}


def test_rotary_embedding_is_a_product_of_complex_numbers():
    for seed in range(20):
        one = case("RotaryEmbedding", seed)
        x, positions, cos, sin = one.inputs
        heads = x if x.ndim == 4 else x.reshape(*x.shape[:2], -1, exact_width(one)).transpose(0, 2, 1, 3)
        found = np.zeros(heads.shape)
        for item, head, place in np.ndindex(*heads.shape[:3]):
            at = positions[item, place] if positions.ndim == 2 else positions[0] + place
            vector = heads[item, head, place].astype(np.float64)
            found[item, head, place] = rotated(vector, cos[at], sin[at], one.attributes["interleaved"])
        found = found if x.ndim == 4 else found.transpose(0, 2, 1, 3).reshape(x.shape)
        np.testing.assert_allclose(exact(one)[0], found, rtol=1e-12, atol=1e-14)


def exact_width(one):
    """The size of a head."""
    heads = one.attributes.get("num_heads")
    return one.inputs[0].shape[-1] // heads if heads else 2 * one.inputs[2].shape[-1]


def test_attention_is_that_of_torch():
    for seed in range(30):
        one = case("MultiHeadAttention", seed)
        query, key, value, bias, mask, added, *caches = one.inputs
        if bias is not None or mask is not None:
            continue
        q, k, v = (
            torch.from_numpy(each).double().unflatten(2, (one.attributes["num_heads"], -1)).transpose(1, 2)
            for each in (query, key, value)
        )
        if caches:
            k, v = (torch.cat([torch.from_numpy(old).double(), new], 2) for old, new in zip(caches, (k, v)))
        hidden = torch.zeros(q.shape[2], k.shape[2], dtype=torch.float64)
        if one.attributes["unidirectional"]:
            hidden += torch.full_like(hidden, -torch.inf).triu(1 + k.shape[2] - q.shape[2])
        hidden = hidden if added is None else hidden + torch.from_numpy(added).double()
        scale = one.attributes.get("scale")
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, hidden, scale=scale)
        np.testing.assert_allclose(exact(one)[0], found.transpose(1, 2).flatten(2), rtol=1e-10, atol=1e-12)


# -- faults -----------------------------------------------------------------------------------------------------------


def first(op, fits):
    """The first drawn case that fits."""
    return next(one for one in (case(op, seed) for seed in range(500)) if fits(one))


def has(*names):
    return lambda one: all(one.attributes.get(name) for name in names)


def planted(fault):
    """A case, and the same with a fault."""
    op, fits, change = FAULTS[fault]
    one = first(op, fits)
    return one, change(one)


def scaled(name, factor):
    return lambda one: one.with_attributes(**{name: one.attributes[name] * factor})


def flipped(name):
    return lambda one: one.with_attributes(**{name: 1 - one.attributes[name]})


def changed(place, change):
    """A fault in one input: a function of a copy of it, which it changes."""

    def make(one):
        array = one.inputs[place].copy()
        change(array)
        return one.with_input(place, array)

    return make


def swap(array):
    array[:, [0, 1]] = array[:, [1, 0]]


def another_zero(array):
    array[0, 0] ^= 1


def long(one):
    return one.inputs[0].shape[1] > 3 and len(one.inputs[0]) == 1


def has_experts(one):
    return one.attributes["k"] > 1


FAULTS = {
    "a softcap": ("GroupQueryAttention", has("softcap"), scaled("softcap", 1.01)),
    "a scale": ("GroupQueryAttention", lambda one: has("scale")(one) and long(one), scaled("scale", 1.0001)),
    "a window one smaller": (
        "GroupQueryAttention",
        lambda one: one.attributes.get("local_window_size", 0) > 1 and long(one),
        lambda one: one.with_attributes(local_window_size=one.attributes["local_window_size"] - 1),
    ),
    "pairs of a cache": (
        "GroupQueryAttention",
        lambda one: has("do_rotary")(one) and long(one),
        flipped("rotary_interleaved"),
    ),
    "positions one later": (
        "GroupQueryAttention",
        lambda one: has("do_rotary")(one) and one.inputs[3] is not None,
        lambda one: one.with_input(7, one.inputs[7][1:]).with_input(8, one.inputs[8][1:]),
    ),
    "pairs": ("RotaryEmbedding", lambda one: one.inputs[1].ndim == 2, flipped("interleaved")),
    "a position": ("RotaryEmbedding", lambda one: one.inputs[1].ndim == 2, changed(1, lambda x: np.add(x, -1, x, where=x > 0))),
    "what sees what": ("MultiHeadAttention", lambda one: has("unidirectional")(one) and long(one), flipped("unidirectional")),
    "a scale of heads": ("MultiHeadAttention", lambda one: has("scale")(one) and long(one), scaled("scale", 1.0001)),
    "a mask": (
        "Attention",
        lambda one: one.inputs[3] is not None and one.inputs[3].ndim == 1 and one.inputs[3][0] > 1,
        changed(3, lambda x: np.subtract(x, 1, x)),
    ),
    "eps": ("SkipLayerNormalization", lambda one: one.attributes["epsilon"] > 1e-3, scaled("epsilon", 1.1)),
    "eps of embeddings": ("EmbedLayerNormalization", lambda one: one.attributes["epsilon"] > 1e-3, scaled("epsilon", 1.1)),
    "scales": ("MatMulNBits", lambda one: one.inputs[2].shape[1] > 1, changed(2, swap)),
    "a zero point": (
        "MatMulNBits",
        lambda one: one.inputs[3] is not None and one.inputs[3].dtype == np.uint8,
        changed(3, another_zero),
    ),
    "scales with inputs of 8 bits": (
        "MatMulNBits",
        lambda one: one.attributes.get("accuracy_level") == 4 and one.inputs[2].shape[1] > 1,
        changed(2, swap),
    ),
    "the type of sixteen numbers": ("MatMulBnb4", lambda one: True, flipped("quant_type")),
    "the order in a byte": ("MatMulBnb4", lambda one: True, changed(1, lambda x: np.copyto(x, x << 4 | x >> 4))),
    "scales of sixteen numbers": (
        "MatMulBnb4",
        lambda one: len(one.inputs[2]) > 1,
        changed(2, lambda x: np.copyto(x, np.roll(x, 1))),
    ),
    "scales of a table": (
        "GatherBlockQuantized",
        lambda one: one.attributes["gather_axis"] == 0 and one.inputs[2].shape[1] > 1,
        changed(2, swap),
    ),
    "a zero point of a table": (
        "GatherBlockQuantized",
        lambda one: one.inputs[3] is not None and one.inputs[3].dtype == np.uint8,
        changed(3, lambda x: np.bitwise_xor(x, 1, out=x)),
    ),
    "shares of experts": (
        "MoE",
        lambda one: 1 < one.attributes["k"] < one.inputs[1].shape[1],
        flipped("normalize_routing_weights"),
    ),
    "one expert less": ("MoE", has_experts, lambda one: one.with_attributes(k=one.attributes["k"] - 1)),
    "the order of experts": ("MoE", has_experts, changed(2, lambda x: np.copyto(x, np.roll(x, 1, 0)))),
    "a limit": (
        "MoE",
        lambda one: 0 < one.attributes.get("swiglu_limit", 0) < 3,
        scaled("swiglu_limit", 0.5),
    ),
    "scales of experts": ("QMoE", has_experts, changed(3, lambda x: np.copyto(x, np.roll(x, 1, 1)))),
    "a weight": ("MatMulNBits", lambda one: True, changed(1, lambda x: x.__setitem__((0, 0, 0), x[0, 0, 0] ^ 1))),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_different(fault):
    right, wrong = planted(fault)
    assert {f.verdict for f in judged(right, right.computed())} == {Verdict.EQUAL}
    assert judged(right, wrong.computed())[0].verdict == Verdict.DIFFERENT
