"""Computes a file on input cases that belong to a reference, which may call its inputs and outputs by other names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import Failed, SubjectError, UsageError
from ..framework.modelfile import Tensor
from ..weights import npz
from ..weights.canonical import Array, digest
from ..workload.keys import case_key
from . import cases as cases_module
from .arrays import load
from .cases import described
from .matching import Matching, content, decide, matchings
from .meaning import Meaning
from .options import CheckSettings
from .subject import Opened, as_reference, compute, computed_tensors, write_inputs

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
    """

    inputs: Path
    own: Mapping[str, Array]
    outputs: Mapping[str, Array]
    names: Mapping[str, str]
    matched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def make_cases(tensors: Sequence[Tensor], vocabulary: Mapping[str, int], settings: CheckSettings) -> Cases:
    """The input cases for these inputs: the user's arrays, or drawn ones. Raises UsageError."""
    if settings.inputs is not None:
        return _given(Path(settings.inputs), tensors)
    if not tensors:
        return Cases({}, 1, ("the file has no inputs",), ())
    inputs, notes = cases_module.settle(tensors, settings.shape or {}, vocabulary, settings.input_range)
    cases_module.check_size(inputs)
    arrays = cases_module.make(inputs, settings.seed)
    settled = tuple(Tensor(each.name, each.shape, each.dtype) for each in inputs)
    return Cases(arrays, len(cases_module.KINDS), cases_module.KINDS, settled, tuple(notes))


def _given(path: Path, tensors: Sequence[Tensor]) -> Cases:
    """The cases in a file of arrays, which are called NAME or CASE/NAME."""
    arrays = load(path, "--inputs")
    named = {key if key.partition("/")[0].isdigit() else case_key(0, key): array for key, array in arrays.items()}
    count = 1 + max((int(key.partition("/")[0]) for key in named), default=0)
    known = {tensor.name for tensor in tensors}
    for case in range(count):
        names = {key.partition("/")[2] for key in named if int(key.partition("/")[0]) == case}
        if names != known:
            lacks, more = sorted(known - names), sorted(names - known)
            problem = f"has no array {', '.join(lacks)}" if lacks else f"has {', '.join(more)}, which is no input"
            raise UsageError(f"--inputs {path}: case {case} {problem}. Inputs: {', '.join(sorted(known))}")
    return Cases(named, count, (f"from {path.name}",) * count, sized(named))


def sized(arrays: Mapping[str, Array]) -> tuple[Tensor, ...]:
    """The tensors of case 0, with their sizes."""
    return tuple(
        Tensor(key[2:], array.shape, array.dtype.name) for key, array in arrays.items() if key.startswith("0/")
    )


def compute_alone(opened: Opened, cases: Cases) -> Computed:
    """Compute a file on its own input cases."""
    inputs = opened.worker.folder / "inputs.npz"
    npz.save_file(dict(cases.arrays), inputs)
    outputs = compute(opened, inputs, "outputs")
    return Computed(inputs, outputs, outputs, {tensor.name: tensor.name for tensor in sized(outputs)})


def compute_matched(opened: Opened, cases: Cases, reference: Meaning, settings: CheckSettings) -> Computed:
    """Compute a file on the input cases of a reference.

    Where names and shapes allow several matchings, all are tried on one case, and the outputs decide.
    Raises UsageError when they do not, and SubjectError when the file cannot be computed.
    """
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
            failure = error
            continue
        for outputs in matchings("output", theirs, computed_tensors(tried), given, layout):
            possible.append((inputs, outputs))
            errors.append(_error(tried, outputs, reference))
    if not possible:
        assert failure is not None
        raise failure
    index, says = decide(possible, errors)
    inputs, outputs = possible[index]
    if not outputs.pairs:
        mine = ", ".join(f"{each.name} ({each.dtype} {described(each.shape)})" for each in computed_tensors(tried))
        right = ", ".join(f"{each.name} ({each.dtype} {described(each.shape)})" for each in theirs)
        raise Failed(
            f"none of its outputs, {mine}, can belong to one of the reference, {right}; see --map and --layout"
        )
    path = opened.worker.folder / "inputs.npz"
    write_inputs(cases.arrays, inputs, path)
    own = compute(opened, path, "outputs")
    notes = [says] if says else []
    notes += [f"input {name} of the reference has no partner in {opened.label}" for name in inputs.missing]
    notes += [
        f"output {name} of {opened.label} has no partner in the reference, and is not compared"
        for name in outputs.extra
    ]
    matched = [str(pair) for pair in (*inputs.pairs, *outputs.pairs) if pair.order or pair.reference != pair.own]
    names = {pair.reference: pair.own for pair in outputs.pairs}
    named = as_reference(own, outputs, cases.count)
    return Computed(path, own, named, names, tuple(matched), outputs.missing, tuple(notes))


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
