"""xverify doctor tries the import of torchvision by itself, and tells of other projects and files called xverify."""

import os

import pytest

from xverify import installed


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "raise RuntimeError('operator torchvision::nms does not exist')",
            ["fails by itself: RuntimeError: operator torchvision::nms does not exist", "built for another torch"],
        ),
        ("import no_such_package", ["fails by itself: ModuleNotFoundError: No module named 'no_such_package'"]),
        ("", []),
    ],
    ids=["other torch", "missing package", "works"],
)
def test_an_import_of_torchvision_that_fails_by_itself_is_told(xverify, tmp_path, monkeypatch, code, says):
    pytest.importorskip("torch")
    (tmp_path / "installed" / "torchvision").mkdir(parents=True)
    (tmp_path / "installed" / "torchvision" / "__init__.py").write_text(code)
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path / "installed"), before])))
    done = xverify("doctor")
    assert all(each in done.out for each in says), done.out
    assert ("import torchvision" in done.out) == bool(says)
    assert ("built for another torch" in done.out) == (len(says) == 2)


def install(folder, command):
    """A distribution called xverify, as pip installs it."""
    info = folder / "xverify-9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: xverify\nVersion: 9.9\n")
    (info / "entry_points.txt").write_text(f"[console_scripts]\nxverify = {command}\n")


@pytest.fixture
def few(monkeypatch):
    """No framework but numpy is asked for, so that the doctor is quick."""
    from xverify.framework import discovery

    numpy = discovery.load("numpy")
    monkeypatch.setattr(discovery, "load_all", lambda: {"numpy": numpy})


@pytest.mark.parametrize(
    ("command", "told"),
    [("foreign.cli:main", True), ("xverify.commands._main:main", False), ("xverify.__main__:main", False)],
)
def test_another_distribution_called_xverify_is_told(xverify, tmp_path, monkeypatch, few, command, told):
    install(tmp_path / "site", command)
    monkeypatch.syspath_prepend(tmp_path / "site")
    out = xverify("doctor").out
    assert ("another xverify: the distribution xverify 9.9 is another project" in out) == told
    assert ("Type: pip uninstall --yes xverify; pip install --force-reinstall --no-deps " in out) == told


@pytest.mark.parametrize("name", ["xverify.py", "xverify/__init__.py"])
def test_a_file_called_xverify_in_the_current_folder_is_told_and_not_run(xverify, tmp_path, few, name):
    (tmp_path / "here" / name).parent.mkdir(parents=True)
    (tmp_path / "here" / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    place = tmp_path / "here" / name.partition("/")[0]
    assert f"another xverify: `import xverify` finds {place}, which is no part of this xverify" in xverify("doctor").out
    assert not (tmp_path / "ran").exists()


def test_a_folder_without_code_hides_no_package_that_is_installed_and_is_told_beside_a_checkout(tmp_path):
    (tmp_path / "xverify").mkdir()
    assert list(installed.foreign([str(tmp_path), str(installed.SOURCES)])) == []
    [said] = installed.foreign([str(tmp_path)])
    assert said.startswith(f"`import xverify` finds {tmp_path / 'xverify'}, which is no part of this xverify: ")


def test_nothing_is_told_where_this_xverify_is_the_only_one(xverify, few):
    assert "another xverify" not in xverify("doctor").out
