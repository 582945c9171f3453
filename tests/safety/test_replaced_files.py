"""Outputs never destroy what a command reads, and what it writes otherwise."""

import itertools
import os
import shutil

import numpy as np
import pytest
from helpers.outputplaces import (
    FAST,
    Place,
    commands,
    contents,
    refused,
)

from xverify.receipts.keeping import Keeper
from xverify.workload.options import RunSettings

pytestmark = pytest.mark.usefixtures("in_one_process", "faulty_frameworks")


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def links(folder):
    """Functions that make another name of a file."""
    for number in itertools.count():
        yield lambda path: path
        yield lambda path, n=number: _made(folder / f"soft{n}", path, os.symlink)
        yield lambda path, n=number: _made(folder / f"hard{n}", path, os.link)


def _made(name, path, make):
    make(path, name)
    return name


NAMES = (
    "run", "run variant", "run shards", "run folder of shards", "run data", "run python", "check", "check parts",
    "check against", "check against folder", "check against code", "check against data", "judge", "report", "diff", "history",
    "sweep", "mutate", "reproduce", "convert",
)  # fmt: skip


@pytest.mark.parametrize("force", [False, True], ids=["", "force"])
@pytest.mark.parametrize("name", NAMES)
def test_no_output_takes_the_place_of_what_a_command_reads(name, force, place, xverify, tmp_path_factory):
    """Every option that names an output with every file that is read, by its own name, through a link, and as a hard link."""
    command, options, files = commands(place)[name]
    if name == "history":
        pytest.importorskip("duckdb")
    other = tmp_path_factory.mktemp("links")
    link = links(other)
    cases = 0
    for option, file in itertools.product(options, files):
        for _ in range(3 if option == options[0] else 1):
            output = next(link)(file)
            if option == "curve" and output == file:
                continue
            if option == "curve":
                output = output.rename(output.with_suffix(".png"))
            before = contents(place.folder)
            asked = [*command, f"--{option}", output, *(["--force"] if force and name != "sweep" else [])]
            done = xverify(*asked)
            assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), (asked, done)
            assert f"--{option} {output} is " in done.err
            assert "this command reads" in done.err
            after = contents(place.folder)
            assert {path for path in before if after.get(path) != before[path]} == set()
            cases += 1
    assert cases > 0


def test_every_command_that_writes_a_file_is_tried():
    from xverify.commands._main import parser

    top = next(each for each in parser()._actions if hasattr(each, "choices") and each.dest == "command")
    writing = {
        name
        for name, command in top.choices.items()
        if any(getattr(vars(each).get("option"), "path", "") == "written" for each in command._actions)
    }
    assert writing - {name.partition(" ")[0] for name in NAMES} == {"optimizers", "replay", "selftest"}


# -- the examples -----------------------------------------------------------------------------------------------------


def test_a_model_stays_a_model(place, xverify):
    before = place.m.read_bytes()
    for force in ([], ["--force"]):
        error = refused(xverify, "check", place.m, "--json", place.m, *force)
        assert f"--json {place.m} is what this command reads as FILE: name another file" in error
    (place.folder / "link").symlink_to(place.m)
    refused(xverify, "check", place.m, "--json", place.folder / "link")
    assert place.m.read_bytes() == before


def test_a_measured_result_stays(place, xverify):
    before = place.r.read_bytes()
    assert "as RESULT.json" in refused(xverify, "report", place.r, "--html", place.r)
    assert place.r.read_bytes() == before


def test_a_receipt_that_is_replayed_stays_as_it_is(place, xverify):
    kept = place.folder / "kept"
    assert xverify("run", place.port, *FAST, "--receipt", kept).code == 4  # it is the reference alone
    before = contents(kept)
    for name in ("receipt.json", "result.json", "new.json", "files/port/numpy.py"):
        for force in ([], ["--force"]):
            error = refused(xverify, "replay", kept, "--json", kept / name, *force)
            assert f"is in the receipt {kept}, which must stay as it is" in error
    (place.folder / "link.json").symlink_to(kept / "receipt.json")
    refused(xverify, "replay", kept, "--json", place.folder / "link.json")
    os.link(kept / "files" / "port" / "spec.py", place.folder / "hard.json")
    refused(xverify, "replay", kept, "--json", place.folder / "hard.json", "--force")
    os.link(kept / "result.json", place.folder / "own.json")  # which xverify wrote
    refused(xverify, "replay", kept, "--json", place.folder / "own.json", "--force")
    assert contents(kept) == before
    assert xverify("replay", kept, "--json", place.folder / "again.json").code == 0


def test_no_output_is_in_the_folder_of_a_new_receipt(place, xverify):
    kept = place.folder / "kept"
    kept.mkdir()
    for option in ("--html", "--json"):
        error = refused(xverify, "run", place.port, *FAST, "--receipt", kept, option, kept / "receipt.json")
        assert f"is in the folder of --receipt {kept}" in error
    assert list(kept.iterdir()) == []


def test_two_outputs_of_a_conversion_are_two_files(place, xverify):
    new = place.folder / "new"
    for out, other in ((".onnx", ".onnx"), (".xml", ".xml"), (".xml", ".bin")):
        error = refused(xverify, "convert", place.port, f"{new}{out}", "--json", f"{new}{other}")
        assert "OUT and --json name the same file" in error


def test_a_conversion_takes_the_place_of_nothing_that_it_reads(place, xverify):
    torch = f"torch={place.code}:build"
    before = contents(place.folder)
    for out in (place.code, place.code.parent / "layers.py"):
        error = refused(xverify, "convert", torch, "--shape", "x=1x4", out, "--to", "onnx", "--force")
        assert f"OUT {out} is " in error
    for out in (place.port / "spec.py", place.weights):
        refused(xverify, "convert", place.port, out, "--weights", place.weights, "--to", "onnx", "--force")
    saved = place.folder / "saved"
    shutil.copytree(place.port, saved / "port")
    (saved / "saved_model.pb").write_bytes(b"")
    error = refused(xverify, "convert", saved / "port", saved, "--to", "savedmodel", "--force")
    assert "holds what this command reads as MODEL: name another place" in error
    shutil.rmtree(saved)
    assert contents(place.folder) == before


def test_adapters_of_the_user_and_modules_beside_code_are_read(place, xverify, monkeypatch):
    mine = place.folder / "adapters" / "mine.py"
    mine.parent.mkdir()
    mine.write_text("x = 1\n")
    helper = place.folder / "here" / "helper.py"  # of the current folder, from which code may import
    helper.parent.mkdir()
    helper.write_text("x = 1\n")
    monkeypatch.setenv("XVERIFY_FORMATS", str(mine.parent))
    for force in ([], ["--force"]):
        assert "as XVERIFY_FORMATS" in refused(xverify, "run", place.port, *FAST, "--json", mine, *force)
        assert "as XVERIFY_FORMATS" in refused(xverify, "report", place.r, "--html", mine, *force)
        refused(xverify, "check", place.m, "--against", f"torch={place.code}:build", "--json", "helper.py", *force)
    assert (mine.read_text(), helper.read_text()) == ("x = 1\n", "x = 1\n")


def test_what_somebody_else_puts_into_a_receipt_stays(place):
    with Keeper(place.folder / "kept", RunSettings()) as keeper:  # whose run does not end
        keeper._copy(place.weights, "forward/weights.npz")
        (place.folder / "kept" / "mine.txt").write_text("mine")
    assert contents(place.folder / "kept") == {place.folder / "kept" / "mine.txt": b"mine"}


def test_a_weight_file_is_replaced_with_force_alone(place, xverify):
    before = place.weights.read_bytes()
    np.savez(place.folder / "a.npz", w=np.ones(2, np.float32))
    error = refused(xverify, "weights", "convert", place.folder / "a.npz", place.weights)
    assert f"TARGET {place.weights} exists, and is no file that xverify wrote; --force replaces it" in error
    assert place.weights.read_bytes() == before
    assert xverify("weights", "convert", place.folder / "a.npz", place.weights, "--force").code == 0
    assert place.weights.read_bytes() != before
