"""Nothing is waited for: what is no file ends a command at once, with exit code 2 and one line that names it."""

import os
import shutil
import signal
import socket
import tempfile

import numpy as np
import pytest
from conftest import cli, write_folder
from helpers.inprocess import one_process
from helpers.outputplaces import sharded_weights
from helpers.sampleresults import RESULT

from xverify import reading
from xverify.environments.store import STAMP
from xverify.errors import XverifyError
from xverify.results.file import write
from xverify.sweep import matrix as matrices
from xverify.sweep.alone import MACHINE_LOCK, machine_to_itself
from xverify.sweep.planning import plan
from xverify.weights import save_file
from xverify.weights.sharded import INDEX

pytestmark = [
    pytest.mark.usefixtures("in_one_process", "at_once"),
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in its folders"),
]
SECONDS = 8  # of waiting, after which a test fails
FAST = ("--no-timing", "--cases", "1")
SAYS = {
    "pipe": "it is a pipe, not a file",
    "device": "it is a device, not a file",
    "socket": "it is a socket, not a file",
    "folder": "it is a folder, not a file",
    "nowhere": "it is a link that leads nowhere",
    "circle": "Too many levels of symbolic links",
}
WEIGHTS = {
    "fc1.weight": np.ones((6, 8), np.float32), "fc1.bias": np.ones(6, np.float32),
    "fc2.weight": np.ones((3, 6), np.float32), "fc2.bias": np.ones(3, np.float32),
}  # fmt: skip


class Waited(BaseException):
    """A command waited for something."""


@pytest.fixture
def at_once():
    def end(*_):
        raise Waited

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=SAYS)
def put(request):
    """Put a pipe, a device, ... in the place of a file; returns what a message says of it."""
    kept = []

    def call(path, kind=request.param):
        if path.is_symlink() or path.is_file():
            path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "socket":
            kept.append(socket.socket(socket.AF_UNIX))
            here = os.getcwd()
            os.chdir(path.parent)  # the name of a socket has at most 107 bytes
            kept[-1].bind(path.name)
            os.chdir(here)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to("gone" if kind == "nowhere" else path.name)
        return SAYS[kind]

    yield call
    for each in kept:
        each.close()


def refused(done, *says):
    """Assert that a command ended with exit code 2, and said in one line what is wrong."""
    assert done.code == 2, done.out + done.err
    assert sum(line.startswith("xverify") for line in done.err.splitlines()) == 1, done.err
    assert done.err.splitlines()[-1].startswith("xverify"), done.err
    for each in says:
        assert each in done.err, done.err


@pytest.mark.parametrize("command", ["report FILE", "explain FILE", "diff FILE good.json", "diff good.json FILE"])
def test_a_result_file(xverify, tmp_path, put, command):
    write(RESULT, tmp_path / "good.json")
    says = put(tmp_path / "r.json")
    places = {"FILE": tmp_path / "r.json", "good.json": tmp_path / "good.json"}
    refused(xverify(*[places.get(word, word) for word in command.split()]), "r.json", says)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("receipts")
    port = write_folder(folder / "port", ("numpy", "honest"))
    with one_process():
        done = cli(folder, "run", port, "--subjects", "numpy,honest", *FAST, "--receipt", folder / "kept")
    assert done.code == 0, done.err
    return folder / "kept"


@pytest.mark.parametrize("anyway", [(), ("--anyway",)])
@pytest.mark.parametrize(
    "name", ["receipt.json", "result.json", "forward/weights.npz", "forward/inputs.npz", "files/port/spec.py"]
)
def test_a_file_of_a_receipt(xverify, tmp_path, kept, put, name, anyway):
    copy = shutil.copytree(kept, tmp_path / "kept")
    says = put(copy / name)
    done = xverify("replay", copy, *anyway)
    refused(done, name)
    assert says in done.err or "outside of the receipt" in done.err, done.err


@pytest.mark.parametrize("name", ["weights.safetensors", "names.toml", "numpy.py", "spec.py"])
def test_a_file_of_a_model_folder(xverify, port, put, name):
    says = put(port / name)
    refused(xverify("run", port, "--subjects", "numpy", *FAST), name, says)


@pytest.mark.parametrize("option", ["--weights", "--resume"])
def test_a_file_that_an_option_of_a_run_names(xverify, tmp_path, port, put, option):
    path = tmp_path / "w.safetensors"
    says = put(path)
    if option == "--resume" and says == SAYS["nowhere"]:
        return  # a new result may be written there
    if option == "--resume":
        done = xverify("run", port, "--subjects", "numpy", "--json", path, option)
    elif says == SAYS["folder"]:
        return  # it may be that of sharded weights
    else:
        done = xverify("run", port, "--subjects", "numpy", *FAST, option, path)
    refused(done, "w.safetensors")


@pytest.mark.parametrize("action", ["diff", "digest", "convert"])
@pytest.mark.parametrize("name", ["w.npz", "w.safetensors", "w.onnx"])
def test_a_weight_file(xverify, tmp_path, put, name, action):
    says = put(tmp_path / name)
    if says == SAYS["folder"]:
        return  # it may be that of sharded weights
    save_file(WEIGHTS, tmp_path / "good.npz")
    last = {"diff": [tmp_path / "good.npz"], "digest": [], "convert": [tmp_path / "made.npz"]}[action]
    refused(xverify("weights", action, tmp_path / name, *last), name, says)
    assert not (tmp_path / "made.npz").exists()


@pytest.mark.parametrize("name", [f"model{INDEX}", "model-00001-of-00002.safetensors"])
def test_a_part_of_sharded_weights(xverify, tmp_path, put, name):
    folder = tmp_path / "sharded"
    sharded_weights(folder, WEIGHTS, (["fc1.weight", "fc1.bias"], ["fc2.weight", "fc2.bias"]))
    says = put(folder / name)
    done = xverify("weights", "digest", folder)
    refused(done, name)
    assert says in done.err or "is missing" in done.err or "is a link" in done.err, done.err


def test_the_torch_file_of_a_model_that_gives_its_graph(xverify, tmp_path, port, put):
    save_file(WEIGHTS, tmp_path / "w.npz")
    command = ["weights", "convert", tmp_path / "w.npz", tmp_path / "made.onnx", "--model", port]
    refused(xverify(*command), "it has no torch.py")
    says = put(port / "torch.py")
    refused(xverify(*command), "torch.py", says)


@pytest.mark.parametrize("command", ["report", "explain", "weights digest"])
def test_a_file_that_may_not_be_read(xverify, tmp_path, monkeypatch, command):
    path = tmp_path / "r.safetensors.index.json"
    path.write_text("{}")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read every file
    refused(xverify(*command.split(), path), "r.safetensors.index.json", "Permission denied")


def test_an_index_of_weights_that_is_gone_when_it_is_opened(xverify, tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text("{}")
    monkeypatch.setattr(reading, "problem", lambda path: path.unlink() or "")
    refused(xverify("weights", "digest", path), path.name, "No such file")


@pytest.mark.parametrize("cell", [False, True])
def test_a_file_of_a_sweep(xverify, tmp_path, port, put, cell):
    matrix = tmp_path / "s.toml"
    if not cell:
        says = put(matrix)
        refused(xverify("sweep", matrix, "--dry-run"), "s.toml", says)
        return
    matrix.write_text(
        f'[matrix]\nmodel = ["{port}"]\nsubjects = ["numpy"]\nbatch = [2]\n[settings]\nno_timing = true\n'
    )
    results = tmp_path / "results"
    file = cell_of(matrix)
    results.mkdir()
    says = put(results / file)
    refused(xverify("sweep", matrix, "--results", results), file, says)


def cell_of(matrix):
    """The name of the result file of the one cell of a matrix."""
    (planned,) = plan(matrices.read(matrix))
    return planned.file


def test_the_index_of_a_history(xverify, tmp_path, put):
    pytest.importorskip("duckdb")
    write(RESULT, tmp_path / "results.json")
    says = put(tmp_path / ".xverify-history.duckdb")
    refused(xverify("history", "--results", tmp_path), ".xverify-history.duckdb", says)


def test_the_named_index_of_a_history(xverify, tmp_path, put):
    pytest.importorskip("duckdb")
    write(RESULT, tmp_path / "results.json")
    says = put(tmp_path / "index.duckdb")
    if says != SAYS["nowhere"]:  # a new index may be made there
        refused(xverify("history", "--results", tmp_path, "--index", tmp_path / "index.duckdb"), "index.duckdb")


def test_the_summary_of_a_workflow(xverify, tmp_path, put, monkeypatch):
    write(RESULT, tmp_path / "good.json")
    says = put(tmp_path / "summary.md")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    if says not in (SAYS["nowhere"], SAYS["circle"]):  # the file is made there, or a line says why not
        refused(xverify("report", tmp_path / "good.json"), "GITHUB_STEP_SUMMARY", says)


def test_an_adapter(xverify, tmp_path, port, put, monkeypatch):
    (tmp_path / "adapters").mkdir()
    says = put(tmp_path / "adapters" / "other.py")
    (port / "other.py").write_text("")
    done = xverify("run", port, "--subjects", "other", *FAST, frameworks=tmp_path / "adapters")
    refused(done, "other.py", says)


def test_a_data_set(xverify, tmp_path, put):
    (tmp_path / "data").mkdir()
    says = put(tmp_path / "data" / "train-images-idx3-ubyte")
    done = xverify("run", "mlp", "--task", "train", "--data", tmp_path / "data", "--subjects", "numpy")
    refused(done, "train-images", says)


def test_what_takes_the_place_of_a_file_between_looking_and_opening(tmp_path, monkeypatch):
    """A pipe that has taken the place meanwhile is noticed when it is open, and nothing waits for its other end."""
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(reading, "check", lambda path: None)
    with pytest.raises(OSError, match="it is a pipe, not a file"):
        reading.opened(tmp_path / "pipe")


def test_a_file_through_links_and_standard_input_are_read(xverify, tmp_path):
    write(RESULT, tmp_path / "r.json")
    (tmp_path / "link.json").symlink_to("r.json")
    assert xverify("report", tmp_path / "link.json").code == xverify("report", tmp_path / "r.json").code
    with (tmp_path / "r.json").open("rb") as file:
        saved = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            done = xverify("report", "/dev/stdin")
        finally:
            os.dup2(saved, 0)
            os.close(saved)
    assert done.out == xverify("report", tmp_path / "r.json").out.replace(str(tmp_path / "r.json"), "/dev/stdin")


def test_the_content_of_a_file_is_what_was_written(tmp_path):
    (tmp_path / "f").write_bytes(b"\r\n\0")
    assert reading.content(tmp_path / "f") == b"\r\n\0"
    assert reading.problem(tmp_path / "f") == ""
    assert reading.problem(tmp_path / "g") == "no such file"
    assert reading.present(tmp_path / "g") is None


@pytest.fixture
def model(tmp_path):
    """y = x @ w, as an ONNX file whose weights lie in a file beside it."""
    onnx = pytest.importorskip("onnx")
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 512]) for name in ("x", "y")]
    weights = onnx.numpy_helper.from_array(np.ones((512, 512), np.float32), "w")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "model", tensors[:1], tensors[1:], [weights])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    return tmp_path / "m.onnx"


def test_the_external_data_of_a_model_file(xverify, model, put):
    says = put(model.with_name("m.data"))
    done = xverify("check", model)
    refused(done, "m.data")
    assert says in done.err or "outside of the folder" in done.err or "cannot be read" in done.err, done.err


@pytest.mark.parametrize("name", ["r.npz", "data/input_0.pb", "data/output_1.pb", "data/test_data_set_1"])
def test_recorded_tensors(xverify, tmp_path, model, put, name):
    tensor = pytest.importorskip("onnx").numpy_helper.from_array(np.ones((2, 512), np.float32)).SerializeToString()
    (tmp_path / "data").mkdir()
    for each in ("input_0.pb", "output_0.pb"):
        (tmp_path / "data" / each).write_bytes(tensor)
    says = put(tmp_path / name)
    if not (name.endswith("1") and says == SAYS["folder"]):  # it may be another set
        refused(xverify("check", model, "--against", tmp_path / name.split("/")[0]), name, says)


def test_the_arrays_of_inputs(xverify, tmp_path, model, put):
    says = put(tmp_path / "x.npz")
    refused(xverify("check", model, "--inputs", tmp_path / "x.npz"), "x.npz", says)


def test_the_weights_of_an_openvino_ir(xverify, tmp_path, put):
    """Also where no constant of the graph lies in them, because OpenVINO opens them all the same."""
    (tmp_path / "m.xml").write_text('<?xml version="1.0"?>\n<net name="m" version="11"><layers/></net>\n')
    says = put(tmp_path / "m.bin")
    refused(xverify("check", tmp_path / "m.xml"), "m.bin", says)


def test_a_file_of_a_saved_model(xverify, tmp_path, put):
    graph = tmp_path / "saved"
    (graph / "variables").mkdir(parents=True)
    (graph / "saved_model.pb").write_bytes(b"\x08\x01\x12\x00")
    says = put(graph / "variables" / "variables.index")
    done = xverify("check", graph)
    refused(done, "variables.index")
    assert says in done.err or "leads out of the folder" in done.err, done.err


@pytest.mark.parametrize("name", ["m.onnx", "m.xml", "m.pt2", "m.keras", "m.h5", "m.tflite", "m.pt", "m.ts"])
def test_a_model_file(xverify, tmp_path, put, name):
    says = put(tmp_path / name)
    if says != SAYS["folder"]:  # it may be a SavedModel
        refused(xverify("check", tmp_path / name), name)


def test_the_record_of_an_environment_is_passed_over(xverify, tmp_path, put, monkeypatch):
    monkeypatch.setenv("XVERIFY_ENVIRONMENTS", str(tmp_path / "environments"))
    (tmp_path / "environments" / "jax").mkdir(parents=True)
    put(tmp_path / "environments" / "jax" / STAMP)
    assert xverify("env", "list").code == 0


def test_the_lock_of_an_environment(xverify, tmp_path, put, monkeypatch):
    monkeypatch.setenv("XVERIFY_ENVIRONMENTS", str(tmp_path / "environments"))
    (tmp_path / "environments" / "jax").mkdir(parents=True)
    says = put(tmp_path / "environments" / ".jax.lock")
    refused(xverify("env", "remove", "jax"), ".jax.lock", says)


def test_the_lock_of_the_machine(tmp_path, monkeypatch):
    """Something else may be in the folder of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    os.mkfifo(tmp_path / MACHINE_LOCK.format(user=os.getuid()))
    with machine_to_itself(untimed=False):
        pass


@pytest.mark.parametrize("made", ["by another user", "as a link", "as a folder"])
def test_another_user_cannot_hold_the_lock_of_the_machine(tmp_path, monkeypatch, made):
    """A lock that another user holds would be waited for as long as that user likes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with machine_to_itself(untimed=False):
        [lock] = tmp_path.iterdir()
        assert lock.stat().st_mode & 0o777 == 0o600
    if made == "by another user":
        other = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: other)
        lock.rename(tmp_path / MACHINE_LOCK.format(user=os.getuid()))
    else:
        lock.unlink()
        lock.mkdir() if made == "as a folder" else lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(XverifyError, match="remove it, or name another temporary directory"), machine_to_itself(False):
        pass


@pytest.mark.parametrize("option", ["--against", "MODEL"])
def test_code_of_a_model(xverify, tmp_path, model, put, option):
    says = put(tmp_path / "code.py")
    code = f"torch={tmp_path / 'code.py'}"
    done = (
        xverify("convert", code, tmp_path / "made.onnx") if option == "MODEL" else xverify("check", model, option, code)
    )
    refused(done, "code.py", says)
