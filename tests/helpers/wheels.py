"""The wheel of this checkout, environments to install it into, and an index that has only packages of others."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Folders of the repository -> where they are installed.
SOURCES = {"xverify": "xverify", "models": "xverify/models", "weights": "xverify/weights"}
FOREIGN = "9.9"  # the version of another project's distribution xverify


def copy_sources(folder):
    """What a wheel is built from; outside of the repository, where no older build is."""
    for source in SOURCES:
        ignored = ["__pycache__", *(("models", "weights") if source == "xverify" else ())]
        shutil.copytree(ROOT / source, folder / source, ignore=shutil.ignore_patterns(*ignored))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def build(folder):
    """The wheel of these sources, which is put beside them."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        folder,
        folder,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


class Place:
    """A new virtual environment. Its commands see nothing of the environment of the tests, and no settings of pip."""

    def __init__(self, folder, pip=True):
        subprocess.run([sys.executable, "-m", "venv", *["--without-pip"] * (not pip), folder], check=True)
        self.scripts = folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.scripts / ("python.exe" if os.name == "nt" else "python")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XVERIFY_"))}
        self.variables = {**kept, "PATH": f"{self.scripts}{os.pathsep}{kept['PATH']}"}

    def use_index(self, folder):
        """Let pip ask this folder, and nothing else."""
        kept = {name: value for name, value in self.variables.items() if not name.startswith("PIP_")}
        self.variables = {**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}

    def shell(self, command, cwd):
        """Type a command. Returns its exit code, and all that it printed."""
        done = subprocess.run(
            command, shell=True, cwd=cwd, env=self.variables, capture_output=True, text=True, check=False, timeout=900
        )
        return done.returncode, done.stdout + done.stderr

    def call(self, *command, cwd):
        """Run a program of this environment. Returns what it printed on standard output."""
        name, *arguments = command
        done = subprocess.run(
            [self.scripts / name, *arguments],
            cwd=cwd, env=self.variables, capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def fake(folder, name, version, files=()):
    """A wheel without dependencies. files: path -> text."""
    stem = f"{name.replace('-', '_')}-{version}"
    contents = {
        **dict(files),
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*contents, f"{stem}.dist-info/RECORD"])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, text in {**contents, f"{stem}.dist-info/RECORD": record}.items():
            wheel.writestr(path, text)
    return folder / f"{stem}-py3-none-any.whl"


def foreign_index(folder, more=()):
    """A folder of wheels: the packages that xverify needs, empty, ``xverify`` of another project, and a real setuptools.

    more: further names of packages.
    """
    from packaging.requirements import Requirement

    text = (ROOT / "constraints.txt").read_text() + "".join(
        (ROOT / "xverify" / "environments" / "paddle.txt").read_text()
    )
    for line in re.findall(r"^[\w.-]+==.*", text, re.MULTILINE):
        wanted = Requirement(line)
        if (wanted.marker is None or wanted.marker.evaluate()) and wanted.name != "setuptools":
            [only] = wanted.specifier
            fake(folder, wanted.name, only.version)
    for name in more:
        fake(folder, name, "1.0")
    fake(folder, "xverify", FOREIGN, {"xverify/__init__.py": "FOREIGN = True\n"})
    _repack(folder, "setuptools")
    return folder


def _repack(folder, name):
    """The wheel of a package that is installed here."""
    found = importlib.metadata.distribution(name)
    with zipfile.ZipFile(folder / f"{name}-{found.version}-py3-none-any.whl", "w") as wheel:
        for path in found.files or ():
            if ".." not in path.parts and path.suffix != ".pyc":
                wheel.write(found.locate_file(path), str(path))
