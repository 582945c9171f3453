"""Computes a file on input cases that belong to a reference, which may call its inputs and outputs by other names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import Failed, SubjectError, UsageError
from ..framework.modelfile import Tensor
from ..weights import npz
from ..weights.canonical import Array, digest
from ..workload.keys import case_key
from . import cases as cases_module
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


def make_cases(
    tensors: Sequence[Tensor], vocabulary: Mapping[str, int], settings: CheckSettings, size: int | None = None
) -> Cases:
    """The input cases for these inputs: the user's arrays, or drawn ones. size: see ``settle``. Raises UsageError."""
    given, count = _given(Path(settings.inputs), tensors) if settings.inputs is not None else ({}, 0)
    if count:
        says = f"from {Path(str(settings.inputs)).name}"
        named = {key.partition("/")[2] for key in given}
        if named == {tensor.name for tensor in tensors}:
            return Cases(given, count, (says,) * count, sized(given))
    fixed = [
        Tensor(each.name, given[case_key(0, each.name)].shape, each.dtype) if case_key(0, each.name) in given else each
        for each in tensors
    ]
    inputs, notes = cases_module.settle(fixed, settings.shape or {}, vocabulary, settings.input_range, size)
    arrays = cases_module.make(inputs, settings.seed)
    if count:
        # The user's arrays in every case; the last ones where there are fewer than cases.
        arrays |= {
            case_key(case, name): given[case_key(min(case, count - 1), name)]
            for case in range(len(cases_module.KINDS))
            for name in named
        }
        notes = [note for note in notes if note.partition(":")[0] not in named]
        drawn = ", ".join(each.name for each in tensors if each.name not in named)
        notes.append(f"{', '.join(sorted(named))}: {says}; drawn: {drawn}")
    settled = tuple(Tensor(each.name, each.shape, each.dtype) for each in inputs)
    return Cases(arrays, len(cases_module.KINDS), cases_module.KINDS, settled, tuple(notes))


def _given(path: Path, tensors: Sequence[Tensor]) -> tuple[dict[str, Array], int]:
    """(the arrays of a file, which are called NAME or CASE/NAME, as "case/name" -> array; the number of cases).

    Every case has arrays for the same inputs.
    """
    try:
        arrays = npz.load_file(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"--inputs {path}: {error}") from None
    named = {key if key.partition("/")[0].isdigit() else case_key(0, key): array for key, array in arrays.items()}
    count = 1 + max((int(key.partition("/")[0]) for key in named), default=-1)
    known = {tensor.name for tensor in tensors}
    given = {key.partition("/")[2] for key in named}
    if not given:
        raise UsageError(f"--inputs {path}: there is no array in it. Inputs: {', '.join(sorted(known))}")
    for case in range(count):
        names = {key.partition("/")[2] for key in named if int(key.partition("/")[0]) == case}
        lacks, more = sorted(given - names), sorted(names - known)
        if lacks or more:
            problem = f"has {', '.join(more)}, which is no input" if more else f"has no array {', '.join(lacks)}"
            raise UsageError(f"--inputs {path}: case {case} {problem}. Inputs: {', '.join(sorted(known))}")
    return named, count


def sized(arrays: Mapping[str, Array]) -> tuple[Tensor, ...]:
    """The tensors of case 0, with their sizes."""
    return tuple(
        Tensor(key[2:], array.shape, array.dtype.name) for key, array in arrays.items() if key.startswith("0/")
    )


def guess_cases(
    tensors: Sequence[Tensor], vocabulary: Mapping[str, int], settings: CheckSettings, opened: Opened
) -> tuple[Cases, Computed]:
    """The input cases for a file and what it computes. Where it cannot be computed with a guessed shape, others are tried.

    Raises UsageError, and SubjectError when no shape fits.
    """
    cases = make_cases(tensors, vocabulary, settings)
    try:
        return cases, compute_alone(opened, cases)
    except Failed as error:
        failure = error
    guesses = [note.rpartition(cases_module.GUESSED)[2] for note in cases.notes if cases_module.GUESSED in note]
    if not guesses:
        raise failure
    for size in cases_module.OTHER_SIZES:
        other = make_cases(tensors, vocabulary, settings, size)
        with suppress(Failed):
            return other, compute_alone(opened, other)
    shapes = ", ".join(f"{cases_module.GUESSED}{guess}" for guess in guesses)
    raise Failed(
        f"{failure}. The file leaves sizes open: {shapes} was tried first, then other sizes; give sizes that fit with --shape"
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
