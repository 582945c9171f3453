"""Checkpoints of Flax whose weights are fused, stacked, tied or changed, compared with the model of Hugging Face."""

import numpy as np
import pytest
from helpers.languagemodels import llama
from test_flax_and_keras_files import flax_tree, write_msgpack

from xverify.weights import language, open_file
from xverify.weights.stored import Stored

WEIGHTS = llama(layers=1)
BEGIN = "model.layers.0"
OUTPUT = f"{BEGIN}.self_attn.o_proj.weight"
TIED = {**WEIGHTS, "lm_head.weight": WEIGHTS["model.embed_tokens.weight"]}


def fused(order="qkv"):
    """q, k and v as one kernel, and gate and up."""
    made = dict(WEIGHTS)
    qkv = [made.pop(f"{BEGIN}.self_attn.{each}_proj.weight") for each in order]
    gate_up = [made.pop(f"{BEGIN}.mlp.{each}_proj.weight") for each in ("gate", "up")]
    return made | {
        f"{BEGIN}.self_attn.qkv_proj.weight": np.concatenate(qkv),
        f"{BEGIN}.mlp.gate_up_proj.weight": np.concatenate(gate_up),
    }


def experts():
    """The weights of a model with three experts by themselves."""
    made = dict(WEIGHTS)
    for kind in ("gate", "up", "down"):
        dense = made.pop(f"{BEGIN}.mlp.{kind}_proj.weight")
        made |= {f"{BEGIN}.mlp.experts.{index}.{kind}_proj.weight": (index + 1) * dense[:, ::-1] for index in range(3)}
    return made


def stacked(order=(0, 1, 2)):
    """The tree with each kind of expert as one kernel, (experts, inputs, outputs)."""
    one = experts()
    tree = flax_tree({name: array for name, array in one.items() if "experts" not in name})
    kinds = {
        kind: {"kernel": np.stack([one[f"{BEGIN}.mlp.experts.{index}.{kind}_proj.weight"].T for index in order])}
        for kind in ("gate", "up", "down")
    }
    layer = tree["model"]["layers"]["0"]
    layer["mlp"] = {"experts": {f"{kind}_proj": leaf for kind, leaf in kinds.items()}}
    return tree


def without_output(weights):
    return {name: array for name, array in weights.items() if name != "lm_head.weight"}


CASES = {
    "fused": (
        flax_tree(fused()),
        WEIGHTS,
        0,
        f"a part of {BEGIN}.self_attn.qkv_proj.kernel: equal, as (inputs, outputs)",
    ),
    "fused in another order": (
        flax_tree(fused("qvk")),
        WEIGHTS,
        2,
        f"has the values of {BEGIN}.self_attn.v_proj.weight, compared with {BEGIN}.self_attn.k_proj.weight",
    ),
    "norms plus one": (
        flax_tree({name: array + 1 if "norm" in name else array for name, array in WEIGHTS.items()}),
        WEIGHTS,
        3,
        f"{BEGIN}.input_layernorm.weight: the left has one more",
    ),
    "tied": (flax_tree(without_output(TIED)), TIED, 0, "the left has no output layer, so that its embedding is used"),
    "tied although it is not": (
        flax_tree(without_output(WEIGHTS)),
        WEIGHTS,
        1,
        "which has other values, compared with lm_head",
    ),
    "transposed": (
        flax_tree({**WEIGHTS, OUTPUT: WEIGHTS[OUTPUT].T}),
        WEIGHTS,
        1,
        f"{BEGIN}.self_attn.o_proj.kernel: the left is transposed",
    ),
    "stacked experts": (
        stacked(),
        experts(),
        0,
        ".mlp.experts.up_proj.kernel (3 tensors): equal, as (inputs, outputs)",
    ),
    "experts in another order": (
        stacked((0, 2, 1)),
        experts(),
        6,
        f"has the values of {BEGIN}.mlp.experts.2.up_proj.weight",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_differs_in_a_checkpoint_of_flax_is_named(tmp_path, case):
    tree, reference, different, says = CASES[case]
    write_msgpack(tmp_path / "flax_model.msgpack", tree)
    found = language.compare(Stored(dict(open_file(tmp_path / "flax_model.msgpack"))), Stored(reference))
    lines = "\n".join([*found.lines, *found.sentences])
    assert (found.different, says in lines) == (different, True), lines
