"""The choice of the Python for an environment, with fake interpreters on the path and in pyenv, and a fake uv."""

import sys

import pytest
from conftest import write_folder

from xverify.environments import create, interpreters
from xverify.environments import store as environments
from xverify.environments.interpreters import Versions
from xverify.errors import XverifyError
from xverify.framework import discovery as frameworks

HERE = sys.version_info[:2]
OTHER = (3, 90), (3, 92)  # versions that do not exist
ADAPTER = """
from xverify.frameworks.numpy.adapter import Adapter as Numpy

class Adapter(Numpy):
    name = "walled"
    needs = {"walled-engine": "walled_engine"}
    default_modes = ("eager",)

    def __init__(self, threads, device):
        import walled_engine
"""


def fake_python(path, version):
    """An interpreter that prints this version for any arguments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return str(path)


def fake_uv(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "$@" >> {path.parent}/asked\n{script}\n')
    path.chmod(0o755)


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine that has only this Python, and no uv."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr(interpreters, "_beside", lambda: tmp_path / "beside")
    return tmp_path


@pytest.fixture
def pins(tmp_path, monkeypatch):
    """The pins of an environment that needs another Python version."""
    folder = tmp_path / "adapters"
    folder.mkdir()
    (folder / "walled.py").write_text(ADAPTER)
    (folder / "walled.txt").write_text("# Python 3.90 to 3.92: its wheels are for those.\nnumpy\nwalled-engine\n")
    monkeypatch.setenv("XVERIFY_FRAMEWORKS", str(folder))
    monkeypatch.setenv("XVERIFY_ENVIRONMENTS", str(tmp_path / "environments"))
    return folder / "walled.txt"


def test_the_versions_are_read_from_a_comment(pins):
    assert interpreters.wanted(pins) == Versions(*OTHER)
    assert str(interpreters.wanted(pins)) == "Python 3.90 to 3.92"
    assert interpreters.wanted(pins).newest_first() == ["3.92", "3.91", "3.90"]
    pins.write_text("numpy\n")
    assert HERE in interpreters.wanted(pins)
    assert interpreters.fits(pins)


def test_this_interpreter_is_preferred(machine):
    fake_python(machine / "bin" / f"python{HERE[0]}.{HERE[1] - 1}", f"{HERE[0]}.{HERE[1] - 1}")
    assert interpreters.find(Versions((3, 8), HERE)) == sys.executable


def test_the_newest_on_the_path_is_found(machine):
    fake_python(machine / "bin" / "python3.90", "3.90")
    newest = fake_python(machine / "bin" / "python3.91", "3.91")
    assert interpreters.find(Versions(*OTHER)) == newest
    assert interpreters.find(Versions((3, 95), (3, 96))) is None


def test_an_interpreter_that_fails_or_has_another_version_is_skipped(machine):
    """pyenv puts a python3.92 on the path that fails while that version is switched off."""
    (machine / "bin" / "python3.92").write_text("#!/bin/sh\nexit 127\n")
    (machine / "bin" / "python3.92").chmod(0o755)
    fake_python(machine / "bin" / "python3.91", "3.89")
    kept = fake_python(machine / "pyenv" / "versions" / "3.90.13" / "bin" / "python", "3.90")
    assert interpreters.find(Versions(*OTHER)) == kept


def test_uv_is_the_one_on_the_path_or_the_one_beside_xverify(machine):
    assert interpreters.uv() is None
    fake_uv(machine / "beside" / "uv", "")
    assert interpreters.uv() == str(machine / "beside" / "uv")
    fake_uv(machine / "bin" / "uv", "")
    assert interpreters.uv() == str(machine / "bin" / "uv")


def test_the_message_without_any_interpreter_names_a_remedy(pins, machine):
    with pytest.raises(XverifyError) as caught:
        create.create("walled", _Silent())
    assert str(caught.value) == (
        "the environment walled cannot be made. It needs Python 3.90 to 3.92, and this is Python "
        f"{HERE[0]}.{HERE[1]}. No other is on the path or in {machine}/pyenv/versions. "
        "Install one, or type: pip install uv, with which xverify downloads Python 3.92."
    )
    assert not (machine / "environments" / "walled").exists()


def test_uv_downloads_an_interpreter(pins, machine):
    script = f"""case "$*" in
  "python install 3.92") echo installed ;;
  "python find 3.92") echo {machine}/downloaded ;;
esac"""
    fake_uv(machine / "beside" / "uv", script)
    (machine / "downloaded").write_text("#!/bin/sh\necho making with $@ >&2; exit 1\n")
    (machine / "downloaded").chmod(0o755)
    with pytest.raises(XverifyError, match="has no ensurepip"):
        create.create("walled", _Silent())
    asked = (machine / "beside" / "asked").read_text().splitlines()
    assert asked == ["python install 3.92", "python find 3.92"]


def test_a_failed_download_quotes_uv(pins, machine):
    fake_uv(machine / "beside" / "uv", "echo 'error: no route to host'; exit 2")
    with pytest.raises(
        XverifyError, match=r"downloading Python 3\.92 with uv failed:\n  error: no route to host"
    ) as caught:
        create.create("walled", _Silent())
    assert "It needs Python 3.90 to 3.92, and this is Python" in str(caught.value)
    assert "Install one of these versions" in str(caught.value)


def test_the_remedy_never_names_an_extra_that_installs_nothing(pins, machine):
    adapter = frameworks.load("walled")
    remedy = environments.remedy(adapter)
    assert remedy.startswith("xverify env create walled. It needs Python 3.90 to 3.92, and this is Python ")
    assert "pip install uv" in remedy
    fake_python(machine / "bin" / "python3.90", "3.90")
    assert environments.remedy(adapter).endswith(f"this is Python {HERE[0]}.{HERE[1]}.")
    pins.write_text("numpy\nwalled-engine\n")
    assert environments.remedy(adapter).startswith("pip install walled-engine, or in an environment of its own: ")


def test_an_environment_is_needed_for_a_missing_framework_without_a_release(pins, monkeypatch):
    assert environments.needed("walled")
    text = pins.read_text()
    pins.write_text("numpy\nwalled-engine\n")
    assert not environments.needed("walled")
    pins.write_text(text)
    monkeypatch.setattr(environments.host, "missing", lambda adapter: [])
    assert not environments.needed("walled")


def test_the_row_and_the_command_name_the_needed_python(pins, machine, xverify, tmp_path):
    fake_uv(machine / "bin" / "uv", "echo 'error: no route to host'; exit 2")
    folder = write_folder(tmp_path / "port", ("numpy", "walled"))
    done = xverify("run", folder, "--subjects", "numpy,walled", "--warmup", 1, "--rerun", 8, frameworks=pins.parent)
    assert done.code == 3
    says = f"; type: xverify env create walled. It needs Python 3.90 to 3.92, and this is Python {HERE[0]}.{HERE[1]}."
    assert done.row("walled")["reason"].endswith(says)
    done = xverify("env", "create", "--needed", "walled", "numpy", frameworks=pins.parent)
    assert done.code == 2  # numpy has no pins
    done = xverify("env", "create", "--needed", "walled", frameworks=pins.parent)
    assert done.code == 3
    assert "the environment walled cannot be made. It needs Python 3.90 to 3.92" in done.err
    assert "error: no route to host" in done.err
    pins.write_text("numpy\nwalled-engine\n")
    done = xverify("env", "create", "--needed", "walled", frameworks=pins.parent)
    assert (done.code, done.out, done.err) == (0, "", "")


class _Silent:
    def phase(self, subject, text):
        pass

    def beat(self, subject, seconds, line):
        pass
