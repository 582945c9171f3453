"""Measures the noise of an output again, with more samples, where the output is just beyond the limit.

A few samples tell the noise of most models well. Where a few activations are near a bend, such as the ends of a hard sigmoid, the
noise of one sample may be several times that of another: sixteen samples of mobilenet-v3-small, for a large input, were 2.4e-6 to
8.7e-6. Few samples may then all be small. More samples are taken before a file is accused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..results.verdicts import Verdict
from ..verdict.limits import DRIFT_RHO
from ..worker.messages_graph import EvaluateGraph
from ..worker.process import Worker
from .judge import Judged
from .meaning import Meaning, more_perturbed
from .subject import Opened

SAMPLES = 8  # perturbed evaluations
ENOUGH = 20.0  # seconds of evaluating after which no further case is begun
SEEDS = 100  # what is added to the seed, so that the samples are new ones


def doubtful_cases(found: Iterable[Judged]) -> tuple[int, ...]:
    """The input cases with an output that is just beyond the limit."""
    cases = {
        output.case
        for judged in found
        for output in judged.error.tensors
        if output.verdict is not None and output.verdict > Verdict.EQUAL
        if output.noise_ratio is not None and output.noise_ratio <= DRIFT_RHO
    }
    return tuple(sorted(cases))


def measured_again(
    meaning: Meaning, opened: Opened, inputs: Path, graphs: Worker | None, seed: int, cases: tuple[int, ...]
) -> Meaning:
    """The meaning of a file with floors from more samples for these cases. Noise that was added to them stays added.

    inputs: the array file of the input cases. graphs: the worker that evaluates ONNX graphs.
    A meaning without an evaluation in float64, and that of a sequence of steps, is returned as it is.
    """
    if meaning.floors is None or meaning.precision != "float64" or opened.state:
        return meaning
    if not meaning.modelled:
        floors = more_perturbed(meaning, opened, inputs, seed + SEEDS, SAMPLES)
    elif graphs is not None:
        path, file = opened.worker.folder / "again.npz", str(opened.path.resolve())
        question = EvaluateGraph(file, str(inputs), str(path), seed + SEEDS, ENOUGH, samples=SAMPLES, cases=cases)
        floors = {key: each.floor for key, each in graphs.ask(question).floors.items()}
    else:
        return meaning
    floors = {**meaning.floors, **{key: floor for key, floor in floors.items() if key in meaning.floors}}
    added = meaning.rounding_floors
    if added is not None:
        before = meaning.floors
        added = {
            key: math.sqrt(max(0.0, floor**2 - before.get(key, 0.0) ** 2) + floors.get(key, 0.0) ** 2)
            for key, floor in added.items()
        }
    return replace(meaning, floors=floors, rounding_floors=added)
