"""One compiled core of Jittor serves all installations of the same files."""

import hashlib
import os
import sys

import pytest

from xverify.frameworks.jittor import shared


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs files in the place of Jittor's, and lets this Python find them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in shared.PACKAGES:
        monkeypatch.delitem(sys.modules, name, raising=False)

    def make(name, text="code"):
        site = tmp_path / name
        for package in shared.PACKAGES:
            (site / package).mkdir(parents=True)
            (site / package / "__init__.py").write_text(f"# {text}\n")
        (site / "jittor" / "src").mkdir()
        (site / "jittor" / "src" / "var.h").write_text("int x;\n")
        monkeypatch.setattr(sys, "path", [str(site), *sys.path])
        return site

    return make


def compile_core(cores, site):
    """Put a file where Jittor would put the core of this installation."""
    key = hashlib.md5(str(site / "jittor_utils" / "__init__.py").encode()).hexdigest()[:4]
    place = cores / "jt1.3.11" / "g++12" / "py3.11" / "Linux" / "EPYC" / key / "default"
    place.mkdir(parents=True)
    (place / "jittor_core.so").write_text("")


def used(cores):
    before = list(sys.path)
    shared.use(cores)
    return sys.path[0] if sys.path != before else None


def test_installations_of_the_same_files_have_one_core(install, tmp_path):
    cores = tmp_path / "cores"
    install("first")
    assert not shared.is_compiled(cores)
    copy = used(cores)
    assert (tmp_path / "cache" / "xverify" / "jittor") in shared.Path(copy).parents
    assert (shared.Path(copy) / "jittor" / "src" / "var.h").read_text() == "int x;\n"
    compile_core(cores, shared.Path(copy))
    assert shared.is_compiled(cores)
    install("second")
    assert shared.is_compiled(cores)
    assert used(cores) == copy


def test_an_installation_that_somebody_changed_has_another_core(install, tmp_path):
    cores = tmp_path / "cores"
    install("first")
    copy = used(cores)
    compile_core(cores, shared.Path(copy))
    install("second", "other code")
    assert not shared.is_compiled(cores)
    assert used(cores) not in (None, copy)


def test_a_core_of_its_own_is_used(install, tmp_path):
    cores = tmp_path / "cores"
    compile_core(cores, install("first"))
    assert shared.is_compiled(cores)
    assert used(cores) is None


def test_a_copy_that_was_changed_is_made_again(install, tmp_path):
    cores = tmp_path / "cores"
    site = install("first")
    copy = shared.Path(used(cores))
    (copy / "jittor" / "__init__.py").write_text("# other code\n")
    sys.path.remove(str(copy))
    assert used(cores) == str(copy)
    assert (copy / "jittor" / "__init__.py").read_text() == (site / "jittor" / "__init__.py").read_text()
    assert os.listdir(copy.parent) == [copy.name]


def test_a_cache_that_cannot_be_written_is_no_error(install, tmp_path):
    install("first")
    (tmp_path / "cache").write_text("a file in the place of the folder")
    assert used(tmp_path / "cores") is None
