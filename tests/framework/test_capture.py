"""The files of a capture: equal arrays share one, and arrays that differ in a single bit do not."""

import numpy as np
import pytest

from xverify.framework.capture import PART, SAMPLE, Recorder


@pytest.fixture
def recorder(tmp_path):
    return Recorder(tmp_path, lambda value: value if isinstance(value, np.ndarray) else None)


def files(recorder, *arrays):
    record = recorder.begin("layer", arrays)
    for name, array in zip(record.inputs, arrays):
        stored = np.load(recorder.folder / name)
        assert (stored.dtype, stored.shape, stored.tobytes()) == (array.dtype, array.shape, array.tobytes())
    return record.inputs


def test_equal_arrays_share_a_file_and_no_others_do(recorder):
    values = np.random.default_rng(0).standard_normal(PART).astype(np.float32)
    other = values.copy()
    place = PART // 2 + 1  # in the second part that is compared, and between the values that are compared first
    assert place % (PART // SAMPLE)
    other.view(np.uint32)[place] ^= 1
    assert files(recorder, values, other, other.copy(), values.copy()) == ["0.npy", "1.npy", "1.npy", "0.npy"]
    assert files(recorder, values.reshape(2, -1), values.view(np.int32)) == ["2.npy", "3.npy"]


def test_bits_decide_and_not_values(recorder):
    zeros, nan = np.zeros(4), np.full(4, np.nan)
    assert files(recorder, zeros, -zeros, nan, nan.copy()) == ["0.npy", "1.npy", "2.npy", "2.npy"]


def test_arrays_of_any_form(recorder):
    turned = np.arange(6.0).reshape(2, 3).T
    given = [
        np.array(1, np.float32),
        np.empty((0, 2)),
        np.empty((0, 2)),
        turned,
        np.ascontiguousarray(turned),
        np.array([True]),
    ]
    assert files(recorder, *given) == ["0.npy", "1.npy", "1.npy", "2.npy", "2.npy", "3.npy"]


def test_only_the_first_items_of_a_batch_are_written_where_they_are_enough(tmp_path):
    recorder = Recorder(tmp_path, lambda value: value, first=(8, 3))
    batch, other, whole = np.arange(16.0).reshape(8, 2), np.arange(16.0).reshape(2, 8), np.array(1.0)
    record = recorder.begin("layer", [batch, other, whole])
    stored = [np.load(tmp_path / name) for name in record.inputs]
    assert [array.tolist() for array in stored] == [batch[:3].tolist(), other.tolist(), 1.0]
