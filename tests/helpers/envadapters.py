"""Adapters whose environments tests make: a package that this interpreter does not have, and the pins of it."""

import importlib.metadata
import os
import zipfile

NUMPY = f"numpy=={importlib.metadata.version('numpy')}"

ADAPTER = """
from xverify.frameworks.numpy.adapter import Adapter as Numpy

class Adapter(Numpy):
    name = {name!r}
    needs = {needs!r}
    isolated = {isolated!r}
    default_modes = ("eager",)

    def __init__(self, threads, device):
        for module in self.needs.values():
            __import__(module)
        super().__init__(threads, device)
"""
# name of an adapter -> (the packages that it needs, the value of its attribute ``isolated``)
ADAPTERS = {
    "walled": ({"walled-engine": "walled_engine"}, ""),
    "apart": ({"numpy": "numpy"}, "walled"),  # installed in this interpreter, but it must not run here
    "plain": ({"numpy": "numpy"}, ""),
}


def write_adapters(folder):
    """Write a folder of adapters, with the pins of one of them and a package that is not installed in this interpreter."""
    for name, (needs, isolated) in ADAPTERS.items():
        (folder / f"{name}.py").write_text(ADAPTER.format(name=name, needs=needs, isolated=isolated))
    info = "walled_engine-1.0.dist-info"
    files = {
        "walled_engine.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: walled-engine\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / "walled_engine-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    (folder / "walled.txt").write_text(f"# its engine\n{NUMPY}\n./walled_engine-1.0-py3-none-any.whl\n")
    (folder / "notes.txt").write_text("no adapter is called notes\n")
    return folder


def visible(root):
    """The environments in a folder, without the locks."""
    return [name for name in os.listdir(root) if not name.endswith(".lock")]


def caller(xverify, adapters, root, monkeypatch):
    """The command line with these adapters. There are no environments, unless ``root`` names a folder that has some."""

    def call(*arguments, root=root, frameworks=adapters):
        monkeypatch.setenv("XVERIFY_ENVIRONMENTS", str(root))
        return xverify(*arguments, frameworks=frameworks)

    return call


def fake_uv(tmp_path, monkeypatch, script):
    """Put a uv on the path that records its arguments in the file ``asked``, and then runs a script of the shell."""
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n{script}\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
