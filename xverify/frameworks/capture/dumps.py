"""Reads what other tools recorded of a model, and writes it as a capture: transformers' model debugger, MaxText's golden logits.

Both leave the weights out, so that they are those of the reference is not proven.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xverify import reading
from xverify.errors import UsageError, WeightsError, first_line
from xverify.frameworks.capture.xverify_recorder import FORMAT, LOWER, Store
from xverify.weights import safetensors
from xverify.weights.canonical import Array

TREE = "_debug_tree_FULL_TENSORS.json"  # ends the name of the file of transformers' debugger
LINES = ".jsonl"  # ends the name of a file of golden logits: one prompt a line
TOKENS, LOGITS = "tokens", "logits"  # what a line has
DATA = "data"  # the name of the array in each file of a tensor that transformers' debugger writes
Json = dict[str, Any]  # an object of JSON, which may have any values


def as_capture(path: Path, space: Path) -> Path:
    """A file of another tool as a capture in the folder ``space``; any other file is returned as it is. Raises UsageError."""
    if not (path.name.endswith(TREE) or path.suffix == LINES):
        return path
    wrong = reading.problem(path)
    if wrong:
        raise UsageError(f"{path}: {wrong}")
    target = space / f"{path.stem}.safetensors"
    with contextlib.closing(Store(str(target))) as store:
        try:
            made = _Tree(path, store).manifest() if path.name.endswith(TREE) else _golden(path, store)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            tool = "transformers' model debugger" if path.name.endswith(TREE) else "MaxText's golden logits"
            raise UsageError(f"{path}: not as {tool} writes it: {first_line(error)}") from None
        store.write(str(target), made)
    return target


def _manifest(store: Store, framework: str, note: str, **more: Any) -> Json:
    """The manifest of a capture without weights."""
    return {
        "format": FORMAT, "framework": framework, "environment": {}, "machine": {}, "layers": {}, "calls": [], "weights": {},
        "digests": store.digests, "rank": 0, "ranks": 1, "note": note, **more,
    }  # fmt: skip


def _golden(path: Path, store: Store) -> Json:
    """One call for each line of a file of golden logits: the tokens of a prompt, and the logits at each of them."""
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        found = json.loads(line)
        lacks = [name for name in (TOKENS, LOGITS) if name not in found]
        if lacks:
            raise UsageError(
                f"{path}: line {number} lacks {' and '.join(lacks)}; it has {', '.join(found) or 'nothing'}"
            )
        tokens, logits = np.asarray(found[TOKENS], np.int64), np.asarray(found[LOGITS], np.float32)
        logits = logits.reshape(-1, logits.shape[-1])
        if tokens.ndim != 1 or len(logits) != len(tokens):
            raise UsageError(f"{path}: line {number} has tokens {list(tokens.shape)} and logits {list(logits.shape)}")
        taken, given = (store.add(each[None]) for each in (tokens, logits))
        cases.append({"inputs": {TOKENS: taken}, "outputs": {LOGITS: given}, "dtypes": ""})
    if not cases:
        raise UsageError(f"{path}: it has no line")
    return _manifest(store, "MaxText", "golden logits; they do not say where they were computed", cases=cases)


class _Tree:
    """The tree of calls that transformers' model debugger writes, with its tensors in files beside it."""

    def __init__(self, path: Path, store: Store) -> None:
        self.path, self.store = path, store
        self.tree: Json = json.loads(path.read_text(encoding="utf-8"))
        self.root = str(self.tree["module_path"])
        self.lower = ""  # the lowest precision of an output

    def manifest(self) -> Json:
        """The manifest, when all arrays are in the store. Raises UsageError for a dump without the values of its tensors."""
        nodes = list(_below(self.tree))
        times = Counter(str(node["module_path"]) for node in nodes)
        # The files of a layer are written again by each of its calls.
        once = [node for node in nodes if node.get("outputs") is not None and times[str(node["module_path"])] == 1]
        calls = [call for call in map(self._call, once) if call["inputs"] and call["outputs"]]
        given = self.tree["inputs"]
        named = dict(enumerate(given.get("args", ()))) | given.get("kwargs", {})
        inputs = {str(name): self.store.add(array) for name, value in named.items() for array in self._arrays(value)}
        if not inputs:
            raise UsageError(f"{self.path}: the model was called without a tensor")
        case = {"inputs": inputs, "outputs": self._outputs(), "dtypes": self.lower}
        many = sorted(name for name, count in times.items() if count > 1)
        left = f"; {len(many)} layers were called more than once and are left out, such as {many[0]}" if many else ""
        return _manifest(
            self.store,
            "torch",
            f"a dump of transformers' model debugger, which does not say where it was made{left}",
            cases=[case],
            layers=dict.fromkeys((call["name"] for call in calls), "Module"),
            calls=calls,
        )

    def _call(self, node: Json) -> Json:
        kinds = {kind: [self.store.add(each) for each in self._arrays(node[kind])] for kind in ("inputs", "outputs")}
        name = str(node["module_path"]).removeprefix(f"{self.root}.")
        return {"case": 0, "name": name, "call": 0, **kinds, "input_dtype": "", "output_dtype": ""}

    def _arrays(self, value: Any) -> Iterator[Array]:
        """The tensors of a value of the tree, in order."""
        if isinstance(value, list):
            for each in value:
                yield from self._arrays(each)
        elif isinstance(value, Mapping) and {"shape", "dtype", "value"} <= set(value):
            if not isinstance(value["value"], str):
                raise UsageError(
                    f"{self.path}: it has the beginnings of its tensors as text: record it again with use_repr=False, "
                    "do_prune_layers=False, which writes whole tensors beside it"
                )
            yield self._read(self.path.parent / value["value"])
        elif isinstance(value, Mapping):
            for each in value.values():
                yield from self._arrays(each)

    def _read(self, file: Path) -> Array:
        try:
            place = safetensors.places(file)[DATA]
            return place.read(DATA)
        except (KeyError, OSError, WeightsError) as error:
            raise UsageError(
                f"{self.path}: the tensor {file.name} beside it cannot be read: {first_line(error)}"
            ) from None

    def _outputs(self) -> dict[str, str]:
        """The outputs of the model by name. The debugger takes them out of its tree, and their files stay."""
        begin, found = f"{self.root}_outputs", {}
        for file in sorted(self.path.parent.glob(f"{begin}*{safetensors.SUFFIXES[0]}")):
            dtype = safetensors.places(file)[DATA].dtype
            self.lower = self.lower or {"BF16": LOWER[0], "F16": LOWER[1]}.get(dtype, "")
            found[file.stem.removeprefix(begin).lstrip("_")] = self.store.add(self._read(file))
        if not found:
            raise UsageError(f"{self.path}: the outputs of the model, {begin}*.safetensors, are not beside it")
        return found


def _below(tree: Json) -> Iterator[Json]:
    """The calls below a call, in the order in which they ended."""
    for node in tree.get("children", ()):
        yield from _below(node)
        yield node
