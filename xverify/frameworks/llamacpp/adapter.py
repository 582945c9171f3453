"""llama.cpp, by the package xllamacpp: the model of a GGUF file, whose weights are those of the file.

Quantised matrices are given to llama.cpp in float32, with the values that their numbers stand for: its products of such matrices
round their other operand to eight bits, which no noise floor covers.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Failed, NotInstalled, Unsupported
from xverify.framework.adapter import Array, Framework, Source
from xverify.framework.decoding import Decoder
from xverify.framework.runner import OnArrays
from xverify.frameworks.llamacpp.decoding import LlamaDecoder
from xverify.frameworks.llamacpp.library import PACKAGE, Context, Library, Model
from xverify.weights import gguf, gguf_model, readable

# Architectures with GELU, of those that are read.
GELU = frozenset(("gemma", "gemma2", "gemma3", "phi2", "falcon", "starcoder2", "gptneox"))


@dataclass
class Opened:
    """A model with the weights of its file.

    kinds: the types of its matrices but float32. length: number of tokens of a sequence, from when a mode has made its callable.
    """

    path: Path
    model: Model
    weights: Mapping[str, Array]
    kinds: tuple[str, ...]
    length: int = 0


def eager(framework: Adapter, opened: Opened, example: tuple[Any, ...]) -> Any:
    """Compute all tokens of all sequences in one call, with keys and values in float32."""
    if len(example) != 1:
        raise Unsupported(f"llama.cpp takes tokens alone, and the spec names {len(example)} inputs")
    rows, opened.length = example[0].shape
    context = Context(opened.model, rows, opened.length, framework.threads)

    def run(tokens: Array) -> Array:
        context.clear()
        places = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
        return context.compute(tokens, places, np.ones_like(tokens))

    return run


class Adapter(OnArrays, Framework):
    name = "llamacpp"
    needs = {PACKAGE: PACKAGE}
    suffix = ".gguf"
    isolated = "llamacpp"
    modes = {"eager": eager}
    implicit_mode = "eager"
    captured_mode = ""
    streams_weights = True
    one_size = "a context of llama.cpp has room for the tokens of its example"
    decodes = True

    def __init__(self, threads: int, device: str) -> None:
        found = importlib.util.find_spec(f"{PACKAGE}.{PACKAGE}")
        if found is None or found.origin is None:
            raise NotInstalled(f"{PACKAGE} has no library")
        self.threads, self.library = threads, Library(Path(found.origin))

    def define(self, source: Source, options: Mapping[str, Any]) -> Opened:
        path = source.folder / f"{source.file}{self.suffix}"
        with readable(path):
            tensors = gguf.Tensors(path)
        unread = [f"{name} ({kind})" for name, kind in tensors.unread.items()]
        if unread:
            raise Unsupported(f"{path.name}: the types of these tensors are not read: {', '.join(unread[:5])}")
        if tensors.facts.get("architecture") in GELU:
            raise Unsupported(
                f"{path.name}: llama.cpp looks up GELU, which {tensors.facts['architecture']} has, in a table in float16, and no "
                "noise floor covers its rounding"
            )
        with tempfile.TemporaryDirectory() as space:
            plain = gguf_model.in_float32(tensors, path, Path(space) / path.name)
            model = Model(self.library, plain)
        kinds = tuple(sorted(set(tensors.types.values()) - {"F32"}))
        return Opened(path, model, gguf_model.hugging_face(tensors, tensors.facts), kinds)

    def load_weights(self, model: Opened, arrays: Mapping[str, Array]) -> None:
        """Compare the weights with those of the file, which stay. Raises Failed where one differs."""
        wrong = []
        for name in arrays:
            count = int((np.asarray(arrays[name]) != model.weights[name]).sum())
            if count:
                wrong.append(f"{name} ({count} of {arrays[name].size} values)")
        if wrong:
            more = f" and {len(wrong) - 3} more" * (len(wrong) > 3)
            raise Failed(
                f"the weights of {model.path.name} are not those of the run: {', '.join(wrong[:3])}{more}. xverify weights diff "
                f"{model.path.name} FILE says whether each is right; --weights {model.path.name} judges what is computed with them"
            )

    def save_weights(self, model: Opened) -> dict[str, Array]:
        return {name: np.asarray(model.weights[name]) for name in model.weights}

    def weights_of(self, model: Opened) -> Mapping[str, Array]:
        return model.weights

    def capture(self, model: Opened, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Any) -> Any:
        return eager(self, model, inputs)(*inputs)

    def decoder(self, model: Opened, inputs: Mapping[str, str | None], output: str) -> Decoder:
        return LlamaDecoder(model.model, model.length, self.threads, model.kinds)

    def environment(self) -> dict[str, object]:
        return {"llamacpp": self.library.version, "threads": self.threads, "keys and values": "float32"}
