"""What the quantisation of a layer costs, against files in which that layer alone is quantised."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from helpers import narrowfiles as files  # noqa: E402

from xverify.replay.graph.evaluation import evaluate  # noqa: E402
from xverify.replay.graph.explain.ranking import rank  # noqa: E402
from xverify.replay.graph.judge.replay import replay  # noqa: E402
from xverify.replay.graph.model import Graph  # noqa: E402
from xverify.results.verdicts import Verdict  # noqa: E402

IMAGE = {"x": np.random.default_rng(3).standard_normal((2, *files.SHAPE)).astype(np.float32)}


def output(model):
    return evaluate(Graph(model), {"x": IMAGE["x"][:1]})["scores"]  # layers are ranked on the first item


@pytest.mark.parametrize("layer", [files.CONVOLUTION, "/conv3/Conv"])
def test_the_cost_of_a_layer_is_the_error_of_a_file_in_which_it_alone_is_quantised(tmp_path, layer):
    found = rank(Graph(files.quantised(tmp_path, "dynamic")), Graph(files.network()), IMAGE, IMAGE)
    cost = next(each.cost for each in found.layers if each.layer == layer)
    exact, alone = output(files.network()), output(files.quantised(tmp_path, "dynamic", only=[layer]))
    expected = np.sqrt(np.square(alone - exact).sum() / np.square(exact).sum())
    assert cost == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("how", files.FORMATS)
def test_layers_correspond_by_their_order_where_names_and_modules_say_nothing(tmp_path, how):
    other = files.network()
    names = {
        name: f"v{index}" for index, node in enumerate(other.graph.node) for name in node.output if name != "scores"
    }
    for index, node in enumerate(other.graph.node):
        node.name = f"n{index}"
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    found = rank(Graph(files.quantised(tmp_path, how)), Graph(other), IMAGE, IMAGE)
    ranked = {each.layer: each.local_sqnr for each in found.layers}
    assert {"n0", "n2", "n5", "n9"} <= set(ranked)
    assert all(20 < ranked[name] < 70 for name in ("n0", "n2", "n5", "n9"))


@pytest.mark.parametrize("how", files.FORMATS)
def test_a_wrong_kernel_of_a_quantised_node_is_found_at_its_node(tmp_path, how):
    model = files.quantised(tmp_path, how)
    values = capture(model)
    clean = replay(Graph(model), IMAGE, values)
    assert {finding.verdict for finding in clean.findings} == {Verdict.EQUAL}
    kinds = {"dynamic": "ConvInteger", "QDQ": "Conv", "QOperator": "QLinearConv"}
    node = next(each for each in model.graph.node if each.op_type == kinds[how] and "conv3" in each.name)
    wrong = values[node.output[0]].copy()
    wrong[:, 1] = wrong[:, 1] * 0.98 if wrong.dtype.kind == "f" else wrong[:, 1] + 2  # a kernel with another zero point
    report = replay(Graph(model), IMAGE, {**values, node.output[0]: wrong})
    assert {finding.layer for finding in report.findings if finding.verdict == Verdict.DIFFERENT} >= {node.name}


@pytest.mark.parametrize(("name", "bits"), [("TF32", 13), ("bfloat16", 16)])
def test_products_in_a_narrower_precision_are_named_and_are_a_drift(name, bits):
    model = files.network()
    values = capture(model)
    node = next(each for each in model.graph.node if each.name == files.CONVOLUTION)
    weights = {name: torch.from_numpy(array.copy()) for name, array in files.constants(model).items()}
    given, kernel = (_rounded(each, bits) for each in (torch.from_numpy(values["r1"]), weights["w2"]))
    wrong = torch.nn.functional.conv2d(given, kernel, weights["b2"], padding=1).numpy()
    report = replay(Graph(model), IMAGE, {**values, node.output[0]: wrong})
    (found,) = [finding for finding in report.findings if finding.layer == node.name]
    assert found.verdict == Verdict.DIFFERENT
    assert found.counts_as == Verdict.DRIFT
    assert name in found.rounding.says
    report = replay(Graph(model), IMAGE, {**values, node.output[0]: wrong * np.float32(1.01)})
    assert [finding.counts_as for finding in report.findings if finding.layer == node.name] == [Verdict.DIFFERENT]


def _rounded(array, bits):
    """float32 values without their last bits, rounded to nearest."""
    whole = array.contiguous().view(torch.int32)
    return (((whole + (1 << (bits - 1))) >> bits) << bits).view(torch.float32)


def capture(model):
    """Every value that ONNX Runtime computes without optimisations."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name]
    known = {value.name for value in model.graph.output}
    exposed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(exposed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, IMAGE)))
