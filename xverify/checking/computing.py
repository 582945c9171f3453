"""Computes a file on input cases that belong to a reference, which may call its inputs and outputs by other names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import Failed, SubjectError
from ..framework.modelfile import Tensor
from ..weights import npz
from ..weights.canonical import Array, digest
from . import sequence
from .cases import described
from .matching import IMAGE, Matching, content, decide, matchings
from .meaning import Meaning
from .options import CheckSettings
from .subject import Opened, as_reference, compute, computed_tensors, write_inputs

INPUTS = "inputs.npz"  # the file of the input cases, in the folder of a worker
FIRST = 0  # the case by whose outputs a matching is chosen; it is a random one


@dataclass(frozen=True)
class Cases:
    """The input cases of a check.

    arrays: "case/name" -> array. count: number of cases. kinds: what each is, in words.
    tensors: the inputs with every size known. notes: what was guessed.
    """

    arrays: Mapping[str, Array]
    count: int
    kinds: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of all arrays."""
        return digest(dict(self.arrays))


@dataclass(frozen=True)
class Computed:
    """What a file computed.

    inputs: the input cases under its own names. own: "case/name" -> output with its own names.
    outputs: the outputs under the reference's names and with its order of axes.
    names: name of an output in the reference -> its name in the file.
    matched: the pairs of inputs and of outputs that differ in name or order of axes, in words.
    missing: outputs of the reference that the file lacks. notes: how the matching was found, and what has no partner.
    state: in a sequence, input -> the output of the step before that it is given, with the file's own names.
    is_turned: whether an image goes in with its axes in another order.
    orders: output of the reference -> the order of axes that it has in the file; only those with another one.
    """

    inputs: Path
    own: Mapping[str, Array]
    outputs: Mapping[str, Array]
    names: Mapping[str, str]
    matched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    state: Mapping[str, str] = field(default_factory=dict)
    is_turned: bool = False
    orders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def sized(arrays: Mapping[str, Array]) -> tuple[Tensor, ...]:
    """The tensors of case 0, with their sizes."""
    return tuple(
        Tensor(key[2:], array.shape, array.dtype.name) for key, array in arrays.items() if key.startswith("0/")
    )


def compute_alone(opened: Opened, cases: Cases) -> Computed:
    """Compute a file on its own input cases."""
    inputs = opened.worker.folder / INPUTS
    npz.save_file(dict(cases.arrays), inputs)
    outputs = compute(opened, inputs, "outputs")
    names = {tensor.name: tensor.name for tensor in sized(outputs)}
    return Computed(inputs, outputs, outputs, names, state=opened.state)


def misdeclared(
    opened: Opened, declared: Mapping[str, tuple[int | str | None, ...]], outputs: Mapping[str, Array]
) -> Iterator[str]:
    """A sentence on each output that has another shape than the file declares.

    declared: the shapes that the graph declares, where the signature has those that the runtime found. outputs: what it computed.
    """
    found = {tensor.name: tensor.shape for tensor in sized(outputs)}
    known = {tensor.name: tensor.shape for tensor in opened.signature.outputs if tensor.shape is not None}
    for name, shape in {**known, **declared}.items():
        own = found.get(name)
        if own is None:
            continue
        pairs = zip(shape, own)
        if len(shape) != len(own) or any(isinstance(size, int) and size != right for size, right in pairs):
            yield (
                f"output {name} of {opened.label} is declared as {described(shape)}, and the runtime returns "
                f"{described(own)}"
            )


def compute_matched(opened: Opened, cases: Cases, reference: Meaning, settings: CheckSettings) -> Computed:
    """Compute a file on the input cases of a reference.

    Where names and shapes allow several matchings, all are tried on one case, and the outputs decide.
    Raises UsageError when they do not, and SubjectError when the file cannot be computed.
    """
    inputs, outputs, says = _decided(opened, cases, reference, settings)
    opened = sequence.partners(opened, inputs, outputs, settings)
    kept = sequence.kept_inside(inputs, outputs, settings)
    path = opened.worker.folder / INPUTS
    write_inputs(cases.arrays, inputs, path)
    own = compute(opened, path, "outputs")
    notes = [says] if says else []
    notes += [f"input {name} of the reference has no partner in {opened.label}" for name in inputs.missing]
    notes += [
        f"output {name} of {opened.label} has no partner in the reference, and is not compared"
        for name in outputs.extra
    ]
    matched = [str(pair) for pair in (*inputs.pairs, *outputs.pairs) if pair.order or pair.reference != pair.own]
    return Computed(
        path,
        own,
        as_reference(own, outputs, cases.count),
        names={pair.reference: pair.own for pair in outputs.pairs},
        matched=tuple(matched),
        missing=tuple(each for each in outputs.missing if each not in kept),
        notes=tuple(notes),
        state=opened.state,
        is_turned=any(pair.order for pair in inputs.pairs),
        orders={pair.reference: pair.order for pair in outputs.pairs if pair.order},
    )


def _decided(
    opened: Opened, cases: Cases, reference: Meaning, settings: CheckSettings
) -> tuple[Matching, Matching, str]:
    """The matchings of inputs and outputs that have the smallest error on one case, and a note where others were close."""
    given, layout = settings.map or {}, settings.layout
    theirs = sized(reference.outputs)
    possible: list[tuple[Matching, Matching]] = []
    errors: list[float] = []
    failure: SubjectError | None = None
    for index, inputs in enumerate(matchings("input", cases.tensors, opened.signature.inputs, given, layout)):
        if inputs.extra:
            raise Failed(
                f"the reference has no input for {', '.join(inputs.extra)}; give arrays for them with --inputs, or say which "
                f"belong together with --map"
            )
        try:
            tried = _try(opened, cases, inputs, index)
        except SubjectError as error:
            failure = failure or error  # that of the reference's own order of axes
            continue
        for outputs in _in_order(matchings("output", theirs, computed_tensors(tried), given, layout), inputs):
            possible.append((inputs, outputs))
            errors.append(_error(tried, outputs, reference))
    if not possible:
        raise failure or Failed("none of its inputs can belong to those of the reference; see --map and --layout")
    index, says = decide(possible, errors)
    inputs, outputs = possible[index]
    if not outputs.pairs:
        mine = ", ".join(f"{each.name} ({each.dtype} {described(each.shape)})" for each in computed_tensors(tried))
        right = ", ".join(f"{each.name} ({each.dtype} {described(each.shape)})" for each in theirs)
        raise Failed(
            f"none of its outputs, {mine}, can belong to one of the reference, {right}; see --map and --layout"
        )
    return inputs, outputs, says


def _in_order(outputs: Sequence[Matching], inputs: Matching) -> list[Matching]:
    """The matchings of outputs in which the axes are turned only where a correct conversion turns them.

    That is where an image that goes in is turned, too, or where no image goes in and an image comes out.
    """
    ranks = [each.rank for each in inputs.pairs]
    if any(pair.order for pair in inputs.pairs):
        return list(outputs)
    images = any(rank >= IMAGE for rank in ranks)
    kept = [
        replace(
            each,
            pairs=tuple(
                pair if pair.rank >= IMAGE and not images else replace(pair, order=None) for pair in each.pairs
            ),
        )
        for each in outputs
    ]
    return list(dict.fromkeys(kept))


def _try(opened: Opened, cases: Cases, inputs: Matching, index: int) -> Mapping[str, Array]:
    """The outputs of the first case by one matching of the inputs."""
    path = opened.worker.folder / f"inputs-{index}.npz"
    first = {key: array for key, array in cases.arrays.items() if key.startswith(f"{FIRST}/")}
    write_inputs(first, inputs, path)
    return compute(opened, path, f"tried-{index}")


def _error(tried: Mapping[str, Array], outputs: Matching, reference: Meaning) -> float:
    """The relative error of the first case's outputs by one matching; infinity where nothing is comparable."""
    named = as_reference(tried, outputs, 1)
    pairs = [(reference.outputs[key], array) for key, array in named.items() if array.dtype.kind == "f"]
    return content(pairs) if pairs else math.inf
