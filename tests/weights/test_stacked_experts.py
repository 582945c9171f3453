"""Experts that files of gpt-oss store together: in MXFP4, transposed in float32, and with alternating rows of gate and up."""

import numpy as np
import pytest
from helpers.languagemodels import HIDDEN, gguf_names, llama, write_gguf
from helpers.packedweights import mxfp4, write_safetensors

from xverify.weights import gguf, language, packed, safetensors, to_canonical
from xverify.weights.stored import Stored

EXPERTS, INNER = 3, 64
BEGIN = "model.layers.0.mlp.experts"
PLAIN = {name: array for name, array in llama(layers=1).items() if "mlp" not in name}
RANDOM = np.random.default_rng(0)
GATE_UP = (RANDOM.standard_t(5, (EXPERTS, 2 * INNER, HIDDEN)) * 0.03).astype(
    np.float32
)  # rows of gate and up alternate
DOWN = (RANDOM.standard_t(5, (EXPERTS, HIDDEN, INNER)) * 0.03).astype(np.float32)
BIAS = RANDOM.normal(size=(EXPERTS, 2 * INNER)).astype(np.float32)


def four_bits(gate_up=GATE_UP, down=DOWN):
    """The file in MXFP4."""
    made = {**PLAIN, f"{BEGIN}.gate_up_proj_bias": BIAS}
    return made | mxfp4(f"{BEGIN}.gate_up_proj", gate_up) | mxfp4(f"{BEGIN}.down_proj", down)


def turned(gate_up=GATE_UP, down=DOWN):
    """The file in float32, which has (experts, inputs, outputs)."""
    made = {**PLAIN, f"{BEGIN}.gate_up_proj_bias": BIAS}
    arrays = {"gate_up_proj": gate_up, "down_proj": down}
    return made | {f"{BEGIN}.{name}": np.ascontiguousarray(array.swapaxes(1, 2)) for name, array in arrays.items()}


def of_gguf(path, alternate=True):
    """The file of GGUF, which has gate and up apart. alternate: whether it was made with rows that alternate."""
    parts = [(each[:, ::2], each[:, 1::2]) for each in (GATE_UP, BIAS)]
    if not alternate:
        parts = [(each[:, :INNER], each[:, INNER:]) for each in (GATE_UP, BIAS)]
    arrays = gguf_names(PLAIN, rotate=False) | {"blk.0.ffn_down_exps.weight": DOWN}
    for index, kind in enumerate(("gate", "up")):
        arrays |= {
            f"blk.0.ffn_{kind}_exps.{end}": np.ascontiguousarray(each[index])
            for end, each in zip(("weight", "bias"), parts)
        }
    write_gguf(path, arrays, "F32", architecture="gpt-oss")
    return path


@pytest.fixture
def told(tmp_path):
    """(number of tensors that differ, the lines): function of the arrays of a file, or its path, and those of the reference."""

    def stored(file):
        if isinstance(file, dict):
            path = write_safetensors(tmp_path / "model.safetensors", file)
            found = packed.Tensors(safetensors.open_file(path), {}, path)
        else:
            found = gguf.opened(file)
        steps = {name: found.steps(name) for name in found.stepped}
        return Stored(to_canonical(found), quantised=found.types, steps=steps, facts=found.facts)

    def compare(left, right):
        compared = language.compare(stored(left), stored(right))
        return compared.different, "\n".join([*compared.lines, *compared.sentences])

    return compare


def test_experts_in_mxfp4_are_compared_with_those_that_are_transposed(told):
    different, says = told(four_bits(), turned())
    assert different == 0, says
    assert f"{BEGIN}.gate_up_proj: quantised to MXFP4, within half a step, as (inputs, outputs) on the" in says
    different, says = told(turned(), four_bits())
    assert different == 0, says
    wrong = DOWN.copy()
    wrong[2, 5, 7] += 0.3
    different, says = told(four_bits(down=wrong), turned())
    assert (different, f"{BEGIN}.down_proj: 1 of {DOWN.size} values is more than half a step" in says) == (1, True), (
        says
    )


def test_an_order_of_experts_is_found(told):
    different, says = told(four_bits(gate_up=GATE_UP[[0, 2, 1]]), turned())
    assert (different, f"{BEGIN}.gate_up_proj: " in says) == (1, True), says


def test_rows_of_gate_and_up_alternate_where_gguf_has_them_apart(told, tmp_path):
    pytest.importorskip("gguf")
    for reference in (four_bits(), turned()):
        different, says = told(of_gguf(tmp_path / "model.gguf"), reference)
        assert different == 0, says
        assert "blk.0.ffn_up_exps.bias: equal, compared with a part of" in says
    different, says = told(of_gguf(tmp_path / "wrong.gguf", alternate=False), turned())
    assert (different, "blk.0.ffn_up_exps.weight: " in says) == (4, True), says
