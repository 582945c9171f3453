import numpy as np
import pytest

from xverify import ModelSpec, TensorSpec
from xverify.compare import EQUAL_RATIO, compare

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
    return compare(outputs, truth, FLOAT32, SPEC, cases=2)


def test_the_reference_itself_is_equal():
    error = judged()
    assert error.verdict == "EQUAL"
    assert error.float32_ratio == pytest.approx(1.0)
    assert error.compared == error.expected == 2


def test_the_three_errors_are_what_their_names_say():
    delta = 0.25
    error = judged(lambda key, array: (TRUTH[key] + delta).astype(np.float32))
    assert error.mean_abs == pytest.approx(delta, rel=1e-5)
    assert error.max_abs == pytest.approx(delta, rel=1e-5)
    assert error.rel_rms == pytest.approx(delta / min(np.sqrt(np.mean(t**2)) for t in TRUTH.values()), rel=1e-5)


def test_the_limit_lies_where_the_rule_says():
    def scaled(factor):
        return judged(lambda key, array: (TRUTH[key] + factor * (FLOAT32[key] - TRUTH[key])).astype(np.float32))

    assert scaled(EQUAL_RATIO * 0.9).verdict == "EQUAL"
    worse = scaled(EQUAL_RATIO * 1.2)
    assert worse.verdict == "DIFFERENT"
    assert "case" in worse.reason


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


def test_an_output_that_nobody_named_is_invalid():
    outputs = {**FLOAT32, "0/output[1]": np.zeros(3, np.float32)}
    error = compare(outputs, TRUTH, FLOAT32, SPEC, cases=2)
    assert error.verdict == "INVALID"
    assert "output[1]" in error.reason


def test_swapped_channels_with_the_same_mean_differ():
    assert judged(lambda key, array: array[:, ::-1].copy()).verdict == "DIFFERENT"


def test_nothing_compared_is_never_a_pass():
    assert compare({}, TRUTH, FLOAT32, SPEC, cases=2).verdict == "INVALID"


def test_a_constant_output_shows_no_fault():
    constant = {key: np.full((4, 50), 0.5) for key in TRUTH}
    single = {key: value.astype(np.float32) for key, value in constant.items()}
    assert compare(single, constant, single, SPEC, cases=2).verdict == "UNTESTED"


def test_the_same_nan_on_both_sides_is_compared_around():
    truth = {key: value.copy() for key, value in TRUTH.items()}
    single = {key: value.copy() for key, value in FLOAT32.items()}
    for key in truth:
        truth[key][0, 0] = single[key][0, 0] = np.nan
    assert compare(single, truth, single, SPEC, cases=2).verdict == "EQUAL"


def test_integers_are_equal_or_not():
    spec = ModelSpec(inputs=SPEC.inputs, outputs={"y": TensorSpec(("N", 3), "int64")})
    truth = {"0/y": np.arange(12).reshape(4, 3)}
    assert compare(dict(truth), truth, truth, spec, cases=1).verdict == "EQUAL"
    other = {"0/y": truth["0/y"] + (truth["0/y"] == 5)}
    assert compare(other, truth, truth, spec, cases=1).verdict == "DIFFERENT"
