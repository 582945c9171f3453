import tracemalloc
import weakref
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from xverify import ModelSpec, TensorSpec
from xverify.results.records import LayerError, Layers
from xverify.verdict.limits import OWN_DRIFT, OWN_EQUAL
from xverify.verdict.outputs import compare

pytestmark = pytest.mark.usefixtures("in_one_process")

SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(("N", 50))})
GENERATOR = np.random.default_rng(0)
TRUTH = {f"{case}/y": GENERATOR.standard_normal((4, 50)) for case in range(2)}
FLOAT32 = {
    key: (value * (1 + 1e-6 * GENERATOR.standard_normal(value.shape))).astype(np.float32)
    for key, value in TRUTH.items()
}


def judged(change=lambda key, array: array, truth=TRUTH):
    outputs = {key: change(key, array.copy()) for key, array in FLOAT32.items()}
    outputs = {key: array for key, array in outputs.items() if array is not None}
    return compare(outputs, truth, FLOAT32, SPEC, cases=range(2))


def test_the_reference_itself_is_identical():
    error = judged()
    assert error.verdict == "IDENTICAL"
    last_bit = judged(lambda key, array: np.nextafter(array, np.float32(9)))
    assert last_bit.verdict == "EQUAL"
    assert error.float32_ratio == pytest.approx(1.0)
    assert error.compared == error.expected == 2


def test_the_three_errors_have_the_values_of_their_definitions():
    delta = 0.25
    error = judged(lambda key, array: (TRUTH[key] + delta).astype(np.float32))
    assert error.mean_abs == pytest.approx(delta, rel=1e-5)
    assert error.max_abs == pytest.approx(delta, rel=1e-5)
    assert error.rel_rms == pytest.approx(delta / min(np.sqrt(np.mean(t**2)) for t in TRUTH.values()), rel=1e-5)


def test_the_verdict_changes_at_the_limits_of_the_rule():
    def scaled(factor):
        return judged(lambda key, array: (TRUTH[key] + factor * (FLOAT32[key] - TRUTH[key])).astype(np.float32))

    assert scaled(OWN_EQUAL * 0.9).verdict == "EQUAL"
    assert scaled(OWN_EQUAL * 1.2).verdict == "DRIFT"
    worse = scaled(OWN_DRIFT * 1.2)
    assert worse.verdict == "DIFFERENT"
    assert "case" in worse.reason


@pytest.mark.parametrize(
    ("rho", "layer", "verdict", "says"),
    [
        (2.5, None, "EQUAL", None),
        (9, None, "DRIFT", "y, case 1: error is 9 x the noise of all layers (limit 3)"),
        (11, None, "DIFFERENT", "11 x the noise of all layers (limit 10)"),
        (25, "EQUAL", "EQUAL", None),
        (35, "EQUAL", "DIFFERENT", "every layer that was compared is EQUAL"),
        (1, "DRIFT", "DRIFT", "fc differs first: 7 x"),
        (1, "DIFFERENT", "DIFFERENT", "fc differs first: 7 x"),
    ],
)
def test_with_modelled_noise_the_verdict_also_depends_on_the_layers(rho, layer, verdict, says):
    outputs = {key: (TRUTH[key] + rho * 1e-3).astype(np.float32) for key in TRUTH}
    floors = {"0/y": 2e-3, "1/y": 1e-3}
    layers = None
    if layer:
        layers = Layers((LayerError("fc", "Linear", 1, 7.0, 7.0, 0.0, layer),), compared=1, known=1, cases=(0, 1))
    error = compare(outputs, TRUTH, FLOAT32, SPEC, cases=range(2), floors=floors, layers=layers)
    assert error.noise_ratio == pytest.approx(rho, rel=1e-2)
    assert error.verdict == verdict
    assert says is None or says in error.reason


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({"cases": (0, 1)}, "EQUAL"),
        ({"cases": (0,)}, "DIFFERENT"),
        ({"cases": (0, 1), "partial": ("fc",)}, "DIFFERENT"),
        ({"cases": (0, 1), "partial": ("fc",), "equal_cases": (1,)}, "EQUAL"),
    ],
    ids=["judged in both", "not judged in the second", "not all compared", "compared in the second alone"],
)
def test_a_larger_ratio_is_earned_in_the_very_case_by_layers_that_are_equal(more, verdict):
    outputs = {"0/y": TRUTH["0/y"].astype(np.float32), "1/y": (TRUTH["1/y"] + 25e-3).astype(np.float32)}
    layers = Layers((LayerError("fc", "Linear", 1, 1.0, 1.0, 0.0, "EQUAL"),), 1, 1, **more)
    error = compare(outputs, TRUTH, FLOAT32, SPEC, range(2), dict.fromkeys(TRUTH, 1e-3), layers)
    assert error.verdict == verdict
    if more == {"cases": (0,)}:
        assert error.reason.endswith("but no layer was compared in this input case")


def test_layers_of_another_callable_excuse_only_outputs_near_its_own():
    outputs = {key: (TRUTH[key] + 25e-3).astype(np.float32) for key in TRUTH}
    layers = Layers((LayerError("fc", "Linear", 1, 1.0, 1.0, 0.0, "EQUAL"),), 1, 1, subject="port:eager", mode="eager")
    layers = replace(layers, cases=(0, 1))

    def judged_beside(returned):
        floors = dict.fromkeys(TRUTH, 1e-3)
        return compare(outputs, TRUTH, FLOAT32, SPEC, range(2), floors, layers, returned=returned)

    near = judged_beside({key: array + np.float32(2e-3) for key, array in outputs.items()})
    assert near.verdict == "EQUAL"
    assert "y, case 0: error is 25 x the noise of all layers, which may be up to 30 because every layer" in near.reason
    assert (
        "the outputs are 2 x this noise away from what the captured pass of port:eager (in mode eager)" in near.reason
    )
    far = judged_beside({**outputs, "1/y": outputs["1/y"] + np.float32(12e-3)})
    assert far.verdict == "DIFFERENT"
    assert "12 x this noise away from what the captured pass of port:eager" in far.reason
    assert judged_beside({}).reason.endswith(
        "the outputs are not comparable with what the captured pass of port:eager (in mode eager) returned"
    )
    assert judged_beside({key: array[:1] for key, array in outputs.items()}).verdict == "DIFFERENT"


def test_what_remains_beside_another_precision_is_judged_by_the_noise_of_that_precision():
    says = "has its weights rounded to bfloat16"
    layer = LayerError("fc", "Linear", 1, 900.0, 900.0, 0.0, "DRIFT", explanation=says, rounding=True)
    layers = Layers((layer,), 1, 1)

    def judged_at(ratio):
        outputs = {key: (TRUTH[key] + ratio * size).astype(np.float32) for key, size in zip(TRUTH, (1e-2, 9e-3))}
        floors, rounding = dict.fromkeys(TRUTH, 1e-5), dict.fromkeys(TRUTH, 1e-2)
        return compare(outputs, TRUTH, FLOAT32, SPEC, range(2), floors, layers, rounding_floors=rounding)

    drifts, differs = judged_at(2.9), judged_at(3.1)
    assert (drifts.verdict, drifts.reason) == ("DRIFT", f"fc: {says}")
    assert drifts.noise_ratio == pytest.approx(2900, rel=1e-3)
    assert drifts.tensors[0].rounding_ratio == pytest.approx(2.9, rel=1e-3)
    assert differs.verdict == "DIFFERENT"
    assert differs.reason == (
        "y, case 0: error is 3.1 x what rounding can come to, the other precision of some layers included (limit 3); "
        f"fc: {says}"
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda key, array: None if key == "1/y" else array, "missing"),
        (lambda key, array: array[:, :49], r"shape \(4, 49\)"),
        (lambda key, array: array.astype(np.float64), "float64, spec.py says float32"),
        (lambda key, array: np.where(array > 2, np.nan, array).astype(np.float32), "NaN"),
        (lambda key, array: np.where(array > 2, np.inf, array).astype(np.float32), "infinite"),
    ],
)
def test_what_cannot_be_compared_is_invalid(change, says):
    error = judged(change)
    assert error.verdict == "INVALID"
    assert says.replace("\\", "") in error.reason


def test_an_output_that_the_spec_does_not_name_is_invalid():
    outputs = {**FLOAT32, "0/output[1]": np.zeros(3, np.float32)}
    error = compare(outputs, TRUTH, FLOAT32, SPEC, cases=range(2))
    assert error.verdict == "INVALID"
    assert "output[1]" in error.reason


def test_swapped_channels_with_the_same_mean_differ():
    assert judged(lambda key, array: array[:, ::-1].copy()).verdict == "DIFFERENT"


def test_missing_outputs_are_invalid():
    assert compare({}, TRUTH, FLOAT32, SPEC, cases=range(2)).verdict == "INVALID"


def test_a_constant_output_is_untested():
    constant = {key: np.full((4, 50), 0.5) for key in TRUTH}
    single = {key: value.astype(np.float32) for key, value in constant.items()}
    assert compare(single, constant, single, SPEC, cases=range(2)).verdict == "UNTESTED"


def test_values_beside_the_same_nan_are_compared():
    truth = {key: value.copy() for key, value in TRUTH.items()}
    single = {key: value.copy() for key, value in FLOAT32.items()}
    for key in truth:
        truth[key][0, 0] = single[key][0, 0] = np.nan
    assert compare(single, truth, single, SPEC, cases=range(2)).verdict == "IDENTICAL"


def test_integers_are_equal_or_not():
    spec = ModelSpec(inputs=SPEC.inputs, outputs={"y": TensorSpec(("N", 3), "int64")})
    truth = {"0/y": np.arange(12).reshape(4, 3)}
    assert compare(dict(truth), truth, truth, spec, cases=range(1)).verdict == "IDENTICAL"
    other = {"0/y": truth["0/y"] + (truth["0/y"] == 5)}
    assert compare(other, truth, truth, spec, cases=range(1)).verdict == "DIFFERENT"


def test_infinities_of_different_signs_are_invalid():
    truth, single, ours = ({key: value.copy() for key, value in arrays.items()} for arrays in (TRUTH, FLOAT32, FLOAT32))
    truth["0/y"][0, 0] = single["0/y"][0, 0] = np.inf
    ours["0/y"][0, 0] = -np.inf
    assert compare(single, truth, single, SPEC, cases=range(2)).verdict in ("EQUAL", "IDENTICAL")
    error = compare(ours, truth, single, SPEC, cases=range(2))
    assert error.verdict == "INVALID"
    assert "0 infinite and 1 negative infinite values, the reference 0 NaN, 1 infinite" in error.reason


def test_an_infinite_noise_floor_is_invalid():
    single = {key: value.copy() for key, value in FLOAT32.items()}
    single["1/y"][2, 3] = np.inf
    error = compare(FLOAT32, TRUTH, single, SPEC, cases=range(2))
    assert error.verdict == "INVALID"
    assert "of the reference has 0 NaN, 1 infinite and 0 negative infinite values in float32" in error.reason


def test_comparing_a_large_output_in_parts_gives_the_same_result(monkeypatch):
    at_once = judged()
    monkeypatch.setattr("xverify.verdict.ratios.PART", 7)
    in_parts = judged()
    assert in_parts.float32_ratio == pytest.approx(at_once.float32_ratio, rel=1e-12)
    assert in_parts.mean_abs == pytest.approx(at_once.mean_abs, rel=1e-12)
    assert in_parts.max_abs == at_once.max_abs
    assert judged(lambda key, array: array[:, ::-1].copy()).verdict == "DIFFERENT"
    assert judged(lambda key, array: np.where(array > 2, np.nan, array).astype(np.float32)).verdict == "INVALID"
    constant = {key: np.full((4, 50), 0.5, np.float32) for key in TRUTH}
    assert compare(constant, constant, constant, SPEC, cases=range(2)).verdict == "UNTESTED"


def test_large_outputs_are_read_one_at_a_time_and_never_copied(monkeypatch):
    monkeypatch.setattr("xverify.verdict.ratios.PART", 2**14)

    class Made(Mapping):
        """Arrays that are made when they are looked up."""

        def __init__(self, dtype):
            self.dtype, self.alive = dtype, []

        def __getitem__(self, key):
            array = np.random.default_rng(int(key[0])).random((4, 2**18), np.float32).astype(self.dtype, copy=False)
            self.alive = [reference for reference in self.alive if reference() is not None]
            assert not self.alive, "the previous array is still in memory"
            self.alive.append(weakref.ref(array))
            return array

        def __iter__(self):
            return (f"{case}/y" for case in range(3))

        def __len__(self):
            return 3

    truth, single = Made(np.float64), Made(np.float32)
    tracemalloc.start()
    try:
        error = compare(Made(np.float32), truth, single, SPEC, cases=range(3))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.verdict in ("EQUAL", "IDENTICAL")
    tensor = 4 * 2**18 * 4  # bytes in float32
    assert peak < (1 + 1 + 2 + 1) * tensor, "ours, float32, float64, and parts of them"
