"""Weight files that are made to harm, and what the command line has to say about each."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

GOOD = np.arange(6, dtype=np.float32).reshape(2, 3)
MANY = 20_000
BOMB = 6_000_000_000  # bytes


@dataclass(frozen=True)
class Hostile:
    """One file. says: what the message contains; "" where the file is a right one. options: of ``xverify weights digest``."""

    path: Path
    says: str
    options: tuple[str, ...] = ()


class Calls:
    """What a pickle calls when it is opened."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def make(folder: Path, trap: Path) -> Iterator[Hostile]:
    """Write the files. trap: a folder in which a file appears when one of them is executed."""
    for number, (name, says, *options) in enumerate(
        (*_numpy(folder), *_pickles(folder, trap), *_safetensors(folder), *_torch(folder, trap), *_onnx(folder))
    ):
        path = folder / name
        assert path.exists(), (number, name)
        yield Hostile(path, says, tuple(options))


def claim(path: Path, size: int) -> None:
    """Let the directory of an archive say that its first member unpacks to so many bytes."""
    with zipfile.ZipFile(path, "a") as archive:
        info = archive.infolist()[0]
        info.file_size, info.compress_type = size, zipfile.ZIP_DEFLATED
        archive._didModify = True  # type: ignore[attr-defined]  # so that the directory is written again


def header(text: str) -> bytes:
    """The beginning of a member of a .npz file. text: what stands between the braces."""
    said = ("{" + text + "}").encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(said) + 1) + said + b"\n"


def _archive(path: Path, *members: tuple[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)


def _numpy(folder: Path) -> Iterator[tuple[str, ...]]:
    plain = header("'descr': '<f4', 'fortran_order': False, 'shape': (2,), ") + np.ones(2, np.float32).tobytes()
    for name in ("bomb", "allowed-bomb"):
        np.savez_compressed(folder / f"{name}.npz", w=np.zeros(1000, np.float32))
        claim(folder / f"{name}.npz", BOMB)
    yield "bomb.npz", "the limit is 1.0 GB; if the file is right, pass --max-weights 6"
    yield "allowed-bomb.npz", "", "--max-weights", "7"  # it only claims to be that large
    np.savez(folder / "many.npz", **{f"w{i}": GOOD for i in range(MANY)})
    yield "many.npz", ""
    np.savez(folder / "limit.npz", w=np.zeros(1000, np.float32))
    yield "limit.npz", "the limit is 0.0 GB", "--max-weights", "0.000001"
    shapes = {
        "negative": "(-2,)",
        "huge": "(9999999999999,)",
        "deep": "(" + "1," * 200 + ")",
        "text": "('a',)",
        "float": "(2.0,)",
    }
    for name, shape in shapes.items():
        content = header(f"'descr': '<f4', 'fortran_order': False, 'shape': {shape}, ") + bytes(8)
        _archive(folder / f"{name}.npz", ("w.npy", content))
        yield f"{name}.npz", "says otherwise" if name in ("negative", "huge", "deep") else "not a readable"
    for name, kind in {"objects": "'|O'", "fields": "[('a', '<f4')]", "texts": "'<U4'", "dates": "'<M8[s]'"}.items():
        content = header(f"'descr': {kind}, 'fortran_order': False, 'shape': (2,), ") + bytes(64)
        _archive(folder / f"{name}.npz", ("w.npy", content))
        yield f"{name}.npz", "weights are floating-point arrays"
    _archive(folder / "code.npz", ("w.npy", header("'descr': __import__('os').abort(), 'shape': (2,), ") + bytes(8)))
    yield "code.npz", "not a readable"
    _archive(folder / "twice.npz", ("w.npy", plain), ("w.npy", plain))
    yield "twice.npz", "two arrays have the name 'w'"
    _archive(folder / "other.npz", ("w.txt", b"x"))
    yield "other.npz", "is no array"
    _archive(folder / "long-header.npz", ("w.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"{" * 10**6))
    yield "long-header.npz", "not a readable"
    for name, value in {"int": 2**24 + 1, "big-int": 2**53 + 1, "unsigned": 2**63 + 1}.items():
        np.savez(folder / f"{name}.npz", w=np.array([value, 1], np.uint64 if name == "unsigned" else np.int64))
        yield f"{name}.npz", "1 of 2 values change when rounded to float32"
    np.savez(folder / "nan.npz", w=np.array([np.nan], np.float32))
    yield "nan.npz", "weights must be finite"
    np.savez(folder / "complex.npz", w=np.ones(2, np.complex64))
    yield "complex.npz", "weights are floating-point arrays"


def _sealed(path: Path, body: bytes) -> None:
    path.write_bytes(body + hashlib.sha1(body).digest() + b"HCAJSLHD")


def _pickles(folder: Path, trap: Path) -> Iterator[tuple[str, ...]]:
    good = pickle.dumps({"w": GOOD}, 4)
    _sealed(folder / "good.pkl", good)
    yield "good.pkl", ""
    swaps = {"object-dtype": (b"\x8c\x02f4", b"\x8c\x02O8"), "void-dtype": (b"\x8c\x02f4", b"\x8c\x02V9")}
    for name, (old, new) in swaps.items():
        assert old in good
        (folder / f"{name}.pkl").write_bytes(good.replace(old, new))
        yield f"{name}.pkl", "which is no plain number"
    calls = {
        "uninitialised": (np.ndarray, (1000,)),
        "reconstructed": (np.empty(0).__reduce__()[0], np.ndarray, (1000,), b"f"),
    }
    for name, (function, *arguments) in calls.items():
        (folder / f"{name}.pkl").write_bytes(pickle.dumps({"w": Calls(function, *arguments)}, 4))
        yield f"{name}.pkl", "w"
    actions = {
        "opens": (open, str(trap / "opened"), "w"),
        "removes": (os.mkdir, str(trap / "made")),
        "evaluates": (eval, "1/0"),
    }
    for name, (function, *arguments) in actions.items():
        (folder / f"{name}.pkl").write_bytes(pickle.dumps({"w": Calls(function, *arguments)}, 4))
        yield f"{name}.pkl", "which could run any code"
    for name, (function, *arguments) in {"exits": (os._exit, 0), "aborts": (os.abort,)}.items():
        (folder / f"{name}.pkl").write_bytes(pickle.dumps({"w": Calls(function, *arguments)}, 4))
        yield f"{name}.pkl", "exited with status 0" if name == "exits" else "killed by SIGABRT", "--trust"
    odd: dict[str, tuple[Any, str]] = {
        "integer-key": ({1: GOOD}, "the name 1 is a int, not a text"),
        "text": ({"w": "text"}, "'w' is a str, not an array"),
        "empty": ({}, "holds no weights"),
        "objects": ({"w": np.array([{}], object)}, "it holds an array"),
    }
    for name, (stored, says) in odd.items():
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(stored, 4))
        yield f"{name}.pkl", says
    raw = {
        "deep": b"\x80\x04" + b"]" * 2_000_000 + b"a" * 1_999_999 + b".",
        "long-bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x.",
        "far-memo": b"\x80\x04Nr" + struct.pack("<I", 2**31 - 1) + b".",
        "itself": b"\x80\x04}\x94h\x00h\x00s.",
        "nothing": b".",
        "build-class": b"\x80\x04cnumpy\nndarray\n}(\x8c\x01aK\x01u\x86b.",
    }
    for name, content in raw.items():
        (folder / f"{name}.pkl").write_bytes(content)
        yield f"{name}.pkl", ".pkl"


def _safetensors(folder: Path) -> Iterator[tuple[str, ...]]:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    texts = {
        "twice": ('{"w": %s, "w": %s}' % ((json.dumps(entry),) * 2), "two arrays have the name 'w'"),
        "outside": (json.dumps({"w": {**entry, "shape": [2**40], "data_offsets": [0, 2**42]}}), ".safetensors"),
        "overlap": (json.dumps({"w": entry, "v": entry}), ".safetensors"),
        "no-shape": (json.dumps({"w": {"dtype": "F32"}}), ".safetensors"),
        "deep": ("[" * 100_000, ".safetensors"),
        "overflow": (json.dumps({"w": {**entry, "shape": [2**32, 2**32]}}), ".safetensors"),
    }
    for name, (text, says) in texts.items():
        (folder / f"{name}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text.encode() + bytes(8))
        yield f"{name}.safetensors", says
    (folder / "length.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    yield "length.safetensors", "it is truncated"


def _torch(folder: Path, trap: Path) -> Iterator[tuple[str, ...]]:
    import torch

    tensors: dict[str, tuple[Any, str]] = {
        "expanded": ({"w": torch.zeros(1).expand(800_000_000)}, "the limit is 1.0 GB"),
        "overlaps": (
            {f"w{i}": torch.zeros(10_000_000 + i)[:1].expand(50_000_000 + i) for i in range(6)},
            "the limit is",
        ),
        "sparse": ({"w": torch.eye(3).to_sparse()}, "sparse"),
        "integer-key": ({1: torch.ones(2)}, "the name 1 is a int, not a text"),
        "int64": ({"w": torch.tensor([2**24 + 1])}, "1 of 1 values change"),
        "code": ({"w": Calls(open, str(trap / "torch"), "w")}, "refused, reading it could run any code"),
        "complex": ({"w": torch.ones(2, dtype=torch.complex64)}, "weights are floating-point arrays"),
    }
    for name, (stored, says) in tensors.items():
        torch.save(stored, folder / f"{name}.pt")
        yield f"{name}.pt", says
    torch.save({"w": torch.ones(3)}, folder / "bomb.pt")
    claim(folder / "bomb.pt", BOMB)
    yield "bomb.pt", "the limit is 1.0 GB"
    torch.save({"w": torch.ones(3)}, folder / "twice.pt")
    with zipfile.ZipFile(folder / "twice.pt", "a") as archive:
        archive.writestr(archive.infolist()[0].filename, b"")
    yield "twice.pt", "two members of the archive have the name"


def _onnx(folder: Path) -> Iterator[tuple[str, ...]]:
    import onnx

    def model(*tensors: Any) -> Any:
        graph = onnx.helper.make_graph([], "g", [], [], list(tensors))
        return onnx.helper.make_model(graph)

    good = onnx.numpy_helper.from_array(GOOD, "w")
    huge = onnx.TensorProto(name="w", data_type=1, dims=[2**20, 2**20], raw_data=b"abcd")
    wrong = onnx.TensorProto(name="w", data_type=1, dims=[5], raw_data=b"abcd")
    kind = onnx.TensorProto(name="w", data_type=99, dims=[1], raw_data=b"abcd")
    outside = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=1)
    outside.external_data.add(key="location", value="../../../../../../etc/passwd")
    missing = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=1)
    missing.external_data.add(key="location", value="missing.bin")
    cases = {
        "twice": ((good, good), "two initializers have the name 'w'"),
        "huge": ((huge,), "the limit is 1.0 GB"),
        "wrong": ((wrong,), "not a readable .onnx file"),
        "kind": ((kind,), "not a readable .onnx file"),
        "outside": ((outside,), "outside of the folder of the file"),
        "missing": ((missing,), "there is no such file beside it"),
        "good": ((good,), ""),
    }
    for name, (tensors, says) in cases.items():
        (folder / f"{name}.onnx").write_bytes(model(*tensors).SerializeToString())
        yield f"{name}.onnx", says
