"""Model files of other formats, arrays and folders that are made to harm. No framework makes them, as none would an attacker's."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hostile_code
import numpy as np
from hostile import ANY, REFUSED, Trap

GIB = 2**30
BOMB = 320 * 2**20  # bytes; more than xverify reads of a member
SECRET = "root:"  # begins the first line of /etc/passwd
FILE = "/etc/passwd"
TORCHSCRIPT = {"m/data.pkl": b"", "m/constants.pkl": b"", "m/version": b"3\n"}
PT2 = {"m/archive_format": "pt2", "m/models/model.json": {"graph": []}}
KERAS = {"metadata.json": {}, "config.json": {"class_name": "Functional"}}


class Runs:
    """A pickle of this object writes a file into the current directory."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


def archive(path: Path, members: Mapping[str, Any]) -> Path:
    """A zip archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content if isinstance(content, (bytes, str)) else json.dumps(content))
    return path


def bomb(path: Path, members: Mapping[str, Any], name: str, begin: bytes = b"", size: int = BOMB) -> Path:
    """A zip archive in which one member is ``size`` bytes of the same letter."""
    archive(path, members)
    block = b"[" * 2**20
    archived = zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archived as file, file.open(name, "w", force_zip64=True) as member:
        member.write(begin)
        for _ in range(size // len(block)):
            member.write(block)
    return path


def make(folder: Path) -> Iterator[Trap]:
    """Write the files."""
    yield from _empty(folder)
    yield from _archives(folder)
    yield from _code(folder)
    yield from _texts(folder)
    yield from _binary(folder)
    yield from _arrays(folder)
    if importlib.util.find_spec("h5py"):
        yield from _hdf5(folder)


def _trap(name: str, path: Path, expect: str = ANY, says: str = "", never: str = SECRET) -> Trap:
    return Trap(name, (str(path),), expect, says, never)


def _empty(folder: Path) -> Iterator[Trap]:
    """Files that are none."""
    for suffix in (".onnx", ".keras", ".h5", ".tflite", ".pt2", ".pt", ".xml"):
        path = folder / f"empty{suffix}"
        path.touch()
        yield _trap(f"empty: {suffix}", path, REFUSED, "the file is empty")
    (folder / "saved").mkdir()
    yield _trap("empty: a folder", folder / "saved", REFUSED)
    (folder / "model").mkdir()
    (folder / "model" / "saved_model.pb").touch()
    yield _trap("empty: a SavedModel", folder / "model", ANY)
    os.mkfifo(folder / "pipe.onnx")
    yield _trap("a pipe", folder / "pipe.onnx", REFUSED)
    (folder / "circle.onnx").symlink_to("circle.onnx")
    yield _trap("a link to itself", folder / "circle.onnx", REFUSED)
    yield _trap("an endless device", Path("/dev/zero"), REFUSED)
    yield _trap("a file of the system", Path(FILE), REFUSED, never="daemon")
    yield _trap("no such file", folder / "absent.onnx", REFUSED, "there is no such file")
    huge = folder / "holes.onnx"
    with huge.open("wb") as file:
        file.write(b"\x08\x09\x3a\xff\xff\xff\xff\xff\x01")
        file.truncate(100 * GIB)
    yield _trap("a file of 100 GiB with nothing in it", huge, ANY)


def _archives(folder: Path) -> Iterator[Trap]:
    """Archives that unpack to more than they seem."""
    for name, members, member, begin in (
        ("keras config", {"metadata.json": {}}, "config.json", b""),
        ("keras weights", KERAS, "model.weights.h5", b"\x89HDF\r\n\x1a\n"),
        ("torchscript data", {"m/constants.pkl": b""}, "m/data.pkl", b"\x80\x02"),
        ("torchscript code", TORCHSCRIPT, "m/code/__torch__.py", b"#"),
        ("pt2 graph", {"m/archive_format": "pt2"}, "m/models/model.json", b""),
        ("pt2 weights", PT2, "m/data/weights/w", b""),
    ):
        yield _trap(f"bomb: {name}", bomb(folder / f"{name.replace(' ', '-')}.zip", members, member, begin), ANY)
    deep = "[" * 1_000_000
    yield _trap("deep: keras config", archive(folder / "deep.keras", {**KERAS, "config.json": deep}), ANY)
    yield _trap("deep: pt2 graph", archive(folder / "deep.pt2", {**PT2, "m/models/model.json": deep}), ANY)
    digits = '{"a": ' + "9" * 100_000 + "}"
    yield _trap("deep: a number", archive(folder / "digits.keras", {**KERAS, "config.json": digits}), ANY)
    many = {f"m/{index}": b"" for index in range(60_000)}
    yield _trap("many members", archive(folder / "many.pt", {**TORCHSCRIPT, **many}), ANY)
    out = {**TORCHSCRIPT, "../../outside": b"x", "/tmp/outside": b"x"}
    yield _trap("members outside", archive(folder / "outside.pt", out), ANY)


def _code(folder: Path) -> Iterator[Trap]:
    """Files that hold code."""
    for protocol in (0, 2, 5):
        pickled = folder / f"pickle-{protocol}.pt"
        pickled.write_bytes(pickle.dumps(Runs(), protocol))
        yield _trap(f"code: a pickle of protocol {protocol}", pickled, REFUSED)
    for place in ("m/data/constants/c", "m/data/sample_inputs/model.pt", "m/data/weights/w"):
        config = {"config": {"w": {"path_name": "w", "use_pickle": True}}}
        members = {**PT2, place: pickle.dumps(Runs(), 2), "m/data/weights/model_weights_config.json": config}
        yield _trap(f"code: a pickle in pt2, {place}", archive(folder / f"{place.replace('/', '-')}.pt2", members), ANY)
    for name, layer in {
        "Lambda": {"class_name": "Lambda", "config": {"function": ["4wAAAAA=", None, None]}},
        "registered": {"class_name": "os>system", "module": "os", "registered_name": "system", "config": "touch ran"},
        "module": {"class_name": "system", "module": "os", "config": {"command": "touch ran"}},
        "inner": {"class_name": "Dense", "config": {"activation": {"class_name": "function", "config": "os.system"}}},
        "vocabulary": {"class_name": "StringLookup", "config": {"vocabulary": FILE}},
    }.items():
        config = {"class_name": "Sequential", "config": {"name": "s", "layers": [layer]}}
        path = archive(folder / f"{name}.keras", {**KERAS, "config.json": config})
        yield _trap(f"code: keras, {name}", path, ANY)
    for number, (name, content) in enumerate(hostile_code.risky_graphs()):
        path = folder / f"graph-{number}"
        (path / "variables").mkdir(parents=True)
        (path / "saved_model.pb").write_bytes(content)
        yield _trap(f"code: SavedModel, {name}", path, REFUSED)
    for number, line in enumerate(hostile_code.LINES):
        yield _trap(f"code: TorchScript, {line!r}", hostile_code.script(folder / f"script-{number}.pt", line), REFUSED)
    stateful = hostile_code.script(folder / "state.pt", more=hostile_code.STATE)
    yield _trap("code: TorchScript, its state", stateful, REFUSED)


def _texts(folder: Path) -> Iterator[Trap]:
    """XML that unpacks to more than it seems, or reads other files."""
    entities = '<!ENTITY a0 "lol">' + "".join(
        f'<!ENTITY a{index} "{f"&a{index - 1};" * 10}">' for index in range(1, 12)
    )
    end = '<net name="{}" version="11"><layers></layers><edges></edges></net>'
    for name, text in {
        "entities": f'<?xml version="1.0"?><!DOCTYPE net [{entities}]>' + end.format("&a11;"),
        "another file": f'<?xml version="1.0"?><!DOCTYPE net [<!ENTITY x SYSTEM "file://{FILE}">]>' + end.format("&x;"),
        "deep": '<net name="g" version="11">' + "<a>" * 200_000 + "</a>" * 200_000 + "</net>",
        "no layers": end.format("g"),
        "huge": end.format("g")
        .replace(
            "<layers></layers>",
            '<layers><layer id="0" name="x" type="Parameter" version="opset1"><data shape="1000000,1000000" element_type="f32"/>'
            '<output><port id="0" precision="FP32"><dim>1000000</dim><dim>1000000</dim></port></output></layer>'
            '<layer id="1" name="y" type="Result" version="opset1"><input><port id="0" precision="FP32"><dim>1000000</dim>'
            "<dim>1000000</dim></port></input></layer></layers>",
        )
        .replace("<edges></edges>", '<edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges>'),
    }.items():
        path = folder / f"{name.replace(' ', '-')}.xml"
        path.write_text(text)
        path.with_suffix(".bin").touch()
        yield _trap(f"OpenVINO IR: {name}", path, REFUSED if name in ("entities", "another file", "deep") else ANY)


def _binary(folder: Path) -> Iterator[Trap]:
    """Bytes that begin as a format does."""
    for name, content in {
        "tflite zeros": b"\x1c\0\0\0TFL3" + bytes(4096),
        "tflite ones": b"\x1c\0\0\0TFL3" + b"\xff" * 4096,
        "tflite a circle": b"\x08\0\0\0TFL3" + struct.pack("<i", 0) * 64,
        "h5 zeros": b"\x89HDF\r\n\x1a\n" + bytes(4096),
        "h5 ones": b"\x89HDF\r\n\x1a\n" + b"\xff" * 4096,
        "onnx groups": b"\x08\x09\x12\x01a" + b"\x3b" * 4096,
        "onnx nested": b"\x08\x09\x12\x01a" + _nested(5000),
        "text": b"import os; os.system('touch ran')\n",
    }.items():
        path = folder / name.replace(" ", "-")
        path.write_bytes(content)
        yield _trap(f"bytes: {name}", path, ANY)


def _nested(depth: int) -> bytes:
    """A graph whose nodes hold graphs, and so on."""
    content = b""
    for level in range(depth):
        tag = (b"\x3a", b"\x0a", b"\x2a", b"\x32")[0 if level == depth - 1 else 1 + (depth - 2 - level) % 3]
        content = tag + _varint(len(content)) + content
    return content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _arrays(folder: Path) -> Iterator[Trap]:
    """Arrays that the parent reads, with a model that is sound."""
    from hostile_onnx import add, model

    path = folder / "sound.onnx"
    path.write_bytes(model([add("x")]).SerializeToString())

    def npy(shape: tuple[int, ...], content: bytes = b"", dtype: str = "<f4") -> bytes:
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
        return file.getvalue() + content

    objects = io.BytesIO()
    np.save(objects, np.array([Runs()], dtype=object), allow_pickle=True)
    for name, members in {
        "objects": {"x.npy": objects.getvalue()},
        "10^12 elements": {"x.npy": npy((10**12,))},
        "negative": {"x.npy": npy((-4,))},
        "cut off": {"x.npy": npy((4,), b"1234")},
        "empty": {},
        "other names": {"z.npy": npy((4,), bytes(16))},
        "another shape": {"x.npy": npy((5,), bytes(20))},
        "another dtype": {"x.npy": npy((4,), bytes(32), "<i8")},
        "strings": {"x.npy": npy((4,), bytes(16), "|S4")},
        "no numpy": {"x.npy": b"hello"},
        "a path": {"../x.npy": npy((4,), bytes(16))},
    }.items():
        made = archive(folder / f"{name.replace(' ', '-')}.npz", members)
        expect = ANY if name.startswith("another") else REFUSED
        yield Trap(
            f"--inputs: {name}", (str(path), "--inputs", str(made)), expect, "--inputs" if expect == REFUSED else ""
        )
        both = {f"{kind}/{member}": content for member, content in members.items() for kind in ("input", "output")}
        made = archive(folder / f"{name.replace(' ', '-')}-both.npz", both)
        yield Trap(f"--against: {name}", (str(path), "--against", str(made)), ANY)
    cut = folder / "cut.npz"
    cut.write_bytes(made.read_bytes()[:-30])
    yield Trap("--inputs: half an archive", (str(path), "--inputs", str(cut)), REFUSED, "--inputs")
    not_numbers = archive(folder / "nan.npz", {"x.npy": npy((4,), np.full(4, np.nan, np.float32).tobytes())})
    yield Trap("--inputs: NaN", (str(path), "--inputs", str(not_numbers)), ANY)
    for arguments in (["--shape", "x=1000000000000"], ["--shape", "x=4x4"], ["--shape", "x=-4"], ["--input-range", "nan,nan"],
                      ["--input-range", "0,inf"], ["--map", "x"], ["--map", "x=x"], ["--accept", "top1>=nan"]):  # fmt: skip
        yield Trap(f"arguments: {' '.join(arguments)}", (str(path), *arguments), ANY)


def _hdf5(folder: Path) -> Iterator[Trap]:
    """HDF5 files that hold more than they seem, or point elsewhere."""
    import h5py

    config = {"class_name": "Sequential", "config": {"name": "s", "layers": [
        {"class_name": "InputLayer", "config": {"batch_shape": [None, 4], "dtype": "float32", "name": "x"}},
        {"class_name": "Dense", "config": {"units": 3, "name": "d", "use_bias": False}},
    ]}}  # fmt: skip
    for name in ("external link", "soft link", "external data", "10^12 elements", "a circle"):
        path = folder / f"{name.replace(' ', '-')}.h5"
        with h5py.File(path, "w") as file:
            file.attrs["model_config"] = json.dumps(config)
            file.attrs["keras_version"], file.attrs["backend"] = "3.0.0", "tensorflow"
            weights = file.create_group("model_weights")
            weights.attrs["layer_names"] = [b"d"]
            layer = weights.create_group("d")
            layer.attrs["weight_names"] = [b"w"]
            if name == "external link":
                layer["w"] = h5py.ExternalLink(FILE, "/w")
            elif name == "soft link":
                layer["w"] = h5py.SoftLink("/nowhere")
            elif name == "external data":
                layer.create_dataset("w", (4, 3), "f4", external=[(FILE, 0, 48)])
            elif name == "10^12 elements":
                layer.create_dataset("w", (10**6, 10**6), "f4", chunks=(1000, 1000), fillvalue=1.0)
            else:
                layer["w"] = layer
        yield _trap(f"h5: {name}", path, ANY)
