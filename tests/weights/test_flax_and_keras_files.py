"""Files of flax.serialization and HDF5 files of Keras, compared with other weight files through the command line."""

import h5py
import msgspec
import numpy as np
import pytest
from helpers.languagemodels import llama

from xverify.weights.safetensors import save_file

WEIGHTS = {name: array for name, array in llama(layers=1).items() if "embed" not in name or array.size < 10**6}
QUERY, KEY = (f"model.layers.0.self_attn.{each}_proj.weight" for each in "qk")


def packed(value):
    """A tree as flax.serialization.to_bytes stores it."""
    if isinstance(value, dict):
        return {key: packed(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        content = msgspec.msgpack.encode((value.shape, value.dtype.name, value.tobytes()))
        return msgspec.msgpack.Ext(1, content)
    return value


def flax_tree(weights):
    """The tree of a Flax model with these weights: kernels are (inputs, outputs)."""
    tree = {}
    for name, array in weights.items():
        *path, _ = name.split(".")
        leaf = "embedding" if "embed" in name else "weight" if "norm" in name else "kernel"
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        at[leaf] = np.ascontiguousarray(array.T) if leaf == "kernel" else array
    return tree


def write_msgpack(path, tree):
    path.write_bytes(msgspec.msgpack.encode(packed(tree)))


@pytest.fixture
def reference(tmp_path):
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("root", ["", "params"])
def test_a_flax_checkpoint_is_equal_to_the_model_that_it_was_made_from(xverify, tmp_path, reference, root):
    tree = flax_tree(WEIGHTS)
    write_msgpack(tmp_path / "flax_model.msgpack", {root: tree, "opt_state": {"0": np.ones(3)}} if root else tree)
    done = xverify("weights", "diff", tmp_path / "flax_model.msgpack", reference)
    assert done.code == 0, done.out + done.err
    assert "self_attn.q_proj.kernel: equal, as (inputs, outputs) on the left" in done.out
    done = xverify("weights", "diff", reference, tmp_path / "flax_model.msgpack")
    assert done.code == 0, done.out
    assert "lm_head.weight: equal, as (inputs, outputs) on the right" in done.out


def test_mistakes_in_a_flax_checkpoint_are_named(xverify, tmp_path, reference):
    value = WEIGHTS[QUERY].T.copy()
    value[3, 2] += 1
    wrong = {
        **WEIGHTS,
        QUERY: value.T,
        "model.layers.0.mlp.up_proj.weight": WEIGHTS["model.layers.0.mlp.gate_proj.weight"],
    }
    write_msgpack(tmp_path / "wrong.msgpack", flax_tree(wrong))
    done = xverify("weights", "diff", tmp_path / "wrong.msgpack", reference)
    assert done.code == 1
    assert "up_proj.kernel: has the values of model.layers.0.mlp.gate_proj.weight" in done.out
    assert "q_proj.kernel: 1 of 65536 values is not the reference's, most at [2, 3]" in done.out


def test_half_precision_and_divided_arrays_of_flax_are_read(xverify, tmp_path):
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    half = (whole.view(np.uint32) >> 16).astype(np.uint16)  # bfloat16, exact for small whole numbers
    content = msgspec.msgpack.encode((whole.shape, "bfloat16", half.tobytes()))
    parts = {str(number): whole.reshape(-1)[at : at + 10] for number, at in enumerate((0, 10, 20))}
    chunked = {"__msgpack_chunked_array__": True, "shape": {"0": 4, "1": 6}, "chunks": parts}
    write_msgpack(tmp_path / "a.msgpack", {"half": msgspec.msgpack.Ext(1, content), "divided": chunked})
    save_file({"half": whole, "divided": whole}, tmp_path / "b.safetensors")
    done = xverify("weights", "diff", tmp_path / "a.msgpack", tmp_path / "b.safetensors")
    assert done.code == 0, done.out + done.err


def write_hdf5(path, weights):
    """As ``model.save_weights`` stores them, with the state of an optimizer beside them."""
    with h5py.File(path, "w") as file:
        for name, array in weights.items():
            place = name.rpartition(".")[0].replace(".", "/")
            file[f"layers/{place}/vars/0"] = array if "embed" in name else array.T
        file["optimizer/vars/0"] = np.int64(3)


def test_a_weight_file_of_keras_is_compared_by_its_values(xverify, tmp_path, reference):
    write_hdf5(tmp_path / "model.weights.h5", WEIGHTS)
    done = xverify("weights", "diff", tmp_path / "model.weights.h5", reference)
    assert done.code == 0, done.out + done.err
    assert f"equal to {QUERY}, with its axes in the order (1, 0)" in done.out
    changed = WEIGHTS[KEY].copy()
    changed[0, 0] *= 1.5
    write_hdf5(tmp_path / "wrong.weights.h5", {**WEIGHTS, KEY: changed})
    done = xverify("weights", "diff", tmp_path / "wrong.weights.h5", reference)
    assert (done.code, "k_proj.vars.0: has other values" in done.out) == (1, True), done.out


def test_whole_numbers_beside_the_weights_are_left_out(xverify, tmp_path):
    weight = np.ones((2, 3), np.float32)
    write_msgpack(tmp_path / "a.msgpack", {"step": np.array(5, np.int32), "params": {"w": weight}})
    with h5py.File(tmp_path / "b.weights.h5", "w") as file:
        file["layers/dropout/seed_generator/vars/0"] = np.array([0, 1337], np.uint32)
        file["w"] = weight
    done = xverify("weights", "diff", tmp_path / "a.msgpack", tmp_path / "b.weights.h5")
    assert done.code == 0, done.out + done.err
    assert "identical: 1 tensor, " in done.out


def damaged(path, kind):
    """A file that must be refused."""
    if kind == "cut off":
        write_msgpack(path, flax_tree(WEIGHTS))
        path.write_bytes(path.read_bytes()[:-100])
    elif kind == "no tree":
        path.write_bytes(msgspec.msgpack.encode([1, 2]))
    elif kind == "objects":
        path.write_bytes(
            msgspec.msgpack.encode({"w": msgspec.msgpack.Ext(1, msgspec.msgpack.encode(([1], "object", b"")))})
        )
    elif kind == "chunks":
        chunked = {"__msgpack_chunked_array__": True, "shape": [3, 3], "chunks": {"0": np.ones(8)}}
        write_msgpack(path, {"w": chunked})
    elif kind == "link":
        with h5py.File(path, "w") as file:
            file["w"] = h5py.ExternalLink("other.h5", "/w")
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("w", (2**30, 4), "f4")


REFUSED = {
    "cut off": (".msgpack", "not a readable .msgpack file, or truncated"),
    "no tree": (".msgpack", "it holds list, and no tree of named arrays"),
    "objects": (".msgpack", "it holds an array of dtype 'object', which is no plain number"),
    "chunks": (".msgpack", "w has 8 values, and its shape is (3, 3)"),
    "link": (".h5", "w is a link, which is not followed"),
    "large": (".h5", "its arrays take 17.2 GB or more, and the limit is 1.0 GB"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_damaged_or_hostile_file_is_refused_in_one_line(xverify, tmp_path, reference, kind):
    suffix, says = REFUSED[kind]
    path = tmp_path / f"bad{suffix}"
    damaged(path, kind)
    done = xverify("weights", "diff", path, reference)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "\n" not in done.err.strip()
