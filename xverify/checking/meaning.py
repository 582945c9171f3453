"""What a file or a reference means: its outputs in the best precision that can be had, and the noise floor of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import NotInstalled, Refused, Unsupported
from ..messages.graph import EvaluateGraph, GraphEvaluated
from ..processes.worker import Worker
from ..results.layers import named
from ..verdict.limits import UNIT
from ..verdict.local import sampled
from ..verdict.ratios import Floor, first_finite, unmoved
from ..verdict.sizes import rms
from ..weights import npz
from ..weights.canonical import Array
from ..workload import probe
from ..workload.keys import only_case
from .subject import Opened, compute, compute_redrawn

Outputs = Mapping[str, Array]
Floors = Mapping[str, Floor]
SAMPLES = 4  # perturbed evaluations
# Outputs of fewer values than this together, or a residual of more noise floors than that, need all samples.
FEW_VALUES, NEAR = 10_000, 1.0
ENOUGH = 2.0  # seconds of evaluating in float64 within which further cases must end
PARTS, BESIDE = 4, 30  # of the seconds of --max-seconds, one part of four is for these cases; and seconds for all else


@dataclass(frozen=True)
class Meaning:
    """The outputs that a file is compared with.

    outputs: "case/name" -> exact array. float32: the same in the precision of a runtime; equal bits are IDENTICAL.
    floors: "case/name" -> the noise of every value, or one rms for all; None: unknown.
    modelled: whether the floors are those of every node; otherwise inputs and weights were perturbed only.
    precision: "float64" or "float32".
    says: where the outputs come from, as a phrase.
    cases: number of cases, the first ones, that were evaluated; None: all.
    rounding_floors: ``floors`` with the error of the nodes that the runtime approximates; None where there are none.
    unmoved: whether the outputs stay within the limits with other weights, so that no fault in a weight could show.
    undecided: "case/name" of an output -> the decision that it follows from and rounding may change, in words.
    overflows: case -> the first node whose values float16 cannot hold, in words; only cases with one.
    ties: see ``GraphEvaluated``.
    unreached: what no case reached, by node; see ``GraphEvaluated``.
    """

    outputs: Outputs
    float32: Outputs
    floors: Floors | None
    modelled: bool
    precision: str
    says: str
    cases: int | None = None
    rounding_floors: Floors | None = None
    unmoved: bool = False
    undecided: Mapping[str, str] = field(default_factory=dict)
    overflows: Mapping[str, str] = field(default_factory=dict)
    ties: Mapping[str, Sequence[tuple[int, int, int]]] = field(default_factory=dict)
    unreached: tuple[str, ...] = ()


def patience(left: float | None) -> float:
    """The seconds of evaluating in float64 within which further cases must end. left: of --max-seconds; None without a limit."""
    return ENOUGH if left is None else max(ENOUGH, left / PARTS)


def with_approximations(
    meaning: Meaning,
    opened: Opened,
    inputs: Path,
    graphs: Worker,
    seed: int,
    nodes: Sequence[str],
    enough: float = ENOUGH,
) -> Meaning:
    """The meaning with the noise of the nodes that the runtime approximates. The arguments are those of ``own_meaning``."""
    floors = evaluated(opened, inputs, graphs, "approximated", seed, enough, approximated=tuple(nodes))[1]
    # Fewer or more cases may fit into the time than before.
    return replace(meaning, rounding_floors={key: floors.get(key, own) for key, own in (meaning.floors or {}).items()})


def evaluated(
    opened: Opened, inputs: Path, graphs: Worker, name: str, seed: int, enough: float, **more: Any
) -> tuple[Outputs, Floors, GraphEvaluated]:
    """The outputs of an ONNX file in float64, their noise, and the reply. name: of the files. more: fields of ``EvaluateGraph``."""
    path, noise = (opened.worker.folder / f"{name}{part}.npz" for part in ("", "-noise"))
    reply = graphs.ask(EvaluateGraph(str(opened.graph), str(inputs), str(path), str(noise), seed, enough, **more))
    return npz.OnDisk(path), npz.OnDisk(noise), reply


def own_meaning(
    opened: Opened,
    inputs: Path,
    outputs: Outputs,
    graphs: Worker | None,
    seed: int,
    notes: list[str],
    left: float | None = None,
) -> Meaning | None:
    """The meaning of a file: its graph in float64. None where there is no evaluation of it in float64.

    inputs: its input cases. outputs: what its runtime computed from them. graphs: the worker that evaluates ONNX graphs.
    notes: gets a sentence when the evaluation failed. left: seconds of --max-seconds; None without a limit.
    """
    if opened.graph is not None and graphs is not None:
        try:
            return _evaluated(opened, inputs, outputs, graphs, seed, notes, patience(left))
        except Refused as error:
            notes.append(f"{opened.label} could not be evaluated in float64: {error}")
    try:
        exact = compute(opened, inputs, "float64", float64=True)
        floors = _perturbed_floors(opened, inputs, outputs, exact, seed)
    except (Unsupported, NotInstalled):
        return None
    says = f"{opened.path.name} in float64"
    meaning = Meaning(exact, Rounded(exact, outputs), floors, False, "float64", says)
    return replace(meaning, unmoved=_unmoved(opened, inputs, meaning, seed))


def _unmoved(opened: Opened, inputs: Path, meaning: Meaning, seed: int) -> bool:
    """Whether the first case with finite values stays within the limits when all weights are drawn anew.

    A file whose weights cannot be changed says nothing.
    """
    case = first_finite(meaning.outputs)
    if case is None:
        return False
    try:
        first = inputs.with_name(f"first-{inputs.name}")
        npz.save_file(only_case(npz.OnDisk(inputs), case), first)
        computed = compute_redrawn(opened, first, seed)
    except Refused:
        return False
    return computed is not None and unmoved(computed, case, meaning.outputs, meaning.floors or {})


def _perturbed_floors(opened: Opened, inputs: Path, outputs: Outputs, exact: Outputs, seed: int) -> dict[str, Floor]:
    """The floors by SAMPLES perturbed evaluations in float64; of many values by one, where no residual is near it.

    outputs: what the runtime computed.
    """
    few = sum(exact[key].size for key in exact) < FEW_VALUES
    computed: list[Outputs] = []
    while True:
        index = len(computed)
        computed.append(
            compute(opened, _perturbed(inputs, seed), f"perturbed-{index}", float64=True, perturb=seed + index)
        )
        floors = perturbation_floors(exact, computed)
        if len(computed) == SAMPLES or not (
            few or any(_residual(outputs, exact, key) > NEAR * rms(np.asarray(floors[key])) for key in floors)
        ):
            return floors


def more_perturbed(meaning: Meaning, opened: Opened, inputs: Path, seed: int, samples: int) -> dict[str, Floor]:
    """The floors of a meaning by so many perturbed evaluations in its own precision, of all cases."""
    changed, exact = _perturbed(inputs, seed), meaning.precision == "float64"
    found = [
        compute(opened, changed, f"again-{index}", float64=exact, perturb=seed + index) for index in range(samples)
    ]
    return perturbation_floors(meaning.outputs, found)


def _residual(outputs: Outputs, exact: Outputs, key: str) -> float:
    """rms of outputs - exact; 0.0 where their shapes differ, which is judged elsewhere."""
    return rms(outputs[key] - exact[key]) if key in outputs and outputs[key].shape == exact[key].shape else 0.0


def _evaluated(
    opened: Opened, inputs: Path, outputs: Outputs, graphs: Worker, seed: int, notes: list[str], enough: float
) -> Meaning:
    exact, floors, reply = evaluated(
        opened, inputs, graphs, "exact", seed, enough, state=dict(opened.state), witness=True
    )
    known = len({key.partition("/")[0] for key in outputs})
    if reply.cases < known:
        wanted = 10 * math.ceil((PARTS * known * reply.seconds + BESIDE) / 10)
        notes.append(
            f"{opened.label}: the first {reply.cases} of {known} input cases were compared, because one takes "
            f"{reply.seconds:.1f} s in float64; --max-seconds {wanted} has time for all"
        )
    if reply.hidden is not None and reply.hidden.names:
        names = reply.hidden.names
        notes.append(
            f"UNTESTED: {opened.label}: {len(names)} of {reply.hidden.tried} weights; a fault in them would not show on these "
            f"inputs: {named(names)}"
        )
    found = Meaning(exact, Rounded(exact, outputs), floors, True, "float64", "its graph in float64", reply.cases)
    found = replace(found, unmoved=reply.unmoved, unreached=reply.unreached)
    return replace(found, undecided=reply.undecided, overflows=reply.overflows, ties=reply.ties)


class Rounded(Mapping[str, Array]):
    """Exact outputs, each rounded to the dtype of another one when it is looked up: what a perfect runtime returns."""

    def __init__(self, exact: Outputs, like: Outputs) -> None:
        self.exact, self.like = exact, like

    def __getitem__(self, key: str) -> Array:
        with np.errstate(over="ignore"):
            return self.exact[key].astype(self.like[key].dtype if key in self.like else np.float32)

    def __iter__(self) -> Iterator[str]:
        return iter(self.exact)

    def __len__(self) -> int:
        return len(self.exact)


def grown(floors: Floors, outputs: Outputs) -> dict[str, Floor]:
    """The floors of the steps of a sequence: each at least the same share of its output as in the steps before, rms."""
    found: dict[str, Floor] = {}
    shares: dict[str, list[float]] = {}
    for key in floors:
        floor, size, earlier = floors[key], rms(outputs[key]), shares.setdefault(key.partition("/")[2], [])
        mine = rms(np.asarray(floor))
        if size:
            earlier.append(mine / size)
        share = math.sqrt(sum(value**2 for value in earlier) / len(earlier)) if earlier else 0.0
        found[key] = floor * max(1.0, share * size / mine) if mine else floor
    return found


def perturbed_meaning(opened: Opened, inputs: Path, outputs: Outputs, seed: int) -> Meaning:
    """The meaning of a reference without a float64 evaluation: what its runtime computes, with the effect of rounded inputs."""
    changed = compute(opened, _perturbed(inputs, seed), "perturbed", perturb=seed)
    says = f"{opened.path.name} on {opened.form.runtime} in its own precision"
    meaning = Meaning(outputs, changed, perturbation_floors(outputs, [changed]), False, "float32", says)
    return replace(meaning, unmoved=_unmoved(opened, inputs, meaning, seed))


def _perturbed(inputs: Path, seed: int) -> Path:
    """The input cases with each floating-point value changed to a neighbouring one."""
    path = inputs.with_name(f"perturbed-{inputs.name}")
    npz.save_file(probe.perturb(npz.load_file(inputs), seed, given=True), path)
    return path


def perturbation_floors(outputs: Outputs, perturbed: Sequence[Outputs]) -> dict[str, Floor]:
    """The noise of every value of the floating-point outputs: its change, and the rounding of the output itself.

    perturbed: the outputs of one or more perturbed evaluations.
    """
    found: dict[str, Floor] = {}
    for key in outputs:
        exact = outputs[key]
        if exact.dtype.kind != "f" or any(key not in each or each[key].shape != exact.shape for each in perturbed):
            continue
        wide = exact.astype(np.float64)
        found[key] = np.hypot(sampled(wide, [each[key] for each in perturbed]), UNIT / math.sqrt(3) * np.abs(wide))
    return found


def joined(floors: Sequence[Floors | None]) -> dict[str, Floor]:
    """The floors of several sources of noise together."""
    found: dict[str, Floor] = {}
    for each in floors:
        for key in each or {}:
            floor = (each or {})[key]
            found[key] = _together(found[key], floor) if key in found else floor
    return found


def _together(one: Floor, other: Floor) -> Floor:
    """The noise of two sources; one rms for all values where one of them knows no more. Other shapes are judged elsewhere."""
    if np.ndim(one) and np.ndim(other) and np.shape(one) != np.shape(other):
        return one
    if isinstance(one, np.ndarray) != isinstance(other, np.ndarray):
        one, other = (rms(each) if isinstance(each, np.ndarray) else each for each in (one, other))
    found: Floor = np.hypot(one, other)
    return found if isinstance(one, np.ndarray) else float(found)
