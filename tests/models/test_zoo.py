"""Complete runs of the models of the zoo on every real framework, by the command line."""

import shutil
import subprocess
import sys

import pytest
from helpers.marks import with_long

from xverify.commands.list import catalogue
from xverify.workload.spec import zoo

pytestmark = pytest.mark.slow

SUBJECTS = ("torch:eager", "jittor", "tensorflow:eager", "tensorflow:graph", "onnxruntime")


# Models that a framework cannot run, and the reason. All others must run and agree. A test fails when one of these runs.
UNSUPPORTED = {
    ("dynamic-loop", "onnxruntime"): "the length of its loop is the input `steps`",
    ("dynamic-loop", "torch:trace"): "the length of its loop is the input `steps`",
}
LARGE = ("alexnet", "lstm-cell", "lstm-finegrained", "resnet152", "resnet50-cifar10", "vgg16")  # half a minute and more
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


@pytest.mark.parametrize("model", with_long([name for name in zoo() if name not in ("mlp", "resnet50")], *LARGE))
def test_every_framework_runs_every_model(xverify, model):
    subjects = [subject for subject in SUBJECTS if subject != "tensorflow:eager"]  # the graph runs the same Keras code
    agree(xverify("run", model, *SMALL, "--subjects", ",".join(subjects), timeout=1800), model, subjects)


def test_every_model_is_written_so_that_torch_can_script_it(tmp_path):
    code = """
from xverify.framework import discovery
from xverify.workload.spec import find_model, load_module, zoo
torch = discovery.load("torch")(1, "cpu").torch
for name in zoo():
    folder = find_model(name)
    with torch.device("meta"):
        model = load_module(folder.code, "torch").build(**folder.spec.options)
    torch.jit.script(model.eval())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("model", with_long(MODES, "lstm-finegrained", "resnet18"))
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
        assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL"), row["error"]["reason"]
        assert row["weights_digest"] == done.result["weights"]["digest"]
        layers = row["error"]["layers"]
        assert layers["matched"] == {}, "every framework's file names the same layers"
        assert not layers["missing"], f"{row['subject']}: these layers were not captured: {layers['missing']}"


@pytest.mark.parametrize(
    ("model", "subjects"),
    [
        ("mlp", {"torch:channels-last": "the model takes no images", "tensorflow:while": "its build takes no loop"}),
        ("dynamic-loop", {"torch:trace": "one path only", "onnxruntime": "no ONNX export"}),
    ],
)
def test_a_mode_that_cannot_run_a_model_gives_the_same_reason_as_the_list(xverify, model, subjects):
    done = xverify("run", model, *SMALL, "--subjects", ",".join(["torch:eager", *subjects]))
    assert done.code == 3
    assert done.row("torch:eager")["status"] == "ok"
    told = next(entry["refused"] for entry in catalogue()["models"] if entry["name"] == model)
    for subject, says in subjects.items():
        assert done.row(subject)["status"] == "unsupported"
        assert done.row(subject)["reason"] == told[subject]
        assert says in told[subject]


@pytest.mark.parametrize("model", with_long(["mlp", "resnet50"], "resnet50"))
def test_every_framework_agrees_on_identical_weights(xverify, model):
    done = xverify(
        "run", model, "--batch", 2, "--warmup", 1, "--rerun", 8, "--subjects", ",".join(SUBJECTS), timeout=1800
    )
    assert done.code == 0, done.out + done.err
    assert done.result["verdict"] == "PASS"
    assert [row["subject"] for row in done.result["rows"]] == list(SUBJECTS)
    for row in done.result["rows"]:
        assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL")
        assert row["weights_digest"] == done.result["weights"]["digest"]
        assert row["error"]["timed_cases"] == 4
    routes = {row["subject"]: row["weights_route"] for row in done.result["rows"]}
    assert routes["tensorflow:graph"] == "torch -> ONNX -> tensorflow"


def test_resnet50_has_the_published_number_of_parameters(xverify):
    done = xverify("run", "resnet50", "--batch", 1, "--warmup", 0, "--rerun", 1, "--cases", 1, "--subjects", "torch")
    assert done.result["weights"]["parameters"] == 25_557_032
    assert done.result["weights"]["tensors"] == 161


@pytest.mark.timed
def test_a_jittor_adapter_that_does_not_wait_is_refused(no_noise, xverify, tmp_path):
    port = tmp_path / "mlp"
    shutil.copytree(zoo()["mlp"], port)
    shutil.copy(port / "jittor.py", port / "unwaited_jittor.py")
    done = xverify(
        "run", port, "--batch", 256, "--subjects", "jittor,unwaited_jittor", "--warmup", 5, "--rerun", 40, timeout=1800
    )
    assert done.row("jittor")["speed"]["verdict"] == "BASELINE"
    assert done.row("unwaited_jittor")["speed"]["verdict"] == "REFUSED"
    assert "does not wait" in done.row("unwaited_jittor")["speed"]["reason"]


@pytest.mark.timed
def test_a_graph_compiled_while_it_is_timed_is_refused(no_noise, xverify):
    # It compiles one graph for each length of its loop.
    arguments = ("run", "dynamic-loop", "--subjects", "torch:eager,torch:compile", "--rerun", 8)
    cold = xverify(*arguments, "--warmup", 0).row("torch:compile")
    assert cold["error"]["verdict"] in ("EQUAL", "IDENTICAL")
    assert cold["speed"]["retraces"] > 0
    assert cold["speed"]["verdict"] == "REFUSED"
    warm = xverify(*arguments, "--warmup", 4)
    assert warm.row("torch:compile")["speed"]["retraces"] == 0
    assert warm.row("torch:compile")["speed"]["verdict"] is None
    assert warm.row("torch:eager")["speed"]["retraces"] is None


PORT_FAULTS = {
    "eps": ('BatchNorm2d(name="bn1")', 'BatchNorm2d(eps=1e-3, name="bn1")'),
    "padding": ("Conv2d(64, 7, 2, 3, bias=False", 'layers.Conv2D(64, 7, 2, padding="same", use_bias=False'),
}


@pytest.mark.parametrize("fault", PORT_FAULTS)
def test_a_common_fault_of_a_port_is_different(xverify, tmp_path, fault):
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
    assert done.row("torch:eager")["error"]["verdict"] == "IDENTICAL"
    assert done.row("tensorflow:graph")["error"]["verdict"] == "DIFFERENT"


def test_weights_of_jittor_are_converted_and_run_in_every_framework(xverify, tmp_path):
    code = "from xverify.workload import probe; from xverify.weights import save_file\n" + (
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
