"""How the weights of one file follow from those of another: right relations and wrong ones."""

import numpy as np
import pytest

from xverify.weights import save_file
from xverify.weights.closeness import distance, fit_of, rounded_to
from xverify.weights.findings import sentences
from xverify.weights.relations import relate
from xverify.weights.stored import Stored, norms_by_name

RANDOM = np.random.default_rng(0)


def weights():
    random = np.random.default_rng(1)
    made = {}
    for index in (1, 2):
        made[f"conv{index}.weight"] = random.standard_normal((6, 6, 3, 3))
        made[f"bn{index}.weight"] = random.uniform(0.5, 1.5, 6)
        made[f"bn{index}.bias"] = random.standard_normal(6)
        made[f"bn{index}.running_mean"] = random.standard_normal(6)
        made[f"bn{index}.running_var"] = random.uniform(0.3, 2.0, 6)
    made["fc.weight"], made["fc.bias"] = random.standard_normal((4, 6)), random.standard_normal(4)
    return {name: array.astype(np.float32) for name, array in made.items()}


def folded(w, eps=1e-5):
    """As a converter folds the batch norms: other names, and biases where none were."""
    made = {"last/kernel": w["fc.weight"].T, "last/bias": w["fc.bias"]}
    for index in (1, 2):
        scale = w[f"bn{index}.weight"] / np.sqrt(w[f"bn{index}.running_var"].astype(np.float64) + eps)
        made[f"layer_{index}/kernel"] = (w[f"conv{index}.weight"] * scale[:, None, None, None]).transpose(2, 3, 1, 0)
        made[f"layer_{index}/bias"] = w[f"bn{index}.bias"] - w[f"bn{index}.running_mean"] * scale
    return {name: np.ascontiguousarray(array, np.float32) for name, array in made.items()}


def stored(arrays):
    return Stored(arrays, norms_by_name(arrays))


def told(file, reference):
    mine, theirs = stored(file), stored(reference)
    return sentences(relate(mine, theirs), mine, theirs)


def test_batch_norms_are_found_by_their_names():
    assert [norm.name for norm in norms_by_name(weights())] == ["bn1", "bn2"]
    keras = {f"b/{name}": np.ones(3, np.float32) for name in ("gamma", "beta", "moving_mean", "moving_variance")}
    assert [norm.name for norm in norms_by_name(keras)] == ["b"]


@pytest.mark.parametrize("swap", [False, True])
def test_folded_renamed_and_turned_weights_are_right_in_both_directions(swap):
    pair = (folded(weights()), weights())
    assert told(*(reversed(pair) if swap else pair)) == []
    relations = relate(stored(pair[0]), stored(pair[1]))
    (one,) = (each for each in relations if each.name == "layer_1/kernel")
    assert one.says.startswith("equal after folding batch norm bn1 into conv1.weight")


def test_another_eps_of_keras_is_a_usual_one():
    assert told(folded(weights(), eps=1e-3), weights()) == []


def test_one_stale_weight_is_named_under_its_own_name_and_under_another_one():
    old = weights()
    noise = RANDOM.standard_normal(old["conv2.weight"].shape)
    old["conv2.weight"] = (old["conv2.weight"] + 0.03 * noise).astype(np.float32)
    (says,) = told(old, weights())
    assert says.startswith("stale: only conv2.weight differs, by 3")
    assert any("layer_2/kernel, the reference's conv2.weight, " in says for says in told(folded(old), weights()))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda w: w.astype(np.float16), "fc.weight is rounded to float16"),
        (lambda w: (w.view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32), "fc.weight is rounded to bfloat16"),
        (lambda w: 0 * w, "fc.weight is zero"),
        (lambda w: 3 * w, "fc.weight is multiplied by 3"),
    ],
)
def test_a_changed_weight_is_described(change, says):
    w = weights()
    w["fc.weight"] = change(w["fc.weight"]).astype(np.float32)
    assert told(w, weights()) == [says]


def test_a_scale_is_told_only_where_one_factor_explains_the_values():
    right = np.random.default_rng(3).normal(size=(24, 24)).astype(np.float32)
    rows = np.r_[np.full(12, 1.0), np.full(12, 0.2)].astype(np.float32)[:, None]
    steps = np.round(right * 40) / 40
    for file, says in ((steps * 1.3, "with a scale 1.3 times the right one"), (steps * rows, "% (rms) away")):
        (found,) = relate(Stored({"w": file}, quantised={"w": "int8"}), Stored({"w": right}))
        assert says in found.says
        assert ("with a scale" in found.says) == ("with a scale" in says)
        assert not found.right


def test_a_missing_bias_is_named():
    w = weights()
    del w["fc.bias"]
    assert told(w, weights()) == ["fc.bias of the reference has no partner in the file"]


def test_the_order_of_axes_and_lower_precision_are_found():
    array = RANDOM.standard_normal((3, 4, 5)).astype(np.float32)
    assert fit_of(array.transpose(2, 0, 1), array).order == (2, 0, 1)
    assert fit_of(array, array).order is None
    assert fit_of(array, array[:2]) is None
    assert distance(array, np.zeros(3)) == float("inf")
    assert rounded_to(array, array) == ""
    assert rounded_to(array + 0.01, array) == ""


def test_weights_diff_tells_folding_rounding_and_a_stale_weight(xverify, tmp_path):
    old = weights()
    old["fc.weight"] = old["fc.weight"].astype(np.float16).astype(np.float32)
    for name, arrays in (("right", weights()), ("folded", folded(weights())), ("half", old)):
        save_file(arrays, tmp_path / f"{name}.npz")
    done = xverify("weights", "diff", tmp_path / "folded.npz", tmp_path / "right.npz")
    assert done.code == 0, done.out + done.err
    assert "layer_1/kernel: equal after folding batch norm bn1 into conv1.weight" in done.out
    assert "last/bias: equal to fc.bias" in done.out
    done = xverify("weights", "diff", tmp_path / "half.npz", tmp_path / "right.npz")
    assert done.code == 1
    assert "values differ, most at" in done.out
    assert "fc.weight is rounded to float16" in done.out
    assert "1 of 12 tensors differ" in done.out


def test_weights_diff_reads_model_files(xverify, tmp_path):
    onnx = pytest.importorskip("onnx")
    from helpers import plantedfaults as planted

    right = planted.write(tmp_path / "right.onnx")
    other = planted.write(tmp_path / "other.onnx", planted.fold(planted.weights()), norm=False, rename=True)
    done = xverify("weights", "diff", other, right)
    assert done.code == 0, done.out + done.err
    assert "(2 3" not in done.out
    assert "equal after folding batch norm /bn1/BatchNormalization into conv1.weight" in done.out
    wrong = planted.write(tmp_path / "wrong.onnx", planted.changed("conv2.weight", planted.older))
    done = xverify("weights", "diff", wrong, right)
    assert done.code == 1
    assert "stale: only conv2.weight (of /conv2/Conv) differs, by 3% (rms)" in done.out
    (tmp_path / "broken.onnx").write_bytes(right.read_bytes()[:-40])
    assert xverify("weights", "diff", tmp_path / "broken.onnx", right).code == 2
    assert onnx


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_depthwise_kernel_of_keras_with_its_batch_norm_folded_in_is_right(outputs):
    random, count = np.random.default_rng(2), 6 * outputs
    norm = {name: random.uniform(0.5, 2, count) for name in ("gamma", "beta", "moving_mean", "moving_variance")}
    keras = {f"bn/{name}": array for name, array in norm.items()}
    keras |= {"dw/kernel": random.standard_normal((3, 3, 6, outputs)), "dw/bias": random.standard_normal(count)}
    # A layer that takes the channels of the batch norm, and has a bias of another length.
    keras |= {"fc/kernel": random.standard_normal((count, 5)), "fc/bias": random.standard_normal(5)}
    scale = norm["gamma"] / np.sqrt(norm["moving_variance"] + 1e-3)
    kernel = keras["dw/kernel"].reshape(1, 3, 3, count) * scale
    bias = norm["beta"] + (keras["dw/bias"] - norm["moving_mean"]) * scale
    lite = {"a": kernel, "b": bias, "c": keras["fc/kernel"].T, "d": keras["fc/bias"]}
    mine, theirs = (
        {name: np.ascontiguousarray(array, np.float32) for name, array in each.items()} for each in (lite, keras)
    )
    assert told(mine, theirs) == []
