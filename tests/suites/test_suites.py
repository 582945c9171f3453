"""A sample of every suite, as `make` runs it, and what the suites say about an answer that is wrong."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
SUITES = Path(__file__).parents[2] / "suites"
sys.path.insert(0, str(SUITES))
import hostile  # noqa: E402
import onnx_suite  # noqa: E402
import processes  # noqa: E402
import weight_files  # noqa: E402
from helpers.sampleresults import RESULT  # noqa: E402
from hostile import REFUSED, ROW, Trap  # noqa: E402
from hostile_weights import Hostile  # noqa: E402
from process_faults import Fault  # noqa: E402

from xverify.results.file import write  # noqa: E402


def run(script, *arguments):
    """The output of a suite, which must pass."""
    done = subprocess.run(
        [sys.executable, SUITES / script, *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(
    ("direct", "conversion", "runtime", "column"),
    [
        ("right", "agrees", "agrees", "agree"),
        ("right", "constant", "constant", "constant"),
        ("right", "differs", "agrees", "WRONG"),  # a right output is accused
        ("right", "drift", "agrees", "WRONG"),
        ("right", "agrees", "differs", "WRONG"),  # the runtime is accused
        ("right", "no row", "no row", "WRONG"),  # it could be computed, and was not
        ("wrong", "agrees", "agrees", "WRONG"),  # a wrong output passes
        ("wrong", "differs", "differs", "rightly differ"),
        ("cannot", "no row", "no row", "runtime cannot"),
        ("cannot", "agrees", "agrees", "WRONG"),
        ("unknown", "agrees", "agrees", "agree"),
        ("unknown", "differs", "agrees", "WRONG"),
    ],
)
def test_both_kinds_of_wrong_verdicts_are_counted(direct, conversion, runtime, column):
    found = {"conversion": (conversion, "why"), "runtime": (runtime, "why")}
    assert onnx_suite.judge((direct, "why"), found)[0] == column


@pytest.mark.slow
def test_a_sample_of_onnx_cases():
    """Operators of every sort: elementwise, sums, normalisation, quantised, sequences, strings, control flow."""
    operators = (
        "add,cast,clip,conv,dynamicquantizelinear,if_,isinf,logsoftmax,matmul,nonzero,qlinearmatmul,reshape,split,topk"
    )
    said = run("onnx_suite.py", "--kinds", "node,simple", "--operators", operators)
    cases, agree = map(int, re.search(r"^all +(\d+) +(\d+)", said, re.MULTILINE).groups())
    assert cases > 150
    assert agree > 80


def springs(tmp_path, name, *arguments, **more):
    return hostile.spring(Trap(name, tuple(map(str, arguments)), **more), tmp_path, 8.0)


@pytest.mark.slow
def test_the_suite_of_faults_tells_a_fault(tmp_path):
    """What must be refused and is not, what must be a row, and a text that must not appear."""
    empty = tmp_path / "empty.onnx"
    empty.touch()
    assert springs(tmp_path, "right", empty, expect=REFUSED, says="the file is empty").wrong == ""
    assert "expected: row" in springs(tmp_path, "row", empty, expect=ROW).wrong
    assert "does not say 'the file is full'" in springs(tmp_path, "says", empty, says="the file is full").wrong
    assert "it shows 'the file is empty'" in springs(tmp_path, "never", empty, never="the file is empty").wrong
    writes = springs(tmp_path, "writes", empty, "--json", "written.json", "--no-such-option")
    assert writes.column == "refused"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "pattern"), [("mutated", "onnx"), ("mutated", "code.pt*"), ("harm", "onnx: external data [at]*")]
)
def test_a_sample_of_the_faults(part, pattern):
    said = run("faults.py", "--part", part, "--only", pattern, "--files", "40", "--minutes", "3")
    assert "PASS: 0 wrong" in said


@pytest.mark.slow
def test_a_sample_of_the_faults_of_processes():
    said = run("faults.py", "--part", "processes", "--every", "20")
    assert int(re.search(r"^processes +(\d+)", said, re.MULTILINE)[1]) >= 10
    assert "PASS: 0 wrong" in said


@pytest.mark.slow
def test_a_sample_of_the_weight_files():
    pytest.importorskip("torch")
    said = run("faults.py", "--part", "weights", "--files", "200", "--every", "20")
    assert int(re.search(r"^all +(\d+)", said, re.MULTILINE)[1]) >= 200
    assert "PASS: 0 wrong" in said


def test_the_suite_of_processes_tells_a_fault():
    """Each part of an answer is looked at: the exit code, the row and its reason, the other row, what is left."""
    fault = Fault("killed", statuses=("crashed",), says="SIGKILL")
    rows = {"numpy": {"status": "ok"}, "honest": {"status": "crashed", "reason": "killed by SIGKILL while importing"}}
    right = processes.Ran(3, "", 2.0, rows, [], [])
    assert processes.judge(fault, right) == ""
    wrong = {
        "it ended with 0": replace(right, code=0),
        "it shows a traceback": replace(right, said="Traceback (most recent call last)"),
        "its row has status 'ok'": replace(right, rows={**rows, "honest": {"status": "ok"}}),
        "does not say 'SIGKILL'": replace(right, rows={**rows, "honest": {"status": "crashed", "reason": "it ended"}}),
        "the row of the other subject is not ok": replace(right, rows={"honest": rows["honest"]}),
        "it left processes": replace(right, left=["sleep"]),
        "it left ['xverify-1']": replace(right, folders=["xverify-1"]),
        "it took 1000 s": replace(right, seconds=1000.0),
    }
    for says, ran in wrong.items():
        assert says in processes.judge(fault, ran)


@pytest.mark.slow
def test_the_suite_of_weight_files_tells_a_fault(tmp_path):
    np.savez(tmp_path / "right.npz", w=np.ones(2, np.float32))
    assert weight_files.read(tmp_path / "right.npz") == ("read", "")
    assert weight_files.spring(Hostile(tmp_path / "right.npz", ""), tmp_path) == ""
    assert "it ended with 0" in weight_files.spring(Hostile(tmp_path / "right.npz", "refused"), tmp_path)
    (tmp_path / "cut.npz").write_bytes(b"PK")
    assert "it ended with 2" in weight_files.spring(Hostile(tmp_path / "cut.npz", ""), tmp_path)
    assert "does not say 'the limit'" in weight_files.spring(Hostile(tmp_path / "cut.npz", "the limit"), tmp_path)


@pytest.mark.slow
def test_arrays_of_the_user_are_read_with_care(tmp_path, xverify):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [10**6, 10**6]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    done = xverify("check", tmp_path / "m.onnx")
    assert done.code == 2
    assert "cases of the inputs take" in done.err
    np.savez(tmp_path / "whole.npz", x=np.ones(4, np.float32))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:-30])
    for option in ("--inputs", "--against"):
        done = xverify("check", tmp_path / "m.onnx", option, tmp_path / "cut.npz")
        assert done.code == 2
        assert f"{option} {tmp_path / 'cut.npz'}: it cannot be read as a .npz file: BadZipFile" in done.err
    import zipfile

    for name, members, says in (
        ("none", {}, "there is no array in it. Inputs: x"),
        ("text", {"x.npy": b"hello"}, "'x' is no array"),
    ):
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        done = xverify("check", tmp_path / "m.onnx", "--inputs", tmp_path / f"{name}.npz")
        assert done.code == 2
        assert says in done.err


def test_the_suite_of_results_tells_a_fault(monkeypatch):
    """A command that fails, ends with another code, or prints what a terminal obeys, is told; so is one that ends itself."""
    import hostile_results

    def answering(code, out="", err=""):
        def command(words):
            print(out, end="")
            print(err, end="", file=sys.stderr)
            return code

        monkeypatch.setattr(hostile_results, "command", command)
        return hostile_results._called("explain", "r.json")

    assert answering(0, "PASS\n") == answering(2, err="one line\n") == ""
    assert "exit code 2" in answering(2, err="two\nlines\n")
    assert "exit code 1" in answering(1, err="a message\n")
    assert "exit code 5" in answering(5, "PASS\n")
    assert "unexpected" in answering(3, err="xverify explain: unexpected KeyError\n")
    assert "character '\\x1b'" in answering(0, "\x1b[31m\n")


def test_the_suite_of_results_takes_reports_in_files_that_are_named(monkeypatch, tmp_path):
    import hostile_results

    path = tmp_path / "r.json"
    write(RESULT, path)
    assert hostile_results._reported(path) == ""
    report = hostile_results.command

    def more(words):
        print("a warning", file=sys.stderr)
        return report(words)

    monkeypatch.setattr(hostile_results, "command", more)
    assert "a warning" in hostile_results._reported(path)
    monkeypatch.setattr(hostile_results, "command", lambda words: 0)
    assert hostile_results._reported(path) == "exit code 0 with ''"


@pytest.mark.slow
@pytest.mark.parametrize("part", ["results", "folders"])
def test_a_twentieth_of_the_results_and_folders(part):
    said = run("faults.py", "--part", part, "--files", "100" if part == "results" else "5")
    assert "PASS: 0 wrong" in said
    assert "tried" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spec.py a folder", "spec.py a pipe", "names.toml a folder"])
def test_what_the_suite_of_folders_expects_in_the_place_of_a_file(tmp_path, name):
    import hostile_folders

    [folder] = [each for each in hostile_folders._places() if each.name == f"place: {name}"]
    assert hostile_folders.fault(folder, tmp_path) == ""


def test_the_suite_of_folders_tells_a_fault(tmp_path):
    """A folder that is taken where it had to be refused, and one that does not say what it should."""
    import hostile_folders
    from hostile_folders import REFUSED, RUNS, Folder

    whole = {"spec.py": hostile_folders.SPEC.replace("batch=4", "batch=0")}
    for name, codes, says, fault in (
        ("a", RUNS, "", "exit code 2, expected (0,)"),
        ("b", REFUSED, "no such text", "it does not say"),
        ("c", REFUSED, "batch is 0", ""),
    ):
        (tmp_path / name).mkdir()
        found = hostile_folders.fault(Folder(name, whole, codes, says), tmp_path / name)
        assert fault in found if fault else not found
