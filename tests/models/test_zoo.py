"""Whole runs of the zoo on every real framework, as a user types them."""

import shutil

import pytest

from xverify.spec import zoo

pytestmark = pytest.mark.slow

SUBJECTS = ("torch:eager", "jittor", "tensorflow:eager", "tensorflow:graph", "onnxruntime")


@pytest.mark.parametrize("model", ["mlp", "resnet50"])
def test_every_framework_agrees_on_identical_weights(xverify, model):
    done = xverify(
        "run", model, "--batch", 2, "--warmup", 1, "--rerun", 8, "--subjects", ",".join(SUBJECTS), timeout=1800
    )
    assert done.code == 0, done.out + done.err
    assert done.result["verdict"] == "PASS"
    assert [row["subject"] for row in done.result["rows"]] == list(SUBJECTS)
    for row in done.result["rows"]:
        assert row["error"]["verdict"] == "EQUAL"
        assert row["weights_digest"] == done.result["weights"]["digest"]
        assert row["error"]["timed_cases"] == 4
    routes = {row["subject"]: row["weights_route"] for row in done.result["rows"]}
    assert routes["tensorflow:graph"] == "torch -> ONNX -> tensorflow"


def test_the_field_s_number_of_parameters(xverify):
    done = xverify("run", "resnet50", "--batch", 1, "--warmup", 0, "--rerun", 1, "--cases", 1, "--subjects", "torch")
    assert done.result["weights"]["parameters"] == 25_557_032
    assert done.result["weights"]["tensors"] == 161


def test_jittors_laziness_does_not_pass_for_speed(xverify, tmp_path):
    port = tmp_path / "mlp"
    shutil.copytree(zoo()["mlp"], port)
    shutil.copy(port / "jittor.py", port / "sleepy_jittor.py")
    done = xverify(
        "run", port, "--batch", 256, "--subjects", "jittor,sleepy_jittor", "--warmup", 5, "--rerun", 40, timeout=1800
    )
    assert done.row("jittor")["speed"]["verdict"] == "BASELINE"
    assert done.row("sleepy_jittor")["speed"]["verdict"] == "REFUSED"
    assert "does not wait" in done.row("sleepy_jittor")["speed"]["reason"]


PORT_FAULTS = {
    "eps": ('BatchNorm2d(name="bn1")', 'BatchNorm2d(eps=1e-3, name="bn1")'),
    "padding": ("Conv2d(64, 7, 2, 3, bias=False", 'layers.Conv2D(64, 7, 2, padding="same", use_bias=False'),
}


@pytest.mark.parametrize("fault", PORT_FAULTS)
def test_a_classical_fault_of_a_port_is_different(xverify, tmp_path, fault):
    port = tmp_path / "resnet50"
    shutil.copytree(zoo()["resnet50"], port)
    right, wrong = PORT_FAULTS[fault]
    source = (port / "tensorflow.py").read_text()
    assert right in source
    (port / "tensorflow.py").write_text(source.replace(right, wrong))
    done = xverify(
        "run", port, "--batch", 1, "--warmup", 0, "--rerun", 2, "--subjects", "torch,tensorflow:graph", timeout=1800
    )
    assert done.code == 1
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    assert done.row("tensorflow:graph")["error"]["verdict"] == "DIFFERENT"


def test_trained_weights_travel_from_jittor_to_every_framework(xverify, tmp_path):
    import subprocess
    import sys

    code = "from xverify import probe; from xverify.weights import save_file\n" + (
        "shapes = {'fc1.weight': (512, 784), 'fc1.bias': (512,), 'fc2.weight': (10, 512), 'fc2.bias': (10,)}\n"
        f"save_file(probe.weights(shapes, 5), {str(tmp_path / 'w.pkl')!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert xverify("weights", "convert", tmp_path / "w.pkl", tmp_path / "w.pt").code == 0
    digests = set()
    for file in ("w.pkl", "w.pt"):
        done = xverify("run", "mlp", "--weights", tmp_path / file, "--warmup", 1, "--rerun", 4, timeout=600)
        assert done.code == 0, done.out + done.err
        digests |= {row["weights_digest"] for row in done.result["rows"]}
    assert len(digests) == 1
