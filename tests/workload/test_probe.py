import numpy as np

from xverify import ModelSpec, TensorSpec
from xverify.workload import probe

SHAPES = {
    "conv.weight": (16, 8, 3, 3),
    "conv.bias": (16,),
    "bn.weight": (16,),
    "bn.bias": (16,),
    "bn.running_mean": (16,),
    "bn.running_var": (16,),
}


def test_probe_weights_are_neither_constant_nor_too_large():
    arrays = probe.weights(SHAPES, seed=0)
    assert {name: array.shape for name, array in arrays.items()} == SHAPES
    assert all(array.dtype == np.float32 for array in arrays.values())
    assert all(len(np.unique(array)) > 1 for array in arrays.values())
    assert (arrays["bn.running_var"] > 0).all()
    assert np.std(arrays["conv.weight"]) * np.sqrt(8 * 9 / 2) < 1.2


def test_the_weights_of_a_name_do_not_depend_on_other_names():
    alone = probe.weights({"bn.bias": (16,)}, seed=3)["bn.bias"]
    assert np.array_equal(alone, probe.weights(SHAPES, seed=3)["bn.bias"])
    assert not np.array_equal(alone, probe.weights(SHAPES, seed=4)["bn.bias"])


def test_only_batch_norm_statistics_are_changed_and_rounded():
    arrays = probe.weights(SHAPES, seed=0)
    changed = probe.unsettle(arrays, seed=0)
    for name in SHAPES:
        if name.startswith("bn.running"):
            assert not np.any(changed[name].view(np.uint32) & 0xFFF)
            assert not np.array_equal(changed[name], arrays[name])
            assert np.allclose(changed[name], arrays[name], atol=1.0)
        else:
            assert changed[name] is arrays[name]
    assert (changed["bn.running_var"] > 0).all()


def test_rounding_removes_a_difference_in_the_last_bit():
    arrays = probe.weights(SHAPES, seed=0)
    neighbours = {name: np.nextafter(array, np.float32(9)) for name, array in arrays.items()}
    first, second = probe.unsettle(arrays, 0), probe.unsettle(neighbours, 0)
    same = np.mean(first["bn.running_var"] == second["bn.running_var"])
    assert same > 0.9


def test_input_cases_differ_and_keep_their_range():
    spec = ModelSpec(
        inputs={
            "x": TensorSpec(("N", 8)),
            "t": TensorSpec(("N", 5), "int64", 2, 7),
            "u": TensorSpec((3,), low=0, high=1),
        },
        outputs={"y": TensorSpec(("N",))},
    )
    arrays = probe.inputs(spec, batch=4, seed=0, cases=3)
    assert set(arrays) == {f"{case}/{name}" for case in range(3) for name in "xtu"}
    assert arrays["0/x"].shape == (4, 8)
    assert not np.array_equal(arrays["0/x"], arrays["1/x"])
    tokens = np.concatenate([arrays[f"{case}/t"].ravel() for case in range(3)])
    assert tokens.dtype == np.int64
    assert set(tokens) <= {2, 3, 4, 5, 6}
    assert 0 <= arrays["0/u"].min() <= arrays["0/u"].max() < 1


def test_perturbation_changes_every_float_to_a_neighbour():
    arrays = {"w": np.linspace(-3, 3, 100, dtype=np.float32), "t": np.arange(4)}
    changed = probe.perturb(arrays, seed=0)
    assert (changed["w"] != arrays["w"]).all()
    assert np.abs(changed["w"] - arrays["w"]).max() <= np.spacing(np.float32(3))
    assert np.array_equal(changed["t"], arrays["t"])
