"""Language models whose weights are floats of few bits in .safetensors files: right ones, and planted mistakes."""

import json

import numpy as np
import pytest
from helpers.languagemodels import llama
from helpers.packedweights import float8, model, mxfp4, nvfp4, write_safetensors

from xverify.errors import WeightsError
from xverify.weights import language, packed, safetensors, save_file, to_canonical
from xverify.weights.levels import LEVELS
from xverify.weights.stored import Stored

ml_dtypes = pytest.importorskip("ml_dtypes")
WEIGHTS = llama()
DOWN, OUTPUT = "model.layers.0.mlp.down_proj", "model.layers.0.self_attn.o_proj"


def by_blocks(name, weight):
    return float8(name, weight, (128, 128), end="_scale_inv")


def by_channels(name, weight):
    return float8(name, weight, (1, weight.shape[1]))


def of_compressed_tensors(name, weight):
    return mxfp4(f"{name}.weight", weight, ("_packed", "_scale"), blocks=False)


LAYOUTS = {
    "one scale": (float8, "float8_e4m3fn"),
    "one scale of each output": (by_channels, "float8_e4m3fn"),
    "one scale of each block": (by_blocks, "float8_e4m3fn"),
    "float8_e5m2": (lambda name, weight: float8(name, weight, kind="float8_e5m2"), "float8_e5m2"),
    "MXFP4": (lambda name, weight: mxfp4(f"{name}.weight", weight), "MXFP4"),
    "MXFP4 of compressed-tensors": (of_compressed_tensors, "MXFP4"),
    "NVFP4": (nvfp4, "NVFP4"),
}


@pytest.fixture
def told(tmp_path):
    """(number of tensors that differ, the lines) of a comparison: function of the arrays, the settings and the reference."""

    def compare(arrays, settings=None, reference=WEIGHTS):
        path = write_safetensors(tmp_path / "model.safetensors", arrays)
        found = packed.Tensors(safetensors.open_file(path), settings or {}, path)
        assert all(found.shape(name) == found[name].shape for name in found)
        steps = {name: found.steps(name) for name in found.stepped}
        file = Stored(to_canonical(found), quantised=found.types, steps=steps, facts=found.facts)
        compared = language.compare(file, Stored(reference))
        return compared.different, "\n".join([*compared.lines, *compared.sentences])

    return compare


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_right_file_of_every_layout_is_equal(told, layout):
    make, kind = LAYOUTS[layout]
    different, says = told(model(WEIGHTS, make))
    assert different == 0, says
    assert f"model.layers.*.mlp.up_proj.weight (2 tensors): quantised to {kind}, within half a step" in says


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_value_that_is_wrong_is_found_in_every_layout(told, layout):
    make, _ = LAYOUTS[layout]
    wrong = WEIGHTS[f"{DOWN}.weight"].copy()
    wrong[5, 7] += 0.15
    different, says = told(model({**WEIGHTS, f"{DOWN}.weight": wrong}, make))
    assert (different, f"{DOWN}.weight: 1 of 131072 values is more than half a step" in says) == (1, True), says


def test_a_value_that_was_cut_off_in_place_of_rounded_is_found(told):
    """Numbers that are rounded towards zero are up to a whole distance of two neighbours away."""
    arrays = model(WEIGHTS, float8)
    scale = arrays[f"{DOWN}.weight_scale"]
    wanted = np.abs(WEIGHTS[f"{DOWN}.weight"] / scale)
    levels = LEVELS["float8_e4m3fn"]
    cut = levels[np.searchsorted(levels, wanted, side="right") - 1] * np.sign(WEIGHTS[f"{DOWN}.weight"])
    arrays[f"{DOWN}.weight"] = cut.astype(ml_dtypes.float8_e4m3fn)
    different, says = told(arrays)
    assert (different, f"{DOWN}.weight: " in says, " values are more than half a step" in says) == (1, True, True), says


def changed(make, name, change, end):
    """A model in a layout, one of whose arrays is changed."""
    arrays = model(WEIGHTS, make)
    arrays[name + end] = np.asarray(change(arrays[name + end]), arrays[name + end].dtype)
    return arrays


def within_bytes(data):
    return data >> 4 | data << 4


FAULTS = {
    "half of the scale": (changed(float8, DOWN, lambda s: s / 2, ".weight_scale"), "all of its values are × 0.5"),
    "inverse scale": (
        changed(float8, DOWN, lambda s: 1 / s, ".weight_scale"),
        "its scales are the inverse of the right ones",
    ),
    "inverse scales of outputs": (
        changed(by_channels, DOWN, lambda s: 1 / s, ".weight_scale"),
        "its scales are the inverse of the right ones",
    ),
    "inverse scales of blocks": (
        changed(by_blocks, DOWN, lambda s: 1 / s, ".weight_scale_inv"),
        "its scales are the inverse of the right ones",
    ),
    "transposed scales": (
        changed(by_blocks, OUTPUT, lambda s: s.T.copy(), ".weight_scale_inv"),
        f"{OUTPUT}.weight: its scales are transposed",
    ),
    "scales of other outputs": (
        changed(by_channels, DOWN, lambda s: np.roll(s, 1, 0), ".weight_scale"),
        "have another scale: those of other blocks",
    ),
    "scales of other blocks": (
        changed(lambda n, w: mxfp4(f"{n}.weight", w), DOWN, lambda s: np.roll(s, 1, 1), ".weight_scales"),
        "have another scale: those of other blocks",
    ),
    "halves of bytes": (
        changed(lambda n, w: mxfp4(f"{n}.weight", w), DOWN, within_bytes, ".weight_blocks"),
        "the two numbers of each byte are exchanged",
    ),
    "halves of bytes in NVFP4": (
        changed(nvfp4, DOWN, within_bytes, ".weight_packed"),
        "the two numbers of each byte are exchanged",
    ),
    "inverse factor of all scales": (
        changed(nvfp4, DOWN, lambda s: 1 / s, ".weight_global_scale"),
        "all of its values are × ",
    ),
    "an exponent too large": (
        changed(lambda n, w: mxfp4(f"{n}.weight", w), DOWN, lambda s: s + 1, ".weight_scales"),
        "all of its values are × 2",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_is_found_and_named(told, fault):
    arrays, says = FAULTS[fault]
    different, lines = told(arrays)
    assert (different, says in lines) == (1, True), lines


def test_blocks_at_the_edge_may_be_smaller_and_the_settings_tell_their_size(told):
    weight = np.random.default_rng(2).normal(size=(200, 300)).astype(np.float32) * np.float32(0.02)
    reference = {**WEIGHTS, "model.extra.weight": weight}
    assert told({**WEIGHTS, **by_blocks("model.extra", weight)}, reference=reference)[0] == 0
    arrays = {**WEIGHTS, **float8("model.extra", weight, (64, 96))}
    assert told(arrays, {"weight_block_size": [64, 96]}, reference)[0] == 0


def test_a_vector_in_float8_without_a_scale_is_compared(told):
    name = "model.norm.weight"
    right = WEIGHTS[name].astype(ml_dtypes.float8_e4m3fn)
    assert told({**WEIGHTS, name: right})[0] == 0
    different, says = told({**WEIGHTS, name: np.roll(right, 1)})
    assert (different, "model.norm.weight: " in says) == (1, True), says


def test_factors_of_activations_are_no_weights(told):
    arrays = model(WEIGHTS, float8)
    arrays |= {
        f"{DOWN}.input_scale": np.ones(1, np.float32),
        "model.layers.0.self_attn.k_scale": np.ones(1, np.float32),
    }
    assert told(arrays)[0] == 0


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((4, 2), "has the shape (256, 512), and its scales (4, 2), which fit neither its outputs nor blocks of it; they fit when"),
        ((3, 5), "its scales (3, 5), which fit neither its outputs nor blocks of it"),
    ],
)  # fmt: skip
def test_scales_that_do_not_fit_are_refused(told, shape, says):
    arrays = model(WEIGHTS, by_blocks)
    arrays[f"{DOWN}.weight_scale_inv"] = np.ones(shape, np.float32)
    with pytest.raises(WeightsError) as error:
        told(arrays)
    assert says in str(error.value)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_values_of_floats_are_those_of_another_library(kind):
    values = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, kind)).astype(np.float64)
    assert np.array_equal(LEVELS[kind], np.unique(values[np.isfinite(values)]))


@pytest.mark.slow
def test_the_command_compares_float8_and_does_not_convert_it(tmp_path, xverify):
    save_file(WEIGHTS, tmp_path / "plain.safetensors")
    folder = tmp_path / "quantised"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", model(WEIGHTS, by_blocks))
    (folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "fp8"}}))
    done = xverify("weights", "diff", folder, tmp_path / "plain.safetensors")
    assert (done.code, done.err) == (0, "")
    assert "quantised to float8_e4m3fn, within half a step" in done.out
    done = xverify("weights", "convert", folder / "model.safetensors", tmp_path / "other.safetensors")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "has dtype F8_E4M3, which is not read" in done.err
