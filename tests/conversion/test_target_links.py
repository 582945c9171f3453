"""What a conversion replaces: the file that a link leads to, a whole folder or nothing, and never a device."""

import os

import pytest
from helpers.outputplaces import onnx_file

from xverify.conversion import target as targets
from xverify.errors import NotWritten, UsageError


def made(tmp_path, name, text="new"):
    staged = tmp_path / "staged"
    staged.mkdir(exist_ok=True)
    (staged / name).write_text(text)
    return staged


def test_a_link_stays_and_the_file_that_it_leads_to_is_replaced(tmp_path):
    real, link = tmp_path / "real.onnx", tmp_path / "link.onnx"
    real.write_text("old")
    link.symlink_to(real)
    with pytest.raises(UsageError, match="is a link; --force replaces the file that it leads to"):
        targets.target(None, link, None, force=False)
    chosen = targets.target(None, link, None, force=True)
    chosen.take(made(tmp_path, chosen.path.name))
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_device_and_the_link_of_a_second_part_are_refused(tmp_path):
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        targets.target(None, pipe, None, force=True)
    (tmp_path / "m.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(UsageError, match=r"m\.bin is a link, and would belong to"):
        targets.target("openvino", tmp_path / "m.xml", None, force=True)


def test_a_folder_is_kept_when_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    old = tmp_path / "saved"
    old.mkdir()
    (old / targets.MARK).write_text("old")
    chosen = targets.target("savedmodel", old, None, force=True)
    staged = tmp_path / "staged"
    (staged / "saved").mkdir(parents=True)
    (staged / "saved" / targets.MARK).write_text("new")
    rename = os.replace

    def refuse(source, place):
        if str(place) == str(old) and "earlier" not in str(source):
            raise OSError(5, "Input/output error")
        rename(source, place)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(NotWritten, match="saved cannot be written: Input/output error"):
        chosen.take(staged)
    assert (old / targets.MARK).read_text() == "old"
    monkeypatch.undo()
    chosen.take(staged)
    assert (old / targets.MARK).read_text() == "new"


# -- files of the user beside ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_the_weights_of_an_openvino_file_take_the_place_of_no_file_of_the_user(xverify, port, tmp_path, force):
    (tmp_path / "m.bin").write_text("mine")
    (tmp_path / "m.xml").write_text("no model")
    for _ in range(2):
        done = xverify("convert", port, tmp_path / "m.xml", *force)
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
        assert "m.bin exists, and m.xml has a part of this name" in done.err or not force
        assert (tmp_path / "m.bin").read_text() == "mine"
        (tmp_path / "m.xml").unlink(missing_ok=True)


def test_the_weights_of_an_earlier_openvino_file_are_replaced(tmp_path):
    (tmp_path / "m.bin").write_text("old")
    (tmp_path / "m.xml").write_text('<?xml version="1.0"?>\n<net name="m" version="11"></net>\n')
    with pytest.raises(UsageError, match=r"m\.xml exists; --force replaces it"):
        targets.target(None, tmp_path / "m.xml", None, force=False)
    chosen = targets.target(None, tmp_path / "m.xml", None, force=True)
    made(tmp_path, "m.bin")
    chosen.take(made(tmp_path, "m.xml"))
    assert (tmp_path / "m.bin").read_text() == "new"


@pytest.mark.parametrize("name", ["m.onnx.data", "m.onnx_data", "data"])
def test_external_data_takes_the_place_of_that_of_the_earlier_file_alone(tmp_path, name):
    mine = tmp_path / name
    mine.write_text("mine")
    (tmp_path / "m.onnx").write_text("old")
    made(tmp_path, name)
    with pytest.raises(UsageError, match=r"belongs to no earlier m\.onnx, so it is never replaced"):
        targets.target(None, tmp_path / "m.onnx", None, force=True).take(made(tmp_path, "m.onnx"))
    assert (mine.read_text(), (tmp_path / "m.onnx").read_text()) == ("mine", "old")
    onnx_file(tmp_path / "m.onnx", external=True)  # whose data is m.data
    mine.unlink()
    (tmp_path / "staged" / name).rename(tmp_path / "staged" / "m.data")
    targets.target(None, tmp_path / "m.onnx", None, force=True).take(made(tmp_path, "m.onnx"))
    assert ((tmp_path / "m.data").read_text(), (tmp_path / "m.onnx").read_text()) == ("new", "new")


@pytest.mark.parametrize("name", ["notes.txt", "variables/mine.npy", "model/spec.py", "variables/variables.index.bak"])
def test_a_saved_model_with_a_file_of_the_user_is_not_replaced(xverify, port, tmp_path, name):
    saved = tmp_path / "saved"
    for each in (
        "saved_model.pb",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
        "assets/vocabulary.txt",
    ):
        (saved / each).parent.mkdir(parents=True, exist_ok=True)
        (saved / each).write_text("old")
    assert targets.target("savedmodel", saved, None, force=True).path == saved
    (saved / name).parent.mkdir(exist_ok=True)
    (saved / name).write_text("mine")
    done = xverify("convert", port, saved, "--to", "savedmodel", "--force")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert name.partition("/")[0] in done.err
    assert "is no part of a" in done.err
    assert (saved / name).read_text() == "mine"
