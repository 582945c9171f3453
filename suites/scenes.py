"""A folder with one of everything that commands read, and a command for each way to read it.

Which files a command reads is not listed: the command is run, and the system notes the time at which a file is read.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cases
import numpy as np
import pytest
from cases import Case
from conftest import MODEL, SPEC, write_folder
from helpers import modelfiles
from helpers.historyresults import keep, result
from helpers.outputplaces import onnx_file, sharded_weights

from xverify.frameworks.capture.xverify_recorder import Recording
from xverify.weights import save_file
from xverify.weights.sharded import INDEX

OUT = "OUT"  # in a command: an argument that names an output
FAST = ("--no-timing", "--cases", "1", "--quiet")
RUN = ("--subjects", "numpy", *FAST)
RESUMED = ("--subjects", "numpy", "--rerun", "2", "--warmup", "1", "--cases", "1", "--quiet", "--json", "resumed.json")
FAMILY = tuple(f"model.{suffix}" for suffix in ("xml", "keras", "h5", "tflite", "torchscript", "pt2"))
LONG = 20.0  # seconds in which a command that takes minutes has read its files
MAKERS = {
    **{"xml": "OPENVINO", "keras": "TENSORFLOW", "h5": "TENSORFLOW", "tflite": "TENSORFLOW"},
    **{"torchscript": "TORCH", "pt2": "TORCH"},
}
CODE = """import torch
from layers import Layer

def build():
    return torch.nn.Sequential(Layer(2, 2))
"""
TORCH_PORT = """import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(8, 6), torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))

def build():
    return Net()
"""
WEIGHTS = {
    "fc1.weight": np.ones((6, 8), np.float32), "fc1.bias": np.ones(6, np.float32),
    "fc2.weight": np.ones((3, 6), np.float32), "fc2.bias": np.ones(3, np.float32),
}  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """A command, and what it needs.

    words: its arguments, with paths within the folder. needs: modules without which it is left out.
    passes: patterns of files that it may pass over where they are no files. makes: patterns of what it writes beside its outputs.
    long: whether it takes longer than a case may. alone: whether it reads nothing of the user's.
    reads: the files within the folder that it reads. code: the exit code.
    """

    name: str
    words: tuple[str, ...]
    needs: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    long: bool = False
    alone: bool = False
    reads: tuple[Path, ...] = ()
    code: int = 0

    @property
    def command(self) -> str:
        """The name of the command."""
        return self.words[0]

    def with_out(self, out: str = "") -> tuple[str, ...]:
        """The arguments, with this output in the place of OUT; a new file, if none is given."""
        return tuple((out or word.replace(OUT, "new")) if word.startswith(OUT) else word for word in self.words)


def listed() -> Iterator[Scene]:
    """All scenes, before it is known what they read."""
    quick, run, torch = " ".join(FAST), " ".join(RUN), ("torch",)
    yield _scene("run", f"run port {run}")
    yield _scene("run a variant", f"run variant {run}", passes=("base/spec.py",))  # of which the code alone is run
    yield _scene("run with own weights", f"run weighted {run}")
    for name in ("w.npz", "w.safetensors", "w.pkl", "sharded", f"sharded/model{INDEX}"):
        yield _scene(f"run with {name}", f"run port {run} --weights {name}")
    yield _scene("run with w.pt", f"run port {run} --weights w.pt", torch)
    yield _scene("run with an interpreter", f"run port {run} --python numpy=./python")
    yield _scene(
        "run with an adapter", f"run mine --subjects honest {quick}", variables={"XVERIFY_FRAMEWORKS": "adapters"}
    )
    yield _scene("run a receipt", f"run port {run} --receipt {OUT}")
    yield _scene("run data", f"run mlp --task train --data mnist --subjects torch:eager --steps 2 {quick}", torch)
    yield _scene("run and resume", f"run port {' '.join(RESUMED)} --resume", makes=("resumed.json",))
    yield from _checks()
    convert = f"{OUT}.onnx --to onnx --quiet"
    yield _scene("convert", f"convert torched {convert}", ("torch", "onnx"))
    yield _scene("convert with weights", f"convert torched {convert} --weights w.npz", ("torch", "onnx"))
    yield _scene("convert code", f"convert torch=code/model.py:build {convert} --shape x=1x2", ("torch", "onnx"))
    yield _scene("mutate", "mutate torched --quiet", torch, long=True)
    yield _scene("reproduce", "reproduce mlp-mnist --data mnist --scale 0.0001 --repeats 1 --quiet", torch, long=True)
    adapters = {"long": True, "variables": {"XVERIFY_FRAMEWORKS": "adapters"}}
    yield _scene("optimizers", "optimizers --frameworks torch --quiet", torch, **adapters)
    yield _scene("selftest", "selftest timing --only equals --runs 1 --quiet", long=True, alone=True)
    for text in (
        "report r.json",
        "report r.json results/r1.json",
        "explain r.json",
        "diff r.json results/r1.json --anyway",
    ):
        yield _scene(text, text)
    history = {"needs": ("duckdb",), "passes": ("*.json",)}
    for name in ("results", "indexed"):
        index = f"{name}/.xverify-history.duckdb"
        yield _scene(f"history of {name}", f"history --results {name} --quiet", makes=(index,), **history)
    yield _scene(
        "history with an index",
        "history --results results --index index.duckdb --quiet",
        makes=("index.duckdb",),
        **history,
    )
    yield _scene("sweep of a file", "sweep s.toml --results new --quiet", makes=("new*",))
    yield _scene("sweep with results", "sweep s.toml --results cells --quiet", makes=("cells/*",))
    yield _scene("judge", "judge run.safetensors --reference torched --weights w.npz --quiet", torch)
    yield _scene("replay", "replay receipt --no-timing --quiet")
    yield from _weights()


def _scene(name: str, text: str, needs: tuple[str, ...] = (), **more: Any) -> Scene:
    return Scene(name, tuple(text.split()), needs, **more)


def _checks() -> Iterator[Scene]:
    onnx = ("onnx", "onnxruntime")
    for name, text, needs in (
        ("onnx", "m.onnx", onnx),
        ("external data", "ext.onnx", onnx),
        ("two", "m.onnx ext.onnx", onnx),
        ("against onnx", "m.onnx --against ext.onnx", onnx),
        ("against a folder", "made.onnx --against torched --weights w.npz", (*onnx, "torch")),
        ("against code", "m.onnx --against torch=code/model.py:build", (*onnx, "torch")),
        ("against a set", "m.onnx --against recorded", onnx),
        ("against arrays", "m.onnx --against io.npz", onnx),
        ("inputs", "m.onnx --inputs inputs.npz", onnx),
    ):
        yield _scene(f"check {name}", f"check --quiet {text}", needs)
    for name in (*FAMILY, "saved"):
        shapes = "--shape x=2x4 --shape scale=2x3" if name.endswith("script") else ""
        maker = MAKERS.get(name.partition(".")[2], "TENSORFLOW")
        yield _scene(
            f"check {name}", f"check --quiet {name} {shapes}", (maker.lower(),), passes=("saved/fingerprint.pb",)
        )


def _weights() -> Iterator[Scene]:
    files = ("w.npz", "w.safetensors", "w.pkl", "sharded", f"sharded/model{INDEX}", "m.onnx", "ext.onnx")
    for name in (*files, "w.pt"):
        needs = ("torch",) if name == "w.pt" else ("onnx",) if name.endswith("onnx") else ()
        for action, more in (("digest", ""), ("convert", f"{OUT}.npz"), ("diff", "w.npz")):
            yield _scene(f"weights {action} {name}", f"weights {action} {name} {more}", needs)
    yield _scene("weights into a model", f"weights convert w.npz {OUT}.onnx --model torched", ("torch", "onnx"))


# -- the folder -------------------------------------------------------------------------------------------------------


def make(folder: Path, only: str = "*") -> None:
    """Make everything that the scenes read. What a framework makes is left out where it is not installed.

    only: a pattern of names of scenes. Those of commands that check files need the files of all formats.
    """
    cases.prepare()
    write_folder(folder / "port")
    (folder / "port" / "helper").mkdir()
    (folder / "port" / "helper" / "table.json").write_text("[1, 2]")
    write_folder(folder / "base")
    write_folder(folder / "variant", (), SPEC.replace("ModelSpec(", 'ModelSpec(code="../base", '))
    write_folder(folder / "torched", ("numpy",))
    (folder / "torched" / "torch.py").write_text(TORCH_PORT)
    _weight_files(folder, only)
    write_folder(folder / "weighted", model=MODEL.replace('"fc1.', '"first.'))
    save_file(WEIGHTS, folder / "weighted" / "weights.safetensors")
    (folder / "weighted" / "names.toml").write_text('[numpy]\n"fc1" = "first"\n')
    write_folder(folder / "mine", ("honest",))
    (folder / "adapters").mkdir()
    shutil.copy(cases.TESTS / "faulty" / "honest.py", folder / "adapters" / "honest.py")
    (folder / "code").mkdir()
    (folder / "code" / "model.py").write_text(CODE)
    (folder / "code" / "layers.py").write_text("from torch.nn import Linear as Layer\n")
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    _data(folder / "mnist")
    keep(folder / "results", result(1), result(2))
    keep(folder / "indexed", result(1), result(2))
    shutil.copy(folder / "results" / "r2.json", folder / "r.json")
    (folder / "s.toml").write_text(
        '[matrix]\nmodel = ["./port"]\n[settings]\nsubjects = ["numpy"]\nno_timing = true\ncases = 1\nweights = "w.npz"\n'
    )
    _models(folder, only)
    _kept(folder, only)


def _weight_files(folder: Path, only: str) -> None:
    save_file(WEIGHTS, folder / "w.npz")
    save_file(WEIGHTS, folder / "w.safetensors")
    save_file(WEIGHTS, folder / "w.pkl")
    sharded_weights(folder / "sharded", WEIGHTS, (["fc1.weight", "fc1.bias"], ["fc2.weight", "fc2.bias"]))
    if wants(only, "w.pt") and importlib.util.find_spec("torch"):
        save_file(WEIGHTS, folder / "w.pt")


def _data(folder: Path) -> None:
    """MNIST in little."""
    folder.mkdir()
    images, labels = np.zeros((300, 28, 28), np.uint8), np.arange(300, dtype=np.uint8) % 10
    images[:, 5:9, 5:9] = labels[:, None, None] * 20
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, 300, 28, 28) + images.tobytes())
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 300) + labels.tobytes())


def wants(only: str, word: str) -> bool:
    """Whether one of the scenes that are asked for has this word among its arguments."""
    return any(word in scene.words and fnmatch.fnmatch(scene.name, only) for scene in listed())


def _models(folder: Path, only: str) -> None:
    """Model files, recorded tensors, and a capture."""
    _capture(folder / "run.safetensors")
    onnx_file(folder / "m.onnx")
    onnx_file(folder / "ext.onnx", external=True)
    arrays = {"x": np.ones(2, np.float32)}
    np.savez(folder / "inputs.npz", **arrays)
    np.savez(folder / "io.npz", **arrays, y=np.full(2, 2, np.float32))
    if wants(only, "recorded") and importlib.util.find_spec("onnx"):
        from onnx import numpy_helper

        (folder / "recorded").mkdir()
        for name, value in (("input_0", 1), ("output_0", 2)):
            tensor = numpy_helper.from_array(np.full(2, value, np.float32))
            (folder / "recorded" / f"{name}.pb").write_bytes(tensor.SerializeToString())
    for name in (each for each in FAMILY if wants(only, each) or (each == "model.keras" and wants(only, "saved"))):
        try:
            made = modelfiles.file(MAKERS[name.partition(".")[2]], name)
        except pytest.skip.Exception:
            continue
        shutil.copy(made, folder / name)
        if name == "model.xml":
            shutil.copy(made.with_suffix(".bin"), folder / "model.bin")
        if name == "model.keras":
            shutil.copytree(made.with_name("saved"), folder / "saved")


def _capture(path: Path) -> None:
    """What TORCH_PORT computes, as another machine may record it."""

    def model(x: Any) -> Any:
        hidden = np.tanh(x @ WEIGHTS["fc1.weight"].T + WEIGHTS["fc1.bias"])
        return hidden @ WEIGHTS["fc2.weight"].T + WEIGHTS["fc2.bias"]

    with Recording(path, model, inputs=["x"]) as recording:
        recording.adapter.weights = lambda model: WEIGHTS.items()  # type: ignore[method-assign]
        recording.call(np.ones((4, 8), np.float32))


def _kept(folder: Path, only: str) -> None:
    """What commands write and other commands read: a receipt, a result to resume, the cell of a sweep, an index, an export."""
    for words in (
        ("run", "port", *RUN, "--receipt", "receipt"),
        ("run", "port", *RESUMED),
        ("sweep", "s.toml", "--results", "cells", "--quiet"),
        ("history", "--results", "indexed", "--quiet"),
        ("history", "--results", "results", "--index", "index.duckdb", "--quiet"),
        ("convert", "torched", "made.onnx", "--weights", "w.npz", "--quiet"),
    ):
        if words[0] != "convert" or wants(only, "made.onnx"):
            in_place(folder, words)
    partial = folder / "resumed.json"
    partial.write_text(partial.read_text().replace('"complete": true', '"complete": false'))


def in_place(folder: Path, words: Sequence[str]) -> cases.Ended:
    """Run a command in this very folder."""
    with tempfile.TemporaryDirectory(prefix="scenes-") as name:
        space = Path(name)
        (space / "temporary").mkdir()
        (space / "here").symlink_to(folder)
        return cases.called(Case("", "", folder, tuple(words)), space, 300.0)


# -- what is read -----------------------------------------------------------------------------------------------------


def traced(scene: Scene, folder: Path) -> Scene:
    """The scene with the files that its command reads, and its exit code. Raises SystemExit when it does not run."""
    with tempfile.TemporaryDirectory(prefix="scenes-") as name:
        here = cases.copied(folder, Path(name))
        files = [path for path in sorted(here.rglob("*")) if path.is_file() and not path.is_symlink()]
        for path in files:
            os.utime(path, ns=(0, path.stat().st_mtime_ns))
        case = Case("", scene.name, folder, scene.with_out(), variables=scene.variables)
        ended = cases.called(case, Path(name), LONG if scene.long else 300.0)
        read = tuple(path.relative_to(here) for path in files if path.exists() and path.stat().st_atime_ns > 0)
    if ended.code not in ((0, 1, 4, None) if scene.long else (0, 1, 4)) or bool(read) == scene.alone:
        raise SystemExit(f"{scene.name}: it ends with {ended.code} and has read {len(read)} files: {ended.err[-500:]}")
    return replace(scene, reads=read, code=ended.code or 0)


def all_scenes(folder: Path, only: str = "*") -> list[Scene]:
    """The scenes that can run here, with what they read. only: a pattern of their names."""
    found = []
    for scene in (each for each in listed() if fnmatch.fnmatch(each.name, only)):
        absent = [name for name in scene.needs if importlib.util.find_spec(name) is None]
        if absent:
            print(f"without {scene.name}: {absent[0]} is not installed")
        else:
            found.append(traced(scene, folder))
    return found
