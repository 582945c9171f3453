"""The exact outputs: those of the reference in float64, and the noise floors that errors are divided by."""

from __future__ import annotations

import hashlib
import math
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Crashed, Refused, SpecError, SubjectError, TimedOut, Unsupported
from ..messages import reference as messages_reference
from ..verdict import outputs as verdict
from ..verdict.tables import is_vague, spread, stands_for_others
from ..weights import npz
from ..weights.canonical import Array
from ..workload import probe
from ..workload.keys import case_key
from ..workload.sizes import said
from .build import Prepared, ReferenceProcess, first_inputs
from .repeated import randomness, run_twice
from .witness import unmoved

SAMPLES, MORE_SAMPLES = 4, 16  # perturbed passes of each case; when an output is beyond a limit
SEEDS = 100  # what is added to the seed, so that the samples are new ones
ENOUGH_VALUES = 256  # of an output in one item, so that its noise floor can be measured on one item of each case
Outputs = Mapping[str, Array]  # "case/name" -> array, read from its file when it is looked up


@dataclass(frozen=True)
class Truth:
    """The outputs that candidates are compared with; every mapping is "case/name" -> value.

    outputs: in float64, when the framework can compute in it; otherwise in float32.
    float32: the framework's own float32 outputs; those of perturbed weights and inputs when it has no float64.
    precision: "float64"; "float32" when the framework cannot compute this model in float64, and then perturbation measures the
        noise floor; "mixed" when some of a model whose layers are replayed is not float64.
    precision_problem: why the precision is not float64; "" when it is.
    random: why nothing can be compared with this reference, because it is random; "" when it is not.
    inconsistent: why nothing can be compared with it, because it computes something else in float32; "" when it does not.
    noise_floors: the noise of all layers in every value of an output; None when the layers cannot be replayed.
    layers: the canonical layers; empty when they cannot be replayed. replay_problem: why they cannot, "" when they can.
    tested, untested: the weights and constants in which a fault would show in the outputs, and those in which it would not.
    constant: the outputs of the reference that are the same for every input.
    growth: where its noise grows too large, as a clause; "" where no single place makes it so.
    unmoved: whether its outputs stay within the limits with other weights, so that no fault in a weight could show.
    unreached: what no input case reached, each with its place.
    """

    outputs: Outputs
    float32: Outputs
    precision: str = "float64"
    precision_problem: str = ""
    random: str = ""
    inconsistent: str = ""
    noise_floors: Mapping[str, Array] | None = None
    layers: tuple[str, ...] = ()
    replay_problem: str = ""
    tested: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    growth: str = ""
    unmoved: bool = False
    unreached: tuple[str, ...] = ()

    @property
    def unusable(self) -> str:
        """Why nothing can be compared with this reference; "" when something can."""
        return self.random or self.inconsistent


def compute_float32(process: ReferenceProcess, prepared: Prepared) -> Outputs:
    """Compute in float32. Raises SpecError when the spec does not describe what the model returns."""
    process.phase("computing in float32")
    outputs, shapes = _outputs(process, "float32", prepared.inputs, prepared.weights)
    _check_shapes(process, shapes)
    return outputs


def evaluate(process: ReferenceProcess, prepared: Prepared, float32: Outputs) -> Truth:
    """Compute in float64, or measure the noise floor by perturbation when the framework cannot. float32: its float32 outputs.

    A reference that is random is not evaluated, because its randomness would be taken for the noise of rounding.
    """
    repeated, problem = run_twice(process, prepared)
    if repeated.place:
        return Truth(float32, float32, precision="float32", random=randomness(process, repeated))
    if prepared.random:
        return Truth(float32, float32, precision="float32", random=prepared.random)
    process.phase("computing in float64, and the noise of every layer")
    truth = _evaluated(process, prepared, float32, problem)
    constant = verdict.constant_outputs(truth.outputs, process.folder.spec, _unlike(process, prepared))
    truth = replace(truth, unreached=_unreached(process, prepared))
    if truth.unusable or truth.noise_floors is None:
        return replace(truth, constant=constant)
    process.phase("computing with other weights, to see that the comparison can fail")
    stays = unmoved(process, prepared, truth.outputs, truth.noise_floors)
    return replace(truth, constant=constant, unmoved=stays)


def _unlike(process: ReferenceProcess, prepared: Prepared) -> list[int]:
    """The first input case with each of the inputs: a user may have given, or recorded, some of them twice."""
    arrays, found = npz.OnDisk(prepared.inputs), dict[tuple[bytes, ...], int]()
    for case in range(process.request.cases):
        inputs = (arrays[case_key(case, name)] for name in process.folder.spec.inputs)
        found.setdefault(tuple(hashlib.blake2b(np.ascontiguousarray(each).data).digest() for each in inputs), case)
    return [*found.values()]


def _unreached(process: ReferenceProcess, prepared: Prepared) -> tuple[str, ...]:
    """What no input case reached. Nothing is known of a reference that is not torch, and of the steps of a sequence."""
    if not process.replays or process.state:
        return ()
    process.phase("watching what the inputs reach")
    question = messages_reference.WatchInputs(str(prepared.inputs), str(prepared.weights))
    try:
        return process.worker.ask(question).unreached
    except Refused:
        return ()


def _evaluated(process: ReferenceProcess, prepared: Prepared, float32: Outputs, problem: str) -> Truth:
    """The truth of a reference that is not random. problem: why its precision is not float64; "" when it is."""
    try:
        if process.replays:
            found = _with_noise_floors(process, prepared, float32)
            return replace(found, precision="mixed", precision_problem=problem) if problem else found
        if not problem:
            return Truth(_outputs(process, "float64", prepared.inputs, prepared.weights)[0], float32)
    except Refused as error:
        problem = problem or str(error)
    return replace(_perturbed(process, prepared, float32), precision_problem=problem)


def _perturbed(process: ReferenceProcess, prepared: Prepared, float32: Outputs) -> Truth:
    """The truth of a framework without float64: its outputs, and those of perturbed weights and inputs for the noise floor."""
    process.phase("measuring the noise floor by perturbation")
    perturbed = process.space / "perturbed-inputs.npz", process.space / "perturbed-weights.npz"
    for source, target in zip((prepared.inputs, prepared.weights), perturbed):
        given = source == prepared.inputs
        npz.save_file(probe.perturb(npz.OnDisk(source), process.request.seed, given=given), target)
    return Truth(float32, _outputs(process, "perturbed", *perturbed)[0], precision="float32")


@dataclass(frozen=True)
class Spread(Mapping[str, Array]):
    """The noise of all items of the outputs, as it was measured on some items. Each array is computed when it is looked up.

    exact: the exact outputs. measured: those of the items on which the noise was measured. noise: of every value of these.
    """

    exact: Outputs
    measured: Outputs
    noise: Outputs

    def __getitem__(self, key: str) -> Array:
        exact, measured, noise = (each[key] for each in (self.exact, self.measured, self.noise))
        return noise if noise.shape in ((), exact.shape) else spread(exact, measured, noise)

    def __iter__(self) -> Iterator[str]:
        return iter(self.noise)

    def __len__(self) -> int:
        return len(self.noise)


def _with_noise_floors(process: ReferenceProcess, prepared: Prepared, float32: Outputs) -> Truth:
    """The float64 outputs and the noise of their values."""
    try:
        reply, measured = _floors(process, prepared)
    except (Crashed, TimedOut, Unsupported):
        raise
    except SubjectError as error:
        outputs, _ = _outputs(process, "float64", prepared.inputs, prepared.weights)
        return Truth(outputs, float32, replay_problem=str(error))
    layers = process.layers()
    exact = measured.outputs
    if measured.inputs != prepared.inputs:
        exact, _ = _outputs(process, "float64", prepared.inputs, prepared.weights)
    return Truth(
        exact,
        float32,
        noise_floors=Spread(exact, measured.outputs, measured.noise),
        layers=() if reply.inconsistent else layers,
        inconsistent=_inconsistency(reply.inconsistent),
        tested=tuple(reply.tested),
        untested=tuple(reply.untested),
        growth=reply.growth,
    )


def _inconsistency(found: str) -> str:
    """Why nothing can be compared with a reference whose float32 outputs are not its float64 outputs. found: where; "" nowhere."""
    if not found:
        return ""
    return (
        f"the reference's float32 outputs differ from its float64 outputs: {found}. Its code branches on the dtype, or computes "
        "in a lower precision; nothing can be compared until it computes the same in both"
    )


@dataclass(frozen=True)
class _Measured:
    """The float64 outputs of some items and the noise of their values. inputs: the file of these items."""

    inputs: Path
    outputs: Outputs
    noise: Outputs


def _floors(process: ReferenceProcess, prepared: Prepared) -> tuple[messages_reference.FloorsMeasured, _Measured]:
    """The coverage, and the noise of all outputs.

    It is measured on one item of each case where it has enough values, and where the model can take a single item.
    """
    spec = process.folder.spec
    if _one_item_is_enough(process):
        try:
            inputs = first_inputs(process, prepared.few_inputs)
            reply, measured = _measure(process, prepared, inputs)
            if all(_is_item(measured, key, spec.outputs[key.split("/", 1)[1]].sized(1)) for key in measured.outputs):
                return reply, measured
        except Refused:  # its code may need several items
            pass
    return _measure_few(process, prepared, 1 if process.state else SAMPLES)


def _is_item(found: _Measured, key: str, shape: tuple[int, ...]) -> bool:
    """Whether an output is that of one item, and its noise may be that of the others."""
    exact = found.outputs[key]
    return exact.shape == shape and (exact.dtype.kind != "f" or stands_for_others(exact, found.noise[key]))


def _measure_few(
    process: ReferenceProcess, prepared: Prepared, samples: int, cases: tuple[int, ...] = ()
) -> tuple[messages_reference.FloorsMeasured, _Measured]:
    """As ``_measure``, on few items of each case; on all where rounding changes decisions, which differ from item to item."""
    reply, measured = _measure(process, prepared, prepared.few_inputs, samples, cases)
    if prepared.few_inputs == prepared.inputs or not any(
        is_vague(measured.outputs[key], measured.noise[key]) for key in measured.outputs
    ):
        return reply, measured
    return _measure(process, prepared, prepared.inputs, samples, cases)


def _measure(
    process: ReferenceProcess, prepared: Prepared, inputs: Path, samples: int = 1, cases: tuple[int, ...] = ()
) -> tuple[messages_reference.FloorsMeasured, _Measured]:
    name = f"{'again' if cases else 'float64'}-{inputs.stem}"
    path, noise = (process.space / f"{name}-{part}.npz" for part in ("outputs", "noise"))
    question = messages_reference.NoiseFloors(
        inputs=str(inputs),
        path=str(path),
        noise=str(noise),
        weights=str(prepared.weights),
        seed=process.request.seed + (SEEDS if cases else 0),
        samples=samples,
        cases=cases,
        state=dict(process.state),
    )
    return process.worker.ask(question), _Measured(inputs, npz.OnDisk(path), npz.OnDisk(noise))


def measured_again(process: ReferenceProcess, prepared: Prepared, truth: Truth, cases: tuple[int, ...]) -> Truth:
    """The same with the noise of these cases measured on several items, with MORE_SAMPLES perturbed passes."""
    if truth.noise_floors is None or process.state:
        return truth
    process.phase("measuring the noise again, because an output is beyond a limit")
    found = _measure_few(process, prepared, MORE_SAMPLES, cases)[1]
    again: Any = Spread(truth.outputs, found.outputs, found.noise)
    earlier: Any = truth.noise_floors  # a ChainMap that is only read needs no mutable mappings
    return replace(truth, noise_floors=ChainMap(again, earlier))


def _one_item_is_enough(process: ReferenceProcess) -> bool:
    """Whether every output has so many values in an item that more items would give the same noise floor.

    A state that steps hand on keeps its batch.
    """
    spec = process.folder.spec
    values = [math.prod(each.sized(1)) for each in spec.outputs.values()]
    return process.request.batch > 1 and not process.state and min(values) >= ENOUGH_VALUES


def _outputs(
    process: ReferenceProcess, name: str, inputs: Path, weights: Path
) -> tuple[Outputs, dict[str, tuple[int, ...]]]:
    """Compute the outputs, in float64 when ``name`` is "float64". Returns the outputs, in a file of this name, and their shapes."""
    path = process.space / f"{name}-outputs.npz"
    question = messages_reference.Evaluate(
        inputs=str(inputs), path=str(path), weights=str(weights), float64=name == "float64", state=dict(process.state)
    )
    shapes = process.worker.ask(question)
    return npz.OnDisk(path), {key: tuple(shape) for key, shape in shapes.items()}


def _check_shapes(process: ReferenceProcess, shapes: Mapping[str, tuple[int, ...]]) -> None:
    spec, file, name = process.folder.spec, process.folder.path / "spec.py", process.framework
    # In a sequence, a state may grow with every step.
    found = {key.split("/", 1)[1]: shape for key, shape in shapes.items() if not process.state or key.startswith("0/")}
    if set(found) != set(spec.outputs):
        model = process.worker.adapter.file_name()
        raise SpecError(
            f"{file} names the outputs {sorted(spec.outputs)}; {name} returns {sorted(found)}. Name every output of {model}, or "
            f"let {model} return those alone; None is no output"
        )
    for output, shape in found.items():
        expected = spec.outputs[output].sized(process.request.batch)
        if shape != expected:
            sizes = said({"batch": process.request.batch, **spec.sizes}).replace("=", " ")
            raise SpecError(
                f"{file} says output {output!r} is {spec.declared['outputs'][output].shape}, so {expected} at {sizes}; "
                f"{name} returns {shape}"
            )
