"""The files whose mutations ``faults.py`` checks: one of every format, and some that hold code, each made by its framework."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers import modelfiles

# Files that do something when they are opened or called: write a file into the folder that is their second argument.
TORCH = """
import os, sys, torch
trap = sys.argv[2]

class Runs:
    def __reduce__(self):
        return os.system, (f"touch {trap}/pickle",)

class Writes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.path = os.path.join(trap, "script")

    def forward(self, x):
        torch.save(x, self.path)
        return x

os.chdir(sys.argv[1])
torch.jit.script(Writes()).save("code.torchscript")
torch.save(Runs(), "code.pt")
program = torch.export.export(torch.nn.Linear(4, 3), (torch.ones(2, 4),))
torch.export.save(program, "code.pt2", opset_version=None)
import pickle, zipfile
with zipfile.ZipFile("code.pt2") as archive:
    members = {info.filename: archive.read(info) for info in archive.infolist()}
with zipfile.ZipFile("code.pt2", "w") as archive:
    for name, content in members.items():
        archive.writestr(name, pickle.dumps(Runs(), 2) if "sample_inputs" in name else content)
"""
TENSORFLOW = """
import os, sys
import tensorflow as tf, keras
trap = sys.argv[2]
os.chdir(sys.argv[1])
command = f"touch {trap}/lambda"
x = keras.Input((4,), name="x")
y = keras.layers.Lambda(lambda t: (__import__("os").system(command), t + 1.0)[1], output_shape=(4,))(x)
keras.Model(x, y).save("code.keras")
keras.Model(x, y).save("code.h5")

@tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
def writes(x):
    with tf.control_dependencies([tf.io.write_file(f"{trap}/graph", "ran")]):
        return {"y": x + 1.0}

held = tf.Module()
held.writes = writes
tf.saved_model.save(held, "code-saved", signatures=writes)
"""


@dataclass(frozen=True)
class Seed:
    """A file to mutate. on: the runtime; "" for the format's own. trap: an empty folder, in which no file may ever appear."""

    name: str
    path: Path
    on: str
    trap: Path


def make_all(folder: Path, only: str = "*") -> list[Seed]:
    """Make the files whose names fit the pattern. A framework that is not installed is named, and its files are left out."""
    found = []
    for name, (maker, file) in modelfiles.FILES.items():
        if not fnmatch.fnmatch(name, only):
            continue
        try:
            path = modelfiles.file(maker, file)
        except pytest.skip.Exception as error:
            print(f"without {name}: {error}")
            continue
        found.append(_seed(folder, name, path, "openvino" if name == "onnx-openvino" else ""))
    for maker, module, files in (
        (TORCH, "torch", ("code.torchscript", "code.pt", "code.pt2")),
        (TENSORFLOW, "tensorflow", ("code.keras", "code.h5", "code-saved")),
    ):
        if not fnmatch.filter(files, only):
            continue
        trap = folder / f"trap-{module}"
        trap.mkdir()
        made = folder / f"code-{module}"
        made.mkdir()
        script = made / "make.py"  # TorchScript reads the source of a class in its file
        script.write_text(maker)
        done = subprocess.run([sys.executable, script, made, trap], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"without code for {module}: {done.stderr.strip().splitlines()[-1:]}")
            continue
        for file in trap.iterdir():
            file.unlink()  # making a file may run it
        found += [Seed(file, made / file, "", trap) for file in fnmatch.filter(files, only)]
    return found


def _seed(folder: Path, name: str, path: Path, on: str) -> Seed:
    trap = folder / f"trap-{name}"
    trap.mkdir()
    return Seed(name, path, on, trap)
