"""``xverify check`` on a file with the quantised weights of its reference: nothing else may differ, and what differs is named."""

import itertools
import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
from onnx import helper, numpy_helper  # noqa: E402

from xverify.replay.graph.judge.rounding import Ranges, Units, rounding_noise  # noqa: E402
from xverify.replay.graph.judge.shared import shared_constants  # noqa: E402
from xverify.replay.graph.model import Graph  # noqa: E402

SIZES, BLOCK = (64, 48, 16), 32
MICROSOFT = "com.microsoft"


def constants():
    """The bytes, scales and zero points of two matrices with 4 bits."""
    random = np.random.default_rng(0)
    made = {}
    for place, (columns, rows) in enumerate(itertools.pairwise(SIZES)):
        blocks = -(-columns // BLOCK)
        made[f"b{place}"] = random.integers(0, 256, (rows, blocks, BLOCK // 2), np.uint8)
        made[f"s{place}"] = random.uniform(0.01, 0.03, (rows, blocks)).astype(np.float32)
        made[f"z{place}"] = random.integers(100, 150, (rows, -(-blocks // 2)), np.uint8)
    return made


def model(arrays, alpha=1.0, renamed=""):
    """Two products with an activation between them. renamed: ends the names of all constants."""
    nodes = []
    for place, (columns, rows) in enumerate(itertools.pairwise(SIZES)):
        given = [("x", "a")[place], *(f"{name}{place}{renamed}" for name in "bsz")]
        sizes = {"N": rows, "K": columns, "bits": 4, "block_size": BLOCK}
        product = f"m{place}" if place == 0 else "y"
        nodes.append(helper.make_node("MatMulNBits", given, [product], f"layer{place}", domain=MICROSOFT, **sizes))
    nodes.insert(1, helper.make_node("QuickGelu", ["m0"], ["a"], "gelu", domain=MICROSOFT, alpha=alpha))
    ends = [helper.make_tensor_value_info(name, 1, [8, size]) for name, size in (("x", SIZES[0]), ("y", SIZES[-1]))]
    tensors = [numpy_helper.from_array(array, name + renamed) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def changed(name, change):
    """The constants with a change of one: a function of a copy of it."""
    arrays = constants()
    arrays[name] = arrays[name].copy()
    change(arrays[name])
    return arrays


def flip(bits):
    def change(array):
        array[(3,) + (0,) * (array.ndim - 1)] ^= bits

    return change


def swap(array):
    array[:, [0, 1]] = array[:, [1, 0]]


def scaled(array):
    array[2, 1] *= 1.02


PLANTED = {
    "activation": (model(constants(), alpha=1.02), "alpha is 1.02, and the reference has 1"),
    "zero point": (model(changed("z0", flip(1))), "its zero point z0 differs in 1 of 48 stored numbers: [3, 0] is"),
    "scale": (model(changed("s1", scaled)), "its scale s1 is"),
    "scales": (model(changed("s0", swap)), "values of its weight b0 are more than one step from the reference's b0"),
    "weight": (model(changed("b0", flip(8))), "1 of 3072 values of its weight b0 are more than one step from"),
}


def weight_noise(arrays, reference):
    """rms of the noise that rounded weights have at the output."""
    graph = Graph(model(arrays))
    inputs = {"x": np.random.default_rng(1).standard_normal((8, SIZES[0])).astype(np.float32)}
    shared = shared_constants(graph, Graph(reference))
    found = rounding_noise(graph, inputs, Units(), Ranges(), samples=8, shared=shared)
    return float(np.sqrt(np.mean(np.square(found["y"].weights))))


def test_numbers_that_both_files_store_have_no_noise():
    """Only a number that is another one may have been rounded otherwise."""
    alone = constants()
    alone = {
        name: array if name[0] != "b" else array ^ 0x5A for name, array in alone.items()
    }  # other names and numbers
    whole = weight_noise(constants(), model(alone, renamed="_q"))
    neighbour = weight_noise(changed("b0", flip(1)), model(constants()))
    assert weight_noise(constants(), model(constants())) == 0.0
    assert weight_noise(constants(), model(constants(), renamed="_q")) == 0.0
    assert 0.0 < neighbour < whole / 10


def checked(xverify, folder, file):
    """The verdicts on runtime and conversion, the reason of the latter, and all that was printed."""
    for name, made in (("file", file), ("reference", model(constants()))):
        onnx.save(made, folder / f"{name}.onnx")
    done = xverify("check", folder / "file.onnx", "--against", folder / "reference.onnx", "--json", folder / "r.json")
    rows = {row["task"]: row["error"] for row in json.loads((folder / "r.json").read_text())["rows"]}
    return {task: error["verdict"] for task, error in rows.items()}, rows["conversion"]["reason"], done.out + done.err


@pytest.mark.slow
def test_the_same_file_with_other_names_is_equal(xverify, tmp_path, in_one_process):
    verdicts, _, printed = checked(xverify, tmp_path, model(constants(), renamed="_q"))
    assert set(verdicts.values()) == {"EQUAL"}
    assert "not compared" not in printed


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED)
def test_a_small_fault_beside_the_same_numbers_is_different(fault, xverify, tmp_path, in_one_process):
    file, says = PLANTED[fault]
    verdicts, reason, _ = checked(xverify, tmp_path, file)
    assert verdicts == {"runtime": "EQUAL", "conversion": "DIFFERENT"}
    assert says in reason
