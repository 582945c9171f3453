"""Weight files that real frameworks write, read without trusting them."""

import os
import subprocess
import sys

import numpy as np
import pytest

from xverify.errors import WeightsError
from xverify.weights import digest, load_file, save_file

pytestmark = pytest.mark.slow

ARRAYS = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 7, "bias": np.array([1.0, -2.0], np.float32)}


def python(code, folder, **variables):
    """Run code in a process of its own, where ``np``, ``w`` and ``b`` are the arrays above."""
    header = (
        "import numpy as np; w = np.arange(6, dtype=np.float32).reshape(2, 3) / 7; b = np.array([1, -2], np.float32)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", header + code],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


JITTOR = {"nvcc_path": "", "cache_name": "default"}


def test_files_of_jittor_and_of_xverify_are_read_by_both(tmp_path):
    code = """
import jittor as jt
m = jt.nn.Linear(3, 2)
m.load_parameters({"weight": w, "bias": b})
m.save("module.pkl")
jt.save(m.state_dict(), "state.pkl")
jt.save(m.state_dict(), "state.pth")
"""
    python(code, tmp_path, **JITTOR)
    for name in ("module.pkl", "state.pkl", "state.pth"):
        assert digest(load_file(tmp_path / name)) == digest(ARRAYS)
    save_file(ARRAYS, tmp_path / "ours.pkl")
    code = """
import jittor as jt
m = jt.nn.Linear(3, 2)
m.load("ours.pkl")
assert (m.weight.numpy() == w).all() and (m.bias.numpy() == b).all()
"""
    python(code, tmp_path, **JITTOR)


def test_files_of_torch_and_of_xverify_are_read_by_both(tmp_path):
    save_file(ARRAYS, tmp_path / "ours.pt")
    code = """
import torch
ours = torch.load("ours.pt", weights_only=True)
assert (ours["weight"].numpy() == w).all() and (ours["bias"].numpy() == b).all()
m = torch.nn.BatchNorm1d(2)
torch.save(m.state_dict(), "norm.pth")
torch.save({"state_dict": m.state_dict(), "epoch": 3}, "checkpoint.pt")
torch.save(torch.nn.Linear(3, 2), "module.pt")
torch.save({"weight": torch.tensor(w).bfloat16()}, "half.pt")
torch.save({"weight": torch.tensor(w)}, "old.pt", _use_new_zipfile_serialization=False)
"""
    python(code, tmp_path)
    assert set(load_file(tmp_path / "norm.pth")) == {"weight", "bias", "running_mean", "running_var"}
    assert load_file(tmp_path / "half.pt")["weight"].dtype == np.float32
    assert np.array_equal(load_file(tmp_path / "old.pt")["weight"], ARRAYS["weight"])
    with pytest.raises(WeightsError, match=r"epoch is a int.*save checkpoint\['state_dict'\] alone"):
        load_file(tmp_path / "checkpoint.pt")
    with pytest.raises(WeightsError, match=r"refused.*--trust"):
        load_file(tmp_path / "module.pt")
    assert set(load_file(tmp_path / "module.pt", trust=True)) == {"weight", "bias"}
    (tmp_path / "cut.pt").write_bytes((tmp_path / "ours.pt").read_bytes()[:300])
    with pytest.raises(WeightsError, match="truncated"):
        load_file(tmp_path / "cut.pt")


def test_onnx_initializers_are_weights_by_name(tmp_path):
    code = """
import torch, warnings
warnings.simplefilter("ignore")
m = torch.nn.Linear(3, 2)
torch.onnx.export(m, (torch.zeros(1, 3),), "model.onnx", dynamo=False, do_constant_folding=False)
"""
    python(code, tmp_path)
    assert {name: a.shape for name, a in load_file(tmp_path / "model.onnx").items()} == {"weight": (2, 3), "bias": (2,)}
    save_file(ARRAYS, tmp_path / "model.onnx")
    assert digest(load_file(tmp_path / "model.onnx")) == digest(ARRAYS)
    with pytest.raises(WeightsError, match="1 missing"):
        save_file({"weight": ARRAYS["weight"]}, tmp_path / "model.onnx")
