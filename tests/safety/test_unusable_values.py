"""What stands in a file or on the command line and cannot be used: one line that says so, the right exit code, nothing left."""

import json
import os
import pwd
import shutil

import numpy as np
import pytest
from conftest import cli, write_folder
from helpers.inprocess import one_process
from helpers.sampleresults import RESULT

from xverify.errors import UsageError
from xverify.receipts.keeping import own_digest
from xverify.receipts.reading import read as read_receipt
from xverify.results.file import read
from xverify.workload.options import MOST_THREADS

FAST = ("--no-timing", "--cases", "1")
SUBJECTS = ("--subjects", "numpy,honest")
LONG = "x" * 50_000
pytestmark = pytest.mark.usefixtures("in_one_process")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a port, a result of it, and a receipt."""
    folder = tmp_path_factory.mktemp("made")
    port = write_folder(folder / "port", ("numpy", "honest"))
    with one_process():
        done = cli(folder, "run", port, *SUBJECTS, *FAST, "--receipt", folder / "kept")
    assert done.code == 0, done.err
    return folder


def refused(done, *says):
    """The command was refused in one line of usual length, which has all of these texts."""
    assert (done.code, done.out) == (2, ""), done.err
    [line] = done.err.splitlines()
    assert len(line) < 1000
    assert line.isprintable()
    assert not [each for each in says if each not in line], line


# -- receipts ---------------------------------------------------------------------------------------------------------

BAD = {
    **{"NUL": "a\0b", "long": LONG, "empty": "", "object": {}, "list": [], "zero": 0, "negative": -1, "true": True},
    **{"null": None, "huge": 2**70, "float": 1e308, "list of lists": [[]], "list of NUL": ["a\0"], "numbers": [1.5]},
}
SIGNED = {
    **{
        "model a NUL": ("model", "a\0b"),
        "model long": ("model", LONG),
        "no tasks": ("tasks", {}),
        "no subjects": ("tasks.forward.subjects", []),
    },
    **{"pin 0": ("settings.pin", 0), "pin true": ("settings.pin", True), "python true": ("settings.python", True)},
    **{"python NUL": ("settings.python", {"numpy": "/\0"}), "task long": ("settings.task", LONG)},
    **{
        "cases list": ("settings.cases", []),
        "cases huge": ("settings.cases", 2**70),
        "seed huge": ("settings.seed", 2**64),
    },
    **{
        "memory huge": ("settings.memory", 1e300),
        "weight decay huge": ("settings.weight_decay", 10**400),
        "strict 1": ("settings.strict", 1),
        "other task": ("tasks.other", {"subjects": []}),
    },
    **{"weights NUL": ("settings.weights", "\0"), "subject long": ("tasks.forward.subjects", [LONG])},
    **{
        "name long": (f"files.{LONG}", "sha256:0"),
        "name NUL": ("files.\0", "sha256:0"),
        "version long": ("xverify", LONG),
    },
}


def sign(kept, place, value):
    """Change a field of receipt.json, and give it the digest that fits."""
    noted = json.loads((kept / "receipt.json").read_text())
    at, names = noted, place.split(".")
    for name in names[:-1]:
        at = at[name]
    at[names[-1]] = value
    noted.pop("digest")
    (kept / "receipt.json").write_text(json.dumps({**noted, "digest": own_digest(noted)}))


@pytest.mark.parametrize("name", SIGNED)
def test_a_receipt_that_was_signed_again_with_an_unusable_value_is_refused(xverify, made, tmp_path, name):
    kept = shutil.copytree(made / "kept", tmp_path / "kept")
    sign(kept, *SIGNED[name])
    refused(xverify("replay", kept), "receipt.json")


def is_refused(kept):
    try:
        read_receipt(kept)
    except UsageError as error:
        return len(str(error)) < 1000
    return False


def test_every_field_of_a_receipt_with_every_unusable_value_is_read_or_refused(made, tmp_path):
    kept = shutil.copytree(made / "kept", tmp_path / "kept")
    before = (kept / "receipt.json").read_text()
    noted = json.loads(before)
    places = [name for name in noted if name != "digest"] + [f"settings.{name}" for name in noted["settings"]]
    wrong = 0
    for place in (*places, "tasks.forward", "tasks.forward.subjects"):
        for value in BAD.values():
            (kept / "receipt.json").write_text(before)
            sign(kept, place, value)
            wrong += is_refused(kept)
    assert wrong > 400


# -- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "most"),
    [
        *(
            ("--seed", 2**64, 2**53),
            ("--seed", 10**30, 2**53),
            ("--seed", 2**53 + 1, 2**53),
            ("--seed", 10**400, 2**53),
        ),
        *(("--threads", 1_000_000, MOST_THREADS), ("--cases", 10**30, 10**6), ("--batch", 10**30, 2**31 - 1)),
        *(("--memory", 1e300, 10**9), ("--total-memory", 1e308, 10**9), ("--max-weights", 1e308, 10**9)),
        *(("--warmup", 10**30, 2**53), ("--rerun", 10**30, 2**53)),
    ],
)
def test_a_number_that_is_too_large_is_refused_with_the_greatest_one(xverify, made, option, value, most):
    done = xverify("run", made / "port", *SUBJECTS, option, value)
    refused(done, option, f"must be at most {most}")
    assert done.result is None


def test_a_number_of_thousands_of_digits_is_refused(xverify, made):
    refused(xverify("run", made / "port", *SUBJECTS, "--seed", "1" * 5000), "--seed", "must be a whole number")


def test_the_greatest_seed_gives_a_result_that_can_be_read(xverify, made, tmp_path):
    done = xverify("run", made / "port", *SUBJECTS, *FAST, "--seed", 2**53, "--json", tmp_path / "r.json")
    assert done.code == 0, done.err
    assert read(tmp_path / "r.json").settings.seed == 2**53
    assert xverify("report", tmp_path / "r.json").code == 0


def test_more_memory_than_there_is_is_told_in_one_line(xverify, made):
    done = xverify("run", made / "port", *SUBJECTS, *FAST, "--batch", 2**31 - 1)
    assert (done.code, done.err.splitlines()[-1].partition(":")[0]) == (3, "xverify run")
    assert "not enough memory" in done.err
    assert "unexpected" not in done.err


@pytest.mark.parametrize("option", ["--weights", "--json", "--receipt"])
def test_a_path_of_fifty_thousand_characters_is_refused(xverify, made, option):
    refused(xverify("run", made / "port", *SUBJECTS, option, LONG), option, "at most 4096 characters")


# -- results and their index ------------------------------------------------------------------------------------------


def test_a_result_with_an_unknown_effort_is_not_resumed(xverify, made, tmp_path):
    options = (*SUBJECTS, "--warmup", 1, "--rerun", 2, "--json", tmp_path / "r.json")
    assert xverify("run", made / "port", *options).code == 0
    values = json.loads((tmp_path / "r.json").read_text())
    values["settings"]["effort"] = "much"
    (tmp_path / "r.json").write_text(json.dumps(values))
    refused(xverify("run", made / "port", *options, "--resume"), "r.json", "'much'", "$.settings.effort", "rigorous")


@pytest.mark.parametrize("command", ["report", "explain"])
def test_a_field_that_its_record_refuses_is_told_with_its_file(xverify, tmp_path, command):
    values = RESULT.to_dict()
    values["settings"]["optimizer"]["recipe"]["accumulate"] = -1
    (tmp_path / "r.json").write_text(json.dumps(values))
    refused(xverify(command, tmp_path / "r.json"), "r.json", "accumulate is -1")


@pytest.mark.parametrize("kind", ["folder", "pipe", "damaged"])
def test_what_stands_in_the_place_of_the_log_of_an_index_is_told(xverify, made, tmp_path, kind):
    pytest.importorskip("duckdb")
    results = tmp_path / "results"
    results.mkdir()
    shutil.copy(made / "result.json", results)
    assert xverify("history", "--results", results).code == 4
    log = results / ".xverify-history.duckdb.wal"
    {"folder": log.mkdir, "pipe": lambda: os.mkfifo(log), "damaged": lambda: log.write_bytes(b"no log" * 99)}[kind]()
    done = xverify("history", "--results", results)
    assert log.exists()
    if kind != "damaged" or done.code != 4:
        refused(done, log.name)


# -- arrays -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    """A file of two outputs, and a function that writes a set of test data for it."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import helper, numpy_helper

    values = {name: helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xab"}
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    graph = helper.make_graph(nodes, "g", [values["x"]], [values["a"], values["b"]])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    arrays = {"input_0": np.ones((2, 3), np.float32), "output_0": np.ones((2, 3), np.float32)}
    arrays["output_1"] = -arrays["input_0"]

    def write(number, *names):
        folder = tmp_path / "data" / f"test_data_set_{number}"
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.pb").write_bytes(numpy_helper.from_array(arrays[name]).SerializeToString())

    return write


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["²/x", "٣/x", "1" * 5000 + "/x", "1" * 4000 + "/x", "00/x", "-1/x", "99999999999/x", "/x"]
)
@pytest.mark.usefixtures("model")
def test_the_name_of_an_array_that_begins_with_no_number_of_a_case_is_told(xverify, tmp_path, name):
    np.savez(tmp_path / "i.npz", **{name: np.ones((2, 3), np.float32)})
    done = xverify("check", tmp_path / "m.onnx", "--inputs", tmp_path / "i.npz", "--quiet")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "--inputs" in done.err
    assert "i.npz: " in done.err


@pytest.mark.slow
@pytest.mark.parametrize("second", [("input_0", "output_0"), ("input_0",), ("output_0", "output_1"), ()])
def test_a_second_set_of_test_data_with_fewer_tensors_is_told(xverify, tmp_path, model, second):
    model(0, "input_0", "output_0", "output_1")
    model(1, *second)
    refused(xverify("check", tmp_path / "m.onnx", "--against", tmp_path / "data", "--quiet"), "--against")


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("shape", [(), (3,), (1, 2, 3)])
def test_a_recorded_output_with_another_number_of_axes_differs(xverify, tmp_path, model, number, shape):
    for each in (0, 1):
        model(each, "input_0", "output_0", "output_1")
    from onnx import numpy_helper

    place = tmp_path / "data" / f"test_data_set_{number}" / "output_0.pb"
    place.write_bytes(numpy_helper.from_array(np.ones(shape, np.float32)).SerializeToString())
    done = xverify("check", tmp_path / "m.onnx", "--against", tmp_path / "data")
    assert (done.code, done.err.count("xverify check")) == (1, 0), done.err
    assert "shape" in done.out


# -- names and places -------------------------------------------------------------------------------------------------


@pytest.fixture
def homeless(monkeypatch):
    """The number of the user has no entry, as in a container that runs under any number, and nothing names a home."""

    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "XVERIFY_ENVIRONMENTS", "JITTOR_HOME", "PYENV_ROOT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize("command", ["list", "env list", "doctor"])
def test_a_user_without_a_home_has_these_commands(xverify, tmp_path, monkeypatch, command):
    monkeypatch.setattr("xverify.commands.doctor._torchvision", lambda: [])  # it starts torch
    done = xverify(*command.split())
    assert done.code == 0, done.err
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_is_told_where_an_environment_can_be(xverify):
    done = xverify("env", "create", "jittor")
    assert (done.code, len(done.err.splitlines())) == (3, 1)
    assert "XVERIFY_ENVIRONMENTS names another place" in done.err


def test_a_file_in_the_home_of_an_unknown_user_is_told(xverify):
    done = xverify("check", "torch=~no-such-user/model.py:build")
    refused(done, "torch=~no-such-user/model.py:build: there is no such file")


@pytest.mark.parametrize("command", ["check", "run", "report", "weights digest", "replay", "convert"])
def test_a_name_that_is_no_utf8_is_refused(xverify, tmp_path, command):
    name = os.fsdecode(b"m\xff.onnx")
    (tmp_path / name).write_bytes(b"")
    refused(xverify(*command.split(), tmp_path / name), r"m\udcff.onnx", "is no UTF-8")


def test_a_run_in_a_folder_whose_name_is_no_utf8_gives_a_result_that_can_be_read(tmp_path):
    place = tmp_path / os.fsdecode(b"d\xff")
    write_folder(place / "here" / "port", ("numpy", "honest"))
    done = cli(place, "run", "port", *SUBJECTS, *FAST, "--json", tmp_path / "r.json")
    assert done.code == 0, done.err
    assert r"d\udcff" in read(tmp_path / "r.json").settings.model
