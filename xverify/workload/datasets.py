"""Batches for training: inputs with their labels, drawn from a seed or read from the files of a data set.

A spec says what its targets are. Without any, the target holds one class number for each row of logits: for classification one for
each item, for a language model one for each token, namely the next token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import reading
from ..errors import UsageError
from . import cifar10, mnist, probe, ptb
from .keys import case_key
from .losses import TARGET
from .objective import terms_of
from .spec import BATCH, ModelSpec, TensorSpec

FORMATS: tuple[ModuleType, ...] = (mnist, cifar10, ptb)
MOST_LISTED = 10  # names of files that a message lists


@dataclass(frozen=True)
class Batches:
    """The data that training runs on.

    arrays: ``"case/input"`` -> array in canonical layout, and ``"case/target"`` -> int64 labels in the shape of the output without
        its last axis, or ``"case/name"`` -> array for every target of the spec.
    kind: a phrase for the report about where the data come from.
    """

    arrays: dict[str, NDArray[Any]]
    kind: str


def synthetic(spec: ModelSpec, batch: int, seed: int, cases: int) -> Batches:
    """The inputs of ``probe.inputs`` with random targets: those of the spec or, where it names none, labels.

    Labels are uniform over the classes. For a language model the tokens are drawn, and the label of a token is the next token.
    Raises UsageError when the model's output has no classes, or not one for each token.
    """
    if spec.targets:
        arrays = {**probe.inputs(spec, batch, seed, cases), **probe.targets(spec, batch, seed, cases)}
        return Batches(arrays, f"synthetic, seed {seed}")
    classes, shape = _target(spec)
    size = TensorSpec(shape).sized(batch)
    tokens = _tokens(spec, shape)
    arrays = probe.inputs(spec, batch, seed, cases)
    if tokens is None:
        for case in range(cases):
            labels = probe.generator(seed, f"case {case}: {TARGET}").integers(0, classes, size)
            for label in _ignored(spec):
                probe.draw_ignored(labels, label, probe.generator(seed, f"case {case}: {TARGET}, ignored"))
            arrays[case_key(case, TARGET)] = labels
        return Batches(arrays, f"synthetic, seed {seed}")
    low, high = spec.inputs[tokens].integers
    if low < 0 or high > classes:
        raise UsageError(
            f"input {tokens!r} takes tokens from {low} to {high - 1}, and the output has the classes 0 to "
            f"{classes - 1}: the label is the next token, so give the output in spec.py a class for every token"
        )
    for case in range(cases):
        drawn = probe.generator(seed, f"case {case}: {tokens}").integers(low, high, (size[0], size[1] + 1))
        arrays[case_key(case, tokens)] = drawn[:, :-1].astype(spec.inputs[tokens].dtype, order="C")
        arrays[case_key(case, TARGET)] = drawn[:, 1:].copy()
    return Batches(arrays, f"synthetic, seed {seed}")


def read(directory: Path, spec: ModelSpec, batch: int, seed: int, cases: int) -> Batches:
    """Batches from the data set in this folder, whose format is recognised by the names of its files.

    Images are float in [0, 1]; the seed decides their order, which is the same in every epoch. Words keep the order of the text,
    in as many parallel tracks as a batch has items; the seed has no effect on them.
    Raises UsageError when there are no such files, a file is damaged, a label has no class, or the data do not fit the model.
    """
    data_format, paths = _find(directory)
    if spec.targets:
        raise UsageError(
            f"{directory} holds labels, and spec.py names the targets {', '.join(spec.targets)}: data files give the labels of a "
            "model whose spec names no targets; leave out --data, or targets"
        )
    if data_format is ptb:
        return _text(paths[0], spec, batch, cases)
    return _images(directory, data_format, paths, spec, batch, seed, cases)


def _images(
    directory: Path, data_format: ModuleType, paths: list[Path], spec: ModelSpec, batch: int, seed: int, cases: int
) -> Batches:
    classes, _ = _target(spec)
    images = data_format.read(paths, classes)
    item, count = images.pixels.shape[1:], len(images.labels)
    (name, tensor), (output, logits) = _only(spec.inputs, "input"), _only(spec.outputs, "output")
    _check_fit(f"{directory} holds images of {'×'.join(map(str, item))}", name, tensor, "f", item, (math.prod(item),))
    _check_fit(f"{directory} holds one label an image", output, logits, "f", (classes,))
    if count < batch:
        raise UsageError(f"{directory} holds {count} items, and a batch takes {batch}: name a smaller --batch")
    order = probe.generator(seed, "order").permutation(count)
    arrays = {}
    for case in range(cases):
        chosen = order[np.arange(case * batch, (case + 1) * batch) % count]
        scaled = np.divide(images.pixels[chosen], 255, dtype=np.float32)
        arrays[case_key(case, name)] = scaled.reshape(tensor.sized(batch)).astype(tensor.dtype, copy=False)
        arrays[case_key(case, TARGET)] = images.labels[chosen]
    how = f"{count} items, order shuffled by seed {seed}, values scaled to [0, 1]"
    return Batches(arrays, f"{data_format.NAME} in {directory}: {how}")


def _text(path: Path, spec: ModelSpec, batch: int, cases: int) -> Batches:
    classes, _ = _target(spec)
    (name, tensor), (output, logits) = _only(spec.inputs, "input"), _only(spec.outputs, "output")
    sequence: tuple[int | str, ...] = tensor.shape[1:] if len(tensor.shape) == 2 else ("T",)
    _check_fit(f"{path} holds words", name, tensor, "iu", sequence)
    _check_fit(f"{path} holds a label a word", output, logits, "f", (*sequence, classes))
    words = ptb.read(path)
    low, high = tensor.integers
    if low > 0 or words.distinct > min(high, classes):
        raise UsageError(
            f"{path} holds {words.distinct} distinct words, numbered from 0; the model's {name!r} takes {low} to {high - 1}, "
            f"and its output has {classes} classes: raise both in spec.py, or name other data"
        )
    steps = tensor.sized(batch)[1]
    count = len(words.numbers)
    length = count // batch
    epoch = (length - 1) // steps
    if epoch < 1:
        raise UsageError(
            f"{path} holds {count} words, and one batch of {batch} takes {batch * (steps + 1)}: name a smaller --batch"
        )
    tracks = words.numbers[: batch * length].reshape(batch, length)
    arrays = {}
    for case in range(cases):
        start = case % epoch * steps
        arrays[case_key(case, name)] = np.ascontiguousarray(tracks[:, start : start + steps], tensor.dtype)
        arrays[case_key(case, TARGET)] = np.ascontiguousarray(tracks[:, start + 1 : start + steps + 1])
    how = f"{count} words, {words.distinct} distinct, in the text's order in {batch} parallel tracks"
    return Batches(arrays, f"{ptb.NAME} {path}: {how}")


def _target(spec: ModelSpec) -> tuple[int, tuple[int | str, ...]]:
    """The number of classes, and the shape of the labels."""
    name, tensor = _only(spec.outputs, "output", "name targets in spec.py, or return the logits alone")
    *shape, classes = tensor.shape
    # In a layout such as NCHW the classes are not on the last axis.
    elsewhere = tensor.layout is not None and "C" in tensor.layout[:-1]
    if BATCH not in shape or not isinstance(classes, int) or elsewhere:
        layout = f" in layout {tensor.layout}" if elsewhere else ""
        raise UsageError(
            f"output {name!r} is {_shown(tensor.shape)}{layout}: training needs a batch axis, and the classes on the last "
            f"axis, e.g. ({BATCH}, 10); for other outputs name targets and loss in spec.py"
        )
    if TARGET in spec.inputs:
        raise UsageError(
            f"an input is called {TARGET!r}, which is the name of the labels: give it another name in spec.py"
        )
    return classes, tuple(shape)


def _ignored(spec: ModelSpec) -> list[int]:
    """The label that the loss ignores, as a list; [] where it ignores none."""
    return [term.ignore_index for term in terms_of(spec) if term.ignore_index is not None][:1]


def _tokens(spec: ModelSpec, shape: tuple[int | str, ...]) -> str | None:
    """The input whose next tokens are the labels: an integer input of a language model with the labels' shape (N, T)."""
    if spec.task == "language-model" and len(shape) == 2 and shape[0] == BATCH:
        for name, tensor in spec.inputs.items():
            if tensor.shape == shape and np.dtype(tensor.dtype).kind in "iu":
                return name
    return None


def _only(tensors: Mapping[str, TensorSpec], what: str, advice: str = "") -> tuple[str, TensorSpec]:
    """The only tensor of these. what: "input" or "output". advice: what else to do. Raises UsageError when there are several."""
    if len(tensors) != 1:
        more = f"; {advice}" if advice else ""
        raise UsageError(
            f"the model has {len(tensors)} {what}s, {', '.join(tensors)}: its batches need exactly one{more}"
        )
    return next(iter(tensors.items()))


def _shown(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _check_fit(found: str, name: str, tensor: TensorSpec, kinds: str, *shapes: tuple[int | str, ...]) -> None:
    """Raise UsageError unless the tensor has one of these dtype kinds and, after its batch axis, one of these shapes.

    found: what the data are, as the beginning of the message. kinds: numpy's letters, e.g. "iu".
    """
    batched = [(BATCH, *shape) for shape in shapes]
    if tensor.shape not in batched or np.dtype(tensor.dtype).kind not in kinds:
        raise UsageError(
            f"{found}, for {'float' if kinds == 'f' else 'integers'} {' or '.join(map(_shown, batched))}; the model's {name!r} "
            f"is {tensor.dtype} {_shown(tensor.shape)}: name other data or another model"
        )


def _find(directory: Path) -> tuple[ModuleType, list[Path]]:
    """The format of the data set in this folder, and its files in the order of FILES."""
    if not directory.is_dir():
        names = " or ".join(each.NAME for each in FORMATS)
        raise UsageError(f"{directory}: no such folder; name one that holds {names}")
    complete, looked_for = {}, []
    for each in FORMATS:
        paths = [next(filter(None, (reading.present(directory / n) for n in names)), None) for names in each.FILES]
        absent = [names[0] for names, path in zip(each.FILES, paths) if path is None]
        if not absent:
            complete[each] = [path for path in paths if path is not None]
        looked_for.append(f"{each.NAME} (no {', '.join(absent)})")
    if len(complete) == 1:
        return next(iter(complete.items()))
    if complete:
        names = " and ".join(each.NAME for each in complete)
        raise UsageError(f"{directory} holds {names}: give each data set a folder of its own")
    present = sorted(path.name for path in directory.iterdir())
    more = f" and {len(present) - MOST_LISTED} more" if len(present) > MOST_LISTED else ""
    raise UsageError(
        f"{directory} holds no data set: looked for {'; '.join(looked_for)}; it holds "
        f"{', '.join(present[:MOST_LISTED]) or 'nothing'}{more}. Name the folder that holds all files of one"
    )
