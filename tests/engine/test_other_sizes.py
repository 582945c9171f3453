"""``xverify run --batch 1,7 --sizes seq=1,16``: ports that are right at the size of the timed calls, and wrong at another one."""

import json

import pytest
from conftest import write_folder

import xverify as library
from xverify.errors import SpecError, UsageError

pytestmark = pytest.mark.usefixtures("in_one_process")
SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=4, inputs={"x": TensorSpec(("N", "seq", 8))}, outputs={"y": TensorSpec(("N", "seq", 3))}, sizes={"seq": 16}
)
"""
MODEL = """
import numpy as np

class Net:
    def __init__(self):
        self.weights = {"table": np.zeros((64, 8), np.float32), "fc.weight": np.zeros((3, 8), np.float32)}

    def __call__(self, x):
        w = self.weights
        h = x + w["table"][np.arange(x.shape[1])]
        h = h + h.mean(1, keepdims=True)
        return h @ w["fc.weight"].T

def build():
    return Net()
"""
CLIPPED = ("np.arange(x.shape[1])", "np.minimum(np.arange(x.shape[1]), 19)")  # a table that ends early
BAKED = ("h.mean(1, keepdims=True)", "h.sum(1, keepdims=True) / 16")  # the length of the example
BATCHED = ("return h @", "h = h.reshape(4, -1, 8) if len(h) > 3 else h; return h @")  # the batch of the example
REFUSES = ("h = x +", "assert x.shape[1] < 33, 'too long'\n        h = x +")


def ran(xverify, tmp_path, changes=(), *options, model=MODEL):
    folder = write_folder(tmp_path / "port", spec=SPEC, model=model)
    port = model
    for before, after in changes:
        assert before in port
        port = port.replace(before, after)
    (folder / "honest.py").write_text(port)
    return xverify("run", folder, "--subjects", "numpy,honest", "--no-timing", *options)


def verdicts(done):
    """The sizes of every row of the port -> its verdict."""
    rows = [row for row in done.result["rows"] if row["framework"] == "honest"]
    return {tuple(row["sizes"].values()): row["error"]["verdict"] for row in rows}


def test_a_right_port_is_equal_at_every_size(xverify, tmp_path):
    done = ran(xverify, tmp_path, (), "--batch", "4,1,7", "--sizes", "seq=16,1,33")
    assert done.code == 0, done.out
    found = verdicts(done)
    assert len(found) == 9
    assert set(found.values()) <= {"EQUAL", "IDENTICAL"}
    assert next(iter(found)) == (4, 16), "the first size of each stands first"
    assert "checked at 9 sizes: every combination of batch=4,1,7 seq=16,1,33" in " ".join(done.out.split())
    assert "first size that differs" not in done.out
    settings = done.result["settings"]
    assert settings["sizes"] == {"batch": 4, "seq": 16}
    assert {"batch": 7, "seq": 33} in settings["other_sizes"]
    assert done.row("honest batch=7 seq=33")["batch"] == 7
    assert done.row("honest")["subject"] == "honest"
    assert "18 of 18 rows EQUAL" in done.out


@pytest.mark.parametrize(
    ("fault", "wrong", "first"),
    [
        (CLIPPED, {(1, 33), (4, 33), (7, 33)}, "batch=1 seq=33 (3 of 9 sizes differ)"),
        (BAKED, {(b, s) for b in (1, 4, 7) for s in (1, 33)}, "batch=1 seq=1 (6 of 9 sizes differ)"),
        (BATCHED, {(7, 1), (7, 16), (7, 33)}, "batch=7 seq=1 (3 of 9 sizes differ)"),
        (REFUSES, {(1, 33), (4, 33), (7, 33)}, "batch=1 seq=33 (3 of 9 sizes differ)"),
    ],
)
def test_a_fault_at_another_size_is_found_and_told_with_the_first_size(xverify, tmp_path, fault, wrong, first):
    done = ran(xverify, tmp_path, [fault], "--batch", "4,1,7", "--sizes", "seq=16,1,33")
    assert done.code == 1, done.out
    found = verdicts(done)
    assert {size for size, verdict in found.items() if verdict in ("DIFFERENT", "INVALID")} == wrong
    assert f"honest: the first size that differs is {first}" in " ".join(done.out.split())
    assert any(first in note for note in done.result["notes"])


def test_a_port_that_refuses_a_size_is_told_with_its_line(xverify, tmp_path):
    done = ran(xverify, tmp_path, [REFUSES], "--sizes", "seq=16,33")
    reason = done.row("honest seq=33")["error"]["reason"]
    assert reason.startswith("it refuses seq=33, which the reference takes: AssertionError: too long")
    assert "honest.py:" in reason


def test_a_single_size_is_the_one_that_is_run(xverify, tmp_path):
    done = ran(xverify, tmp_path, [CLIPPED], "--sizes", "seq=33")
    assert done.code == 1, done.out
    assert [row["sizes"] for row in done.result["rows"]] == [{"seq": 33}, {"seq": 33}]
    assert done.row("honest")["error"]["verdict"] == "DIFFERENT"
    assert ran(xverify, tmp_path, [CLIPPED]).code == 0


def test_a_batch_among_sizes_is_that_of_the_option(xverify, tmp_path):
    done = ran(xverify, tmp_path, (), "--sizes", "N=2,1")
    assert [row["batch"] for row in done.result["rows"]] == [2, 1, 2, 1]
    assert [row["sizes"] for row in done.result["rows"]] == [{"batch": 2}, {"batch": 1}] * 2


def test_a_size_for_which_there_is_no_time_is_untested(xverify, tmp_path):
    done = ran(xverify, tmp_path, (), "--sizes", "seq=16,33", "--max-seconds", "0.001")
    row = done.row("honest seq=33")
    assert row["error"]["verdict"] == "UNTESTED"
    assert "--max-seconds was over before the size seq=33" in row["error"]["reason"]
    assert done.code == 4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--sizes", "sec=3"), "spec.py names no axis 'sec'; did you mean 'seq'? It names: batch, seq"),
        (("--sizes", "seq=0"), "--sizes seq=0: write NAME=SIZES"),
        (("--sizes", "seq=-3,2"), "--sizes seq=-3,2: write NAME=SIZES"),
        (("--sizes", "seq"), "--sizes seq: write NAME=SIZES"),
        (("--batch", "0,2"), "--batch is 0: it must be at least 1"),
        (("--batch", "2,x"), "--batch is '2,x': it must be a whole number, or several"),
        (("--batch", "2", "--sizes", "batch=3"), "both give the size of the batch"),
        (("--sizes", "seq=16,65"), "--sizes seq=65: the reference numpy refuses this size: IndexError"),
        (("--sizes", "seq=65"), "--sizes seq=65: the reference numpy refuses this size: IndexError"),
        (("--task", "train", "--batch", "1,2"), "write --task forward,train"),
    ],
)
def test_sizes_that_cannot_be_run_are_refused(xverify, tmp_path, options, says):
    done = ran(xverify, tmp_path, (), *options)
    assert done.code == 2, done.out
    assert says in done.err
    assert done.result is None


def test_the_refusal_of_the_reference_names_its_line(xverify, tmp_path):
    done = ran(xverify, tmp_path, (), "--sizes", "seq=16,65")
    assert "numpy.py:10)" in done.err


@pytest.mark.usefixtures("faulty_frameworks")
@pytest.mark.parametrize(
    "settings",
    [
        {"batch": []},
        {"batch": [1, "2"]},
        {"batch": "12"},
        {"batch": [True, 2]},
        {"sizes": {"seq": []}},
        {"sizes": {"seq": 3}},
        {"sizes": {"seq": "12"}},
        {"sizes": {"seq": [2.0]}},
        {"sizes": [("seq", [2])]},
        {"sizes": {"seq": list(range(1, 70))}},
    ],
)
def test_wrong_values_in_python_are_refused(tmp_path, settings):
    folder = write_folder(tmp_path / "port", spec=SPEC, model=MODEL)
    with pytest.raises(UsageError):
        library.run(folder, ["numpy"], no_timing=True, **settings)


def test_an_output_that_has_another_size_than_the_spec_says_is_told_with_the_size(xverify, tmp_path):
    spec = SPEC.replace('"y": TensorSpec(("N", "seq", 3))', '"y": TensorSpec(("N", 16, 3))')
    folder = write_folder(tmp_path / "port", spec=spec, model=MODEL)
    done = xverify("run", folder, "--subjects", "numpy", "--no-timing", "--sizes", "seq=16,5")
    assert done.code == 2
    assert "--sizes seq=5:" in done.err
    assert "so (4, 16, 3) at batch 4 seq 5; numpy returns (4, 5, 3)" in done.err
    with pytest.raises(SpecError):
        library.run(folder, ["numpy"], no_timing=True, sizes={"seq": [16, 5]})


def test_the_receipt_runs_all_sizes_again(xverify, tmp_path):
    done = ran(
        xverify, tmp_path, [CLIPPED], "--batch", "4,2", "--sizes", "seq=16,33", "--receipt", tmp_path / "receipt"
    )
    assert done.code == 1
    again = xverify("replay", tmp_path / "receipt", "--json", tmp_path / "again.json")
    assert again.code == 0, again.out + again.err
    assert "8 of 8 rows" in again.out
    rows = json.loads((tmp_path / "again.json").read_text())["rows"]
    assert [row["error"]["verdict"] for row in rows] == [row["error"]["verdict"] for row in done.result["rows"]]


def test_other_reports_have_every_size(xverify, tmp_path):
    page, junit, markdown = (tmp_path / name for name in ("r.html", "r.xml", "r.md"))
    done = ran(
        xverify, tmp_path, [CLIPPED], "--sizes", "seq=16,33", "--html", page, "--junit", junit, "--markdown", markdown
    )
    assert done.code == 1
    for file in (page, junit, markdown):
        assert "honest seq=33" in file.read_text(), file
        assert "the first size that differs is seq=33" in file.read_text() or file == junit, file
    assert "other sizes of seq than 16, 33" in page.read_text()


def test_a_sweep_finds_the_results_of_several_sizes_again(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"), spec=SPEC, model=MODEL)
    file, command = tmp_path / "sweep.toml", ("sweep", tmp_path / "sweep.toml", "--results", tmp_path / "results")
    matrix = f'[matrix]\nmodel = ["{folder}"]\nbatch = [2, 3]\n[settings]\nsubjects = ["numpy", "honest"]\nno_timing = true\n'
    file.write_text(f"{matrix}[settings.sizes]\nseq = [16, 5]\n")
    first = xverify(*command)
    assert first.code == 0, first.out + first.err
    assert "2 PASS (2 run now" in first.out
    assert "honest seq=5" in first.out
    assert "every result was there" in xverify(*command).out
    file.write_text(f"{matrix}[settings.sizes]\nseq = [16, 7]\n")
    assert "2 PASS (2 run now" in xverify(*command).out
    file.write_text(f'{matrix}[settings.sizes]\nseq = "16"\n')
    assert "it must be a table of lists of sizes" in xverify(*command).err
