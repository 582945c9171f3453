"""What the spec of a decoder must say, so that its sequences can be computed token by token."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from .fields import INTEGERS
from .spec import BATCH, ModelFolder

SHORTEST = 8  # tokens of a sequence, of which the first half are the prompt


@dataclass(frozen=True)
class Sequences:
    """The tokens that a decoder takes, and the values that it returns for each of them.

    tokens, output: the names of the input and of the first output. length: number of tokens of a sequence.
    more: the names of further inputs, such as the states of an encoder, which every call of a sequence is given.
    """

    tokens: str
    output: str
    length: int
    more: tuple[str, ...] = ()


def sequences_of(folder: ModelFolder) -> Sequences:
    """The sequences of a model folder. Raises UsageError where its spec describes no decoder."""
    spec, file = folder.spec, folder.path / "spec.py"
    wanted = (
        f"{file}: --task decode takes an input of tokens, such as TensorSpec(({BATCH!r}, 24), 'int64', low=0, high=1000), and "
        f"an output for every token, such as TensorSpec(({BATCH!r}, 24, 1000))"
    )
    tokens, tensor = next(iter(spec.inputs.items()))
    output, returned = next(iter(spec.outputs.items()))
    if tensor.dtype not in INTEGERS or len(tensor.shape) != 2 or tensor.shape[0] != BATCH:
        raise UsageError(f"{wanted}; its input {tokens!r} is {tensor.dtype} of shape {tensor.shape}")
    if len(returned.shape) != 3 or returned.shape[:2] != tensor.shape:
        raise UsageError(
            f"{wanted}; its input {tokens!r} has shape {tensor.shape}, and its output {output!r} {returned.shape}"
        )
    more = [name for name in spec.inputs if name != tokens]
    for name in more:
        shape = spec.inputs[name].shape
        if shape[:1] != (BATCH,) or shape == tensor.shape:
            raise UsageError(
                f"{wanted}; its further input {name!r} has shape {shape}: every call of a sequence is given the whole of a further "
                f"input, so it needs the batch axis {BATCH!r} first, and may not have a value for every token; masks and "
                "positions are made by xverify"
            )
    length = int(tensor.shape[1])
    if length < SHORTEST:
        raise UsageError(
            f"{file}: a sequence of {length} tokens is too short for --task decode: write {SHORTEST} at least"
        )
    return Sequences(tokens, output, length, tuple(more))
