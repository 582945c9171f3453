"""Receipts through the command line: a run is kept, run again from what was kept, and every change is told."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
from conftest import FAULTY, MODEL, cli, small_disk, write_folder
from helpers.inprocess import one_process

from xverify.receipts.keeping import LARGEST_FILE, MOST_FILES, own_digest
from xverify.weights import save_file

FAST = ("--warmup", 1, "--rerun", 8)
pytestmark = pytest.mark.usefixtures("in_one_process")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a port, and the receipt of a run of it."""
    folder = tmp_path_factory.mktemp("receipts")
    port = write_folder(folder / "port", ("numpy", "honest", "swapped"))
    (port / "helper").mkdir()
    (port / "helper" / "table.json").write_text("[1, 2]")
    (port / ".hidden").write_text("")
    subjects = ("--subjects", "numpy,honest,swapped")
    with one_process():
        done = cli(folder, "run", port, *subjects, *FAST, "--seed", 5, "--receipt", folder / "kept")
    assert done.code == 1, done.err
    return folder


@pytest.fixture
def kept(made, tmp_path):
    """A copy of the receipt; the folder of the port is not beside it."""
    return shutil.copytree(made / "kept", tmp_path / "kept")


def test_a_receipt_holds_what_the_run_was_made_from(made, kept):
    noted = json.loads((kept / "receipt.json").read_text())
    assert set(noted["files"]) == {
        *("files/port/spec.py", "files/port/numpy.py", "files/port/honest.py", "files/port/swapped.py"),
        *("files/port/helper/table.json", "forward/weights.npz", "forward/inputs.npz", "result.json"),
    }
    assert sorted(path.name for path in kept.iterdir()) == ["files", "forward", "receipt.json", "result.json"]
    assert noted["settings"]["seed"] == 5
    assert noted["settings"]["threads"] >= 1
    assert noted["packages"][""]["numpy"] == np.__version__
    assert set(noted["adapters"]) == {"honest", "swapped"}
    result = json.loads((kept / "result.json").read_text())
    assert result == json.loads((made / "result.json").read_text())
    assert len(np.load(kept / "forward" / "inputs.npz").files) == 4


def test_a_replay_agrees_without_the_folder_of_the_user(xverify, kept, tmp_path):
    done = xverify("replay", kept, "--json", tmp_path / "again.json")
    assert done.code == 0, done.out + done.err
    last = done.out.splitlines()[-1]
    assert last == f"AGREES port: 3 of 3 rows, 12 of 12 outputs as in {kept}"
    assert "Settings, versions, machine, weights and inputs are those of the receipt" in done.out
    old, new = json.loads((kept / "result.json").read_text()), json.loads((tmp_path / "again.json").read_text())
    for what in ("weights", "inputs"):
        assert new[what]["digest"] == old[what]["digest"]
    assert new["settings"]["model"] == str((kept / "files" / "port").resolve())
    assert [row["error"]["max_abs"] for row in new["rows"]] == [row["error"]["max_abs"] for row in old["rows"]]
    assert new["settings"]["folder_digest"] == old["settings"]["folder_digest"]
    assert new["rows"][0]["speed"]["calls"] == 8


def test_a_replay_without_timing_says_that_this_differs(xverify, kept):
    done = xverify("replay", kept, "--no-timing")
    assert done.code == 0, done.out + done.err
    assert "Differs: forward: setting no_timing was False, is True" in done.out
    assert "Differs: forward: setting rerun was 8, is None" in done.out


def test_an_adapter_that_has_become_wrong_is_told(xverify, kept, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("honest", "swapped"):
        shutil.copy(FAULTY / f"{name}.py", mine)
    (mine / "honest.py").write_text((FAULTY / "swapped.py").read_text().replace('"swapped"', '"honest"'))
    done = xverify("replay", kept, "--no-timing", frameworks=mine)
    assert done.code == 1
    assert "honest, forward: IDENTICAL → DIFFERENT" in done.out
    assert "honest, forward, output y, case 0: IDENTICAL → DIFFERENT" in done.out
    assert "adapter honest: its file was sha256:" in done.out
    assert done.out.splitlines()[-1].startswith("DIFFERS port: 2 of 3 rows, 8 of 12 outputs")


def test_a_row_that_no_longer_runs_is_told(xverify, kept, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    shutil.copy(FAULTY / "swapped.py", mine)
    (mine / "honest.py").write_text((FAULTY / "absent.py").read_text().replace('"absent"', '"honest"'))
    done = xverify("replay", kept, "--no-timing", frameworks=mine)
    assert done.code == 3
    assert "honest, forward: IDENTICAL → not-installed" in done.out
    assert done.out.splitlines()[-1].startswith("NO LONGER RUNS port: 2 of 3 rows")


# -- changed receipts -------------------------------------------------------------------------------------------------


def change_code(kept):
    file = kept / "files" / "port" / "honest.py"
    file.write_text(file.read_text().replace("np.tanh", "np.sin"))


def change_weights(kept):
    file = kept / "forward" / "weights.npz"
    with np.load(file) as arrays:
        np.savez(file, **{name: array + np.float32(1) for name, array in arrays.items()})


def change_settings(kept):
    file = kept / "receipt.json"
    file.write_text(file.read_text().replace('"seed": 5', '"seed": 6'))


def remove_inputs(kept):
    (kept / "forward" / "inputs.npz").unlink()


def add_code(kept):
    (kept / "files" / "port" / "extra.py").write_text("")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (change_code, "files/port/honest.py has changed: its digest was sha256:"),
        (change_weights, "forward/weights.npz has changed: its digest was sha256:"),
        (change_settings, "receipt.json has changed: its digest was sha256:"),
        (remove_inputs, "forward/inputs.npz cannot be read: No such file"),
        (add_code, "files/port/extra.py is new"),
    ],
)
def test_a_changed_receipt_is_refused_and_says_what_has_changed(xverify, kept, change, says):
    change(kept)
    done = xverify("replay", kept)
    assert done.code == 2
    assert says in done.err
    assert len(done.err.splitlines()) == 1
    assert "--anyway runs it as it is" in done.err


@pytest.mark.slow
def test_changed_code_and_weights_run_anyway_and_their_verdicts_are_compared(xverify, kept):
    change_code(kept)
    done = xverify("replay", kept, "--no-timing", "--anyway")
    assert done.code == 1
    assert "honest, forward: IDENTICAL → DIFFERENT" in done.out
    assert "Differs: receipt: files/port/honest.py has changed" in done.out
    change_weights(kept)
    done = xverify("replay", kept, "--no-timing", "--anyway")
    assert "Differs: forward: digest of the weights was sha256:" in done.out


def test_inputs_of_another_shape_are_refused(xverify, kept):
    with np.load(kept / "forward" / "inputs.npz") as arrays:
        np.savez(kept / "forward" / "inputs.npz", **{name: array[:, :5] for name, array in arrays.items()})
    done = xverify("replay", kept, "--anyway")
    assert done.code == 2
    assert "0/x of port must have the shape (4, 8); its shape is (4, 5)" in done.err


def write_again(kept, **values):
    noted = {**json.loads((kept / "receipt.json").read_text()), **values}
    (kept / "receipt.json").write_text(json.dumps({**noted, "digest": own_digest(noted)}))


def test_a_receipt_of_another_version_is_refused(xverify, kept):
    write_again(kept, receipt_version=2, xverify="9.0")
    done = xverify("replay", kept)
    assert (done.code, "is a receipt of version 2 (xverify 9.0); this xverify reads 1" in done.err) == (2, True)
    write_again(kept, receipt_version=1, settings={"seed": 5, "novelty": 1})
    done = xverify("replay", kept)
    assert (done.code, "has the setting 'novelty', which this xverify does not know" in done.err) == (2, True)


def test_a_receipt_cannot_name_files_outside_of_it(xverify, kept, made):
    write_again(kept, model="../../port")
    assert xverify("replay", kept).code == 2
    noted = json.loads((kept / "receipt.json").read_text())
    write_again(kept, model="files/port", files={**noted["files"], "../other": "sha256:0"})
    done = xverify("replay", kept)
    assert (done.code, "../other, which is outside of the receipt" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda place: None, "no such folder; name one that xverify run MODEL --receipt DIR wrote"),
        (lambda place: place.write_text(""), "a receipt is a folder"),
        (lambda place: place.mkdir(), "is no receipt: it has no receipt.json, which a run writes last"),
        (
            lambda place: (place.mkdir(), (place / "receipt.json").write_text("{")),
            "is no JSON file, or only a part of one",
        ),
        (lambda place: (place.mkdir(), (place / "receipt.json").write_text("[]")), "it has no receipt_version"),
        (
            lambda place: (place.mkdir(), (place / "receipt.json").write_text('{"receipt_version": 1}')),
            "is no receipt that this xverify can read",
        ),
    ],
)
def test_what_is_no_receipt_is_told_in_one_line(xverify, tmp_path, make, says):
    make(tmp_path / "other")
    done = xverify("replay", tmp_path / "other")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert says in done.err


# -- places -----------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_empty_is_refused_before_anything_runs(xverify, made, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("")
    (tmp_path / "file").write_text("")
    for place, says in (
        (tmp_path / "full", "exists and is not empty: name a new folder"),
        (tmp_path / "file", "is a file: name a new folder"),
        (tmp_path / "none" / "kept", "does not exist"),
    ):
        done = xverify("run", made / "port", "--subjects", "numpy", "--receipt", place)
        assert (done.code, done.result) == (2, None)
        assert says in done.err
    assert os.listdir(tmp_path / "full") == ["mine.txt"]


def test_a_read_only_place_is_refused(xverify, made, tmp_path):
    with small_disk(tmp_path / "small", "16k") as small:
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        for place in (small / "kept", small):
            done = xverify("run", made / "port", "--subjects", "numpy", "--receipt", place)
            assert (done.code, done.result) == (2, None)
            assert f"--receipt {place} cannot be written: Read-only file system" in done.err


def test_an_empty_folder_is_used_and_a_failed_run_leaves_nothing(xverify, made, tmp_path):
    (tmp_path / "empty").mkdir()
    done = xverify("run", made / "port", "--subjects", "numpy", "--no-timing", "--receipt", tmp_path / "empty")
    assert (done.code, (tmp_path / "empty" / "receipt.json").exists()) == (4, True)
    done = xverify("run", made / "port", "--subjects", "numpi", "--receipt", tmp_path / "new")
    assert (done.code, (tmp_path / "new").exists()) == (2, False)


def test_a_full_disk_takes_nothing_from_the_report(xverify, made, tmp_path):
    with small_disk(tmp_path / "small", "40k") as small:
        done = xverify("run", made / "port", "--subjects", "numpy,honest", *FAST, "--receipt", small / "kept")
        assert list(small.iterdir()) == []
    assert done.code == 3
    assert "PASS port: 2 of 2 subjects EQUAL" in done.out
    assert f"the receipt {small / 'kept'} is not written" in done.err
    assert "No space left on device" in done.err
    assert done.result["complete"] is True


def test_a_result_file_that_cannot_be_written_takes_nothing_from_the_receipt(xverify, made, tmp_path):
    with small_disk(tmp_path / "small", "4k") as small:
        file = small / "r.json"
        done = xverify(
            "run", made / "port", "--subjects", "numpy", *FAST, "--json", file, "--receipt", tmp_path / "kept"
        )
    assert (done.code, "r.json cannot be written" in done.err) == (3, True)
    assert xverify("replay", tmp_path / "kept", "--no-timing").code == 0


@pytest.mark.slow
def test_the_code_of_a_variant_is_kept_beside_it(xverify, tmp_path):
    write_folder(
        tmp_path / "models" / "base", ("numpy", "honest"), model=MODEL.replace("def build()", "def build(width=1)")
    )
    spec = (tmp_path / "models" / "base" / "spec.py").read_text().replace("ModelSpec(", 'ModelSpec(code="../base", ')
    write_folder(tmp_path / "models" / "variant", (), spec=spec)
    kept = tmp_path / "kept"
    subjects = ("--subjects", "numpy,honest", "--no-timing")
    assert xverify("run", tmp_path / "models" / "variant", *subjects, "--receipt", kept).code == 0
    assert (kept / "files" / "variant" / "spec.py").is_file()
    assert (kept / "files" / "base" / "numpy.py").is_file()
    shutil.rmtree(tmp_path / "models")
    done = xverify("replay", kept)
    assert (done.code, "AGREES variant: 2 of 2 rows" in done.out) == (0, True), done.out + done.err


def test_a_run_whose_reference_fails_is_kept_too(xverify, tmp_path):
    folder = write_folder(
        tmp_path / "port", ("numpy", "honest"), model="def build():\n    raise RuntimeError('broken')\n"
    )
    done = xverify("run", folder, "--subjects", "numpy,honest", "--no-timing", "--receipt", tmp_path / "kept")
    assert done.code == 3
    done = xverify("replay", tmp_path / "kept")
    assert done.code == 4, done.out + done.err
    assert done.out.splitlines()[-1].startswith("INCONCLUSIVE port: 2 of 2 rows")


def test_a_large_file_is_left_out_and_told(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    with (folder / "checkpoint.bin").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)  # it takes no room on the disk
    kept = tmp_path / "kept"
    assert xverify("run", folder, "--subjects", "numpy,honest", "--no-timing", "--receipt", kept).code == 0
    assert not (kept / "files" / "port" / "checkpoint.bin").exists()
    done = xverify("replay", kept)
    assert done.code == 0
    assert "Differs: receipt: files/port/checkpoint.bin was too large to be kept" in done.out


@pytest.mark.parametrize("kind", ["file", "folder", "nowhere", "weights"])
def test_a_link_out_of_the_model_folder_is_not_followed(xverify, tmp_path, kind):
    """A folder from elsewhere may have a link to a private key, and receipts are given away."""
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "key").write_text("secret")
    if kind == "weights":
        shapes = {"fc1.weight": (6, 8), "fc1.bias": (6,), "fc2.weight": (3, 6), "fc2.bias": (3,)}
        save_file(
            {name: np.full(of, 0.1, np.float32) for name, of in shapes.items()}, tmp_path / "mine" / "w.safetensors"
        )
    name, target = {"folder": ("notes", ""), "weights": ("weights.safetensors", "w.safetensors")}.get(
        kind, ("notes", "key")
    )
    (folder / name).symlink_to(tmp_path / "mine" / ("nothing" if kind == "nowhere" else target))
    (folder / "within.txt").symlink_to("spec.py")
    kept = tmp_path / "kept"
    done = xverify("run", folder, "--subjects", "numpy,honest", "--no-timing", "--receipt", kept)
    assert done.code == 0, done.err
    says = f"the receipt has no copy of {folder / name}: a link out of the model folder is not followed"
    assert says in done.result["notes"]
    assert says in " ".join(done.out.split())
    assert not os.path.lexists(kept / "files" / "port" / name)
    assert (kept / "files" / "port" / "within.txt").read_text() == (folder / "spec.py").read_text()
    shutil.rmtree(folder)
    done = xverify("replay", kept)
    assert (done.code, f"files/port/{name} was too large to be kept, or a link" in done.out) == (0, True), done.out


def test_code_that_is_a_link_out_of_the_model_folder_is_refused(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    (folder / "honest.py").rename(tmp_path / "elsewhere.py")
    (folder / "honest.py").symlink_to(tmp_path / "elsewhere.py")
    asked = ("run", folder, "--subjects", "numpy,honest", "--no-timing")
    done = xverify(*asked, "--receipt", tmp_path / "kept")
    assert (done.code, len(done.err.splitlines()), (tmp_path / "kept").exists()) == (2, 1, False), done.err
    assert f"{folder / 'honest.py'} is a link to {tmp_path / 'elsewhere.py'}" in done.err
    assert xverify(*asked).code == 0
    (tmp_path / "named").symlink_to(folder)  # a folder that the user names may be a link itself
    shutil.copy(tmp_path / "elsewhere.py", folder / "mine.py")
    (folder / "honest.py").unlink()
    (folder / "honest.py").symlink_to("mine.py")
    asked = ("run", tmp_path / "named", *asked[2:], "--receipt", tmp_path / "kept")
    assert xverify(*asked).code == 0


def test_a_folder_with_too_many_files_is_refused(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy",))
    (folder / "data").mkdir()
    for number in range(MOST_FILES):
        (folder / "data" / f"{number}.txt").touch()
    done = xverify("run", folder, "--subjects", "numpy", "--receipt", tmp_path / "kept")
    assert (done.code, done.result, (tmp_path / "kept").exists()) == (2, None, False)
    assert f"has more than {MOST_FILES} files" in done.err


# -- real frameworks --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_both_tasks_of_a_model_of_the_zoo_are_run_again(xverify, tmp_path):
    kept = tmp_path / "kept"
    options = ("--task", "forward,train", "--optimizer", "adam", "--batch", 4, "--no-timing")
    done = xverify("run", "mlp", "--subjects", "torch:eager,onnxruntime", *options, "--receipt", kept)
    noted = json.loads((kept / "receipt.json").read_text())
    assert set(noted["tasks"]) == {"forward", "train"}
    again = xverify("replay", kept, "--json", tmp_path / "again.json")
    assert again.code == 0, again.out + again.err
    assert "checks" in again.out.splitlines()[-1]
    assert "layers" in again.out.splitlines()[-1]
    old, new = done.result, json.loads((tmp_path / "again.json").read_text())
    for task in ("forward", "train"):
        for what in ("weights", "inputs"):
            assert new["receipts"][task][what]["digest"] == old["receipts"][task][what]["digest"]
    assert "Settings, versions, machine, weights and inputs are those of the receipt" in again.out, again.out
