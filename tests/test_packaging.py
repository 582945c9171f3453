"""The wheel: everything of the package is in it, and it runs outside of the repository."""

import email
import json
import re
import sys
import sysconfig
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.wheels import FOREIGN, ROOT, SOURCES, Place, build, copy_sources, foreign_index


def expected(folder):
    """The path in the wheel of every file in the sources."""
    files = ((source, place, path) for source, place in SOURCES.items() for path in (folder / source).rglob("*"))
    return {
        f"{place}/{path.relative_to(folder / source).as_posix()}" for source, place, path in files if path.is_file()
    }


def contents(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(copy_sources(tmp_path_factory.mktemp("wheel")))


def test_the_wheel_holds_every_file(wheel):
    held = contents(wheel)
    assert held == expected(wheel.parent)
    for path in (
        "models/mlp/spec.py",
        "environments/jittor.txt",
        "selftest/model/numpy.py",
        "selftest/planted/lazy.py",
    ):
        assert f"xverify/{path}" in held


def test_the_wheel_declares_the_command_and_the_plugin_of_pytest(wheel):
    with zipfile.ZipFile(wheel) as file:
        [name] = [name for name in file.namelist() if name.endswith(".dist-info/entry_points.txt")]
        text = file.read(name).decode()
    assert "[console_scripts]\nxverify = xverify.__main__:main\n" in text
    assert "[pytest11]\nxverify = xverify.testing.plugin\n" in text


@pytest.mark.parametrize(
    ("file", "old", "new", "missing"),
    [
        ("setup.py", 'include=["xverify", "xverify.*"]', 'include=["xverify"]', "xverify/engine/run.py"),
        ("setup.py", ', "xverify.models"', "", "xverify/models/mlp/spec.py"),
        ("pyproject.toml", '"xverify.report" =', '"xverify.other" =', "xverify/report/templates/page.html"),
        ("pyproject.toml", '"xverify.environments" =', '"xverify.other" =', "xverify/environments/jittor.txt"),
        ("pyproject.toml", '"xverify.selftest" =', '"xverify.other" =', "xverify/selftest/model/numpy.py"),
    ],
)
def test_what_is_missing_is_seen(tmp_path, file, old, new, missing):
    folder = copy_sources(tmp_path)
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    assert missing in expected(folder) - contents(build(folder))


def test_a_new_package_is_packed_without_being_listed(tmp_path):
    folder = copy_sources(tmp_path)
    (folder / "xverify" / "novelty" / "inner").mkdir(parents=True)
    for place in ("novelty", "novelty/inner"):
        (folder / "xverify" / place / "__init__.py").write_text("")
    assert "xverify/novelty/inner/__init__.py" in contents(build(folder))


def metadata(wheel):
    with zipfile.ZipFile(wheel) as file:
        [name] = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_string(file.read(name).decode())


def test_the_distribution_has_a_name_of_its_own_an_address_and_types(wheel):
    from xverify import __version__

    found = metadata(wheel)
    assert (found["Name"], found["Version"]) == ("xverify-frameworks", __version__)
    assert {line.split(",")[0] for line in found.get_all("Project-URL")} >= {"Homepage", "Documentation", "Changelog"}
    assert "xverify/py.typed" in contents(wheel)


def relative_links(text):
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"https://|#", link)]


def test_every_link_of_the_readme_in_the_wheel_is_absolute(wheel):
    shown, written = metadata(wheel).get_payload(), (ROOT / "README.md").read_text()
    assert relative_links(shown) == []
    home = metadata(wheel).get_all("Project-URL")[0].split(", ")[1]
    own = re.findall(rf"\]\({re.escape(home)}/(?:blob|raw)/main/([^)]+)\)", shown)
    assert own == relative_links(written)
    assert len(own) > 10


@contextmanager
def lent(place):
    """Let an environment have the packages of this one for a while. Paths in a .pth file bring no editable installs."""
    lent = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path])
    lent = [path for path in lent if Path(path).name in ("site-packages", "dist-packages")]
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    file = Path(place.call("python", "-c", code, cwd="/").strip()) / "lent.pth"
    file.write_text("\n".join(lent) + "\n")
    yield file.parent
    file.unlink()


@pytest.mark.slow
def test_the_wheel_runs_in_an_environment_of_its_own(wheel, tmp_path):
    place = Place(tmp_path / "venv")
    place.call("pip", "install", "--no-deps", "--no-index", str(wheel), cwd=tmp_path)
    with lent(place) as site:
        code = "import xverify, xverify.models, xverify.weights as w; print(xverify.__file__, xverify.models.__file__, w.__file__)"
        found = place.call("python", "-c", code, cwd=tmp_path)
        assert all(path.startswith(str(site)) for path in found.split()), found
        listed = json.loads(place.call("xverify", "list", "--json", cwd=tmp_path))
        assert {model["name"] for model in listed["models"]} >= {"mlp", "resnet50", "gpt-tiny"}
        available = json.loads(place.call("xverify", "env", "list", "--json", cwd=tmp_path))["available"]
        assert {"jittor", "torch"} <= set(available)
        timing = ("--warmup", "1", "--rerun", "4", "--json", "result.json")
        place.call("xverify", "run", "mlp", "--subjects", "torch:eager,numpy", *timing, cwd=tmp_path)
        result = json.loads((tmp_path / "result.json").read_text())
        assert [row["error"]["verdict"] for row in result["rows"]] == ["IDENTICAL", "EQUAL"]


@pytest.mark.slow
def test_a_foreign_xverify_in_its_place_is_told_and_removed_as_told(wheel, tmp_path):
    place, index = Place(tmp_path / "venv"), foreign_index(tmp_path / "index")
    place.call("pip", "install", "--no-deps", "--no-index", str(wheel), cwd=tmp_path)
    place.use_index(index)

    def imported():
        """Whether the foreign package is imported, and what the doctor says."""
        with lent(place):
            found = place.call("python", "-c", "import xverify; print(hasattr(xverify, 'FOREIGN'))", cwd=tmp_path)
            return found.strip(), place.shell("xverify doctor", tmp_path)[1]

    which, said = imported()
    assert (which, "another xverify" in said) == ("False", False)
    place.call("pip", "install", "xverify", cwd=tmp_path)
    which, said = imported()
    assert which == "True"
    [command] = re.findall(rf"the distribution xverify {FOREIGN} is another project, .* Type: (.*)", said)
    code, said = place.shell(command, tmp_path)
    assert code == 0, said
    which, said = imported()
    assert (which, "another xverify" in said) == ("False", False)


@pytest.mark.slow
def test_an_empty_environment_gets_what_it_needs_from_the_index_and_the_wheel_is_fit_for_one(wheel, tmp_path):
    """The index is that of pip's settings."""
    place = Place(tmp_path / "venv")
    code, said = place.shell(f"pip install {wheel} twine mypy", tmp_path)
    if "No matching distribution found for twine" in said:
        pytest.skip("pip reaches no package index")
    assert code == 0, said
    assert "PASSED" in place.call("twine", "check", "--strict", str(wheel), cwd=tmp_path)
    code, said = place.shell("xverify doctor", tmp_path)
    assert code == 3, said
    assert "Type: pip install 'xverify-frameworks[all]'" in said
    assert json.loads(place.call("xverify", "list", "--json", cwd=tmp_path))["models"]
    (tmp_path / "typed.py").write_text("import xverify\n\nreveal_type(xverify.run('mlp').verdict)\n")
    code, said = place.shell("mypy typed.py", tmp_path)
    assert code == 0, said
    assert '"Any"' not in said
