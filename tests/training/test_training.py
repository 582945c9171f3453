"""Training parity on the command line: right ports, refused requests, and wrong ports."""

import gzip
import json
import struct

import numpy as np
import pytest

from xverify import host
from xverify.environments import store as environments
from xverify.framework.discovery import load_all
from xverify.workload.spec import find_model

pytestmark = pytest.mark.slow
QUICK = ["--warmup", "1", "--rerun", "2"]
CHECKS = {"weights", "forward", "backward", "loss", "gradients", "update"}


def run(xverify, *arguments, timeout=600):
    done = xverify("run", *arguments, *QUICK, timeout=timeout)
    return done, done.result


def test_two_modes_of_torch_train_equally(xverify, tmp_path):
    arguments = ["mlp", "--task", "train", "--optimizer", "adam", "--subjects", "torch:eager,torch:script"]
    done, result = run(xverify, *arguments, "--curve", tmp_path / "loss.svg")
    assert done.code == 0, done.out + done.err
    assert result["tasks"] == ["train"]
    for row in result["rows"]:
        assert (row["task"], row["error"]["verdict"]) == ("train", "EQUAL")
        assert {check["name"] for check in row["training"]["checks"]} == CHECKS
        assert {check["verdict"] for check in row["training"]["checks"]} == {"EQUAL"}
        assert {check["step"] for check in row["training"]["checks"]} == {0, 2}
        assert row["speed"]["seconds_per_step"] > 0
        assert len(row["training"]["curve"]["losses"]) == 10
        assert row["error"]["compared"] == row["error"]["expected"] == 4
    assert "gradients" in done.out
    assert "EQUAL" in done.out
    assert "torch:script: EQUAL" in (tmp_path / "loss.svg").read_text()


def test_a_formula_variant_is_named_and_match_optimizer_removes_it(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    arguments = ["mlp", "--task", "train", "--optimizer", "adam", "--subjects", "torch:eager,tensorflow:graph"]
    done, result = run(xverify, *arguments)
    assert done.code == 0, done.out + done.err
    row = result["rows"][1]
    assert row["error"]["verdict"] == "DRIFT"
    assert {check["difference"] for check in row["training"]["checks"] if check["name"] == "update"} == {"eps-hat"}
    assert "eps-hat" in done.out
    strict, _ = run(xverify, *arguments, "--strict")
    assert strict.code == 1
    done, result = run(xverify, *arguments, "--match-optimizer", "--strict")
    assert done.code == 0, done.out + done.err
    assert {check["verdict"] for check in result["rows"][1]["training"]["checks"]} == {"EQUAL"}


def test_a_folder_without_torch_cannot_be_trained(xverify, tmp_path):
    (tmp_path / "port").mkdir()
    (tmp_path / "port" / "spec.py").write_text((find_model("mlp").path / "spec.py").read_text())
    (tmp_path / "port" / "numpy.py").write_text((find_model("mlp").path / "numpy.py").read_text())
    done = xverify("run", tmp_path / "port", "--task", "train", "--subjects", "numpy")
    assert done.code == 2
    assert "torch.py" in done.err


def test_both_tasks_are_rows_of_one_result(xverify, tmp_path):
    done, result = run(xverify, "mlp", "--task", "forward,train", "--subjects", "torch:eager,torch:trace", "--details")
    assert done.code == 0, done.out + done.err
    assert result["tasks"] == ["forward", "train"]
    assert [row["task"] for row in result["rows"]] == ["forward", "forward", "train", "train"]
    assert result["complete"]
    forward, train = (result["receipts"][task] for task in ("forward", "train"))
    assert (forward["settings"]["task"], train["settings"]["task"]) == ("forward", "train")
    assert forward["settings"]["optimizer"] is None
    assert train["settings"]["optimizer"]["name"] == "sgd"
    assert min(receipt["noise"]["rounds"] for receipt in (forward, train)) > 0
    assert forward["reference"]["tested"] > 0
    assert forward["weights"]["digest"] == train["weights"]["digest"] == result["weights"]["digest"]
    assert result["timeline"]["total_seconds"] == pytest.approx(
        sum(receipt["timeline"]["total_seconds"] for receipt in (forward, train))
    )
    assert "forward: Outputs: 4 input cases checked" in done.out
    assert "train: Training: " in done.out


def test_two_tasks_share_one_budget(xverify, tmp_path):
    options = ["--task", "forward,train", "--subjects", "torch:eager,torch:trace", "--effort", "rigorous"]
    done = xverify("run", "mlp", *options, "--max-seconds", 40, timeout=600)
    assert done.code == 0, done.out + done.err
    forward, train = (done.result["receipts"][task] for task in ("forward", "train"))
    assert forward["timeline"]["total_seconds"] < 32, "the first task leaves time to the second"
    total, notes = done.result["timeline"]["total_seconds"], " ".join(done.result["notes"])
    assert total < 40 or f"--max-seconds 40 was exceeded: the run took {total:.1f} s" in notes
    assert {row["task"] for row in done.result["rows"]} == {"forward", "train"}
    assert forward["settings"]["max_seconds"] == train["settings"]["max_seconds"] == 40
    assert "--max-seconds 40 ended" in notes or forward["noise"]["refusal"] or train["noise"]["refusal"]


# The adapter of LiteRT is derived from that of TensorFlow, which trains.
@pytest.mark.parametrize(("name", "module"), [("onnxruntime", "onnxruntime"), ("litert", "ai_edge_litert")])
def test_a_framework_that_does_not_train_is_unsupported(xverify, tmp_path, name, module):
    pytest.importorskip(module)
    done, result = run(xverify, "mlp", "--task", "train", "--subjects", f"torch:eager,{name}")
    assert done.code == 3
    assert (result["rows"][1]["status"], result["rows"][0]["status"]) == ("unsupported", "ok")
    assert "does not support training" in result["rows"][1]["reason"]


def test_training_batches_are_read_from_a_data_set(xverify, tmp_path):
    noise = np.random.default_rng(0)
    images, labels = noise.integers(0, 256, (64, 28, 28), np.uint8), noise.integers(0, 10, 64, np.uint8)
    with gzip.open(tmp_path / "train-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">4I", 2051, 64, 28, 28) + images.tobytes())
    with gzip.open(tmp_path / "train-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">2I", 2049, 64) + labels.tobytes())
    arguments = ["mlp", "--task", "train", "--subjects", "torch:eager", "--data", tmp_path]
    done, result = run(xverify, *arguments, "--time-input")
    assert done.code == 4, done.out + done.err  # it is the reference alone
    assert "64 items" in result["inputs"]["kind"]
    labels[3] = 11
    with gzip.open(tmp_path / "train-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">2I", 2049, 64) + labels.tobytes())
    done, _ = run(xverify, *arguments)
    assert done.code == 2
    assert "11" in done.err


SLOW = """
import time
from torch import nn

class Slow(nn.Linear):
    steps = 0

    def forward(self, x):
        if self.training and Slow.steps < 3:  # the steps that are timed before any step is judged
            Slow.steps += 1
            time.sleep(2.2)
        return super().forward(x)

def build():
    return nn.Sequential(Slow(16, 8), nn.ReLU(), nn.Linear(8, 3))
"""


# The first subject runs the reference's own code and shows how long its steps are. The second sleeps only while it is traced, so
# the reference must measure its steps itself.
@pytest.mark.parametrize("subject", ["torch:eager", "torch:trace"])
def test_long_steps_are_checked_less_and_the_report_says_so(xverify, tmp_path, subject):
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "torch.py").write_text(SLOW)
    (tmp_path / "slow" / "spec.py").write_text(
        "from xverify import ModelSpec, TensorSpec\n"
        "SPEC = ModelSpec(batch=8, inputs={'x': TensorSpec(('N', 16))}, outputs={'logits': TensorSpec(('N', 3))})\n"
    )
    done, result = run(xverify, tmp_path / "slow", "--task", "train", "--subjects", subject)
    assert done.code == 0, done.out + done.err
    training = result["rows"][0]["training"]
    assert training["curve"] is None
    assert ("reference: training in float32" in done.err) == (subject == "torch:trace")
    verdicts = {check["name"]: check["verdict"] for check in training["checks"]}
    assert verdicts == {**dict.fromkeys(CHECKS, "EQUAL"), "curve": "UNTESTED"}
    assert {check["step"] for check in training["checks"]} == {0}
    assert "curve UNTESTED: a step of the reference takes 2 s, too long for a quick run: --effort standard" in done.out


def test_diverging_training_is_reported_with_its_place(xverify, tmp_path):
    done, result = run(xverify, "mlp", "--task", "train", "--subjects", "torch:eager", "--lr", "1e30")
    assert done.code == 3
    assert "diverges" in result["rows"][0]["reason"]
    assert "at step" in result["rows"][0]["reason"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--task", "trian"], "train"),
        (["--lr", "0.1"], "--lr belongs to --task train"),
        (["--match-optimizer"], "--match-optimizer belongs to --task train"),
        (["--task", "train", "--optimizer", "adma"], "adam"),
        (["--task", "train", "--lr", "-1"], "--lr is -1"),
        (["--task", "train", "--nesterov"], "--momentum"),
        (["--task", "train", "--seeds", "1"], "--seeds is 1: it must be at least 2"),
        (["--task", "train", "--steps", "1"], "--steps is 1: it must be at least 2"),
        (["--seeds", "5"], "--seeds belongs to --task train"),
        (["--dropout-masks"], "--dropout-masks belongs to --task train"),
        (["--task", "train", "--data", "no-such-folder"], "no-such-folder"),
        (["--curve", "loss.svg"], "--curve loss.svg: there is no loss without --task train"),
        (["--task", "train", "--curve", "loss.pdf"], ".png or .svg"),
        (["--task", "forward,train", "--resume", "--json", "r.json"], "--resume"),
    ],
)
def test_bad_input_is_refused(xverify, arguments, says):
    done = xverify("run", "mlp", "--subjects", "torch:eager", *arguments)
    assert done.code == 2, done.out + done.err
    assert says in done.err


@pytest.mark.long
def test_every_planted_mistake_is_caught_and_named(xverify, tmp_path):
    done = xverify("mutate", "mlp", "--task", "train", "--json", tmp_path / "score.json", "--quiet", timeout=900)
    assert done.code == 0, done.out + done.err
    (score,) = json.loads((tmp_path / "score.json").read_text())
    assert score["planted"] == score["caught"] >= 12
    assert score["layer_named"] == score["planted"]
    assert score["explained"] == score["planted"]
    assert not score["false_alarms"]


@pytest.mark.long
def test_every_framework_can_compute_the_formulas_of_torch(xverify, tmp_path):
    done = xverify("optimizers", "--json", tmp_path / "table.json", "--quiet", timeout=900)
    assert done.code == 0, done.out + done.err
    table = json.loads((tmp_path / "table.json").read_text())
    names = {each["framework"] for each in table}
    trained = [adapter for adapter in load_all().values() if adapter.trains]
    assert names == {each.name for each in trained if not host.missing(each) or environments.chosen(each) is not None}
    assert all(each["verdict"] == "EQUAL" for each in table if each["match"] or each["framework"] == "torch")
    own = [each for each in table if not each["match"] and not each["settings"]["recipe"]["amsgrad"]]
    found = {(each["framework"], each["settings"]["name"]): each["difference"] for each in own}
    assert all(name != "lion" or not difference for (_, name), difference in found.items())
    for framework in ("tensorflow", "keras-torch"):
        assert found.get((framework, "adafactor"), "eps-added, decayed scale") == "eps-added, decayed scale"
    if ("jittor", "adam") in found:
        assert found["jittor", "adam"] == "eps-hat"
    if ("tensorflow", "rmsprop") in found:
        assert found["tensorflow", "rmsprop"] == "eps-inside"
    assert xverify("optimizers", "--frameworks", "numpy").code == 2
