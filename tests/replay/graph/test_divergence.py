"""The first node at which two graphs differ, and what their weights tell, on the planted conversions."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")

from helpers import plantedfaults as planted  # noqa: E402  onnx is there

from xverify.replay.graph.explain.divergence import divergences, trace  # noqa: E402
from xverify.replay.graph.explain.sketch import apart, reordered, sketch  # noqa: E402
from xverify.replay.graph.model import Graph  # noqa: E402
from xverify.weights import onnx_graph  # noqa: E402
from xverify.weights.findings import sentences  # noqa: E402
from xverify.weights.relations import relate  # noqa: E402

OUTPUTS = {name: name for name in ("scores", "features", "tokens")}
# Sentences that need the outputs of a runtime.
OF_OUTPUTS = ("a softmax is missing", "its axes are transposed", "the outputs are swapped", "when its input")


def inputs(scale=3.0):
    random = np.random.default_rng(5)
    image = scale * random.standard_normal((2, 3, 8, 8))
    return {"image": image.astype(np.float32), "ids": random.integers(0, 20, (2, 5))}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    model = onnx.load(planted.write(tmp_path_factory.mktemp("right") / "right.onnx"))
    return trace(Graph(model), inputs()), onnx_graph.stored(model)


def told(path, reference, any_order=False):
    """All sentences on a file."""
    model = onnx.load(path)
    given = inputs()
    if any_order:
        given["image"] = np.ascontiguousarray(given["image"].transpose(0, 2, 3, 1))
    weights = onnx_graph.stored(model)
    relations = relate(weights, reference[1])
    coarse = 0.02 if any(each.kind == "rounded" for each in relations) else 0.0
    found = divergences(trace(Graph(model), given), reference[0], OUTPUTS, any_order, coarse)
    return [*sentences(relations, weights, reference[1]), *found]


@pytest.mark.parametrize("name", planted.RIGHT)
def test_another_right_way_to_write_a_model_draws_no_sentence(tmp_path, reference, name):
    path = planted.write(tmp_path / "file.onnx", **planted.RIGHT[name])
    assert told(path, reference, any_order="nhwc" in name) == []


@pytest.mark.parametrize("name", planted.WRONG)
def test_a_fault_is_named_with_its_place(tmp_path, reference, name):
    arguments, expected = planted.WRONG[name]
    arguments = {**arguments, "activation": 2.0} if name == "relu6" else arguments  # these values stay below 6
    found = told(planted.write(tmp_path / "file.onnx", **arguments), reference)
    assert found or name == "outputs-swapped"  # which is told of the outputs alone
    for says in expected:
        if not any(part in says for part in OF_OUTPUTS):
            says = says.replace("max 6", "max 2")
            assert any(says in each for each in found), (says, found)


def test_sketches_estimate_distances_and_recognise_another_order():
    random = np.random.default_rng(0)
    array = random.standard_normal((3, 50, 70))
    for size in (1e-6, 1e-2):
        noisy = array + size * random.standard_normal(array.shape)
        assert 0.5 * size < apart(sketch(noisy), sketch(array)) < 2 * size
    turned = sketch(array.transpose(2, 0, 1))
    assert apart(turned, sketch(array)) > 0.5
    assert reordered(turned, sketch(array), 1e-6)
    assert not reordered(sketch(array + 0.01), sketch(array), 1e-6)
    assert apart(sketch(array[0]), sketch(array)) == float("inf")
    assert apart(sketch(np.zeros(3)), sketch(np.zeros(3))) == 0.0
