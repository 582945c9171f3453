"""Whole runs of the zoo on every real framework, as a user types them."""

import shutil

import pytest

from xverify.spec import zoo

pytestmark = pytest.mark.slow

SUBJECTS = ("torch:eager", "jittor", "tensorflow:eager", "tensorflow:graph", "onnxruntime")


# What a framework cannot do, and why. Anything else must run and agree, and these must not start to work unnoticed.
UNSUPPORTED = {
    ("dynamic-loop", "onnxruntime"): "the length of its loop is the input `steps`",
    ("dynamic-loop", "torch:trace"): "the length of its loop is the input `steps`",
}
SMALL = ("--batch", 2, "--cases", 2, "--warmup", 1, "--rerun", 2)
SEQUENCE_MODES = ("torch:eager", "torch:trace", "torch:script", "tensorflow:graph", "tensorflow:xla")
MODES = {
    "resnet18": (
        *("torch:eager", "torch:trace", "torch:script", "torch:compile", "torch:channels-last"),
        *("tensorflow:graph", "tensorflow:xla", "onnxruntime:basic"),
    ),
    "lstm-finegrained": (*SEQUENCE_MODES, "tensorflow:while"),
    "dynamic-loop": SEQUENCE_MODES,
}


@pytest.mark.parametrize("model", [name for name in zoo() if name not in ("mlp", "resnet50")])
def test_every_framework_runs_every_model(xverify, model):
    subjects = [subject for subject in SUBJECTS if subject != "tensorflow:eager"]  # the graph runs the same Keras code
    agree(xverify("run", model, *SMALL, "--subjects", ",".join(subjects), timeout=1800), model, subjects)


@pytest.mark.parametrize("model", MODES)
def test_every_mode_computes_the_same(xverify, model):
    agree(xverify("run", model, *SMALL, "--subjects", ",".join(MODES[model]), timeout=1800), model, MODES[model])


def agree(done, model, subjects):
    assert done.result is not None, done.err
    assert [row["subject"] for row in done.result["rows"]] == list(subjects)
    for row in done.result["rows"]:
        if (model, row["subject"]) in UNSUPPORTED:
            assert row["status"] == "unsupported"
            assert UNSUPPORTED[model, row["subject"]] in row["reason"]
            continue
        assert row["status"] == "ok", row["reason"]
        assert row["error"]["verdict"] == "EQUAL", row["error"]["reason"]
        assert row["weights_digest"] == done.result["weights"]["digest"]


def test_a_mode_that_cannot_hold_a_model_says_why(xverify):
    done = xverify("run", "mlp", *SMALL, "--subjects", "torch:eager,torch:channels-last,tensorflow:while")
    assert done.code == 3
    assert "the model takes no images" in done.row("torch:channels-last")["reason"]
    assert "its build takes no loop" in done.row("tensorflow:while")["reason"]
    assert {row["status"] for row in done.result["rows"]} == {"ok", "unsupported"}


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
    done = xverify("weights", "convert", tmp_path / "w.pt", tmp_path / "w.onnx", "--model", "mlp")
    assert done.code == 0, done.err
    assert xverify("weights", "diff", tmp_path / "w.pkl", tmp_path / "w.onnx").code == 0
    done = xverify("weights", "convert", tmp_path / "w.pt", tmp_path / "wrong.onnx", "--model", "resnet18", timeout=600)
    assert done.code == 2
    assert "do not fit the model" in done.err
    assert not (tmp_path / "wrong.onnx").exists()
    digests = set()
    for file in ("w.pkl", "w.pt", "w.onnx"):
        done = xverify("run", "mlp", "--weights", tmp_path / file, "--warmup", 1, "--rerun", 4, timeout=600)
        assert done.code == 0, done.out + done.err
        digests |= {row["weights_digest"] for row in done.result["rows"]}
    assert len(digests) == 1
