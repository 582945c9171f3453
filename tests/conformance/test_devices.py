"""The code for a GPU, tested without one by a fake torch.cuda, and the messages where there is no device."""

import subprocess
import sys

import pytest

from xverify.framework import discovery as frameworks

pytestmark = pytest.mark.slow
MIB = 2**20


class FakeCuda:
    """The functions of torch.cuda that the adapter uses."""

    def __init__(self):
        self.waits = 0

    def synchronize(self):
        self.waits += 1

    def mem_get_info(self):
        return 100 * MIB, 1000 * MIB

    def max_memory_reserved(self):
        return 250 * MIB

    def get_device_name(self):
        return "a fake"


def test_torch_waits_for_the_device_and_reports_its_memory_and_settings():
    torch = pytest.importorskip("torch")
    adapter = frameworks.load("torch")(1, "cpu")
    outputs = torch.ones(2)
    adapter.wait(outputs)
    assert adapter.device_memory() == {}
    assert "tf32_cudnn" not in adapter.environment()
    adapter.accelerator = fake = FakeCuda()
    adapter.wait(outputs)
    adapter.wait(())
    assert fake.waits == 2
    assert adapter.device_memory() == {"peak_mib": 250.0, "used_mib": 900.0, "total_mib": 1000.0}
    found = adapter.environment()
    assert found["gpu"] == "a fake"
    assert {"cuda", "cudnn", "tf32_matmul", "tf32_cudnn", "cudnn_benchmark", "cudnn_deterministic"} <= set(found)


def test_without_a_gpu_every_row_gives_the_reason(xverify):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    subjects = ["torch:eager", "jittor", "tensorflow:graph", "onnxruntime", "keras-torch"]
    done = xverify("run", "mlp", "--device", "cuda", "--subjects", ",".join(subjects), "--warmup", 1, "--rerun", 2)
    assert done.code == 3
    told = {row["subject"]: (row["status"], row["reason"]) for row in done.result["rows"]}
    assert told["torch:eager"] == ("unsupported", "no CUDA device: torch.cuda.is_available() is False")
    assert told["keras-torch"] == told["torch:eager"]
    assert told["jittor"][0] == "unsupported"
    assert told["jittor"][1].startswith("no CUDA device: ")
    assert told["tensorflow:graph"] == told["onnxruntime"] == ("unsupported", "xverify runs this framework on cpu only")


def test_waiting_in_tensorflow_compares_no_outputs():
    pytest.importorskip("tensorflow")
    code = """
from xverify.framework import discovery

class Outputs:
    def __eq__(self, other):
        raise SystemExit("the outputs were compared, which takes 0.1 ms")

adapter = discovery.load("tensorflow")(1, "cpu")
adapter.wait(Outputs())
adapter.wait(())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
