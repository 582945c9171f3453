"""The exact outputs: those of the reference in float64, and the noise floors that errors are divided by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import Crashed, SpecError, SubjectError, TimedOut, Unsupported
from ..verdict import outputs as verdict
from ..verdict.sizes import rms
from ..weights import npz
from ..weights.canonical import Array
from ..worker import messages_reference
from ..workload import probe
from ..workload.keys import case_key
from .build import Prepared, ReferenceProcess, single_inputs
from .repeated import randomness, run_twice

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
    noise_floors: rms of the noise of all layers in every output; None when the layers cannot be replayed.
    case_floors: the same as they were measured, where ``noise_floors`` are the same share of the output in every case.
    layers: the canonical layers; empty when they cannot be replayed. replay_problem: why they cannot, "" when they can.
    tested, untested: the weights and constants in which a fault would show in the outputs, and those in which it would not.
    constant: the outputs of the reference that are the same for every input.
    """

    outputs: Outputs
    float32: Outputs
    precision: str = "float64"
    precision_problem: str = ""
    random: str = ""
    noise_floors: Mapping[str, float] | None = None
    case_floors: Mapping[str, float] | None = None
    layers: tuple[str, ...] = ()
    replay_problem: str = ""
    tested: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()


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
    found = _evaluated(process, prepared, float32, problem)
    spec, cases = process.folder.spec, range(process.request.cases)
    constant = verdict.constant_outputs(found.outputs, spec, cases)
    return replace(found, constant=constant)


def _evaluated(process: ReferenceProcess, prepared: Prepared, float32: Outputs, problem: str) -> Truth:
    """The truth of a reference that is not random. problem: why its precision is not float64; "" when it is."""
    try:
        if process.replays:
            found = _with_noise_floors(process, prepared, float32)
            return replace(found, precision="mixed", precision_problem=problem) if problem else found
        if not problem:
            return Truth(_outputs(process, "float64", prepared.inputs, prepared.weights)[0], float32)
    except (Crashed, TimedOut):
        raise
    except SubjectError as error:
        problem = problem or str(error)
    return replace(_perturbed(process, prepared, float32), precision_problem=problem)


def _perturbed(process: ReferenceProcess, prepared: Prepared, float32: Outputs) -> Truth:
    """The truth of a framework without float64: its outputs, and those of perturbed weights and inputs for the noise floor."""
    process.phase("measuring the noise floor by perturbation")
    perturbed = process.space / "perturbed-inputs.npz", process.space / "perturbed-weights.npz"
    for source, target in zip((prepared.inputs, prepared.weights), perturbed):
        npz.save_file(probe.perturb(npz.OnDisk(source), process.request.seed), target)
    return Truth(float32, _outputs(process, "perturbed", *perturbed)[0], precision="float32")


def _with_noise_floors(process: ReferenceProcess, prepared: Prepared, float32: Outputs) -> Truth:
    """The float64 outputs and their noise floors. In every case a noise floor is the same share of the size of the output."""
    try:
        reply, exact = _floors(process, prepared)
    except (Crashed, TimedOut, Unsupported):
        raise
    except SubjectError as error:
        outputs, _ = _outputs(process, "float64", prepared.inputs, prepared.weights)
        return Truth(outputs, float32, replay_problem=str(error))
    layers = tuple(process.worker.ask(messages_reference.ListLayers()).layers)
    if exact is None:
        exact, _ = _outputs(process, "float64", prepared.inputs, prepared.weights)
    shares = {key: each.floor / each.size if each.size else 0.0 for key, each in reply.floors.items()}
    sizes = {key: rms(exact[key]) for key in shares}
    return Truth(
        exact,
        float32,
        noise_floors={key: share * sizes[key] for key, share in pooled_shares(process, shares).items()},
        case_floors={key: share * sizes[key] for key, share in shares.items()},
        layers=layers,
        tested=tuple(reply.tested),
        untested=tuple(reply.untested),
    )


def _floors(process: ReferenceProcess, prepared: Prepared) -> tuple[messages_reference.FloorsMeasured, Outputs | None]:
    """The noise floors of all outputs, and the float64 outputs where all items of the inputs were computed for them.

    They are measured on one item of each case where it has enough values, and where the model can take a single item.
    """
    spec, path = process.folder.spec, process.space / "float64-outputs.npz"

    def measure(inputs: Path) -> messages_reference.FloorsMeasured:
        return process.worker.ask(
            messages_reference.NoiseFloors(
                inputs=str(inputs),
                path=str(path),
                weights=str(prepared.weights),
                seed=process.request.seed,
                state=dict(process.state),
            )
        )

    if _one_item_is_enough(process):
        try:
            found, outputs = measure(single_inputs(process, prepared.few_inputs)), npz.OnDisk(path)
            if all(outputs[key].shape == spec.outputs[key.split("/", 1)[1]].sized(1) for key in outputs):
                return found, None
        except (Crashed, TimedOut):
            raise
        except SubjectError:  # its code may need several items
            pass
    return measure(prepared.few_inputs), npz.OnDisk(path) if prepared.few_inputs == prepared.inputs else None


def _one_item_is_enough(process: ReferenceProcess) -> bool:
    """Whether every output has so many values in an item that more items would give the same noise floor.

    The floors of all cases together changed by at most 7% from one item to four, in resnet18, resnet50, mobilenet-v3-small,
    unet-small and gpt-tiny. A state that steps hand on keeps its batch.
    """
    spec = process.folder.spec
    values = [math.prod(each.sized(1)) for each in spec.outputs.values()]
    return process.request.batch > 1 and not process.state and min(values) >= ENOUGH_VALUES


def pooled_floors(
    process: ReferenceProcess, measured: Mapping[str, messages_reference.OutputFloor]
) -> dict[str, float]:
    """The floors of all outputs, each the same share of the size of its output in every case.

    measured: "case/name" -> floor and size, as a worker measured them.
    """
    shares = {key: each.floor / each.size if each.size else 0.0 for key, each in measured.items()}
    return {key: share * measured[key].size for key, share in pooled_shares(process, shares).items()}


def pooled_shares(process: ReferenceProcess, shares: Mapping[str, float]) -> dict[str, float]:
    """For each output, the root of the mean square of its shares of all cases. shares: "case/name" -> noise floor / size."""
    pooled: dict[str, float] = {}
    for name in process.folder.spec.outputs:
        keys = [key for case in range(process.request.cases) if (key := case_key(case, name)) in shares]
        mean = math.sqrt(sum(shares[key] ** 2 for key in keys) / len(keys)) if keys else 0.0
        pooled.update(dict.fromkeys(keys, mean))
    return pooled


def _outputs(
    process: ReferenceProcess, name: str, inputs: Path, weights: Path
) -> tuple[Outputs, dict[str, tuple[int, ...]]]:
    """Compute the outputs, in float64 when ``name`` is "float64". Returns the outputs, in a file of this name, and their shapes."""
    path = process.space / f"{name}-outputs.npz"
    question = messages_reference.Evaluate(
        inputs=str(inputs), path=str(path), weights=str(weights), float64=name == "float64", state=dict(process.state)
    )
    shapes = process.worker.ask(question).shapes
    return npz.OnDisk(path), {key: tuple(shape) for key, shape in shapes.items()}


def _check_shapes(process: ReferenceProcess, shapes: Mapping[str, tuple[int, ...]]) -> None:
    spec, file, name = process.folder.spec, process.folder.path / "spec.py", process.framework
    # In a sequence, a state may grow with every step.
    found = {key.split("/", 1)[1]: shape for key, shape in shapes.items() if not process.state or key.startswith("0/")}
    if set(found) != set(spec.outputs):
        model = f"{process.worker.adapter.reads()}.py"
        raise SpecError(
            f"{file} names the outputs {sorted(spec.outputs)}; {name} returns {sorted(found)}. Name every output of {model}, or "
            f"let {model} return those alone; None is no output"
        )
    for output, shape in found.items():
        expected = spec.outputs[output].sized(process.request.batch)
        if shape != expected:
            raise SpecError(
                f"{file} says output {output!r} is {spec.outputs[output].shape}, so {expected} at batch "
                f"{process.request.batch}; {name} returns {shape}"
            )
