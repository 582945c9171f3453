"""What a conversion replaces: the file that a link leads to, a whole folder or nothing, and never a device."""

import os

import pytest

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
