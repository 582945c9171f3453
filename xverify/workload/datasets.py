"""Batches for training: inputs with their labels, drawn from a seed or read from a data set's own files.

A target holds one class number for every row of logits, so for classification one an item, and for a language model one a token:
the token that comes next.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UsageError
from . import probe
from .keys import case_key
from .spec import BATCH, ModelSpec, TensorSpec

TARGET = "target"

IMAGES, LABELS = 2051, 2049  # magic numbers of IDX files: bytes in three axes, bytes in one
CIFAR_IMAGE = (3, 32, 32)
CIFAR_RECORD = 1 + math.prod(CIFAR_IMAGE)
END = "<eos>"

MNIST, CIFAR, PTB = "MNIST-format IDX files", "CIFAR-10 binary files", "PTB text"
# Format -> its files, each with the names that it goes by.
FORMATS = {
    MNIST: [
        [f"train-images{dot}idx3-ubyte{packed}" for packed in ("", ".gz") for dot in "-."],
        [f"train-labels{dot}idx1-ubyte{packed}" for packed in ("", ".gz") for dot in "-."],
    ],
    CIFAR: [[f"{folder}data_batch_{n}.bin" for folder in ("", "cifar-10-batches-bin/")] for n in range(1, 6)],
    PTB: [["ptb.train.txt"]],
}


@dataclass(frozen=True)
class Batches:
    """What training runs on.

    arrays: ``"case/input"`` -> array in canonical layout, and ``"case/target"`` -> int64 labels, of the output's shape
        without its last axis. kind: where they come from, one phrase for the report.
    """

    arrays: dict[str, np.ndarray]
    kind: str


def synthetic(spec: ModelSpec, batch: int, seed: int, cases: int) -> Batches:
    """The inputs of ``probe.inputs`` with labels uniform over the classes; a language model's tokens with the next token.

    UsageError: the model's output holds no classes, or a token has none.
    """
    classes, shape = _target(spec)
    size = TensorSpec(shape).sized(batch)
    tokens = _tokens(spec, shape)
    arrays = probe.inputs(spec, batch, seed, cases)
    for case in range(cases):
        if tokens is None:
            labels = probe._generator(seed, f"case {case}: {TARGET}").integers(0, classes, size)
        else:
            low, high = _range(spec.inputs[tokens])
            if low < 0 or high > classes:
                raise UsageError(
                    f"input {tokens!r} takes tokens from {low} to {high - 1}, and the output has the classes 0 to "
                    f"{classes - 1}: the next token is the label, so give the output in spec.py a class for every token"
                )
            drawn = probe._generator(seed, f"case {case}: {tokens}").integers(low, high, (size[0], size[1] + 1))
            arrays[case_key(case, tokens)] = drawn[:, :-1].astype(spec.inputs[tokens].dtype, order="C")
            labels = drawn[:, 1:].copy()
        arrays[case_key(case, TARGET)] = labels
    return Batches(arrays, f"synthetic, seed {seed}")


def read(directory: Path, spec: ModelSpec, batch: int, seed: int, cases: int) -> Batches:
    """Batches from the data set in this folder, known by its files: MNIST and its likes, CIFAR-10, or PTB.

    Images are float in [0, 1], in an order shuffled by the seed, the same in every epoch. Words keep the order of the text, in as
    many parallel tracks as a batch has items, whatever the seed.
    UsageError: no such files, a file that is cut short or of another format, labels without a class, or data that do not fit
    the model.
    """
    data_format, paths = _find(directory)
    if data_format == PTB:
        return _text(paths[0], spec, batch, cases)
    classes, _ = _target(spec)
    pixels, labels = (_mnist if data_format == MNIST else _cifar)(paths, classes)
    item, count = pixels.shape[1:], len(labels)
    (name, tensor), (output, logits) = _only(spec.inputs, "input"), _only(spec.outputs, "output")
    _check_fit(f"{directory} holds images of {'×'.join(map(str, item))}", name, tensor, "f", item, (math.prod(item),))
    _check_fit(f"{directory} holds one label an image", output, logits, "f", (classes,))
    if count < batch:
        raise UsageError(f"{directory} holds {count} items, and a batch takes {batch}: name a smaller --batch")
    order = probe._generator(seed, "order").permutation(count)
    arrays = {}
    for case in range(cases):
        chosen = order[np.arange(case * batch, (case + 1) * batch) % count]
        scaled = np.divide(pixels[chosen], 255, dtype=np.float32)
        arrays[case_key(case, name)] = scaled.reshape(tensor.sized(batch)).astype(tensor.dtype, copy=False)
        arrays[case_key(case, TARGET)] = labels[chosen]
    how = f"{count} items, order shuffled by seed {seed}, values scaled to [0, 1]"
    return Batches(arrays, f"{data_format} in {directory}: {how}")


def check_labels(labels: np.ndarray, classes: int, where: str) -> None:
    """UsageError unless every label is in 0 to classes - 1; it names the first that is not. ``where`` begins the message."""
    strange = np.argwhere((labels < 0) | (labels >= classes))
    if len(strange):
        item = tuple(map(int, strange[0]))
        raise UsageError(
            f"{where}: item {', '.join(map(str, item))} has the label {labels[item]}, and the model has the classes 0 to "
            f"{classes - 1}: give its output as many classes as the data, or name other data"
        )


def _target(spec: ModelSpec) -> tuple[int, tuple[int | str, ...]]:
    """The number of classes, and the shape of the labels."""
    name, tensor = _only(spec.outputs, "output")
    *shape, classes = tensor.shape
    # A layout such as NCHW has its classes elsewhere, and the last axis would be taken for them.
    elsewhere = tensor.layout is not None and "C" in tensor.layout[:-1]
    if BATCH not in shape or not isinstance(classes, int) or elsewhere:
        layout = f" in layout {tensor.layout}" if elsewhere else ""
        raise UsageError(
            f"output {name!r} is {_shown(tensor.shape)}{layout}: training needs a batch axis, and the classes on the last "
            f"axis, e.g. ({BATCH}, 10)"
        )
    if TARGET in spec.inputs:
        raise UsageError(f"an input is called {TARGET!r}, as the labels are: give it another name in spec.py")
    return classes, tuple(shape)


def _tokens(spec: ModelSpec, shape: tuple[int | str, ...]) -> str | None:
    """The input whose next tokens are the labels: of a language model, the integers that have the labels' shape (N, T)."""
    if spec.task == "language-model" and len(shape) == 2 and shape[0] == BATCH:
        for name, tensor in spec.inputs.items():
            if tensor.shape == shape and np.dtype(tensor.dtype).kind in "iu":
                return name
    return None


def _range(tensor: TensorSpec) -> tuple[int, int]:
    """The range of an integer input: low, and one above the highest."""
    assert tensor.low is not None
    assert tensor.high is not None
    return int(tensor.low), int(tensor.high)


def _only(tensors: Mapping[str, TensorSpec], what: str) -> tuple[str, TensorSpec]:
    if len(tensors) != 1:
        raise UsageError(f"the model has {len(tensors)} {what}s, {', '.join(tensors)}: its batches need exactly one")
    return next(iter(tensors.items()))


def _shown(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _check_fit(found: str, name: str, tensor: TensorSpec, kinds: str, *shapes: tuple[int | str, ...]) -> None:
    """UsageError unless the tensor is of one of these dtype kinds, and of one of these shapes behind its batch axis."""
    batched = [(BATCH, *shape) for shape in shapes]
    if tensor.shape not in batched or np.dtype(tensor.dtype).kind not in kinds:
        raise UsageError(
            f"{found}, for {'float' if kinds == 'f' else 'integers'} {' or '.join(map(_shown, batched))}; the model's {name!r} "
            f"is {tensor.dtype} {_shown(tensor.shape)}: name other data or another model"
        )


def _find(directory: Path) -> tuple[str, list[Path]]:
    """The format of the data set in this folder, and its files in the order of FORMATS."""
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such folder; name one that holds {' or '.join(FORMATS)}")
    complete, lacking = {}, []
    for name, files in FORMATS.items():
        paths = [next((directory / n for n in names if (directory / n).is_file()), None) for names in files]
        found = [path for path in paths if path is not None]
        if len(found) == len(files):
            complete[name] = found
        lacking.append(f"{name} (no {', '.join(names[0] for names, path in zip(files, paths) if path is None)})")
    if len(complete) == 1:
        return next(iter(complete.items()))
    if complete:
        raise UsageError(f"{directory} holds {' and '.join(complete)}: give each data set a folder of its own")
    held = sorted(path.name for path in directory.iterdir())
    more = f" and {len(held) - 10} more" if len(held) > 10 else ""
    raise UsageError(
        f"{directory} holds no data set: looked for {'; '.join(lacking)}; it holds {', '.join(held[:10]) or 'nothing'}{more}. "
        "Name the folder that holds all files of one"
    )


def _content(path: Path) -> bytes:
    """A file's bytes, decompressed if its name ends in .gz. Of a compressed file that is cut short, what is there."""
    try:
        content = path.read_bytes()
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(content) if path.suffix == ".gz" else content
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except zlib.error as error:
        raise UsageError(f"{path} is no sound gzip file ({error}): fetch it again") from None


def _check_size(path: Path, expected: int, content: bytes) -> None:
    if len(content) != expected:
        unpacked = " when decompressed" if path.suffix == ".gz" else ""
        raise UsageError(f"{path}: expected {expected} bytes{unpacked}, found {len(content)}: fetch it again")


def _idx(path: Path, magic: int, axes: int) -> np.ndarray:
    """The uint8 array of an IDX file: magic number and one size an axis, big-endian, then the bytes."""
    content = _content(path)
    header, found = 4 * (1 + axes), int.from_bytes(content[:4], "big")
    if len(content) >= 4 and found != magic:
        raise UsageError(f"{path}: its magic number is {found}, this file's is {magic}: fetch it again, or rename it")
    if len(content) < header:
        _check_size(path, header, content)
    shape = np.frombuffer(content[4:header], ">u4").tolist()
    _check_size(path, header + math.prod(shape), content)
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _mnist(paths: list[Path], classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (items, 1, rows, columns) in uint8, labels (items,) in int64."""
    pixels, numbers = _idx(paths[0], IMAGES, 3), _idx(paths[1], LABELS, 1).astype(np.int64)
    if len(pixels) != len(numbers):
        held = f"{paths[0]} holds {len(pixels)} images, {paths[1]} {len(numbers)} labels"
        raise UsageError(f"{held}: fetch both from the same place")
    check_labels(numbers, classes, str(paths[1]))
    return pixels[:, None], numbers


def _cifar(paths: list[Path], classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (items, 3, 32, 32) in uint8, labels (items,) in int64, of records of a label and the planes R, G, B."""
    contents = [_content(path) for path in paths]
    # All five files hold equally many records, so a file that is cut at a record's end is found too.
    size = CIFAR_RECORD * math.ceil(max(map(len, contents)) / CIFAR_RECORD)
    for path, content in zip(paths, contents):
        _check_size(path, size, content)
        check_labels(np.frombuffer(content, np.uint8)[::CIFAR_RECORD], classes, str(path))
    records = np.frombuffer(b"".join(contents), np.uint8).reshape(-1, CIFAR_RECORD)
    return records[:, 1:].reshape(-1, *CIFAR_IMAGE), records[:, 0].astype(np.int64)


def _text(path: Path, spec: ModelSpec, batch: int, cases: int) -> Batches:
    """Words as numbers by falling frequency, then by the alphabet; the next T words of every track, each with the word after it."""
    classes, _ = _target(spec)
    (name, tensor), (output, logits) = _only(spec.inputs, "input"), _only(spec.outputs, "output")
    sequence: tuple[int | str, ...] = tensor.shape[1:] if len(tensor.shape) == 2 else ("T",)
    _check_fit(f"{path} holds words", name, tensor, "iu", sequence)
    _check_fit(f"{path} holds a label a word", output, logits, "f", (*sequence, classes))
    try:
        lines = _content(path).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 text ({error}): fetch it again") from None
    words = [word for line in lines for word in (*line.split(), END)]
    counts = Counter(words)
    numbers = {word: n for n, word in enumerate(sorted(counts, key=lambda word: (-counts[word], word)))}
    low, high = _range(tensor)
    if low > 0 or len(numbers) > min(high, classes):
        raise UsageError(
            f"{path} holds {len(numbers)} distinct words, numbered from 0; the model's {name!r} takes {low} to {high - 1}, "
            f"and its output has {classes} classes: raise both in spec.py, or name other data"
        )
    steps = tensor.sized(batch)[1]
    length = len(words) // batch
    epoch = (length - 1) // steps
    if epoch < 1:
        raise UsageError(
            f"{path} holds {len(words)} words, and one batch of {batch} takes {batch * (steps + 1)}: name a smaller --batch"
        )
    tracks = np.array([numbers[word] for word in words[: batch * length]], np.int64).reshape(batch, length)
    arrays = {}
    for case in range(cases):
        start = case % epoch * steps
        arrays[case_key(case, name)] = np.ascontiguousarray(tracks[:, start : start + steps], tensor.dtype)
        arrays[case_key(case, TARGET)] = np.ascontiguousarray(tracks[:, start + 1 : start + steps + 1])
    how = f"{len(words)} words, {len(numbers)} distinct, in the text's order in {batch} parallel tracks"
    return Batches(arrays, f"{PTB} {path}: {how}")
