"""Every operator in float64, against onnx's own test cases and onnx's own evaluator."""

import functools
import importlib
import re
from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from xverify.errors import Unsupported  # noqa: E402
from xverify.replay.graph.evaluation import evaluate  # noqa: E402
from xverify.replay.graph.model import Graph  # noqa: E402
from xverify.replay.graph.operators import rest, table  # noqa: E402
from xverify.replay.graph.operators.registry import OPERATORS, Call  # noqa: E402
from xverify.replay.graph.values import convert  # noqa: E402

# onnx's test cases, by the file that makes them.
SAMPLE = (
    "conv", "convtranspose",
    "averagepool", "maxpool", "batch_normalization", "layernormalization", "groupnormalization", "instance_normalization",
    "gemm", "matmul", "einsum", "softmax", "reducesum", "reduce_log_sum_exp", "slice", "gather", "scatternd",
    "split", "pad", "resize",
    "upsample", "lstm", "gru", "rnn", "if_", "loop", "scan", "sequence_map", "quantizelinear", "dequantizelinear", "qlinearconv",
    "qlinearmatmul", "convinteger", "matmulinteger", "cumsum", "topk", "clip", "gelu", "softplus", "where", "pow", "cast", "lrn",
    "gridsample", "depthtospace", "dropout", "rangeop", "attention", "rotaryembedding",
    "rmsnormalization", "tensorscatter", "identity", "stft",
)  # fmt: skip
WRITTEN_BY_HAND = (  # the expected values have four digits
    "test_averagepool_2d_ceil_last_window_starts_on_pad", "test_gridsample_bicubic", "test_roialign_aligned_false",
    "test_roialign_aligned_true",
)  # fmt: skip
TOLERANCE = 1e-5  # of the expected float32 values; the cases give 1e-3

# Cases that are not as onnx expects, and why.
EXCEPTIONS = {
    **dict.fromkeys(
        ("test_bernoulli", "test_bernoulli_expanded", "test_bernoulli_double", "test_bernoulli_double_expanded",
         "test_bernoulli_seed", "test_bernoulli_seed_expanded", "test_training_dropout", "test_training_dropout_default",
         "test_training_dropout_default_mask", "test_training_dropout_mask"),
        "random, so it has no exact value",
    ),
    **dict.fromkeys(
        ("test_dynamicquantizelinear", "test_dynamicquantizelinear_expanded"),
        "one value is a tie in float32, and below it in exact arithmetic",
    ),
    **dict.fromkeys(
        ("test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners"),
        "the expected values divide by a length that is not whole; runtimes use the length of the output, as the text says",
    ),
    "test_scan_sum": "Scan before version 9 has another meaning",
}  # fmt: skip


@functools.cache
def of_file(name):
    """onnx's test cases of one file, which its import adds to those of all files."""
    from onnx.backend.test.case.node import _NodeTestCases

    before = len(_NodeTestCases)
    importlib.import_module(f"onnx.backend.test.case.node.{name}")
    return {case.name: case for case in _NodeTestCases[before:]}


def cases(files):
    """onnx's test cases of these files."""
    return {name: case for file in files for name, case in of_file(file).items()}


def as_arrays(value):
    """The arrays of a test case, some of which are written as protocol buffers."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return [as_arrays(item) for item in value] if isinstance(value, (list, tuple)) else value


def problem(found, expected, tolerance):
    """How a value differs from the expected one; None when it does not."""
    if isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            return f"{len(found)} items instead of {len(expected)}"
        return next((p for p in (problem(a, b, tolerance) for a, b in zip(found, expected)) if p), None)
    if expected is None or found is None:
        return None if found is expected else f"{found} instead of {expected}"
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return f"shape {found.shape} instead of {expected.shape}"
    if expected.dtype.kind in "fV":
        low = expected.dtype.itemsize < 4
        limit = 2e-2 if low else tolerance
        near = np.allclose(found.astype(float), expected.astype(float), rtol=limit, atol=limit, equal_nan=True)
        return None if near else f"{found.reshape(-1)[:5]} instead of {expected.reshape(-1)[:5]}"
    same = found.tolist() == expected.tolist() and (found.dtype == expected.dtype or expected.dtype.kind in "OUS")
    return (
        None
        if same
        else f"{found.dtype} {found.reshape(-1)[:5]} instead of {expected.dtype} {expected.reshape(-1)[:5]}"
    )


def check(case):
    """What is wrong with the outputs of a test case; None when nothing is."""
    graph = Graph(case.model)
    names = [value.name for value in case.model.graph.input]
    for inputs, outputs in case.data_sets:
        try:
            found = evaluate(graph, dict(zip(names, map(as_arrays, inputs))))
        except Unsupported as error:
            return str(error)
        for value, expected in zip(case.model.graph.output, outputs):
            tolerance = max(TOLERANCE, case.rtol if case.rtol > 1e-3 or case.name in WRITTEN_BY_HAND else 0)
            wrong = problem(found[value.name], as_arrays(expected), tolerance)
            if wrong:
                return f"{value.name}: {wrong}"
    return None


def test_sample_of_onnx_cases():
    found = {name: check(case) for name, case in cases(SAMPLE).items() if name not in EXCEPTIONS}
    assert len(found) > 400
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.slow
def test_all_onnx_cases():
    """Every case, with the count and the exceptions printed. A case that is expected to differ and does not is an error, too."""
    from onnx.backend.test.loader import load_node_model_tests

    found = {case.name: check(case) for case in load_node_model_tests()}
    wrong = {name: why for name, why in found.items() if why}
    print(f"\n{len(found) - len(wrong)} of {len(found)} of onnx's node test cases agree; the others:")
    for name, why in sorted(wrong.items()):
        print(f"  {name}: {EXCEPTIONS.get(name, 'UNEXPECTED')} ({why})")
    assert set(wrong) == set(EXCEPTIONS) & set(found)


def in_float64(value):
    if isinstance(value, list):
        return [in_float64(item) for item in value]
    return convert(value, np.float64)


def test_own_operators_agree_with_onnx_to_float64():
    """Where both have an implementation, ours agrees with onnx's to the precision of float64, far below that of float32.

    onnx's Erf, Gelu and resizes are not exact to float64: they have constants of float32.
    """
    inexact = {"Resize", "Upsample", "QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "Cast", "CastLike",
               "LSTM", "GRU", "RNN", "GridSample", "AffineGrid", "Range", "Softplus", "Dropout", "BitCast",
               "DynamicQuantizeLinear"}  # fmt: skip
    compared = Counter()
    for name, case in cases(SAMPLE).items():
        node = next(iter(Graph(case.model).nodes), None)
        if name in EXCEPTIONS or len(case.model.graph.node) != 1 or node is None or node.op in inexact:
            continue
        if ("", node.op) not in OPERATORS or rest.implementation(node.domain, node.op, node.version) is None:
            continue
        given = dict(zip([value.name for value in case.model.graph.input], map(as_arrays, case.data_sets[0][0])))
        inputs = [in_float64(given[name]) if name else None for name in node.inputs]
        call = Call(node, node.attributes, np.float64, 0.0, tuple(getattr(part, "dtype", None) for part in inputs))
        ours, theirs = (function(call, *inputs) for function in (OPERATORS["", node.op], rest.compute))
        ours = ours if isinstance(ours, tuple) else (ours,)
        for ours_part, theirs_part in zip(ours, theirs):
            np.testing.assert_allclose(np.asarray(ours_part), theirs_part, rtol=1e-9, atol=1e-12, err_msg=name)
        compared[node.op] += 1
    assert len(compared) > 20


def model(nodes, inputs, outputs, initializers=(), opset=20, **more):
    """A model. inputs, outputs: name -> shape, float32."""
    values = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in part.items()]
        for part in (inputs, outputs)
    ]
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(initializers).items()]
    graph = helper.make_graph(nodes, "graph", *values, arrays)
    more.setdefault("opset_imports", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, ir_version=10, **more)


def test_a_missing_operator_is_named():
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Fancy", ["h"], ["y"], name="node7", domain="my.domain"),
    ]
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("my.domain", 3)]
    graph = Graph(model(nodes, {"x": [2]}, {"y": [2]}, opset_imports=imports))
    message = "node 'node7': the operator Fancy (domain my.domain, operator set 3) has no implementation in float64."
    with pytest.raises(Unsupported, match=re.escape(message)):
        evaluate(graph, {"x": np.ones(2, np.float32)})


def test_a_missing_input_is_named():
    graph = Graph(model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": [1], "b": [1]}, {"y": [1]}))
    with pytest.raises(ValueError, match="needs the inputs b"):
        evaluate(graph, {"a": np.ones(1, np.float32)})


def test_casts_between_floating_point_types_are_exact():
    """A file that computes in float16 has an exact meaning, too; only casts to whole numbers cut off."""
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["half", "third"], ["product"]),
        helper.make_node("Cast", ["product"], ["y"], to=TensorProto.FLOAT),
    ]
    third = np.float16(1 / 3)
    graph = Graph(model(nodes, {"x": [1]}, {"y": [1]}, {"third": third}))
    x = np.array([1 / 7], np.float32)
    assert evaluate(graph, {"x": x})["y"][0] == np.float64(x[0]) * np.float64(third)


def test_a_function_of_the_file_with_an_attribute():
    body = [
        helper.make_node("Constant", [], ["c"]),
        helper.make_node("Mul", ["a", "c"], ["b"]),
    ]
    body[0].attribute.append(
        onnx.AttributeProto(name="value_float", ref_attr_name="factor", type=onnx.AttributeProto.FLOAT)
    )
    function = helper.make_function("mine", "Scale", ["a"], ["b"], body, [helper.make_opsetid("", 20)], ["factor"])
    nodes = [
        helper.make_node("Scale", ["x"], ["h"], domain="mine", factor=2.0),
        helper.make_node("Scale", ["h"], ["y"], domain="mine", factor=0.25),
    ]
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
    graph = Graph(model(nodes, {"x": [2]}, {"y": [2]}, opset_imports=imports, functions=[function]))
    np.testing.assert_array_equal(evaluate(graph, {"x": np.float32([3, 5])})["y"], [1.5, 2.5])


def test_values_are_freed_after_their_last_use():
    """The values that are alive at one time do not grow with the length of the graph."""
    count = 30
    names = ["x", *(f"v{i}" for i in range(1, count)), "y"]
    nodes = [helper.make_node("Exp" if i % 2 else "Log", [a], [b]) for i, (a, b) in enumerate(zip(names, [*names[1:]]))]
    graph = Graph(model(nodes, {"x": [4]}, {"y": [4]}))
    assert [set(freed) for freed in graph.freed[:-1]] == [{name} for name in names[: count - 1]]
    visited = []
    evaluate(graph, {"x": np.float32([1, 2, 3, 4])}, lambda node, values: visited.extend(values))
    assert visited == names[1:]


def test_every_operator_has_one_place():
    assert (
        table.find(Graph(model([helper.make_node("Det", ["x"], ["y"])], {"x": [2, 2]}, {"y": []})).nodes[0])
        is rest.compute
    )
