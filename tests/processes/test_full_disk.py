"""A row whose worker finds the disk full names the temporary directory; code that would end the worker fails its row."""

import errno
import os

import pytest
from conftest import MODEL, small_disk, write_folder

from xverify.messages import Build, Start
from xverify.messages.codec import Refusal
from xverify.worker.session import Session


def refused(folder):
    session = Session()
    session.ask(Start("numpy", 1, "cpu"))
    request = Build(str(folder), {}, None, {}, {"x": None}, {"y": None})
    answer = session.answer(request)
    assert isinstance(answer, Refusal)
    return answer.reason


@pytest.mark.parametrize(
    "fault",
    [
        f"raise OSError({errno.ENOSPC}, 'No space left on device', '/tmp/x')",
        "raise OSError('16384 requested and 512 written')",  # numpy's own words
        "raise RuntimeError('write failed: No space left on device')",  # those of frameworks
    ],
)
def test_a_full_disk_is_named_with_its_folder(tmp_path, fault):
    folder = write_folder(tmp_path / "port", model=f"def build():\n    {fault}\n")
    assert "no space left on the disk" in refused(folder)
    assert "the temporary directory" in refused(folder)


@pytest.mark.parametrize("fault", ["SystemExit(0)", "KeyboardInterrupt", "GeneratorExit"])
def test_what_would_end_a_worker_fails_its_row(tmp_path, fault):
    folder = write_folder(tmp_path / "port", model=f"def build():\n    raise {fault}\n")
    assert refused(folder).startswith(fault.partition("(")[0])


@pytest.mark.slow
def test_a_run_in_a_full_temporary_directory_says_so_in_its_row(tmp_path, xverify, monkeypatch):
    wide = MODEL.replace("(3, 6)", "(3000, 6)").replace("zeros(3,", "zeros(3000,")
    spec = "from xverify import ModelSpec, TensorSpec\nSPEC = ModelSpec(batch=400, "
    spec += 'inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(("N", 3000))})'
    folder = write_folder(tmp_path / "port", spec=spec, model=wide)
    with small_disk(tmp_path / "small", "400k") as small:
        monkeypatch.setenv("TMPDIR", str(small))
        done = xverify("run", folder, "--subjects", "numpy", "--rerun", 2, "--warmup", 1)
        assert done.code == 3
        assert "no space left on the disk" in done.out + done.err
        assert os.listdir(small) == []
