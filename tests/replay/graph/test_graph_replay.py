"""The noise of a graph and the replay of its nodes, on what ONNX Runtime computes. A planted fault is found at its node."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from helpers.graphresiduals import floor, in_own_types, rho  # noqa: E402
from helpers.marks import needs_vnni  # noqa: E402
from helpers.runtimefaults import FAULTS, network, quantised_network  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from xverify.replay.graph.judge.noise import noise  # noqa: E402
from xverify.replay.graph.judge.replay import replay  # noqa: E402
from xverify.replay.graph.model import Graph  # noqa: E402
from xverify.replay.graph.source import module_path, source  # noqa: E402
from xverify.results.verdicts import Verdict  # noqa: E402
from xverify.verdict.limits import MEAN_STEP  # noqa: E402


def session(model, level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def capture(model, inputs):
    """Every value that ONNX Runtime computes without optimisations."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    known = {value.name for value in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name]
    exposed.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in known)
    return dict(zip(names, session(exposed, "ORT_DISABLE_ALL").run(names, inputs)))


def optimised(model, inputs):
    names = [value.name for value in model.graph.output]
    return dict(zip(names, session(model, "ORT_ENABLE_ALL").run(names, inputs)))


def image(dtype=np.float32, seed=1):
    return {"x": np.random.default_rng(seed).standard_normal((4, 3, 20, 20)).astype(dtype)}


def test_a_clean_runtime_is_equal_at_every_node_and_at_the_outputs():
    model, inputs = network(), image()
    graph = Graph(model)
    report = replay(graph, inputs, capture(model, inputs))
    assert [(f.layer, f.verdict) for f in report.findings if f.verdict != Verdict.EQUAL] == []
    assert report.compared == len(graph.nodes) == 13
    assert not report.missing
    assert not report.unsupported
    found, outputs = noise(graph, inputs), optimised(model, inputs)
    assert 0.01 < rho(found["y"], outputs["y"]) < 3
    assert rho(found["y"], in_own_types(found["y"])) < 3
    assert rho(found["best"], outputs["best"]) == 0
    assert rho(found["best"], outputs["best"] + 1) == np.inf


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.FLOAT])
def test_noise_follows_the_type_of_the_nodes(dtype):
    """A float16 graph has the noise of float16: its own arithmetic is EQUAL there, and would be DIFFERENT at float32."""
    model = network(dtype)
    inputs = image(helper.tensor_dtype_to_np_dtype(dtype))
    found = noise(Graph(model), inputs)["y"]
    relative = floor(found) / np.sqrt(np.mean(np.square(found.exact)))
    assert (1e-4 < relative < 1e-1) if dtype == TensorProto.FLOAT16 else (1e-8 < relative < 1e-5)
    assert rho(found, in_own_types(found)) < 3
    report = replay(Graph(model), inputs, capture(model, inputs))
    assert [(f.layer, f.ratio) for f in report.findings if f.verdict != Verdict.EQUAL] == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_at_its_node_and_nowhere_else(fault):
    name, attributes, weights = FAULTS[fault]
    inputs = image()
    faulty = network(changes={name: attributes}, weights=weights)
    graph = Graph(network())
    report = replay(graph, inputs, capture(faulty, inputs))
    assert {f.layer for f in report.findings if f.verdict == Verdict.DIFFERENT} == {name}
    assert rho(noise(graph, inputs)["y"], optimised(faulty, inputs)["y"]) > 10


def test_a_value_that_was_not_captured_is_judged_at_the_next_node():
    model, inputs = network(), image()
    captured = capture(model, inputs)
    del captured["c1"], captured["l"]
    report = replay(Graph(model), inputs, captured)
    assert set(report.missing) == {"/conv1/Conv", "/fc/Gemm"}
    assert [(f.layer, f.ratio) for f in report.findings if f.verdict != Verdict.EQUAL] == []
    faulty = capture(network(weights={"b1": np.zeros(16, np.float32)}), inputs)
    del faulty["c1"]
    report = replay(Graph(model), inputs, faulty)
    assert {f.layer for f in report.findings if f.verdict == Verdict.DIFFERENT} == {"/bn1/BatchNormalization"}


def test_wrong_shapes_types_and_whole_numbers_have_a_reason():
    model, inputs = network(), image()
    captured = capture(model, inputs)
    captured["f"] = captured["f"][:, :-1]
    captured["p"] = captured["p"].astype(np.float64).astype(np.int64)
    captured["best"] = captured["best"] + 1
    reasons = {f.layer: f.reason for f in replay(Graph(model), inputs, captured).findings if f.reason}
    assert reasons["/Flatten"] == "shape [4, 23], and the file says [4, 24]"
    assert reasons["/pool/GlobalAveragePool"] == "type int64, and the file says float32"
    assert reasons["/ArgMax"] == "4 of 4 whole numbers differ"


# -- quantised graphs -------------------------------------------------------------------------------------------------


@needs_vnni
def test_a_quantised_graph_is_equal_up_to_ties():
    model, inputs = quantised_network(), image()
    captured = capture(model, inputs)
    graph = Graph(model)
    report = replay(graph, inputs, captured)
    assert [(f.layer, f.ratio, f.reason) for f in report.findings if f.verdict != Verdict.EQUAL] == []
    assert report.compared == 9
    # Flips of single values by one step are a part of the noise of a quantised graph.
    for seed in range(0, 50, 10):
        assert rho(noise(graph, inputs, seed)["y"], captured["y"]) < 3

    faulty = onnx.ModelProto()
    faulty.CopyFrom(model)
    bias = next(tensor for tensor in faulty.graph.initializer if tensor.name == "b")
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.int32([0, 0, 0, 0, 0, 0, 0, 2]), "b"))
    report = replay(graph, inputs, capture(faulty, inputs))
    assert {f.layer for f in report.findings if f.verdict == Verdict.DIFFERENT} == {"conv"}


def test_one_step_more_is_right_beside_a_tie_only_and_where_the_runtime_is_known_to_be_coarser():
    nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], name="quantise")]
    written = [numpy_helper.from_array(np.float32(0.1), "scale"), numpy_helper.from_array(np.uint8(7), "zero")]
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
        helper.make_tensor_value_info("y", TensorProto.UINT8, [3]),
    ]
    graph = Graph(helper.make_model(helper.make_graph(nodes, "steps", values[:1], values[1:], written)))
    # 0.45 / 0.1 in float32 is 4.4999998, beside the tie at 4.5.
    x = {"x": np.float32([0.45, 0.46, 1.0])}

    def finding(*steps, **more):
        return replay(graph, x, {"y": np.uint8(steps)}, **more).findings[0]

    assert finding(11, 12, 17).ratio == 0
    beside = finding(12, 12, 17)
    assert 0 < beside.ratio < 4
    assert beside.verdict == Verdict.EQUAL
    assert beside.max_abs == 1
    assert finding(11, 11, 17).verdict == Verdict.DIFFERENT
    assert finding(11, 12, 19).verdict == Verdict.DIFFERENT
    coarse = {"steps": {"quantise": MEAN_STEP}}  # a mean of LiteRT, whose zero point is rounded
    assert finding(11, 12, 18, **coarse).verdict == Verdict.EQUAL
    assert finding(11, 12, 19, **coarse).verdict == Verdict.DRIFT
    assert finding(11, 12, 35, **coarse).verdict == Verdict.DIFFERENT


# -- decisions --------------------------------------------------------------------------------------------------------


def test_sizes_that_are_computed_in_floating_point_do_not_change_under_perturbation():
    """Exporters compute sizes as floor(scale · size), where the smallest perturbation would change the shape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "two"], ["g"]),
        helper.make_node("Floor", ["g"], ["h"]),
        helper.make_node("Cast", ["h"], ["i"], to=TensorProto.INT64),
        helper.make_node("Resize", ["x", "", "", "i"], ["y"], mode="linear"),
    ]
    written = [numpy_helper.from_array(np.float32([1, 1, 2, 2]), "two")]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph(nodes, "sizes", values[:1], values[1:], written)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    found = noise(Graph(model), image())["y"]
    assert found.exact.shape == (4, 3, 40, 40)
    assert 0 < floor(found) < 1e-6


def test_a_decision_without_a_margin_may_fall_either_way():
    node = helper.make_node("ArgMax", ["s"], ["y"], axis=1, keepdims=0)
    nodes = [helper.make_node("Exp", ["x"], ["s"]), node]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph(nodes, "decision", inputs, [helper.make_tensor_value_info("y", TensorProto.INT64, [2])])
    found = noise(Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])), {
        "x": np.float32([[1, np.nextafter(np.float32(1), np.float32(2)), 0], [1, 2, 0]])
    })["y"]  # fmt: skip
    assert np.isinf(found.noise).tolist() == [True, False]
    assert rho(found, np.array([0, 1])) == 0
    assert rho(found, np.array([1, 0])) == np.inf


# -- names ------------------------------------------------------------------------------------------------------------


def test_a_finding_names_the_source_module():
    origins = {node.name: source(node) for node in Graph(network()).nodes}
    assert origins["/layer1/layer1.0/conv2/Conv"].module == "layer1.0.conv2"
    assert module_path("/features/features.3/features.3.1/Conv") == ("features.3.1",)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="node_conv2d_1")
    for key, value in {
        "pkg.torch.onnx.name_scopes": "['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_1']",
        "pkg.torch.onnx.stack_trace": 'File "/a/b.py", line 3, in forward\n  x\nFile "/a/c.py", line 7, in forward\n  y',
    }.items():
        node.metadata_props.add(key=key, value=value)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xwy"]
    graph = Graph(helper.make_model(helper.make_graph([node], "named", values[:2], values[2:])))
    assert source(graph.nodes[0]).module == "layer1.0.conv1"
    assert source(graph.nodes[0]).line == "/a/c.py:7"


@pytest.mark.parametrize(("error", "explained"), [(1.5e-7, True), (-1.5e-7, True), (1e-6, False)])
def test_only_an_error_of_the_size_of_rounding_is_an_approximation(error, explained):
    """One value of a sigmoid near 0 gets an absolute error; a larger one than approximations have is a fault."""
    x = np.linspace(-30, -10, 64, dtype=np.float32)[None]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    made = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"], "act")], "g", info[:1], info[1:])
    graph = Graph(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    y = 1 / (1 + np.exp(-x.astype(np.float64)))
    y[0, 3] += error
    (finding,) = replay(graph, {"x": x}, {"y": y.astype(np.float32)}).findings
    assert finding.verdict == Verdict.DIFFERENT
    assert (finding.rounding is not None, finding.counts_as) == (
        explained,
        Verdict.DRIFT if explained else Verdict.DIFFERENT,
    )
