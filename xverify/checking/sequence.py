"""Sequences of calls: a state that a model returns, and that the next call is given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import Failed, UsageError, nearest
from ..framework.modelfile import Tensor
from ..results.records import Error
from ..weights import npz
from ..weights.canonical import Array
from ..workload.code import parse
from ..workload.keys import case_key
from .cases import described
from .matching import Matching
from .options import CheckSettings
from .subject import Opened, compute, computed_tensors

KIND = "steps of one sequence"  # what the input cases of a sequence are called
SHOWN = 12  # steps that a note lists
Arrays = Mapping[str, Array]


def check_settings(settings: CheckSettings) -> None:
    """Raise UsageError when one of --steps and --state is given without the other, or when a state cannot be meant."""
    state = settings.state or {}
    if settings.steps is not None and not state:
        raise UsageError(
            f"--steps {settings.steps}: say which output is which input of the next step, e.g. --state h_out=h_in; without a "
            "state, the calls are independent input cases, and need no --steps"
        )
    if state and settings.steps is None:
        name, given = next(iter(state.items()))
        raise UsageError(f"--state {name}={given}: say how many steps the sequence has, e.g. --steps 8")
    inputs = list(state.values())
    for given in inputs:
        if inputs.count(given) > 1:
            both = " and ".join(name for name, other in state.items() if other == given)
            raise UsageError(f"--state gives the input {given!r} two outputs, {both}")


# -- input cases --------------------------------------------------------------------------------------------------------


def begin(arrays: Arrays, settings: CheckSettings) -> dict[str, Array]:
    """The steps of a sequence whose state begins with zeros. Its values in later steps are not used, and are zeros, too."""
    given = (settings.state or {}).values()
    return {key: np.zeros_like(array) if key.partition("/")[2] in given else array for key, array in arrays.items()}


def completed(arrays: Arrays, settings: CheckSettings, path: Path) -> dict[str, Array]:
    """The steps that a file of arrays gives. The state is needed in the first one only.

    Raises UsageError when their number is not --steps.
    """
    if settings.steps is None:
        return dict(arrays)
    check_count(1 + max((int(key.partition("/")[0]) for key in arrays), default=-1), settings, f"--inputs {path}")
    found = dict(arrays)
    for name in (settings.state or {}).values():
        for step in range(1, settings.steps):
            if case_key(0, name) in arrays:
                found[case_key(step, name)] = arrays[case_key(0, name)]
    return found


def check_count(count: int, settings: CheckSettings, what: str) -> None:
    """Raise UsageError when a file does not hold as many cases as there are steps. what: the file, for the message."""
    if settings.steps is not None and count != settings.steps:
        raise UsageError(f"{what}: it holds {count} case{'s' if count != 1 else ''}, and --steps is {settings.steps}")


def last_step(opened: Opened, inputs: Path, outputs: Arrays) -> Path:
    """A file with one case, the last step with the state that the runtime itself computed; the same file without a sequence.

    inputs: the input cases. outputs: what the runtime computed from them.
    """
    if not opened.state:
        return inputs
    arrays = npz.OnDisk(inputs)
    last = max(int(key.partition("/")[0]) for key in arrays)
    found = {}
    for key in arrays:
        step, _, name = key.partition("/")
        if int(step) == last:
            before = case_key(last - 1, opened.state.get(name, ""))
            found[case_key(0, name)] = outputs[before] if name in opened.state else arrays[key]
    path = inputs.with_name(f"last-step-{inputs.name}")
    npz.save_file(found, path)
    return path


# -- names --------------------------------------------------------------------------------------------------------------


def wired(opened: Opened, cases: Arrays, settings: CheckSettings) -> Opened:
    """A file with its state. Raises UsageError for a state that it does not have.

    cases: its input cases, for a file that shows its outputs only when it is called.
    Against code, --state has the names of the code. The file is then called for the sizes of its inputs alone, without a state.
    """
    if not settings.state or parse(str(settings.against or "")) is not None:
        return opened
    outputs = opened.signature.outputs
    if not outputs:
        path = opened.worker.folder / "first-step.npz"
        npz.save_file({key: array for key, array in cases.items() if key.startswith("0/")}, path)
        outputs = computed_tensors(compute(opened, path, "first-step-outputs"))
    return replace(opened, state=resolve(settings, opened.signature.inputs, outputs, opened.path.name))


def resolve(settings: CheckSettings, inputs: Sequence[Tensor], outputs: Sequence[Tensor], whose: str) -> dict[str, str]:
    """--state as input -> output. Raises UsageError for unknown names, and for tensors that do not fit each other.

    whose: the file or reference with these inputs and outputs, for messages.
    """
    mine = {tensor.name: tensor for tensor in inputs}
    theirs = {tensor.name: tensor for tensor in outputs}
    found = {}
    for output, given in (settings.state or {}).items():
        for what, name, known in (("output", output, theirs), ("input", given, mine)):
            if name not in known:
                raise UsageError(
                    f"--state {output}={given}: {whose} has no {what} {name!r}{nearest(name, known)} It has the {what}s "
                    f"{', '.join(known)}"
                )
        if not _fits(theirs[output], mine[given]):
            own, other = (f"{t.dtype} {described(t.shape)}" for t in (theirs[output], mine[given]))
            raise UsageError(f"--state {output}={given}: the output is {own}, and the input is {other}, in {whose}")
        found[given] = output
    return found


def _fits(output: Tensor, given: Tensor) -> bool:
    """Whether an output may be an input, as far as the signature tells."""
    if output.dtype != given.dtype and "" not in (output.dtype, given.dtype):
        return False
    if output.shape is None or given.shape is None:
        return True
    sizes = list(zip(output.shape, given.shape))
    return len(output.shape) == len(given.shape) and all(
        own == size for own, size in sizes if isinstance(own, int) and isinstance(size, int)
    )


def partners(opened: Opened, inputs: Matching, outputs: Matching, settings: CheckSettings) -> Opened:
    """A file under test with its state, which --state names as the reference does. Raises Failed when it lacks a part of it.

    What it neither takes nor returns, it may keep from call to call; see ``check_kept``.
    """
    if not settings.state:
        return opened
    taken = {pair.reference: pair for pair in inputs.pairs}
    returned = {pair.reference: pair for pair in outputs.pairs}
    state, kept = {}, kept_inside(inputs, outputs, settings)
    for output, given in settings.state.items():
        if output in kept:
            continue
        for what, name, pairs in (("output", output, returned), ("input", given, taken)):
            if name not in pairs:
                raise Failed(f"it has no {what} for {name} of the reference, which is a part of the state")
        if taken[given].order != returned[output].order:
            raise Failed(f"--state {output}={given}: the file has the axes of these two in different orders")
        state[taken[given].own] = returned[output].own
    return replace(opened, state=state)


def kept_inside(inputs: Matching, outputs: Matching, settings: CheckSettings) -> set[str]:
    """The outputs of --state that a file lacks together with their inputs. Its variables may be in their place."""
    pairs = (settings.state or {}).items()
    return {output for output, given in pairs if output in outputs.missing and given in inputs.missing}


def check_kept(opened: Opened, settings: CheckSettings) -> None:
    """Raise Failed when a file lacks a part of the state, and keeps nothing from call to call."""
    lacking = len(settings.state or {}) > len(opened.state)
    if lacking and not opened.keeps:
        raise Failed(
            f"it has no input and no output for a part of the state ({', '.join((settings.state or {}).values())} in the "
            "reference), and keeps nothing from call to call"
        )


# -- the report ---------------------------------------------------------------------------------------------------------


def told(error: Error, settings: CheckSettings) -> Error:
    """The error of a sequence, in whose reason the input cases are called steps."""
    if settings.steps is None or error.reason is None:
        return error
    return replace(error, reason=re.sub(r"\bcase (\d+)\b", r"step \1", error.reason))


def by_step(error: Error, settings: CheckSettings) -> list[str]:
    """A sentence with the error of the worst output in every step; [] without a sequence."""
    if settings.steps is None:
        return []
    worst: dict[int, float] = {}
    for tensor in error.tensors:
        ratio = tensor.noise_ratio if tensor.noise_ratio is not None else tensor.float32_ratio
        if ratio is not None:
            worst[tensor.case] = max(worst.get(tensor.case, 0.0), ratio)
    shown = ", ".join(f"step {step}: {ratio:.2g}" for step, ratio in list(worst.items())[:SHOWN])
    more = ", …" if len(worst) > SHOWN else ""
    return [f"residual / noise floor of the worst output, {shown}{more}"] if shown else []


def note(settings: CheckSettings) -> list[str]:
    """A sentence on how the sequence begins; [] without a sequence."""
    if settings.steps is None:
        return []
    pairs = ", ".join(f"{given} is {output} of the step before" for output, given in (settings.state or {}).items())
    start = f"as {Path(settings.inputs).name} has it" if settings.inputs else "with zeros; --inputs gives another start"
    return [f"{settings.steps} steps, in which {pairs}; the state begins {start}"]
