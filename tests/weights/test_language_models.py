"""Weights of language models: right and wrong files of GGUF against those of Hugging Face."""

import struct
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from helpers.gguftypes import STEPPED, TERNARY, drawn
from helpers.languagemodels import FEED_FORWARD, HEADS, HIDDEN, encoded, gguf_names, llama, neighbours, write_gguf

from xverify.weights import gguf as gguf_files
from xverify.weights import gguf_steps, language, quantised, save_file, to_canonical
from xverify.weights.allowances import GROUPED
from xverify.weights.stored import Stored

gguf = pytest.importorskip("gguf")
WEIGHTS = llama()
TYPES = ("F16", "BF16", *STEPPED)


@dataclass
class Told:
    """What a comparison says: the number of tensors that differ, of all, and all its lines."""

    different: int
    known: int
    out: str


def stored(path):
    """The weights of a file of GGUF, as a worker reads them for a command."""
    found = gguf_files.opened(path)
    steps = {name: found.steps(name) for name in found.stepped}
    return Stored(to_canonical(found), quantised=found.types, steps=steps, facts=found.facts, unread=found.unread)


@pytest.fixture
def diff(tmp_path):
    """Compare a file of GGUF with the model that it was made of: function of its arrays, and of what ``write_gguf`` takes."""

    def compare(arrays, kind="Q4_0", reference=None, **settings):
        path = write_gguf(tmp_path / "model.gguf", arrays, kind, **settings)
        found = language.compare(stored(path), Stored(WEIGHTS if reference is None else reference))
        return Told(found.different, found.known, "\n".join([*found.lines, *found.sentences]))

    return compare


def changed(name, array):
    return {**gguf_names(WEIGHTS), name: array}


@pytest.mark.parametrize("kind", TYPES)
def test_a_right_file_of_every_type_is_equal_and_says_how_it_is_stored(diff, kind):
    done = diff(gguf_names(WEIGHTS), kind)
    assert (done.different, done.known) == (0, 21), done.out
    how = {"F16": "rounded to float16", "BF16": "rounded to bfloat16"}.get(
        kind, f"quantised to {kind}, within half a step"
    )
    assert f"blk.*.ffn_up.weight (2 tensors): {how}, compared with model.layers.*.mlp.up_proj.weight" in done.out
    assert "neighbours on the left, compared with model.layers.*.self_attn.k_proj.weight" in done.out


@pytest.mark.parametrize("kind", GROUPED)
def test_types_that_choose_neighbours_together_may_have_many_values_outside(diff, kind):
    """A value is up to a step away from the nearest one there. Another order of rows is found nevertheless."""
    data, array = drawn(kind, rows=256)
    name = "model.layers.0.mlp.down_proj.weight"
    step = quantised.values(array, gguf_steps.steps(kind, data), kind).step
    down = (array + step * np.random.default_rng(4).uniform(-0.6, 0.6, array.shape)).astype(np.float32)
    raw = {"blk.0.ffn_down.weight": (data, kind)}
    arrays, reference = gguf_names(WEIGHTS), dict(WEIGHTS)
    for kind_of in ("gate", "up"):
        del arrays[f"blk.0.ffn_{kind_of}.weight"], reference[f"model.layers.0.mlp.{kind_of}_proj.weight"]
    arrays["blk.0.ffn_down.weight"] = down
    done = diff(arrays, "F16", raw=raw, reference={**reference, name: down})
    assert done.different == 0, done.out
    assert f"blk.0.ffn_down.weight: quantised to {kind}, all but " in done.out
    done = diff(arrays, "F16", raw=raw, reference={**reference, name: np.roll(down, 2, axis=0)})
    assert done.different == 1
    assert "blk.0.ffn_down.weight: row i has the values of row i+2 of the reference" in done.out
    assert diff(arrays, "Q8_0", raw=raw, reference={**reference, name: down}, important=True).different == 0


FAULTS = {
    "rotation": (
        gguf_names(WEIGHTS, rotate=False),
        "blk.*.attn_q.weight (2 tensors): the rows of the left that rotate together are not neighbours, as llama in GGUF",
    ),
    "heads of q for k": (
        changed("blk.0.attn_k.weight", neighbours(WEIGHTS["model.layers.0.self_attn.k_proj.weight"], HEADS)),
        "blk.0.attn_k.weight: the rows of the left that rotate together are neighbours in 4 heads, and the file has 2",
    ),
    "other layer": (
        changed("blk.0.ffn_up.weight", WEIGHTS["model.layers.1.mlp.up_proj.weight"]),
        "blk.0.ffn_up.weight: has the values of model.layers.1.mlp.up_proj.weight",
    ),
    "gate for up": (
        changed("blk.1.ffn_up.weight", WEIGHTS["model.layers.1.mlp.gate_proj.weight"]),
        "blk.1.ffn_up.weight: has the values of model.layers.1.mlp.gate_proj.weight",
    ),
    "transposed": (
        changed("blk.0.attn_output.weight", WEIGHTS["model.layers.0.self_attn.o_proj.weight"].T),
        "blk.0.attn_output.weight: the left is transposed",
    ),
    "never loaded": (
        changed(
            "blk.0.attn_output.weight",
            np.random.default_rng(1).normal(0, 0.02, (HIDDEN, HIDDEN)).astype(np.float32),
        ),
        "blk.0.attn_output.weight: the left was never loaded: it has normal values of standard deviation 0.02",
    ),
    "norm of ones": (
        changed("blk.1.ffn_norm.weight", np.ones(HIDDEN, np.float32)),
        "blk.1.ffn_norm.weight: the left was never loaded: it has only values 1",
    ),
    "norm plus one": (
        changed("output_norm.weight", WEIGHTS["model.norm.weight"] + 1),
        "output_norm.weight: the left has one more",
    ),
    "factor": (
        changed("blk.1.attn_v.weight", 2 * WEIGHTS["model.layers.1.self_attn.v_proj.weight"]),
        "blk.1.attn_v.weight: all of its values are × ",
    ),
    "vocabulary": (
        changed("token_embd.weight", np.roll(WEIGHTS["model.embed_tokens.weight"], 2, 0)),
        "token_embd.weight: row i has the values of row i-2 of the reference",
    ),
    "no output layer": (
        {name: array for name, array in gguf_names(WEIGHTS).items() if name != "output.weight"},
        "token_embd.weight: the left has no output layer, so that its embedding is used in its place, which has other values",
    ),
    "a weight is missing": (
        {name: array for name, array in gguf_names(WEIGHTS).items() if name != "blk.1.ffn_down.weight"},
        f"model.layers.1.mlp.down_proj.weight: only on the right, shape ({HIDDEN}, {FEED_FORWARD})",
    ),
    "a size": (
        changed("token_embd.weight", WEIGHTS["model.embed_tokens.weight"][:90]),
        "token_embd.weight: has 90 rows of 256, and the reference 96 rows of 256",
    ),
}


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_K", "IQ4_XS", "MXFP4"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named(diff, fault, kind):
    arrays, says = FAULTS[fault]
    done = diff(arrays, kind)
    assert done.different > 0, done.out
    assert says in done.out


@pytest.mark.parametrize("kind", [kind for kind in STEPPED if kind not in TERNARY])
def test_one_value_that_is_wrong_is_found(diff, kind):
    down = WEIGHTS["model.layers.0.mlp.down_proj.weight"].copy()
    down[5, 7] += 0.15
    done = diff(changed("blk.0.ffn_down.weight", down), kind)
    assert done.different == 1
    assert "1 of 131072 values is more than half a step from the reference's, most at [5, 7]" in done.out


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "IQ4_NL"])
def test_scales_of_other_blocks_are_named(diff, kind):
    data = encoded(WEIGHTS["model.layers.0.mlp.down_proj.weight"], kind)
    blocks = data.reshape(HIDDEN, -1, gguf_steps.TYPES[kind].bytes).copy()
    blocks[..., :2] = np.roll(blocks[..., :2], 1, axis=1)
    wrong = blocks.reshape(data.shape)
    done = diff(gguf_names(WEIGHTS), kind, raw={"blk.0.ffn_down.weight": (wrong, kind)})
    assert done.different == 1
    assert "blk.0.ffn_down.weight: " in done.out
    assert "blocks that were looked at have another scale: those of other blocks" in done.out


def test_a_tied_output_layer_is_right(diff):
    tied = {**WEIGHTS, "lm_head.weight": WEIGHTS["model.embed_tokens.weight"]}
    arrays = {name: array for name, array in gguf_names(tied).items() if name != "output.weight"}
    done = diff(arrays, reference=tied)
    assert done.different == 0
    assert (
        "the left has no output layer, so that its embedding is used in its place, compared with lm_head.weight"
        in done.out
    )


def plus_one(arrays):
    return {name: array + 1 if "norm" in name else array for name, array in arrays.items()}


def test_gguf_stores_the_norms_of_gemma_plus_one(diff):
    right, lacking = plus_one(gguf_names(WEIGHTS, rotate=False)), gguf_names(WEIGHTS, rotate=False)
    done = diff(right, "Q8_0", architecture="gemma")
    assert (done.different, "with one added on the left" in done.out) == (0, True)
    done = diff(lacking, "Q8_0", architecture="gemma")
    assert done.different == 5
    assert "output_norm.weight: the left lacks the one that is added to norms in GGUF of gemma" in done.out
    done = diff(plus_one(gguf_names(WEIGHTS)), "Q8_0", architecture="gemma")
    assert done.different == 4
    assert "neighbours, which files of the architecture gemma do not have" in done.out


def test_names_that_the_table_lacks_are_matched_by_content(diff):
    other = {name.replace("mlp.down_proj", "ffn.last"): array for name, array in WEIGHTS.items()}
    done = diff(gguf_names(WEIGHTS), reference=other)
    assert done.different == 0
    assert "within half a step, compared with model.layers.*.ffn.last.weight" in done.out
    wrong = {**other, "model.layers.1.ffn.last.weight": other["model.layers.1.ffn.last.weight"][::-1]}
    done = diff(gguf_names(WEIGHTS), reference=wrong)
    assert done.different == 2
    assert "blk.1.ffn_down.weight: only on the left" in done.out


def test_fused_gate_and_up_may_have_the_name_of_up(diff):
    """As GGUF names it for Phi 3."""
    fused, stored_so = dict(WEIGHTS), gguf_names(WEIGHTS)
    for layer in range(2):
        both = [fused.pop(f"model.layers.{layer}.mlp.{each}_proj.weight") for each in ("gate", "up")]
        fused[f"model.layers.{layer}.mlp.gate_up_proj.weight"] = stored_so[f"blk.{layer}.ffn_up.weight"] = (
            np.concatenate(both)
        )
        del stored_so[f"blk.{layer}.ffn_gate.weight"]
    assert diff(stored_so, reference=fused).different == 0


def test_values_that_were_rounded_before_they_were_quantised_are_right(diff):
    half = {name: array.astype(np.float16).astype(np.float32) for name, array in gguf_names(WEIGHTS).items()}
    matrices = {name: half[name] if array.ndim > 1 else array for name, array in gguf_names(WEIGHTS).items()}
    done = diff(matrices, "Q8_0")
    assert done.different == 0
    assert "quantised to Q8_0 of values rounded to float16, within half a step" in done.out


def test_a_type_that_is_not_read_is_named_and_the_rest_is_compared(diff):
    up = np.zeros((FEED_FORWARD, 36 * HIDDEN // 64), np.uint8)
    done = diff(gguf_names(WEIGHTS), raw={"blk.0.ffn_up.weight": (up, "NVFP4")})
    assert done.different == 0
    assert "blk.0.ffn_up.weight of the left: not compared, because its type NVFP4 is not read" in done.out
    assert done.known == 20
    wrong = changed("blk.1.ffn_up.weight", WEIGHTS["model.layers.0.mlp.up_proj.weight"])
    assert diff(wrong, raw={"blk.0.ffn_up.weight": (up, "NVFP4")}).different == 1


DOWN = "model.layers.0.mlp.down_proj.weight"


def off_by(steps, share):
    """A weight with some of its values so many steps of Q4_0 off, as where importance decided on the scale of a block."""
    down = WEIGHTS[DOWN].copy()
    blocks = down.reshape(-1, 32)
    for block in blocks[: round(32 * share * len(blocks))]:  # one value of a block
        block[np.abs(block).argmin()] += steps * np.abs(block).max() / 8
    return down


def test_importance_weights_let_some_values_be_outside(diff):
    """llama.cpp keeps the values that matter near, at the cost of others; it writes into the file that it did so."""
    arrays = changed("blk.0.ffn_down.weight", off_by(1.0, 0.03))
    assert diff(arrays).different == 1
    done = diff(arrays, important=True)
    assert done.different == 0
    assert "blk.0.ffn_down.weight: quantised to Q4_0, all but " in done.out
    assert " of 131072 values within half a step, compared with" in done.out


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("Q4_0", off_by(4.0, 0.03)),  # too far
        ("Q4_0", off_by(1.0, 0.031) * np.where(np.arange(256) < 128, 1, 1.2)[:, None].astype(np.float32)),  # too many
        ("Q4_K", np.concatenate([WEIGHTS[DOWN][:8][::-1], WEIGHTS[DOWN][8:]])),  # eight rows in another order
        ("Q8_0", off_by(0.2, 0.03)),  # importance has no effect on this type
    ],
)
def test_importance_weights_do_not_excuse_a_fault_in_few_values(diff, kind, wrong):
    done = diff(changed("blk.0.ffn_down.weight", wrong), kind, important=True)
    assert done.different == 1, done.out


@pytest.mark.parametrize("right_is", ["file", "reference"])
def test_fused_weights_are_compared_part_by_part(diff, right_is):
    fused = dict(WEIGHTS)
    for layer in range(2):
        begin = f"model.layers.{layer}"
        qkv = [fused.pop(f"{begin}.self_attn.{each}_proj.weight") for each in "qkv"]
        if layer and right_is == "file":
            qkv = [qkv[0], qkv[2], qkv[1]]
        fused[f"{begin}.self_attn.qkv_proj.weight"] = np.concatenate(qkv)
        gate_up = [fused.pop(f"{begin}.mlp.{each}_proj.weight") for each in ("gate", "up")]
        fused[f"{begin}.mlp.gate_up_proj.weight"] = np.concatenate(gate_up)
    done = diff(gguf_names(WEIGHTS), reference=fused)
    if right_is == "reference":
        assert done.different == 0
        assert "compared with a part of model.layers.*.self_attn.qkv_proj.weight" in done.out
        assert "compared with a part of model.layers.*.mlp.gate_up_proj.weight" in done.out
        return
    assert done.different == 2
    assert (
        "blk.1.attn_v.weight: has the values of another part of model.layers.1.self_attn.qkv_proj.weight: k" in done.out
    )


def experts(order=(0, 1, 2)):
    """(the weights of a model with three experts by themselves, those of GGUF, which stacks them in this order)."""
    one, stacked = dict(WEIGHTS), gguf_names(WEIGHTS)
    for kind in ("gate", "up", "down"):
        each = [(index + 1) * one[f"model.layers.0.mlp.{kind}_proj.weight"][:, ::-1] for index in range(3)]
        del one[f"model.layers.0.mlp.{kind}_proj.weight"], stacked[f"blk.0.ffn_{kind}.weight"]
        one |= {
            f"model.layers.0.mlp.experts.{i}.{kind}_proj.weight": np.ascontiguousarray(a) for i, a in enumerate(each)
        }
        stacked[f"blk.0.ffn_{kind}_exps.weight"] = np.stack([each[index] for index in order])
    return one, stacked


def test_stacked_experts_are_compared_one_by_one(diff):
    one, stacked = experts()
    done = diff(stacked, "Q8_0", reference=one)
    assert done.different == 0
    assert "a part of blk.*.ffn_up_exps.weight (3 tensors): quantised to Q8_0, within half a step" in done.out
    one, stacked = experts(order=(0, 2, 1))
    done = diff(stacked, "Q8_0", reference=one)
    assert done.different == 6
    assert "has the values of model.layers.0.mlp.experts.2.up_proj.weight" in done.out


@pytest.mark.slow
def test_the_command_says_what_is_right_and_what_is_wrong(tmp_path, xverify):
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    for name, rotate in (("right", True), ("wrong", False)):
        write_gguf(tmp_path / f"{name}.gguf", gguf_names(WEIGHTS, rotate), "Q4_K")
    done = xverify("weights", "diff", tmp_path / "right.gguf", tmp_path / "model.safetensors")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("equal: 21 tensors, up to the names, the layout and the steps above\n")
    done = xverify("weights", "diff", tmp_path / "wrong.gguf", tmp_path / "model.safetensors")
    assert (done.code, done.err) == (1, "")
    assert done.out.endswith("\n4 of 21 tensors differ\n")


@pytest.mark.slow
def test_two_files_of_gguf_are_compared_within_both_steps(tmp_path, xverify):
    for kind in ("Q8_0", "Q4_K"):
        write_gguf(tmp_path / f"{kind}.gguf", gguf_names(WEIGHTS), kind)
    done = xverify("weights", "diff", tmp_path / "Q4_K.gguf", tmp_path / "Q8_0.gguf")
    assert done.code == 0
    assert "blk.*.ffn_up.weight (2 tensors): quantised to Q4_K and Q8_0, within half a step" in done.out
    done = xverify("weights", "diff", tmp_path / "Q4_K.gguf", tmp_path / "Q4_K.gguf")
    assert (done.code, done.out.startswith("identical: 21 tensors, sha256:")) == (0, True)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"GGML" + data[4:], "GGUF magic invalid"),
        (lambda data: data[: len(data) // 2], "not a readable .gguf file, or truncated"),
        (lambda data: data[:60], "not a readable .gguf file, or truncated"),
        (lambda data: data[:4] + struct.pack("<I", 99) + data[8:], "version 99"),
        (lambda data: b"", "not a readable .gguf file, or truncated"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, xverify, damage, says):
    path = write_gguf(tmp_path / "model.gguf", gguf_names(WEIGHTS), "Q8_0")
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    path.write_bytes(damage(path.read_bytes()))
    done = xverify("weights", "diff", tmp_path / "model.gguf", tmp_path / "model.safetensors")
    assert done.code == 2
    assert "model.gguf: " in done.err
    assert says in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_gguf_is_read_as_weights_and_not_written(tmp_path, xverify):
    write_gguf(tmp_path / "model.gguf", gguf_names(WEIGHTS), "Q8_0")
    assert xverify("weights", "convert", tmp_path / "model.gguf", tmp_path / "model.safetensors").code == 0
    assert xverify("weights", "diff", tmp_path / "model.safetensors", tmp_path / "model.gguf").code == 0
    done = xverify("weights", "convert", tmp_path / "model.safetensors", tmp_path / "other.gguf")
    assert done.code == 2
    assert ".gguf files are only read; write e.g. other.safetensors" in done.err


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "model.gguf", gguf_names(WEIGHTS), "Q8_0")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModuleNotFoundError):
        gguf_files.opened(path)
