"""Round trips of every file format, and files that must be refused."""

import hashlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from test_canonical import SETS

from xverify.errors import WeightsError
from xverify.weights import digest, formats, load_file, npz, save_file

ARRAYS = {"fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "fc.bias": np.array([1.0, -0.0], np.float32)}
READ_WITHOUT_FRAMEWORK = (".safetensors", ".npz", ".pkl")


def test_every_common_format_is_known():
    assert {".safetensors", ".npz", ".pkl", ".pt", ".pth", ".onnx"} <= set(formats())


@pytest.mark.parametrize("suffix", READ_WITHOUT_FRAMEWORK)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(arrays=SETS)
def test_round_trip(arrays, suffix, tmp_path):
    path = tmp_path / f"w{suffix}"
    save_file(arrays, path)
    assert digest(load_file(path)) == digest(arrays)


def test_arrays_stay_on_disk_until_they_are_looked_up(tmp_path):
    for name, array in ARRAYS.items():
        npz.save_file({name: array}, tmp_path / f"{name}.npz")
    found = npz.OnDisk(*tmp_path.glob("*.npz"))
    assert set(found) == set(ARRAYS)
    assert digest(dict(found)) == digest(ARRAYS)
    assert found["fc.bias"] is not found["fc.bias"]  # arrays are not kept
    with pytest.raises(KeyError):
        found["fc.scale"]


def test_mapped_arrays_equal_those_that_were_written(tmp_path):
    large = (
        np.random.default_rng(0).standard_normal((300, 400)).astype(np.float32)
    )  # this one is mapped, the smaller ones are read
    arrays = {
        "large": large,
        "0/wide": large.astype(np.float64),
        "turned": np.asfortranarray(large),
        "every second": large[:, ::2],
        "whole": np.arange(7),
        "one": np.float32(3).reshape(()),
        "none": np.zeros((0, 4), np.float32),
    }
    npz.save_file(arrays, tmp_path / "a.npz")
    found = npz.OnDisk(tmp_path / "a.npz")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)
    assert isinstance(found["large"].base, np.memmap)
    found["large"][:] = 0  # a private copy
    assert found["large"].any()


@pytest.mark.parametrize("suffix", READ_WITHOUT_FRAMEWORK)
def test_a_truncated_file_is_refused(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    save_file(ARRAYS, path)
    whole = path.read_bytes()
    for keep in (0, 10, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:keep])
        with pytest.raises(WeightsError, match=str(path)):
            load_file(path)


def test_a_damaged_jittor_file_is_detected_by_its_checksum(tmp_path):
    path = tmp_path / "w.pkl"
    save_file(ARRAYS, path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightsError, match="checksum"):
        load_file(path)


class Exploit:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize("sealed", [True, False])
def test_a_pickle_that_runs_code_is_refused_without_running_it(tmp_path, sealed):
    witness, path = tmp_path / "witness", tmp_path / "w.pkl"
    body = pickle.dumps({"fc.weight": Exploit(str(witness))}, 4)
    path.write_bytes(body + hashlib.sha1(body).digest() + b"HCAJSLHD" if sealed else body)
    with pytest.raises(WeightsError, match=r"refused, it calls (io|_io)\.open.*--trust"):
        load_file(path)
    assert not witness.exists()


def test_object_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "w.npz", w=np.array([{"a": 1}], dtype=object))
    with pytest.raises(WeightsError):
        load_file(tmp_path / "w.npz")


@pytest.mark.parametrize(
    ("stored", "says"),
    [([1, 2], "holds a list"), ({"model": {"w": np.zeros(2, np.float32)}}, "save that state_dict alone")],
)
def test_a_pickle_that_is_not_a_state_dict(tmp_path, stored, says):
    (tmp_path / "w.pkl").write_bytes(pickle.dumps(stored))
    with pytest.raises(WeightsError, match=says):
        load_file(tmp_path / "w.pkl")


def test_unknown_suffix_and_missing_file(tmp_path):
    (tmp_path / "w.bmp").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"unknown weight format '\.bmp'"):
        load_file(tmp_path / "w.bmp")
    (tmp_path / "w").write_bytes(b"")
    with pytest.raises(WeightsError, match="its name has no suffix that tells the format"):
        load_file(tmp_path / "w")
    with pytest.raises(WeightsError, match="no such weight file"):
        load_file(tmp_path / "w.npz")


def test_reading_a_jittor_file_imports_no_framework(tmp_path):
    save_file(ARRAYS, tmp_path / "w.pkl")
    code = (
        f"import sys; from xverify.weights import load_file; load_file({str(tmp_path / 'w.pkl')!r}); "
        "assert not {'jittor', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
