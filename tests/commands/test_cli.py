import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import write_folder

from xverify.weights import save_file

pytestmark = pytest.mark.usefixtures("in_one_process")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "resnet51"], "unknown model 'resnet51'; did you mean 'resnet50'?"),
        (["run", "mlp", "--subjects", "troch"], "unknown framework 'troch'; did you mean 'torch'?"),
        (["run", "mlp", "--subjects", "torch:eagre"], "unknown mode 'eagre' of torch; did you mean 'eager'?"),
        (["run", "mlp", "--subjects", ""], "--subjects is empty"),
        (["run", "mlp", "--batch", "0"], "--batch is 0: it must be at least 1"),
        (["run", "mlp", "--rerun", "-3"], "--rerun is -3"),
        (["run", "mlp", "--batch", "many"], "--batch is 'many': it must be a whole number"),
        (["run", "mlp", "--effort", "heroic"], "--effort is 'heroic'"),
        (["run", "mlp", "--device", "tpu"], "--device is 'tpu'"),
        (["run", "mlp", "--timeout", "0"], "--timeout is 0"),
        (["run", "mlp", "--weights", "none.pt"], "none.pt: no such file"),
        (["run", "mlp", "--python", "torch"], "write FRAMEWORK=PATH"),
        (["run", "mlp", "--python", "torch=/no/python"], "no such interpreter"),
        (["run", "mlp", "--json", "no/such/folder/r.json"], "does not exist"),
        (["run", "mlp", "--json", "."], "is a folder"),
        (["run", "./nowhere"], "no such folder"),
        (["run", "resnet50", "--subjects", "numpy"], "has no numpy.py"),
        (["run", "mlp", "--no-such-option"], "unknown option '--no-such-option'"),
        (["fly"], "unknown command 'fly'"),
        ([], "required"),
        (["weights", "digest", "none.npz"], "no such weight file"),
    ],
)
def test_a_wrong_command_line_is_answered_in_one_line(xverify, arguments, says):
    done = xverify(*arguments or ["--"])
    assert done.code == 2
    assert says in done.err
    assert done.result is None


def test_list_prints_a_table_or_json(xverify):
    assert "resnet50" in xverify("list").out
    found = json.loads(xverify("list", "--json").out)
    mlp = next(model for model in found["models"] if model["name"] == "mlp")
    assert {"torch", "jittor", "tensorflow", "onnxruntime", "numpy"} <= set(mlp["frameworks"])
    absent = next(framework for framework in found["frameworks"] if framework["name"] == "absent")
    assert absent["installed"] is False
    assert absent["missing"] == ["no-such-framework"]


def test_doctor_prints_the_command_that_installs_a_framework(xverify):
    done = xverify("doctor")
    assert "absent" in done.out
    assert "Type: pip install no-such-framework" in done.out
    assert "xverify run mlp" in done.out


def test_quiet_prints_one_line(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    done = xverify("run", folder, "--subjects", "numpy,honest", "--rerun", 8, "--quiet")
    assert done.err == ""
    assert len(done.out.splitlines()) == 1
    assert done.out.startswith("PASS port")


def test_output_to_a_pipe_has_no_colours(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    done = xverify("run", folder, "--subjects", "numpy,honest", "--rerun", 8)
    assert "\x1b" not in done.out + done.err
    assert "numpy: first step, warming up" in done.err


@pytest.mark.slow
def test_weights_are_converted_digested_and_compared(xverify, tmp_path):
    arrays = {"fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3)}
    save_file(arrays, tmp_path / "a.safetensors")
    done = xverify("weights", "convert", tmp_path / "a.safetensors", tmp_path / "b.pkl")
    assert done.code == 0
    assert "1 tensors, 6 parameters" in done.out
    first, second = (
        line.split()[0] for line in xverify("weights", "digest", *tmp_path.glob("[ab].*")).out.splitlines()
    )
    assert first == second
    assert xverify("weights", "diff", tmp_path / "a.safetensors", tmp_path / "b.pkl").code == 0
    arrays["fc.weight"][1, 2] += 1e-3
    save_file(arrays, tmp_path / "c.npz")
    done = xverify("weights", "diff", tmp_path / "a.safetensors", tmp_path / "c.npz")
    assert done.code == 1
    assert "fc.weight: 1 of 6 values differ" in done.out
    assert xverify("weights", "convert", tmp_path / "c.npz", tmp_path / "c.npz").code == 2
    done = xverify("weights", "convert", tmp_path / "c.npz", tmp_path / "c.onnx")
    assert done.code == 2
    assert "weights alone make no graph" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["list"], 0),
        (["doctor"], None),
        (["weights", "diff", "a.npz", "b.npz"], 1),
        (["weights", "diff", "a.npz", "a.npz"], 0),
    ],
)
def test_a_reader_that_has_gone_changes_no_exit_code(arguments, code, tmp_path):
    for name, values in (("a", 1.0), ("b", 2.0)):
        save_file({"fc.weight": np.full((2, 2), values, np.float32)}, tmp_path / f"{name}.npz")
    command = [sys.executable, "-m", "xverify", *arguments]
    if code is None:
        code = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == code
