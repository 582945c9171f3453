"""The input cases of a reference that is no file: from the spec of a model folder, or from the file under test for code."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .. import messages
from ..errors import Failed, UsageError
from ..framework.modelfile import Signature, Tensor
from ..messages import reference as messages_reference
from ..messages.reference import ParametersRead
from ..reference.build import ReferenceProcess, build_question
from ..weights import npz
from ..weights.canonical import Array
from ..workload.keys import case_key
from ..workload.spec import BATCH, ModelSpec, TensorSpec
from .cases import Input, settle
from .computing import Cases, sized
from .input_cases import drawn, make_cases
from .matching import plain, turn
from .options import CheckSettings
from .sequence import begin
from .subject import Opened

IMAGE_CHANNELS = (1, 3, 4)
CHANNELS_SECOND, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # where the axes of the other layout go
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class BareSpec(ModelSpec):
    """The inputs and outputs of code, with every size known. It need not have a batch axis, and is empty until they are known."""

    def __post_init__(self) -> None:
        pass


def described(tensors: Mapping[str, TensorSpec], batch: int, fixed: bool) -> list[Tensor]:
    """The tensors of a spec. fixed: whether they keep their shape from step to step; that of code is not known."""
    return [Tensor(name, each.sized(batch) if fixed else None, each.dtype) for name, each in tensors.items()]


def batch_of(spec: ModelSpec, arrays: Arrays) -> int:
    """The size of the batch axis in these cases; 1 without a batch axis."""
    for name, tensor in spec.inputs.items():
        if BATCH in tensor.shape:
            return int(arrays[case_key(0, name)].shape[tensor.shape.index(BATCH)])
    return 1


def with_fixed_sizes(
    tensors: Sequence[Tensor], signatures: Sequence[Signature], given: Collection[str]
) -> tuple[Tensor, ...]:
    """The inputs with the sizes that a file under test fixes, where they leave a size open or say no shape at all.

    signatures: of the files under test. given: the inputs whose shape the user gives, which stay as they are.
    """
    alone = len(tensors) == 1
    return tuple(each if each.name in given else _with_fixed_sizes(each, signatures, alone) for each in tensors)


def _with_fixed_sizes(tensor: Tensor, signatures: Sequence[Signature], alone: bool) -> Tensor:
    """The same for one input. alone: whether it is the only one."""
    for signature in signatures:
        alike = [other for other in signature.inputs if plain(other.name) == plain(tensor.name)]
        if alone and len(signature.inputs) == 1:
            alike = list(signature.inputs)
        shape = alike[0].shape if alike else None
        if shape is None:
            continue
        if tensor.shape is None:
            whole = all(isinstance(size, int) for size in shape)
            tensor = replace(tensor, shape=shape) if whole else tensor
        elif len(shape) == len(tensor.shape) and all(
            own == size for own, size in zip(tensor.shape, shape) if isinstance(own, int) and isinstance(size, int)
        ):
            merged = (
                own if isinstance(own, int) or not isinstance(size, int) else size
                for own, size in zip(tensor.shape, shape)
            )
            tensor = replace(tensor, shape=tuple(merged))
    return tensor


def fitting_ranges(
    tensors: Sequence[Tensor], files: Sequence[tuple[Signature, Mapping[str, tuple[float, float]]]]
) -> dict[str, tuple[float, float]]:
    """Input -> the range of numbers that all files under test can quantise. files: their signatures, with the ranges of each."""
    found: dict[str, tuple[float, float]] = {}
    for tensor in tensors:
        for signature, ranges in files:
            alone = len(tensors) == len(signature.inputs) == 1
            for name in (each for each in ranges if alone or plain(each) == plain(tensor.name)):
                low, high = found.get(tensor.name, ranges[name])
                found[tensor.name] = max(low, ranges[name][0]), min(high, ranges[name][1])
    return {name: (low, high) for name, (low, high) in found.items() if low < high}


# -- a model folder -----------------------------------------------------------------------------------------------------


def folder_cases(spec: ModelSpec, signatures: Sequence[Signature], settings: CheckSettings) -> Cases:
    """Input cases in the ranges of a spec, with the batch size that some file under test fixes. Raises UsageError.

    signatures: of the files under test.
    """
    tensors = [Tensor(name, each.shape, each.dtype) for name, each in spec.inputs.items()]
    if settings.inputs is not None:
        return make_cases(tensors, {}, settings)
    shapes = dict(settings.shape or {})
    batched = [name for name, each in spec.inputs.items() if BATCH in each.shape]
    batch = next((size for each in signatures if (size := _fixed_batch(spec, each)) is not None), None)
    if batch is not None and not set(shapes) & set(batched):
        shapes[batched[0]] = spec.inputs[batched[0]].sized(batch)
    inputs, notes = settle(tensors, shapes, limits=settings.input_range)
    guesses = [note.replace(f"the file leaves {BATCH}", "the spec leaves the batch size") for note in notes]
    ranged = [_in_range(each, spec.inputs[each.name], settings) for each in inputs]
    return drawn(ranged, [note for note in guesses if "--shape" in note], settings)


def _in_range(each: Input, tensor: TensorSpec, settings: CheckSettings) -> Input:
    """The input with the range of the spec, where the user names no other."""
    if tensor.low is None or (settings.input_range and tensor.dtype.startswith("float")):
        return each
    return replace(each, low=tensor.low, high=tensor.high, says="", kind="")


def _fixed_batch(spec: ModelSpec, signature: Signature) -> int | None:
    """The batch size that a file fixes; None where it leaves it open."""
    for name, tensor in spec.inputs.items():
        if BATCH not in tensor.shape:
            continue
        axis, rank = tensor.shape.index(BATCH), len(tensor.shape)
        alike = [other for other in signature.inputs if other.shape is not None and len(other.shape) == rank]
        for other in [each for each in alike if plain(each.name) == name] or alike:
            size = other.shape[axis] if other.shape else None
            if isinstance(size, int):
                return size
    return None


# -- code ---------------------------------------------------------------------------------------------------------------


def code_cases(
    process: ReferenceProcess, opened: Opened, cases: Cases, settings: CheckSettings
) -> tuple[Cases, BareSpec]:
    """The cases of a file under test as code takes them, and a spec of the code. The model is built and called once.

    process: its worker has started. cases: with the names and layouts of the file.
    Raises UsageError when the inputs cannot be matched, and SubjectError when the code cannot be built or called.
    """
    worker = process.worker
    worker.ask(build_question(process.folder, process.worker.adapter.reads(), None))
    pairs = arranged(worker.ask(messages_reference.ReadParameters()), opened, settings)
    weights = process.space / "own-weights.npz"
    worker.ask(messages.Save(path=str(weights)))
    failure: Failed | None = None
    last = worker.adapter.channels_last
    for turned in _layouts(opened.signature.inputs, settings.layout, last):
        order = CHANNELS_LAST if last else CHANNELS_SECOND
        arrays = {
            case_key(case, parameter): turn(_in_float32(array), order if name in turned else None)
            for case in range(cases.count)
            for parameter, name in pairs
            for array in [cases.arrays[case_key(case, name)]]
        }
        if settings.inputs is None:  # the state may have another name in the file
            arrays = begin(arrays, settings)
        try:
            outputs = _call(process, arrays, [parameter for parameter, _ in pairs], weights)
        except Failed as error:
            failure = failure or error
            continue
        spec = BareSpec(inputs=_specs(arrays), outputs=_specs(outputs))
        return replace(cases, arrays=arrays, tensors=sized(arrays)), spec
    raise failure or Failed("its parameters can belong to no inputs of the file; see --map")


def _in_float32(array: Array) -> Array:
    """Code computes in float32, whatever the file takes."""
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def arranged(parameters: ParametersRead, opened: Opened, settings: CheckSettings) -> list[tuple[str, str]]:
    """(parameter, input of the file) by position: by --map, by name, or the only ones that are left. Raises UsageError."""
    known, names = (*parameters.needed, *parameters.optional), [tensor.name for tensor in opened.signature.inputs]
    given = settings.map or {}
    arrangement = {name: other for name, other in given.items() if name in known and other in names}
    for name in names:
        if plain(name) in known and plain(name) not in arrangement and name not in arrangement.values():
            arrangement[plain(name)] = name
    left = [name for name in names if name not in arrangement.values()]
    lacking = [name for name in parameters.needed if name not in arrangement] or [
        name for name in known if name not in arrangement
    ]
    if len(left) == len(lacking) == 1:
        arrangement[lacking[0]] = left[0]
    if not known and parameters.others and len(names) == 1:
        return [(names[0], names[0])]
    ordered = [name for name in known if name in arrangement]
    complete = set(parameters.needed) <= set(arrangement) and len(arrangement) == len(names)
    if not complete or ordered != list(known[: len(ordered)]):
        example = f"--map {(lacking or known or ('x',))[0]}={(left or names)[0]}"
        raise UsageError(
            f"the model takes {', '.join(known) or 'no named arguments'}, and the inputs of {opened.path.name} are "
            f"{', '.join(names)}; say which belong together with --map, e.g. {example}, or write a function that takes them"
        )
    return [(name, arrangement[name]) for name in ordered]


def _layouts(tensors: Sequence[Tensor], layout: str | None, last: bool) -> Iterator[set[str]]:
    """The possible sets of images whose channels are to be moved, the likeliest first.

    last: whether the code has the channels of an image last.
    """
    images = {
        each.name: each.shape for each in tensors if each.shape and len(each.shape) == 4 and "float" in each.dtype
    }
    here, there = (1, -1) if last else (-1, 1)  # where the channels are when they have to be moved, and where they go
    moved = any(shape[here] in IMAGE_CHANNELS and shape[there] not in IMAGE_CHANNELS for shape in images.values())
    possible = [set(images), set[str]()] if moved else [set[str](), set(images)]
    if layout is not None:
        possible = [set(images) if layout == "turned" else set()]
    for index, each in enumerate(possible):
        if each not in possible[:index]:
            yield each


def _call(process: ReferenceProcess, arrays: Arrays, names: Sequence[str], weights: Path) -> dict[str, Array]:
    """The outputs of the first case. One without a name is ``output``; of several, the first one is ``output_0``."""
    inputs, path = process.space / "first-case.npz", process.space / "first-outputs.npz"
    npz.save_file({key: array for key, array in arrays.items() if key.startswith("0/")}, inputs)
    process.worker.ask(messages_reference.NameTensors(dict.fromkeys(names), {}))
    process.worker.ask(messages_reference.Evaluate(str(inputs), str(path), str(weights), float64=False))
    found = npz.load_file(path)
    if list(found) == ["0/output[0]"]:
        return {"0/output": found["0/output[0]"]}
    return {key.replace("output[", "output_").replace("]", ""): array for key, array in found.items()}


def _specs(arrays: Arrays) -> dict[str, TensorSpec]:
    """The tensors of the first case. Whole numbers have the range of their values in all cases."""
    found = {}
    for key, array in arrays.items():
        case, _, name = key.partition("/")
        if case != "0":
            continue
        low = high = None
        if array.dtype.kind != "f":
            values = [other for place, other in arrays.items() if place.partition("/")[2] == name and other.size]
            low = float(min((int(each.min()) for each in values), default=0))
            high = float(max((int(each.max()) for each in values), default=0)) + 1
        found[name] = TensorSpec(array.shape, array.dtype.name, low, high)
    return found
