"""Language models in the layouts of GPTQ, AWQ and compressed-tensors, and published mistakes of converters and loaders."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.languagemodels import HEADS, HIDDEN, KV_HEADS, llama, neighbours
from helpers.packedweights import awq, compressed, gptq, model

from xverify.errors import WeightsError
from xverify.weights import language, packed, to_canonical
from xverify.weights.safetensors import save_file
from xverify.weights.stored import Stored

WEIGHTS = llama()
DOWN = "model.layers.0.mlp.down_proj"
NEAREST = {"quant_method": "nearest"}
RANDOM = np.random.default_rng(0)


def stored(arrays, settings=NEAREST):
    """The weights of a file, as a worker reads them for a command."""
    found = packed.Tensors(arrays, settings, Path("model.safetensors"))
    steps = {name: found.steps(name) for name in found.stepped}
    return Stored(to_canonical(found), quantised=found.types, steps=steps, facts=found.facts)


def told(arrays, settings=NEAREST, reference=WEIGHTS):
    """(number of tensors that differ, the lines) of a comparison."""
    found = language.compare(stored(arrays, settings), Stored(reference))
    return found.different, "\n".join([*found.lines, *found.sentences])


LAYOUTS = {
    "GPTQ": (gptq, {}, NEAREST),
    "GPTQ, symmetrical": (gptq, {"symmetrical": True}, NEAREST),
    "GPTQ, second version": (gptq, {"one": 0}, {"checkpoint_format": "gptq_v2", **NEAREST}),
    "AWQ": (awq, {}, NEAREST),
    "compressed-tensors": (compressed, {}, NEAREST),
    "compressed-tensors, with zero points": (compressed, {"symmetrical": False}, NEAREST),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_right_file_of_every_layout_is_equal(layout):
    make, how, settings = LAYOUTS[layout]
    different, says = told(model(WEIGHTS, make, **how), settings)
    assert different == 0, says
    name = layout.split(",")[0]
    assert f"model.layers.*.mlp.up_proj.weight (2 tensors): quantised to 4 bits of {name}, within half a step" in says


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_value_that_is_wrong_is_found_in_every_layout(layout):
    make, how, settings = LAYOUTS[layout]
    wrong = WEIGHTS[f"{DOWN}.weight"].copy()
    wrong[5, 7] += 0.3 * np.ptp(wrong[5, :32])
    different, says = told(model({**WEIGHTS, f"{DOWN}.weight": wrong}, make, **how), settings)
    assert (different, f"{DOWN}.weight: 1 of 131072 values is more than half a step" in says) == (1, True), says


def test_int8_beside_its_scales_is_read():
    weight = WEIGHTS[f"{DOWN}.weight"]
    scale = (np.abs(weight).max(axis=1, keepdims=True) / 127).astype(np.float16)
    numbers = np.rint(weight / scale.astype(np.float64)).clip(-128, 127).astype(np.int8)
    arrays = {**WEIGHTS, f"{DOWN}.weight": numbers, f"{DOWN}.weight_scale": scale}
    different, says = told(arrays)
    assert (different, "quantised to 8 bits of compressed-tensors, within half a step" in says) == (0, True), says
    different, says = told({**arrays, f"{DOWN}.weight_scale": scale / 2})
    assert (different, "all of its values are × 0.5" in says) == (1, True), says


def test_groups_in_another_order_are_read_and_an_order_that_was_ignored_is_named():
    groups = RANDOM.permutation(np.arange(512) // 32)
    arrays = {**model(WEIGHTS, gptq), **gptq(DOWN, WEIGHTS[f"{DOWN}.weight"], groups)}
    assert told(arrays)[0] == 0
    ignored = {**arrays, f"{DOWN}.g_idx": (np.arange(512) // 32).astype(np.int32)}
    for settings in (NEAREST, {"quant_method": "gptq"}):
        different, says = told(ignored, settings)
        assert (different, "of 512 inputs have the scales of other groups (g_idx)" in says) == (1, True), says


def test_zero_points_of_the_other_version_of_gptq_are_named():
    different, says = told(model(WEIGHTS, gptq, one=0))
    assert different == 14
    assert "model.layers.*.mlp.up_proj.weight (2 tensors): its zero point is 1 too large" in says


def test_outputs_in_another_order_than_that_of_awq_are_named():
    different, says = told(model(WEIGHTS, awq, order=range(8)))
    assert different == 14
    assert "every eight are by themselves, as AWQ packs them" in says


def test_scales_of_other_groups_are_named():
    arrays = model(WEIGHTS, gptq)
    arrays[f"{DOWN}.scales"] = np.roll(arrays[f"{DOWN}.scales"], 1, axis=0)
    different, says = told(arrays)
    assert (different, "have another scale: those of other blocks" in says) == (1, True), says


def compensated(weight, likeness=0.9):
    """A weight as GPTQ rounds it: what one input loses, the inputs behind it make good. likeness: of neighbouring inputs."""
    inputs = weight.shape[1]
    distance = np.abs(np.subtract.outer(np.arange(inputs), np.arange(inputs)))
    upper = np.linalg.cholesky(np.linalg.inv(likeness**distance + 0.01 * np.eye(inputs))).T
    work, made = weight.astype(np.float64), np.zeros(weight.shape)
    for column in range(inputs):
        if column % 32 == 0:
            block = work[:, column : column + 32]
            low, high = np.minimum(block.min(1), 0), np.maximum(block.max(1), 0)
            step = (high - low) / 15
        made[:, column] = (np.rint(work[:, column] / step) + np.rint(-low / step)).clip(0, 15)
        made[:, column] = (made[:, column] - np.rint(-low / step)) * step
        work[:, column:] -= np.outer(
            (work[:, column] - made[:, column]) / upper[column, column], upper[column, column:]
        )
    return made.astype(np.float32)


def test_numbers_of_gptq_may_compensate_each_other():
    rounded = {**WEIGHTS, f"{DOWN}.weight": compensated(WEIGHTS[f"{DOWN}.weight"])}
    arrays = model(rounded, gptq)
    assert told(arrays)[0] == 1
    different, says = told(arrays, {"quant_method": "gptq"})
    assert (different, "within half a step" in says) == (0, True), says
    assert f"{DOWN}.weight: quantised to 4 bits of GPTQ, all but " in says
    for wrong, cause in (
        (
            {**arrays, f"{DOWN}.scales": (arrays[f"{DOWN}.scales"] * 1.1).astype(np.float16)},
            "all of its values are × 1.09",
        ),
        (model(rounded, gptq, one=0), "its zero point is 1 too large"),
    ):
        different, says = told(wrong, {"quant_method": "gptq"})
        assert (different > 0, cause in says) == (True, True), says


def test_names_like_those_of_quantised_layers_are_compared_as_they_are():
    plain = {**WEIGHTS, "pyramid.scales": np.arange(4, dtype=np.float32), "head.weight": np.ones((2, 3), np.float32)}
    plain["head.weight_scale"] = np.ones(2, np.float32)
    assert told(plain, reference=plain) == (0, "")
    different, says = told({**plain, "pyramid.scales": np.zeros(4, np.float32)}, reference=plain)
    assert (different, "pyramid.scales: " in says) == (1, True), says


BROKEN = {
    "no scales": (lambda arrays: arrays.pop(f"{DOWN}.scales"), f"there is no {DOWN}.scales beside it"),
    "no zero points": (lambda arrays: arrays.pop(f"{DOWN}.qzeros"), f"there is no {DOWN}.qzeros beside it"),
    "too few groups": (
        lambda arrays: arrays.update({f"{DOWN}.scales": arrays[f"{DOWN}.scales"][:3]}),
        "its scales have the shape (256, 3), its zero points (256, 16)",
    ),
    "a group that is not there": (
        lambda arrays: arrays.update({f"{DOWN}.g_idx": arrays[f"{DOWN}.g_idx"] + 1}),
        "names the group 16 of its inputs, and it has 16 groups",
    ),
    "numbers that do not fit": (
        lambda arrays: arrays.update({f"{DOWN}.qweight": arrays[f"{DOWN}.qweight"][:-1]}),
        "bits for 512 numbers, which do not fit",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_layer_whose_arrays_do_not_fit_is_refused(fault):
    spoil, says = BROKEN[fault]
    arrays = model(WEIGHTS, gptq)
    spoil(arrays)
    with pytest.raises(WeightsError) as error:
        told(arrays)
    assert says in str(error.value)


@pytest.mark.slow
def test_the_command_reads_a_folder_with_its_settings(tmp_path, xverify):
    folder = tmp_path / "quantised"
    folder.mkdir()
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    save_file(model(WEIGHTS, gptq, one=0), folder / "model.safetensors")
    settings = {"quantization_config": {"quant_method": "gptq", "checkpoint_format": "gptq_v2"}}
    (folder / "config.json").write_text(json.dumps(settings))
    done = xverify("weights", "diff", folder, tmp_path / "model.safetensors")
    assert (done.code, done.err) == (0, "")
    assert "quantised to 4 bits of GPTQ, within half a step" in done.out
    (folder / "config.json").unlink()
    done = xverify("weights", "diff", folder, tmp_path / "model.safetensors")
    assert (done.code, "its zero point is 1 too large" in done.out) == (1, True)
    save_file(
        {name: array for name, array in model(WEIGHTS, gptq).items() if not name.endswith(".scales")},
        folder / "model.safetensors",
    )
    done = xverify("weights", "diff", folder, tmp_path / "model.safetensors")
    assert (done.code, len(done.err.splitlines())) == (2, 1), done.err
    assert "_proj.qweight is quantised, and there is no model.layers." in done.err


# -- other names and layouts ----------------------------------------------------------------------------------------------


def megatron(blocks=KV_HEADS):
    """The weights with Megatron's names: q, k and v of every group of heads are together, and gate and up."""
    names = {"embed_tokens": "embedding.word_embeddings", "norm": "decoder.final_layernorm", "lm_head": "output_layer"}
    made = {f"{names[name.split('.')[-2]]}.weight": array for name, array in WEIGHTS.items() if "layers" not in name}
    for layer in range(2):
        of = {name.split(".", 3)[3]: array for name, array in WEIGHTS.items() if f"layers.{layer}." in name}
        parts = [of[f"self_attn.{each}_proj.weight"].reshape(blocks, -1, HIDDEN) for each in "qkv"]
        made |= {
            f"decoder.layers.{layer}.self_attention.linear_qkv.weight": np.concatenate(parts, axis=1).reshape(
                -1, HIDDEN
            ),
            f"decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight": of["input_layernorm.weight"],
            f"decoder.layers.{layer}.self_attention.linear_proj.weight": of["self_attn.o_proj.weight"],
            f"decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight": of["post_attention_layernorm.weight"],
            f"decoder.layers.{layer}.mlp.linear_fc1.weight": np.concatenate(
                [of["mlp.gate_proj.weight"], of["mlp.up_proj.weight"]]
            ),
            f"decoder.layers.{layer}.mlp.linear_fc2.weight": of["mlp.down_proj.weight"],
        }
    return made


@pytest.mark.parametrize("settings", [{}, {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}])
def test_groups_of_heads_that_megatron_stores_together_are_compared(settings):
    different, says = told(megatron(), settings)
    assert different == 0, says
    assert "a part of decoder.layers.*.self_attention.linear_qkv.weight (2 tensors): equal" in says
    different, says = told(megatron(blocks=1), {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS})
    assert different == 6, says
    assert "q, k and v of the left follow each other, and files of Megatron have those of every group of heads" in says


@pytest.mark.parametrize("settings", [{}, {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}])
def test_rows_that_rotate_together_are_neighbours_in_files_of_meta(settings):
    names = {"q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo"}
    names |= {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3", "input_layernorm": "attention_norm"}
    names |= {
        "post_attention_layernorm": "ffn_norm",
        "self_attn": "attention",
        "mlp": "feed_forward",
        "lm_head": "output",
    }
    names |= {"embed_tokens": "tok_embeddings"}
    heads = {"q_proj": HEADS, "k_proj": KV_HEADS}
    made = {}
    for name, array in WEIGHTS.items():
        words = name.removeprefix("model.").split(".")
        rotated = neighbours(array, heads[words[-2]]) if words[-2] in heads else array
        made[".".join(names.get(word, word) for word in words)] = rotated
    different, says = told(made, settings)
    assert different == 0, says
    assert "layers.*.attention.wk.weight (2 tensors): equal" in says
    assert "neighbours" in says


def test_matrices_as_inputs_and_outputs_are_equal():
    turned = {name: array.T.copy() if "layers" in name and array.ndim > 1 else array for name, array in WEIGHTS.items()}
    different, says = told(turned)
    assert different == 0, says
    assert "model.layers.*.mlp.up_proj.weight (2 tensors): equal, as (inputs, outputs) on the left" in says


# -- published mistakes -----------------------------------------------------------------------------------------------


def norms_twice():
    """A checkpoint whose norms have the one already is converted for GGUF, which adds another one."""
    return {name: array + 1 if "norm" in name else array for name, array in WEIGHTS.items()}, NEAREST, WEIGHTS


def heads_of_queries():
    """The rows of k are put back from GGUF's order by the number of heads of q."""
    wrong = dict(WEIGHTS)
    for layer in range(2):
        name = f"model.layers.{layer}.self_attn.k_proj.weight"
        stored_so = neighbours(WEIGHTS[name], KV_HEADS)
        wrong[name] = stored_so.reshape(HEADS, -1, 2, HIDDEN).swapaxes(1, 2).reshape(stored_so.shape)
    return wrong, NEAREST, WEIGHTS


def experts_of_an_initialiser():
    """The experts are stored together under a name that a loader does not know, and are drawn anew."""
    right = {name: array for name, array in WEIGHTS.items() if "mlp" not in name or "layers.0" not in name}
    right["model.layers.0.mlp.experts.gate_up_proj"] = RANDOM.standard_t(4, (3, 64, HIDDEN)).astype(np.float32)
    name = "model.layers.0.mlp.experts.down_proj"
    right[name] = RANDOM.standard_t(4, (3, HIDDEN, 32)).astype(np.float32)
    return {**right, name: RANDOM.normal(0, 0.02, right[name].shape).astype(np.float32)}, NEAREST, right


def zero_points_below_zero():
    """Zero points of AWQ are made smaller by one, and those that were 0 become 15."""
    name = "model.layers.1.self_attn.v_proj"
    right = {**WEIGHTS, f"{name}.weight": np.abs(WEIGHTS[f"{name}.weight"])}
    spoilt = awq(name, right[f"{name}.weight"], zero=lambda zeros: np.where(zeros == 0, 15, zeros))
    return {**model(right, awq), **spoilt}, NEAREST, right


def drawn_after_loading():
    """A projection is drawn anew after the checkpoint was loaded: uniform values, divided by the root of the number of layers."""
    name, bound = "model.layers.1.self_attn.o_proj.weight", 1 / np.sqrt(2 * HIDDEN)
    drawn = RANDOM.uniform(-bound, bound, (HIDDEN, HIDDEN)).astype(np.float32)
    return {**WEIGHTS, name: drawn}, NEAREST, WEIGHTS


PUBLISHED = {
    "llama.cpp#23758": (norms_twice, 5, "model.norm.weight: the left has one more"),
    "transformers#31766": (
        heads_of_queries,
        2,
        "the rows that rotate together were made neighbours and put back with two numbers of heads, 2 and 4",
    ),
    "transformers#47405": (
        experts_of_an_initialiser,
        1,
        "model.layers.0.mlp.experts.down_proj: the left was never loaded: it has normal values of standard deviation 0.02",
    ),
    "GPTQModel#2350": (zero_points_below_zero, 1, "its zero point is 15 too large"),
    "Megatron-Bridge#2381": (
        drawn_after_loading,
        1,
        "model.layers.1.self_attn.o_proj.weight: the left was never loaded: it has uniform values up to 0.0442",
    ),
}


@pytest.mark.parametrize("report", PUBLISHED)
def test_a_published_mistake_is_found_and_named(report):
    make, count, says = PUBLISHED[report]
    arrays, settings, reference = make()
    different, lines = told(arrays, settings, reference)
    assert (different, says in lines) == (count, True), lines
