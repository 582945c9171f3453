"""Measures the noise of an output again, with more samples, where the output is just beyond the limit.

A few samples tell the noise of most models well. Where a few activations are near a bend, such as the ends of a hard sigmoid, the
noise of one sample may be several times that of another: sixteen samples of mobilenet-v3-small, for a large input, were 2.4e-6 to
8.7e-6. Few samples may then all be small, and a reference without float64 has a single one. More samples are taken before a file is
accused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..processes.worker import Worker
from ..verdict.judgement import doubtful
from ..verdict.ratios import Floor
from .judge import Judged
from .meaning import Floors, Meaning, evaluated, more_perturbed
from .subject import Opened

SAMPLES = 8  # perturbed evaluations
ENOUGH = 20.0  # seconds of evaluating within which further cases must end
SEEDS = 100  # what is added to the seed, so that the samples are new ones


def doubtful_cases(found: Iterable[Judged]) -> tuple[int, ...]:
    """The input cases with an output that is just beyond the limit."""
    return tuple(sorted({case for judged in found for case in doubtful(judged.error)}))


def measured_again(
    meaning: Meaning, opened: Opened, inputs: Path, graphs: Worker | None, seed: int, cases: tuple[int, ...]
) -> Meaning:
    """The meaning of a file with floors from more samples for these cases. Noise that was added to them stays added.

    inputs: the array file of the input cases. graphs: the worker that evaluates ONNX graphs.
    A meaning of unknown noise, and that of a sequence of steps, is returned as it is.
    """
    if meaning.floors is None or opened.state:
        return meaning
    floors: Floors
    if not meaning.modelled:
        floors = more_perturbed(meaning, opened, inputs, seed + SEEDS, SAMPLES)
    elif graphs is not None:
        floors = evaluated(opened, inputs, graphs, "again", seed + SEEDS, ENOUGH, samples=SAMPLES, cases=cases)[1]
    else:
        return meaning
    again = {key: floors[key] for key in floors if key in meaning.floors}
    known = {key: again[key] if key in again else meaning.floors[key] for key in meaning.floors}
    added = meaning.rounding_floors
    if added is not None:
        added = {key: _exchanged(added[key], meaning.floors.get(key, 0.0), known.get(key, 0.0)) for key in added}
    return replace(meaning, floors=known, rounding_floors=added)


def _exchanged(floor: Floor, before: Floor, after: Floor) -> Floor:
    """A floor in which one part is exchanged for another."""
    with np.errstate(invalid="ignore"):
        rest = np.sqrt(np.maximum(0.0, np.square(floor) - np.square(before)))
    found: Floor = np.hypot(rest, after)
    return found
