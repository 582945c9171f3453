"""The folder of a reproducer: what it may replace, what stands beside a wrong conversion, and what reports say of it."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from helpers import narrowfiles, plantedfaults, reproducers
from helpers.htmlpages import Page
from helpers.reproducers import assert_fails_alone, operators, ran, small
from onnx import TensorProto, helper

from xverify.checking import pieces
from xverify.checking.reproducer_files import COMPARED

pytestmark = pytest.mark.usefixtures("in_one_process")
FLOATS = (TensorProto.FLOAT, [2, 6])


@pytest.fixture
def plant(tmp_path, monkeypatch):
    return partial(reproducers.plant, tmp_path, monkeypatch)


@pytest.fixture
def checked(xverify, tmp_path):
    return partial(reproducers.check, xverify, tmp_path)


def test_a_right_runtime_writes_nothing_and_says_so(checked, tmp_path):
    narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx")
    done, (row,) = checked(tmp_path / "network.onnx")
    assert done.code == 0, done.out + done.err
    assert "no reproducer was written, because no row is DIFFERENT" in done.out
    assert not (tmp_path / "piece").exists()
    assert row["reproducer"] == ""


RELU = {"node": "/relu1/Relu", "result": ("Mul", "float32", 1.5)}


def test_several_files_have_a_folder_each_and_an_earlier_reproducer_is_replaced_with_force(checked, plant, tmp_path):
    plant(**RELU)
    files = [narrowfiles.save(narrowfiles.network(seed=seed), tmp_path / f"net {seed}.onnx") for seed in (0, 1)]
    done, rows = checked(*files)
    assert done.code == 1, done.out + done.err
    folders = [tmp_path / "piece" / f"net-{seed}.onnx" for seed in (0, 1)]
    assert [row["reproducer"] for row in rows] == list(map(str, folders))
    for folder in folders:
        assert_fails_alone(folder, "Relu")
    before = (folders[0] / "model.onnx").stat().st_ino
    done, rows = checked(files[0])
    assert (done.code, rows) != (1, [])
    assert done.code == 2
    assert f"--reproducer {tmp_path / 'piece'} holds an earlier reproducer: --force replaces it" in done.err
    assert (folders[0] / "model.onnx").stat().st_ino == before
    done, _ = checked(files[0], "--force")
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "Relu")
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".xverify")]


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_what_is_no_reproducer_is_never_replaced(checked, tmp_path, what, force):
    file, place = narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx"), tmp_path / "piece"
    if what == "file":
        place.write_text("mine")
    elif what == "folder":
        place.mkdir()
        (place / "model.onnx").write_text("mine")
    else:
        place.symlink_to(tmp_path / "nowhere")
    done, _ = checked(file, *force)
    says = {"file": "is a file", "folder": "and is no reproducer", "link": "is a link that leads nowhere"}[what]
    assert done.code == 2
    assert says in done.err
    assert f"--reproducer {place}" in done.err
    assert "name a new folder" in done.err


def test_the_folder_is_not_that_of_the_file(checked, tmp_path):
    place = tmp_path / "piece"
    place.mkdir()
    done, _ = checked(narrowfiles.save(narrowfiles.network(), place / "network.onnx"))
    assert done.code == 2
    assert f"--reproducer {place} holds what this command reads as FILE" in done.err
    assert [each.name for each in place.iterdir()] == ["network.onnx"]


# Wrong conversion -> operators of the node of the file, and of those of the reference in its place.
PAIRS = {
    "relu6": (["Clip"], ["Relu"]),
    "resize-nearest": (["Resize"], ["Resize"]),
    "stale-weight": (["Conv"], ["Conv"]),
    "norm-folded-other-eps": (["Conv"], ["Conv", "BatchNormalization"]),
}


@pytest.mark.slow
def test_the_first_node_of_a_wrong_conversion_stands_beside_that_of_the_reference(checked, tmp_path):
    right = plantedfaults.write(tmp_path / "right.onnx")
    files = [plantedfaults.write(tmp_path / f"{name}.onnx", **plantedfaults.WRONG[name][0]) for name in PAIRS]
    done, rows = checked(*files, "--against", right)
    assert done.code == 1, done.out + done.err
    assert [row["reproducer"] for row in rows if row["task"] == "runtime"] == [""] * len(PAIRS)
    for name, (own, reference) in PAIRS.items():
        folder = tmp_path / "piece" / f"{name}.onnx"
        assert sorted(each.name for each in folder.iterdir()) == sorted(COMPARED)
        assert (operators(folder), operators(folder, "reference.onnx")) == (own, reference)
        done = ran(folder)
        assert done.returncode == 1, done.stdout + done.stderr
        first, second = done.stdout.splitlines()
        assert first.startswith("reference.onnx: ")
        assert "right, 0 of " in first
        assert second.startswith("model.onnx: ")
        assert "WRONG" in second
        assert f"of {name}.onnx computes something else than " in (folder / "report.md").read_text()


@pytest.mark.parametrize("against", ["quantised", "recorded", "swapped"])
def test_a_wrong_conversion_without_a_reproducer_says_why(checked, tmp_path, against):
    right = plantedfaults.write(tmp_path / "right.onnx")
    if against == "recorded":
        np.savez(tmp_path / "recorded.npz", **{"input/x": np.ones((2, 6), "f"), "output/y": np.ones((2, 6), "f")})
        nodes = [helper.make_node("Exp", ["x"], ["y"], "/Exp")]
        right, wrong = tmp_path / "recorded.npz", small(tmp_path / "w.onnx", nodes, {"x": FLOATS}, {"y": FLOATS})
    else:
        name = {"quantised": "activation-scale", "swapped": "outputs-swapped"}[against]
        wrong = plantedfaults.write(tmp_path / "w.onnx", **plantedfaults.WRONG[name][0])
    says = {
        "quantised": "a quantised file computes other values than its reference everywhere",
        "swapped": "no single node of the reference stands in the place of the first one that differs",
        "recorded": "its reference is no ONNX file",
    }
    done, rows = checked(wrong, "--against", right)
    assert done.code == 1, done.out + done.err
    assert f"w.onnx, conversion: no reproducer was written: {says[against]}" in " ".join(done.out.split())
    assert not (tmp_path / "piece").exists()
    assert [row["reproducer"] for row in rows] == ["", ""]


def test_the_next_commands_and_other_reports_name_it(xverify, plant, tmp_path):
    plant(**RELU)
    file = narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx")
    reports = ("--html", tmp_path / "r.html", "--markdown", tmp_path / "r.md", "--junit", tmp_path / "r.xml")
    done = xverify("check", file, "--reproducer", tmp_path / "piece", *reports)
    assert done.code == 1, done.out + done.err
    texts = [(tmp_path / name).read_text().replace("\\", "") for name in ("r.html", "r.md", "r.xml")]
    for text in (Page(texts[0]).text, *texts[1:]):
        assert str(tmp_path / "piece") in text


@pytest.mark.slow
def test_a_file_that_is_wrong_at_several_sizes_has_a_folder_for_each(checked, plant, tmp_path):
    plant(**RELU)
    file = narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx")
    done, rows = checked(file, "--sizes", "batch=1,2")
    assert done.code == 1, done.out + done.err
    folders = [tmp_path / "piece" / f"network.onnx-batch-{size}" for size in (1, 2)]
    assert [row["reproducer"] for row in rows] == list(map(str, folders))
    for size, folder in zip((1, 2), folders):
        assert_fails_alone(folder, "Relu")
        assert np.load(folder / "inputs.npz")["c1"].shape[0] == size


def test_a_search_that_has_no_time_says_so(checked, plant, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "SECONDS", 0.0)
    plant(**RELU)
    done, (row,) = checked(narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx"))
    assert done.code == 1, done.out + done.err
    assert "no reproducer was written: the search for a piece that fails by itself ended for want of time" in done.out
    assert row["reproducer"] == ""
    assert not (tmp_path / "piece").exists()


def test_a_piece_that_is_found_before_the_time_is_over_is_written_and_says_so(checked, plant, tmp_path, monkeypatch):
    counted = iter(range(1000))  # the clock of the search
    monkeypatch.setattr(pieces, "time", SimpleNamespace(monotonic=lambda: next(counted)))
    monkeypatch.setattr(pieces, "SECONDS", 6.0)
    plant(node="/relu2/Relu", after="/block/block.0/Add", result=("Mul", "float32", 1.5))
    done, _ = checked(narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx"))
    assert done.code == 1, done.out + done.err
    assert ran(tmp_path / "piece").returncode == 1
    assert pieces.STOPPED in (tmp_path / "piece" / "report.md").read_text()
