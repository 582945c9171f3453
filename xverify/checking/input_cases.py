"""Chooses the input cases of a check: the user's arrays, drawn ones, or both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..errors import Failed, UsageError
from ..framework.modelfile import Tensor
from ..weights.canonical import Array
from ..workload.keys import case_key
from ..workload.wholes import Whole
from . import cases as cases_module
from . import sequence
from .arrays import check_fits, load, unlike
from .computing import FIRST, Cases, Computed, compute_alone, sized
from .decoder_cases import TOKENS, misfit
from .options import CheckSettings
from .subject import Opened

CASE = re.compile(r"(0|[1-9]\d{0,8})/.", re.ASCII)  # the beginning of a name that has its case before it
LARGE = 64 * 2**20  # bytes of all input cases together
Ranges = Mapping[str, tuple[float, float]]
Wholes = Mapping[str, Whole]


def make_cases(
    tensors: Sequence[Tensor],
    vocabulary: Mapping[str, int],
    settings: CheckSettings,
    size: int | None = None,
    wholes: Wholes | None = None,
    batch: int = cases_module.BATCH,
    ranges: Ranges | None = None,
    tokens: int = TOKENS,
) -> Cases:
    """The input cases for these inputs. size, wholes, batch, ranges, tokens: see ``settle``. Raises UsageError."""
    given = _given(Path(settings.inputs), tensors, settings) if settings.inputs is not None else {}
    named = {key.partition("/")[2] for key in given}
    count = 1 + max((int(key.partition("/")[0]) for key in given), default=-1)
    if named and named == {tensor.name for tensor in tensors}:
        return Cases(given, count, (f"from {Path(str(settings.inputs)).name}",) * count, sized(given))
    fixed = [
        Tensor(each.name, given[case_key(0, each.name)].shape, each.dtype) if each.name in named else each
        for each in tensors
    ]
    if not tensors:
        return Cases({}, 1, ("the file has no inputs",), ())
    shapes, texts = (
        settings.shape or {},
        [each for each in fixed if each.name in named and each.dtype in cases_module.TEXTS],
    )
    drawable = [each for each in fixed if each not in texts]
    single = settings.steps is None  # the steps of a sequence have a state of one size
    inputs, notes = cases_module.settle(
        drawable, shapes, vocabulary, settings.input_range, size, wholes, batch, ranges, single, tokens
    )
    cases_module.check_size(inputs)
    cases = drawn(inputs, notes, settings)
    cases = replace(cases, tensors=(*cases.tensors, *texts))
    return _with_given(cases, given, named, count, Path(str(settings.inputs))) if named else cases


def drawn(inputs: Sequence[cases_module.Input], notes: Sequence[str], settings: CheckSettings) -> Cases:
    """Random input cases for these inputs: one of each kind, or the steps of a sequence. notes: what was guessed."""
    settled = tuple(Tensor(each.name, each.shape, each.dtype) for each in inputs)
    if settings.steps is None:
        arrays = cases_module.make(inputs, settings.seed)
        return Cases(arrays, len(cases_module.KINDS), cases_module.KINDS, settled, tuple(notes))
    arrays = sequence.begin(cases_module.make(inputs, settings.seed, ("random",) * settings.steps), settings)
    return Cases(arrays, settings.steps, (sequence.KIND,) * settings.steps, settled, tuple(notes))


def _with_given(cases: Cases, given: Mapping[str, Array], named: set[str], count: int, path: Path) -> Cases:
    """Drawn cases in which some inputs have the arrays of the user. The last array stands for missing ones."""
    arrays = dict(cases.arrays) | {
        case_key(case, name): given[case_key(min(case, count - 1), name)]
        for case in range(cases.count)
        for name in named
    }
    others = ", ".join(each.name for each in cases.tensors if each.name not in named)
    notes = [note for note in cases.notes if note.partition(":")[0] not in named]
    notes.append(f"{', '.join(sorted(named))}: from {path.name}; drawn: {others}")
    return Cases(arrays, cases.count, cases.kinds, cases.tensors, tuple(notes))


def _given(path: Path, tensors: Sequence[Tensor], settings: CheckSettings) -> dict[str, Array]:
    """The arrays of a file, which are called NAME or CASE/NAME, as "case/name" -> array. Every case has the same inputs."""
    arrays = load(path, "--inputs")
    named: dict[str, Array] = {}
    for key, array in arrays.items():
        if key.partition("/")[0].isdigit() and not CASE.match(key):
            raise UsageError(
                f"--inputs {path}: the array {key[:60]!r}: a case is written as a number without zeros before it, such as 0/NAME"
            )
        own = key if CASE.match(key) else case_key(0, key)
        if own in named:
            raise UsageError(f"--inputs {path}: it holds both {own} and {own.partition('/')[2]}; keep one of the two")
        named[own] = array
    named = sequence.completed(named, settings, path)
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
    check_fits(named, tensors, f"--inputs {path}")
    return named


def guess_cases(
    tensors: Sequence[Tensor],
    vocabulary: Mapping[str, int],
    settings: CheckSettings,
    opened: Opened,
    wholes: Wholes | None = None,
    ranges: Ranges | None = None,
) -> tuple[Cases, Computed]:
    """The input cases for a file and what it computes. Where it cannot be computed with a guessed shape, others are tried.

    vocabulary, wholes, ranges: see ``settle``.
    Raises UsageError, and SubjectError when no shape fits.
    """
    cases = make_cases(tensors, vocabulary, settings, wholes=wholes, ranges=ranges)
    try:
        return cases, _computed(opened, cases, settings)
    except Failed as error:
        failure = error
    if cases_module.chosen(wholes):  # no file has to take every number, or every number of repetitions
        with suppress(Failed):
            return guess_cases(tensors, vocabulary, settings, opened, cases_module.narrower(wholes), ranges)
    given = unlike(cases.arrays, tensors) if settings.inputs is not None else ""
    if given:
        raise UsageError(f"--inputs {settings.inputs}: {given}")
    shapes = {each.name: each.shape for each in cases.tensors}
    unfit = misfit(tensors, shapes) if all(each.name in shapes for each in tensors) else ""
    if unfit:
        option = f"--inputs {settings.inputs}" if settings.inputs is not None else "--shape"
        raise UsageError(f"{option}: {unfit}")
    chosen = f"chosen: {cases_module.GUESSED}"
    guesses = [note.rpartition(chosen)[2] for note in cases.notes if chosen in note]
    if not guesses:
        raise failure
    # Some files of decoders take several tokens behind a cache for one sequence only, and some take a single token there.
    batches = dict.fromkeys([*cases_module.fixed_batches(tensors), 1])
    sizes: list[tuple[int | None, int, int]] = [(None, batch, TOKENS) for batch in batches]
    sizes += [(None, cases_module.BATCH, 1), *((size, cases_module.BATCH, TOKENS) for size in cases_module.OTHER_SIZES)]
    for size, batch, tokens in sizes:
        other = make_cases(tensors, vocabulary, settings, size, wholes, batch, ranges, tokens)
        with suppress(Failed):
            return other, _computed(opened, other, settings)
    tried = ", ".join(f"{cases_module.GUESSED}{guess}" for guess in guesses)
    raise Failed(
        f"{failure}. The file leaves sizes open: {tried} was tried first, then other sizes; give sizes that fit with --shape"
    )


def _computed(opened: Opened, cases: Cases, settings: CheckSettings) -> Computed:
    opened = sequence.wired(opened, cases.arrays, settings)
    if settings.steps is None and sum(array.nbytes for array in cases.arrays.values()) > LARGE:
        # A size that does not fit fails on one case, too, and soon.
        arrays = {key: array for key, array in cases.arrays.items() if key.startswith(f"{FIRST}/")}
        compute_alone(opened, replace(cases, arrays=arrays, count=1, kinds=cases.kinds[:1]))
    return compute_alone(opened, cases)
