"""The C interface of llama.cpp, in the library of the package xllamacpp.

The classes of this package serve whole answers over HTTP; its library also exports the functions of ``llama.h``, which are called
here: they compute given tokens at given positions of several sequences, and return the logits of each.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int32, c_ubyte, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Failed, Unsupported
from xverify.framework.runner import Array

PACKAGE = "xllamacpp"
ERROR = 4  # level of a message in the log of llama.cpp
LATER = 256  # bytes for fields of a structure behind those that are used here


class ModelParameters(Structure):
    """Parameters of a model; the defaults are used as they are."""

    _fields_ = [("all", c_ubyte * (72 + LATER))]


class ContextParameters(Structure):
    """The first fields of the parameters of a context, which are followed by others."""

    _fields_ = [
        ("n_ctx", c_uint32), ("n_batch", c_uint32), ("n_ubatch", c_uint32), ("n_seq_max", c_uint32), ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32), ("n_outputs_max_per_seq", c_uint32), ("n_threads", c_int32), ("n_threads_batch", c_int32),
        ("ctx_type", c_int32), ("rope_scaling_type", c_int32), ("pooling_type", c_int32), ("attention_type", c_int32),
        ("flash_attn_type", c_int32), ("rope_freq_base", c_float), ("rope_freq_scale", c_float), ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float), ("yarn_beta_fast", c_float), ("yarn_beta_slow", c_float), ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float), ("cb_eval", c_void_p), ("cb_eval_user_data", c_void_p), ("type_k", c_int32),
        ("type_v", c_int32), ("later", c_ubyte * LATER),
    ]  # fmt: skip


class Batch(Structure):
    """Tokens of one call."""

    _fields_ = [
        ("n_tokens", c_int32), ("token", c_void_p), ("embd", c_void_p), ("pos", c_void_p), ("n_seq_id", c_void_p),
        ("seq_id", c_void_p), ("logits", c_void_p),
    ]  # fmt: skip


# Defaults of the fields, by which another layout of the structure is noticed.
DEFAULTS = {
    "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "ctx_type": 0, "rope_scaling_type": -1, "pooling_type": -1,
    "attention_type": -1, "flash_attn_type": -1, "rope_freq_base": 0.0, "rope_freq_scale": 0.0, "yarn_ext_factor": -1.0,
    "defrag_thold": -1.0, "cb_eval": None, "type_k": 1, "type_v": 1,
}  # fmt: skip
NO_FLASH_ATTENTION, FLOAT32 = 0, 0
LOG = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
# Function -> (type of the result, types of the arguments).
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (LOG, c_void_p)),
    "llama_model_default_params": (ModelParameters, ()),
    "llama_context_default_params": (ContextParameters, ()),
    "llama_model_load_from_file": (c_void_p, (c_char_p, ModelParameters)),
    "llama_model_free": (None, (c_void_p,)),
    "llama_model_get_vocab": (c_void_p, (c_void_p,)),
    "llama_model_has_decoder": (c_bool, (c_void_p,)),
    "llama_model_has_encoder": (c_bool, (c_void_p,)),
    "llama_vocab_n_tokens": (c_int32, (c_void_p,)),
    "llama_init_from_model": (c_void_p, (c_void_p, ContextParameters)),
    "llama_free": (None, (c_void_p,)),
    "llama_set_n_threads": (None, (c_void_p, c_int32, c_int32)),
    "llama_decode": (c_int32, (c_void_p, Batch)),
    "llama_get_logits_ith": (POINTER(c_float), (c_void_p, c_int32)),
    "llama_get_memory": (c_void_p, (c_void_p,)),
    "llama_memory_clear": (None, (c_void_p, c_bool)),
    "llama_memory_seq_rm": (c_bool, (c_void_p, c_int32, c_int32, c_int32)),
    "llama_memory_seq_cp": (None, (c_void_p, c_int32, c_int32, c_int32, c_int32)),
}


class Library:
    """llama.cpp. path: its library. Raises Unsupported where it has another interface than the one that is known here."""

    def __init__(self, path: Path) -> None:
        self.version = importlib.metadata.version(PACKAGE)
        self.problems: list[str] = []
        loaded = ctypes.CDLL(str(path))
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(loaded, name, None)
            if function is None:
                raise Unsupported(f"{PACKAGE} {self.version} does not export {name}: {self._remedy()}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("llama_"), function)
        self.note = LOG(self._note)  # kept, because the library calls it later
        self.log_set(self.note, None)
        self.backend_init()
        defaults = self.context_default_params()
        for field, expected in DEFAULTS.items():
            if getattr(defaults, field) != expected:
                raise Unsupported(
                    f"{PACKAGE} {self.version} has other parameters of a context than those known here: {field} is "
                    f"{getattr(defaults, field)} by default, not {expected}: {self._remedy()}"
                )

    def __getattr__(self, name: str) -> Any:  # the functions, which ``__init__`` sets
        raise AttributeError(name)

    def _remedy(self) -> str:
        return "for a version that is known, type: xverify env create llamacpp"

    def _note(self, level: int, text: bytes, _: Any) -> None:
        if level == ERROR:
            self.problems = [*self.problems[-4:], text.decode("utf-8", "replace").strip()]

    def said(self) -> str:
        """The last error in the log, in brackets; "" without one."""
        return f" ({self.problems[0]})" if self.problems else ""


class Model:
    """A model of a GGUF file. words: number of tokens that it knows."""

    def __init__(self, library: Library, path: Path) -> None:
        self.library = library
        library.problems.clear()
        self.handle = library.model_load_from_file(str(path).encode(), library.model_default_params())
        if not self.handle:
            raise Failed(f"llama.cpp {library.version} cannot load {path.name}{library.said()}")
        if library.model_has_encoder(self.handle) or not library.model_has_decoder(self.handle):
            raise Unsupported(f"{path.name} has an encoder; xverify runs models of llama.cpp that are decoders alone")
        self.words = int(library.vocab_n_tokens(library.model_get_vocab(self.handle)))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.model_free(self.handle)


class Context:
    """Sequences of a model, with the keys and values of their tokens in float32.

    rows: number of sequences. length: the most tokens of each. lengths: number of tokens that each has.
    """

    def __init__(self, model: Model, rows: int, length: int, threads: int) -> None:
        self.model, self.library, self.rows, self.length = model, model.library, rows, length
        given = self.library.context_default_params()
        given.n_seq_max = 2 * rows  # the second half is for sequences that change places
        given.n_ctx = given.n_seq_max * length
        given.n_batch = given.n_ubatch = rows * length
        given.n_outputs_max = given.n_outputs_max_per_seq = 0  # as many as tokens
        given.n_threads = given.n_threads_batch = threads
        given.flash_attn_type, given.type_k, given.type_v = NO_FLASH_ATTENTION, FLOAT32, FLOAT32
        self.library.problems.clear()
        self.handle = self.library.init_from_model(model.handle, given)
        if not self.handle:
            raise Failed(f"llama.cpp makes no context for {rows} sequences of {length} tokens{self.library.said()}")
        self.memory = self.library.get_memory(self.handle)
        self.lengths = [0] * rows

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.free(self.handle)

    def use_threads(self, number: int) -> None:
        """Compute with this number of threads from now on."""
        self.library.set_n_threads(self.handle, number, number)

    def clear(self) -> None:
        """Forget all tokens."""
        self.library.memory_clear(self.memory, True)
        self.lengths = [0] * self.rows

    def compute(self, tokens: Array, positions: Array, counts: Array) -> Array:
        """The logits of further tokens of every sequence: (sequences, tokens, words) float32; 0 where none is computed.

        tokens, positions, counts: (sequences, tokens); counts says which are tokens and which padding.
        """
        row, column = np.nonzero(counts)
        number = len(row)
        token, position, sequence = (
            np.ascontiguousarray(each, np.int32) for each in (tokens[row, column], positions[row, column], row)
        )
        ones, wanted = np.ones(number, np.int32), np.ones(number, np.int8)
        first = sequence.ctypes.data
        of_token = (c_void_p * number)(*range(first, first + 4 * number, 4))
        batch = Batch(
            number, token.ctypes.data, None, position.ctypes.data, ones.ctypes.data, ctypes.addressof(of_token),
            wanted.ctypes.data,
        )  # fmt: skip
        self.library.problems.clear()
        status = self.library.decode(self.handle, batch)
        if status:
            raise Failed(f"llama_decode returns {status} for {number} tokens{self.library.said()}")
        found = np.zeros((*tokens.shape, self.model.words), np.float32)
        for index, place in enumerate(zip(row, column)):
            values = self.library.get_logits_ith(self.handle, index)
            found[place] = np.ctypeslib.as_array(values, (self.model.words,))
        self.lengths = [length + int(count) for length, count in zip(self.lengths, (counts != 0).sum(1))]
        return found

    def take_back(self, tokens: int) -> None:
        """Forget the last tokens of every sequence. Raises Unsupported for a model that keeps a state of all tokens."""
        self.lengths = [length - tokens for length in self.lengths]
        for sequence, length in enumerate(self.lengths):
            if not self.library.memory_seq_rm(self.memory, sequence, length, -1):
                raise Unsupported("llama_memory_seq_rm refuses: this model keeps a state of all tokens")

    def reorder(self, order: Sequence[int]) -> None:
        """Let the sequences change places. order: the old place of each."""
        memory, library = self.memory, self.library
        for sequence in range(self.rows):
            library.memory_seq_cp(memory, sequence, self.rows + sequence, -1, -1)
            library.memory_seq_rm(memory, sequence, -1, -1)
        for sequence, old in enumerate(order):
            library.memory_seq_cp(memory, self.rows + old, sequence, -1, -1)
        for sequence in range(self.rows):
            library.memory_seq_rm(memory, self.rows + sequence, -1, -1)
        self.lengths = [self.lengths[old] for old in order]
