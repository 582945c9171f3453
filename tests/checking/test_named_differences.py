"""Differences between two ONNX files that are told by name: each file has one, and all are compared with one reference."""

import json

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

import onnx
from conftest import cli
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node


def drawn(seed, *shape):
    return (np.random.default_rng(seed).standard_normal(shape) * 0.5).astype(np.float32)


def recurrent(order, name):
    """The weights of an LSTM or a GRU with its gates in this order. name: is before their names."""
    rows, size = np.concatenate([np.arange(gate * 3, gate * 3 + 3) for gate in order]), 3 * len(order)
    bias = drawn(5, 1, 2, size)[..., rows].reshape(1, 2 * size)
    return {f"{name}w": drawn(3, 1, size, 5)[:, rows], f"{name}r": drawn(4, 1, size, 3)[:, rows], f"{name}b": bias}


LSTM, GRU = (0, 1, 2, 3), (0, 1, 2)  # the right orders of the gates


def write(
    path, *, pad="reflect", merged=False, clip=True, axis=1, compare="GreaterOrEqual", lstm=LSTM, gru=GRU, declared=4
):
    """image -> pad -> conv -> clip, x image -> softmax = y; round(image) >= 0, + image = z; steps -> LSTM = h, GRU = g."""
    nodes = [] if merged else [node("Pad", ["image", "amounts"], ["padded"], "pad", mode=pad)]
    given, pads = ("image", [1] * 4) if merged else ("padded", [0] * 4)
    nodes += [node("Conv", [given, "kernel"], ["c"], "conv", pads=pads)]
    nodes += [node("Clip", ["c", "low", "high"], ["k"], "clip")] if clip else []
    nodes += [
        node("Mul", ["k" if clip else "c", "image"], ["m"], "mul"), node("Softmax", ["m"], ["s"], "softmax", axis=axis),
        node("Mul", ["s", "image"], ["y"], "last"), node("Round", ["image"], ["whole"], "round"),
        node(compare, ["whole", "zero"], ["above"], "compare"), node("Cast", ["above"], ["ones"], "cast", to=TensorProto.FLOAT),
        node("Add", ["ones", "image"], ["z"], "add"), node("LSTM", ["steps", "lw", "lr", "lb"], ["h"], "lstm", hidden_size=3),
        node("GRU", ["steps", "gw", "gr", "gb"], ["g"], "gru", hidden_size=3),
    ]  # fmt: skip
    constants = {"amounts": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "kernel": drawn(1, 4, 4, 3, 3), "low": np.float32(-0.5)}
    constants |= {"high": np.float32(0.5), "zero": np.float32(0), **recurrent(lstm, "l"), **recurrent(gru, "g")}
    used = {name for each in nodes for name in each.input}
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("image", kind, [2, 4, 8, 8]), helper.make_tensor_value_info("steps", kind, [6, 2, 5])],
        [helper.make_tensor_value_info("y", kind, [2, declared, 8, 8])]
        + [helper.make_tensor_value_info("z", kind, [2, 4, 8, 8])]
        + [helper.make_tensor_value_info(name, kind, [6, 1, 2, 3]) for name in "hg"],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items() if name in used],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


FAULTS = {
    "pad": ({"pad": "edge"}, "Pad 'pad': mode is edge, and the reference has reflect"),
    "merged": ({"merged": True}, "Conv 'conv': it pads by [1, 1, 1, 1] itself, with zeros, and the reference has Pad 'pad' before"),
    "clip": ({"clip": False}, "Mul 'mul': the file leaves out the reference's Clip 'clip' of low, high"),
    "softmax": ({"axis": 2}, "Softmax 'softmax': axis is 2, and the reference has 1"),
    "compare": ({"compare": "Greater"}, "Greater 'compare': the file computes Greater"),
    "lstm": ({"lstm": (0, 2, 1, 3)}, "LSTM 'lstm': the gates of its weights are in the order input, forget, output, cell"),
    "gru": ({"gru": (1, 0, 2)}, "GRU 'gru': the gates of its weights are in the order reset, update, hidden, and the"),
}  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    right = write(folder / "right.onnx")
    files = [write(folder / f"{name}.onnx", **arguments) for name, (arguments, _) in FAULTS.items()]
    files.append(write(folder / "declared.onnx", declared=7))
    done = cli(folder, "check", *files, "--against", right, "--json", folder / "r.json", timeout=900)
    rows = json.loads((folder / "r.json").read_text())["rows"]
    return done, {row["subject"].removesuffix(".onnx"): row for row in rows if row["task"] == "conversion"}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_difference_is_named_by_its_node_and_its_setting(told, name):
    done, rows = told
    assert done.code == 1, done.out + done.err
    error = rows[name]["error"]
    assert error["verdict"] == "DIFFERENT"
    assert FAULTS[name][1] in error["reason"]


@pytest.mark.slow
def test_a_declared_shape_that_the_output_does_not_have_is_told(told):
    row = told[1]["declared"]
    assert "output y of declared.onnx is declared as 2x7x8x8, and the runtime returns 2x4x8x8" in " ".join(row["notes"])


@pytest.mark.parametrize(("known", "says"), [(True, "it pads by [1, 1, 1, 1] itself"), (False, "it has the place of")])
def test_a_merged_pad_is_a_difference_only_where_its_amounts_are_known(known, says):
    """TensorFlow Lite pads by SAME, and a layer of Keras does not tell its amounts: both may pad alike."""
    from xverify.replay.graph.explain.structure import merged_pad
    from xverify.replay.graph.model import Graph

    def graph(*nodes, pads=1):
        constants = {
            "kernel": drawn(1, 4, 4, 3, 3),
            **({"amounts": np.array([0, 0, 1, 1, 0, 0, 1, 1])} if known else {}),
        }
        stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
        shown = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 8, 8])]
        amounts = [] if known else [helper.make_tensor_value_info("amounts", TensorProto.INT64, [8])]
        made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        conv = node("Conv", ["padded" if nodes else "x", "kernel"], ["y"], "conv", pads=[pads] * 4)
        return Graph(helper.make_model(helper.make_graph([*nodes, conv], "g", shown + amounts, made, stored)))

    reference, file = graph(node("Pad", ["x", "amounts"], ["padded"], "pad"), pads=0), graph()
    pad, conv = reference.nodes
    assert says in merged_pad(file.nodes[0], pad, [conv], reference.constants)


def test_zeros_tell_neither_another_order_nor_nodes_that_are_left_out():
    from xverify.replay.graph.explain.divergence import divergences, trace
    from xverify.replay.graph.model import Graph

    def graph(*nodes):
        shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 32]) for name in "xy"]
        one = [numpy_helper.from_array(np.float32(1), "one")]
        return Graph(helper.make_model(helper.make_graph(nodes, "g", shapes[:1], shapes[1:], one)))

    file = graph(node("Relu", ["x"], ["y"], "relu"))
    reference = graph(node("Relu", ["x"], ["r"], "relu"), node("Exp", ["r"], ["y"], "exp"))
    for inputs, general, says in ((np.zeros((2, 32)), False, ""), (drawn(1, 2, 32), True, "leaves out: Exp 'exp'")):
        traces = [trace(each, {"x": inputs.astype(np.float32)}) for each in (file, reference)]
        found = " ".join(divergences(*traces, {"y": "y"}, general=general))
        assert says in found
        assert bool(found) == bool(says)


def test_an_attribute_is_told_that_changes_no_value_of_the_case():
    from xverify.replay.graph.explain.divergence import divergences, trace
    from xverify.replay.graph.model import Graph

    def traced(slope):
        sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 32]) for name in "xy"]
        graph = helper.make_graph([node("LeakyRelu", ["x"], ["y"], "act", alpha=slope)], "g", sides[:1], sides[1:])
        return trace(Graph(helper.make_model(graph)), {"x": np.zeros((2, 32), np.float32)})

    says = "both files have the same operators, and differ in LeakyRelu 'act': alpha is 0.2, and the reference has 0.1"
    assert divergences(traced(0.2), traced(0.1), {"y": "y"}, general=False) == [says]
    assert divergences(traced(0.1), traced(0.1), {"y": "y"}, general=False) == []


def masked_scores(path, seed):
    """queries x keys, with the lowest number added where keys are masked -> softmax."""
    nodes = [
        node("MatMul", ["x", "wq"], ["q"], "queries"), node("MatMul", ["x", "wk"], ["k"], "keys"),
        node("Transpose", ["k"], ["t"], "turn", perm=[0, 2, 1]), node("MatMul", ["q", "t"], ["s"], "scores"),
        node("Add", ["s", "mask"], ["a"], "masked"), node("Softmax", ["a"], ["y"], "softmax", axis=-1),
    ]  # fmt: skip
    mask = np.where(np.arange(9) > 3, np.finfo(np.float32).min, np.float32(0))
    constants = {"wq": drawn(seed, 8, 8), "wk": drawn(seed + 1, 8, 8), "mask": mask}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 9, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 9, 9])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_the_values_of_a_mask_hide_no_others(xverify, tmp_path):
    files = [masked_scores(tmp_path / f"{seed}.onnx", seed) for seed in (1, 11)]
    done = xverify("check", files[1], "--against", files[0], "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    reasons = [row["error"]["reason"] for row in json.loads((tmp_path / "r.json").read_text())["rows"]]
    assert any("the first value that differs is that of MatMul 'queries'" in (each or "") for each in reasons), reasons
