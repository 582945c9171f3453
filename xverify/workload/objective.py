"""The loss of a model: what its spec says, checked against its outputs and targets."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import reading
from ..errors import Failed, SpecError, Unsupported, nearest
from .imports import parsed
from .losses import ALIKE, TARGET, Loss, Objective

if TYPE_CHECKING:
    from .spec import ModelFolder, ModelSpec, TensorSpec

REFERENCE = "torch"  # the framework whose model file the others are compared with in training
STEP = "train_step"  # the function of a model file that makes a whole training step


def terms_of(spec: ModelSpec) -> tuple[Loss, ...]:
    """The named losses of a spec, with the names of their outputs and targets; () where it names none.

    Raises SpecError for a loss that does not fit the outputs and targets.
    """
    given = spec.loss if isinstance(spec.loss, Sequence) and not isinstance(spec.loss, str) else (spec.loss,)
    found = []
    for each in given:
        if not isinstance(each, (Loss, str)):
            raise SpecError(f"loss takes a name, a Loss, or several of them: not a {type(each).__name__}")
        if each:
            found.append(_named(spec, Loss(each) if isinstance(each, str) else each))
    return tuple(found)


def class_axis(shape: Sequence[int | str], layout: str | None) -> int:
    """The axis of the classes of an output in canonical layout: "C" of the layout, or the last one. It counts from the end."""
    return layout.index("C") - len(shape) if layout and layout.count("C") == 1 else -1


def _named(spec: ModelSpec, loss: Loss) -> Loss:
    """A loss with the names of its output and target. Raises SpecError where they do not fit it."""
    output = _chosen(loss, "output", loss.output, spec.outputs)
    targets = spec.targets
    tensor: TensorSpec | None
    if loss.target in spec.outputs and loss.target not in spec.targets:
        target, tensor = loss.target, spec.outputs[loss.target]
    else:
        target = _chosen(loss, "target", loss.target, targets or dict.fromkeys([TARGET]))
        tensor = targets.get(target)
    loss = replace(loss, output=output, target=target)
    if tensor is not None:
        _check_fit(loss, spec.outputs[output], tensor, spec)
    elif loss.name != "cross_entropy":
        raise SpecError(f"loss {loss.name} needs a target: write targets={{'y': TensorSpec(...)}} into ModelSpec")
    if loss.class_weights:
        size = spec.outputs[output].shape[class_axis(spec.outputs[output].shape, spec.outputs[output].layout)]
        if size != len(loss.class_weights):
            raise SpecError(
                f"{loss.name} of {output!r} has {len(loss.class_weights)} class_weights, and {size} classes"
            )
    return loss


def _chosen(loss: Loss, what: str, name: str, known: Mapping[str, object]) -> str:
    """The name of an output or target; the only one where none is named."""
    if name and name not in known:
        raise SpecError(f"loss {loss.name} names the {what} {name!r}{nearest(name, known)} Known: {', '.join(known)}")
    if not name and len(known) != 1:
        raise SpecError(
            f"loss {loss.name} names no {what}, and the model has {len(known)}: write {what}=... ({', '.join(known)})"
        )
    return name or next(iter(known))


def _check_fit(loss: Loss, x: TensorSpec, t: TensorSpec, spec: ModelSpec) -> None:
    """Raise SpecError where the shape, dtype or range of a target does not fit its output."""
    what = f"loss {loss.name} of {loss.output!r} and {loss.target!r}"
    whole = np.dtype(t.dtype).kind in "iu"
    if loss.name in ALIKE:
        if tuple(t.shape) != tuple(x.shape):
            raise SpecError(f"{what}: the target has shape {t.shape}, and the output {x.shape}: they must be equal")
        if t.layout != x.layout:
            raise SpecError(f"{what}: the target has layout {t.layout}, and the output {x.layout}: give both the same")
        _check_range(loss, t, what)
        return
    if not whole:
        raise SpecError(f"{what}: the target is {t.dtype}: class numbers are integers, such as int64")
    axis = class_axis(x.shape, x.layout) % len(x.shape)
    classes = x.shape[axis]
    if loss.name == "cross_entropy":
        wanted = tuple(size for place, size in enumerate(x.shape) if place != axis)
        if tuple(t.shape) != wanted:
            raise SpecError(
                f"{what}: the target has shape {t.shape}: it must be {wanted}, the output's without its classes"
            )
    elif len(x.shape) != 3 or len(t.shape) != 2:
        raise SpecError(f"{what}: the output must be (N, T, C) and the target (N, S): they are {x.shape} and {t.shape}")
    _check_classes(loss, t, classes, what)
    if loss.lengths:
        _chosen(loss, "lengths", loss.lengths, spec.targets)
        counts = spec.targets[loss.lengths]
        if counts.low is None or counts.high is None or counts.low < 1 or counts.high > int(t.shape[1]) + 1:
            raise SpecError(
                f"{what}: lengths {loss.lengths!r} must be drawn from 1 to {t.shape[1]}: low=1, high={int(t.shape[1]) + 1}"
            )


def _check_classes(loss: Loss, t: TensorSpec, classes: int | str, what: str) -> None:
    """Raise SpecError where a target may have a value that is no class."""
    if t.low is None or t.high is None or not isinstance(classes, int):
        return  # ModelSpec itself asks for the range of integers
    allowed = {*range(classes)} - ({loss.blank} if loss.name == "ctc" else set())
    ignored = loss.ignore_index if loss.name == "cross_entropy" else None
    wrong = [value for value in range(int(t.low), int(t.high)) if value not in allowed and value != ignored]
    if wrong:
        says = f"{what}: the target takes values from {int(t.low)} to {int(t.high) - 1}, and {wrong[0]} is no class: there are the "
        says += f"classes 0 to {classes - 1}"
        says += f", of which {loss.blank} is the blank" if loss.name == "ctc" else ""
        raise SpecError(f"{says}; change low and high, or the output's classes")


def _check_range(loss: Loss, t: TensorSpec, what: str) -> None:
    """Raise SpecError where a target may have a value for which the loss is not defined."""
    whole = np.dtype(t.dtype).kind in "iu"
    top = None if t.high is None else t.high - 1 if whole else t.high
    if loss.name == "bce_with_logits" and (t.low is None or t.low < 0 or top is None or top > 1):
        raise SpecError(
            f"{what}: the targets are probabilities: give the target a range within low=0, high=1 (integers: high=2)"
        )
    if loss.name == "kl_div" and (t.low is None or t.low < 0):
        raise SpecError(
            f"{what}: the targets are probabilities, and the output their logarithms: give the target low=0, high=1"
        )


def objective_of(folder: ModelFolder, framework: str) -> Objective | None:
    """The loss that the model of this framework is trained with; None for the mean cross-entropy of its only output.

    framework: the name of its model file. Raises Unsupported where the files do not agree on who says the loss or the step, and
    SpecError where a target has no loss.
    """
    spec = folder.spec
    targets = {name: tensor.layout for name, tensor in spec.targets.items()} or {TARGET: None}
    if has_own_step(folder, framework):
        return Objective((), targets, step=True)
    terms = terms_of(spec)
    own, theirs = (_defines(folder.place(each), "loss") for each in (framework, REFERENCE))
    title = folder.place(framework).name
    if own and not theirs and not terms:
        raise Unsupported(
            f"{title} defines loss(outputs, targets), and neither {REFERENCE}.py nor spec.py says what it is compared with: "
            f"write the function into {REFERENCE}.py, or loss=... into ModelSpec"
        )
    if theirs and not own and not terms:
        raise Unsupported(
            f"{REFERENCE}.py defines loss(outputs, targets), and {title} does not: write the function there, or "
            "loss=... into ModelSpec"
        )
    if not terms and not own:
        if not spec.targets:
            return None
        terms = (_named(spec, Loss("cross_entropy")),)
    return Objective(terms, targets, own)


def has_own_step(folder: ModelFolder, framework: str = REFERENCE) -> bool:
    """Whether the model file of this framework and that of the reference define ``train_step``.

    Raises Unsupported where only one of them does.
    """
    files = [folder.place(each) for each in (framework, REFERENCE)]
    own, theirs = (_defines(each, STEP) for each in files)
    if own == theirs:
        return own
    has, lacks = (each.name for each in (files if own else reversed(files)))
    raise Unsupported(
        f"{has} defines {STEP}(model, state, batch), and {lacks} does not: write the function into {lacks}, too"
    )


def _defines(file: Path, name: str) -> bool:
    """Whether a model file defines or imports this name. It is parsed and not imported."""
    try:
        statements = parsed(reading.content(file)).body
    except SyntaxError as error:
        raise Failed(f"{file.name}:{error.lineno}: {type(error).__name__}: {error.msg}") from None
    except (OSError, ValueError, RecursionError, MemoryError):  # what is wrong is told when the model is built
        return False
    for each in statements:
        if isinstance(each, ast.FunctionDef) and each.name == name:
            return True
        if isinstance(each, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in each.names):
            return True
        if isinstance(each, ast.Assign) and any(isinstance(n, ast.Name) and n.id == name for n in each.targets):
            return True
    return False
