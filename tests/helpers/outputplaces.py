"""A folder with one of everything that commands read, the commands that read it, and how they refuse an output."""

import itertools
import json

import numpy as np
from conftest import write_folder

from helpers.historyresults import keep, result
from helpers.sampleresults import RESULT
from xverify.results.file import write
from xverify.weights import save_file
from xverify.weights.sharded import INDEX

FAST = ("--subjects", "numpy", "--no-timing", "--quiet")
ALONE = 4  # the exit code of a run of the reference alone, as these are
REPORTS = ("html", "markdown", "junit", "csv")
DEFAULTS = {"html": ".html", "markdown": ".md", "junit": ".xml", "csv": ".csv", "json": ".json", "curve": ".png"}


def sharded_weights(folder, weights, parts):
    """Make a folder with weights in shards and their index, as those of transformers. parts: the names in each shard."""
    folder.mkdir()
    shards = {}
    for number, names in enumerate(parts, 1):
        shard = f"model-{number:05}-of-{len(parts):05}.safetensors"
        save_file({name: weights[name] for name in names}, folder / shard)
        shards |= dict.fromkeys(names, shard)
    (folder / f"model{INDEX}").write_text(json.dumps({"weight_map": shards}))


def onnx_file(path, external=False):
    """y = x + w, without ONNX: the fields of a ModelProto. external: the values of w are in ``NAME.data``."""

    def field(number, content):
        content = content.encode() if isinstance(content, str) else content
        return bytes([number << 3 | 2, len(content)]) + content

    def value(name):
        return field(1, name) + field(2, field(1, b"\x08\x01" + field(2, field(1, b"\x08\x02"))))

    raw = np.ones(2, np.float32).tobytes()
    place = field(13, field(1, "location") + field(2, f"{path.stem}.data")) + b"\x70\x01"
    weight = b"\x08\x02\x10\x01" + field(8, "w") + (place if external else field(9, raw))
    node = field(1, "x") + field(1, "w") + field(2, "y") + field(4, "Add")
    graph = field(1, node) + field(2, "g") + field(5, weight) + field(11, value("x")) + field(12, value("y"))
    path.write_bytes(b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11"))
    if external:
        path.with_suffix(".data").write_bytes(raw)
    return path


def openvino_file(path):
    path.write_text('<?xml version="1.0"?>\n<net name="m" version="11"></net>\n')
    path.with_suffix(".bin").write_bytes(b"\0" * 8)
    return path


class Place:
    """A folder with one of everything that commands read."""

    def __init__(self, folder):
        self.folder = folder
        self.port = write_folder(folder / "port")
        self.helper = folder / "port" / "helper" / "table.json"
        self.helper.parent.mkdir()
        self.helper.write_text("[1, 2]")
        self.base = write_folder(folder / "base")
        spec = (self.base / "spec.py").read_text().replace("ModelSpec(", 'ModelSpec(code="../base", ')
        self.variant = write_folder(folder / "variant", (), spec=spec)
        self.weights = folder / "w.npz"
        np.savez(self.weights, **{"fc1.weight": np.ones((6, 8), np.float32)})
        self.shards = folder / "shards"
        self.shards.mkdir()
        index = {"weight_map": {"a": "s-00001-of-00001.safetensors"}}
        (self.shards / "model.safetensors.index.json").write_text(json.dumps(index))
        (self.shards / "s-00001-of-00001.safetensors").write_bytes(b"shard")
        self.data = folder / "data"
        self.data.mkdir()
        (self.data / "train.txt").write_text("a b")
        self.capture = folder / "run.safetensors"
        self.capture.write_bytes(b"capture")
        self.m = onnx_file(folder / "m.onnx")
        self.external = onnx_file(folder / "ext.onnx", external=True)
        self.openvino = openvino_file(folder / "ov.xml")
        self.recorded = folder / "test_data_set_0"
        self.recorded.mkdir()
        (self.recorded / "output_0.pb").write_bytes(b"\x08\x01")
        self.code = folder / "code" / "model.py"
        self.code.parent.mkdir()
        self.code.write_text("def build():\n    return None\n")
        (self.code.parent / "layers.py").write_text("")
        self.python = folder / "python"
        self.python.write_text("#!/bin/sh\n")
        self.results = keep(folder / "results", result(1), result(2))
        self.r = folder / "r.json"
        write(RESULT, self.r)
        self.toml = folder / "s.toml"
        self.toml.write_text(
            f'[matrix]\nmodel = ["./port"]\n[settings]\nsubjects = ["numpy"]\nweights = "{self.weights}"\n'
        )


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def commands(place):
    """Name of a command -> (its arguments, its options that name an output, the files that it reads)."""
    spec, numpy = place.port / "spec.py", place.port / "numpy.py"
    code = place.code.parent / "layers.py"
    shard, index = sorted(place.shards.iterdir(), reverse=True)
    return {
        "run": (
            ["run", place.port, *FAST, "--weights", place.weights], ("json", *REPORTS),
            [spec, numpy, place.weights, place.helper],
        ),
        "run variant": (["run", place.variant, *FAST], ("json",), [place.variant / "spec.py", place.base / "numpy.py"]),
        "run shards": (["run", place.port, *FAST, "--weights", index], ("html",), [index, shard]),
        "run folder of shards": (["run", place.port, *FAST, "--weights", place.shards], ("csv",), [index, shard]),
        "run data": (
            ["run", place.port, *FAST, "--task", "train", "--data", place.data], ("json", "curve"), [place.data / "train.txt"],
        ),
        "run python": (["run", place.port, *FAST, "--python", f"numpy={place.python}"], ("junit",), [place.python]),
        "check": (["check", place.m], ("json", *REPORTS), [place.m]),
        "check parts": (
            ["check", place.external, place.openvino], ("json",),
            [place.external, place.folder / "ext.data", place.openvino, place.folder / "ov.bin"],
        ),
        "check against": (
            ["check", place.m, "--against", place.external, "--inputs", place.weights], ("markdown",),
            [place.m, place.external, place.folder / "ext.data", place.weights],
        ),
        "check against folder": (
            ["check", place.m, "--against", place.port, "--weights", place.weights], ("json",), [spec, numpy, place.weights],
        ),
        "check against code": (["check", place.m, "--against", f"torch={place.code}:build"], ("html",), [place.code, code]),
        "check against data": (["check", place.m, "--against", place.recorded], ("json",), [place.recorded / "output_0.pb"]),
        "judge": (
            ["judge", place.capture, "--reference", place.port, "--weights", place.weights], ("json", *REPORTS),
            [place.capture, spec, numpy, place.weights],
        ),
        "report": (["report", place.r, place.results / "r1.json"], REPORTS, [place.r, place.results / "r1.json"]),
        "diff": (["diff", place.r, place.results / "r1.json"], REPORTS[1:], [place.r, place.results / "r1.json"]),
        "history": (
            ["history", "--results", place.results], ("html", "markdown", "csv", "index"), [place.results / "r1.json"],
        ),
        "sweep": (
            ["sweep", place.toml, "--results", place.folder / "cells"], REPORTS, [place.toml, place.weights, spec, numpy],
        ),
        "mutate": (["mutate", place.port, "--subjects", "numpy"], ("json",), [spec, numpy]),
        "reproduce": (
            ["reproduce", "resnet50-cifar10", "--data", place.data, "--scale", "0.01"], ("json", "markdown", "html"),
            [place.data / "train.txt"],
        ),
        "convert": (
            ["convert", place.port, place.folder / "new.onnx", "--weights", place.weights], ("json",), [spec, place.weights],
        ),
    }  # fmt: skip


def refused(xverify, *command):
    done = xverify(*command)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done
    return done.err


def write_all(xverify, command, options, folder):
    """Let a command write all of its outputs."""
    files = {option: folder / f"out{DEFAULTS[option]}" for option in options}
    done = xverify(*command, *itertools.chain.from_iterable((f"--{each}", file) for each, file in files.items()))
    assert done.code in (0, 1, 4), done.err
    return files
