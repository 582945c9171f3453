"""The rounding of a file's operations is estimated by perturbed evaluations, also where all inputs are whole numbers."""

from functools import partial

import numpy as np
import pytest
from helpers.modelfiles import FILES, Opened, file

from xverify.framework import formats
from xverify.messages.files import Compute
from xverify.weights import npz
from xverify.workload.probe import perturb

# What each runtime computes in float64 is the subject of other tests: here are those that compute in the precision of the file.
NARROW = [name for name in FILES if name not in ("onnx", "torchscript", "pt2")]


@pytest.mark.slow
@pytest.mark.parametrize("name", NARROW)
def test_weights_are_replaced_by_neighbouring_values(tmp_path, name):
    x = {"0/x": np.full((2, 4), 0.3, np.float32), "0/scale": np.ones((2, 3), np.float32)}
    npz.save_file(x, tmp_path / "inputs.npz")
    results = []
    with Opened(file(*FILES[name]), tmp_path / "worker", "openvino" if name == "onnx-openvino" else "") as opened:
        opened.build()
        for perturb in (None, 1, None):
            path = tmp_path / f"{len(results)}.npz"
            opened.worker.ask(Compute(str(tmp_path / "inputs.npz"), str(path), perturb=perturb))
            results.append(next(array for key, array in npz.load_file(path).items() if "logits" in key))
    before, perturbed, after = results
    assert np.array_equal(before, after)  # the file that is judged keeps its weights
    change = np.abs(perturbed - before).max() / np.abs(before).max()
    assert 1e-9 < change < 1e-5


def test_a_masked_softmax_keeps_its_infinite_scores():
    torch = pytest.importorskip("torch")
    from xverify.float64.operations import perturbed_operations
    from xverify.float64.rounding import Noise

    scores = torch.randn(8, 8, dtype=torch.float64)
    future = torch.ones(8, 8).triu(1).bool()
    exact = scores.masked_fill(future, float("-inf")).softmax(-1)
    with perturbed_operations(Noise(0)):
        rounded = scores.masked_fill(future, float("-inf")).softmax(-1)
    assert rounded.isfinite().all()
    assert 0 < (rounded - exact).abs().max() < 1e-6


@pytest.mark.slow
def test_every_weight_of_a_tflite_file_is_found_where_it_is(tmp_path):
    """The bytes of a weight of zeros are also those of other parts of the file."""
    pytest.importorskip("ai_edge_litert")
    adapter = formats.load("tflite")(1, "cpu")
    model = adapter.open(file("TENSORFLOW", "zeros.tflite"), {}, False)
    before = adapter.stored(model).arrays
    after = adapter.stored(adapter.with_weights(model, partial(perturb, seed=1), tmp_path)).arrays
    shapes = {array.shape for array in before.values() if array.dtype == np.float32}
    assert {(2,), (2, 4)} <= shapes
    for name, array in before.items():
        if array.dtype == np.float32:
            assert (np.abs(after[name] - array) == np.abs(np.spacing(array))).mean() > 0.9, name
