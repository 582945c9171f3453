"""Decoders in JAX, Flax, Keras and Jittor through the command line: right ones are EQUAL, and faults are placed and named."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
from helpers.decoders import checks

from xverify import host
from xverify.environments import store
from xverify.framework import discovery

pytestmark = [pytest.mark.slow, pytest.mark.long]  # frameworks run these models operation by operation
FAMILIES = Path(__file__).parents[1] / "decoders"
STEPS = [
    "steps",
    "steps, alone",
    "chunks of 5, 3, 1",
    "3 tokens taken back",
    "sequences reordered",
    "padded left, steps",
]
RIGHT = {
    "llama": ["flax:eager", "jax:eager", "tensorflow:eager", "keras-torch", "keras-jax:eager"],
    "gpt2": ["flax:eager", "tensorflow:eager", "jittor"],
}


def runnable(*names):
    """Those of the subjects whose framework is here. Skips the test where there is none."""
    adapters = {name: discovery.load(name.partition(":")[0].partition("+")[0]) for name in names}
    here = [name for name, each in adapters.items() if not host.missing(each) or store.chosen(each) is not None]
    if not here:
        pytest.skip(f"absent: {store.remedy(next(iter(adapters.values())))}")
    return here


def decoded(xverify, folder, subjects):
    """(how the command ended, subject -> its row)."""
    file = folder / "result.json"
    ended = xverify(
        "run", str(folder), "--task", "decode", "--threads", "1", "--subjects", ",".join(subjects), "--json", str(file)
    )
    rows = json.loads(file.read_text())["rows"] if file.is_file() else []
    return ended, {row["subject"]: row for row in rows}


@pytest.mark.parametrize("family", RIGHT)
def test_right_decoders_are_equal_in_every_way(tmp_path, xverify, family):
    copy = shutil.copytree(FAMILIES / family, tmp_path / family)
    ended, rows = decoded(xverify, copy, runnable(*RIGHT[family]))
    assert ended.code == 0, ended.out
    for subject, row in rows.items():
        assert {each["verdict"] for each in checks(row).values()} == {"EQUAL"}, subject
        assert [name for name in STEPS if name not in checks(row)] == [], subject
        assert not [why for why in row["decoding"]["not_tried"].values() if "number of threads" not in why]


# Name -> (the family, the file, what stands there, what stands there with the fault, the way that shows it, the layer, the cause).
FAULTS = {
    "stale": (
        "llama", "flax", 'kept = {"keys": k, "values": v}', 'kept = {"keys": k, "values": v} if past is None or t > 1 else past',
        "steps", "self_attn.o_proj", "single steps were not added to the cache, nor counted",
    ),
    "padded": (
        "gpt2", "flax", "        if position_ids is None:\n", "        if True:\n",
        "padded left", "transformer.wpe", "positions counted the padding",
    ),
    "old": (
        "llama", "tensorflow", "kept = (k, v)\n", "kept = (k, v) if past is None or t > 1 else past\n",
        "steps", "self_attn.o_proj", "single steps were not added to the cache, nor counted",
    ),
    "rows": (
        "llama", "jax", "jnp.concatenate([past[0], k], 2)", "jnp.concatenate([jnp.roll(past[0], 1, 0), k], 2)",
        "steps", "", "keys` of the cache had the rows of the sequence before",
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_faults_are_found_with_step_layer_and_cause(tmp_path, xverify, family):
    copy = shutil.copytree(FAMILIES / family, tmp_path / family)
    faults = {name: rest for name, (owner, *rest) in FAULTS.items() if owner == family}
    here = runnable(*(f"{file}:eager" for file, *_ in faults.values()))
    chosen = {f"{file}-{name}:eager": rest for name, (file, *rest) in faults.items() if f"{file}:eager" in here}
    for subject, (old, new, *_) in chosen.items():
        variant = subject.partition(":")[0]
        code = (copy / f"{variant.partition('-')[0]}.py").read_text()
        assert code.count(old) == 1
        (copy / f"{variant}.py").write_text(code.replace(old, new))
    ended, rows = decoded(xverify, copy, list(chosen))
    assert ended.code == 1, ended.out
    for subject, (*_, way, place, cause) in chosen.items():
        found = checks(rows[subject])
        assert rows[subject]["error"]["verdict"] in ("DIFFERENT", "INVALID"), subject
        assert found["full pass"]["verdict"] == "EQUAL"
        assert found[way]["verdict"] == "DIFFERENT", subject
        assert place in found[way]["place"], subject
        assert cause in found[way]["explanation"], subject


def test_another_base_of_rotation_is_placed_in_the_full_pass(tmp_path, xverify):
    copy = shutil.copytree(FAMILIES / "llama", tmp_path / "llama")
    file = copy / "tensorflow.py"
    file.write_text(file.read_text().replace("= 10000.0,", "= 500000.0,"))
    ended, rows = decoded(xverify, copy, runnable("tensorflow:eager"))
    assert ended.code == 1, ended.out
    row = rows["tensorflow:eager"]
    assert checks(row)["full pass"]["verdict"] == "DIFFERENT"
    assert checks(row)["full pass"]["place"] == ""  # the float64 model of the same file has the same values
    wrong = [each["layer"] for each in row["error"]["layers"]["layers"] if each["verdict"] == "DIFFERENT"]
    assert "layers.0.self_attn" in wrong[0]


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is absent")
def test_functional_model_of_keras_is_told_what_a_decoder_is(tmp_path, xverify):
    copy = shutil.copytree(FAMILIES / "llama", tmp_path / "llama")
    code = (copy / "tensorflow.py").read_text()
    end = "    x = keras.Input(batch_shape=(2, 16), dtype='int64', name='input_ids')\n    return keras.Model(x, Llama()(x))\n"
    (copy / "tensorflow.py").write_text(code.replace("    return Llama()\n", end))
    ended, rows = decoded(xverify, copy, ["tensorflow:eager"])
    assert ended.code == 3, ended.out
    assert (
        "a decoder of Keras is a subclass of keras.Model, whose call takes a cache"
        in rows["tensorflow:eager"]["reason"]
    )
