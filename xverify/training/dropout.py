"""Dropout as trained: the reference and a subject are given the same masks, and the loss and the gradients are compared.

Dropout draws at random, so that two frameworks never drop the same values. It is disabled in every other check and in all that is
timed. Here each dropout layer of a subject is called by itself, to see how it drops, and then one pass is made in which given
masks take the place of what the layers draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ..framework.adapter import Framework
from ..framework.dropout import DropoutCall, DropoutLayer, mask_key
from ..messages.training import DropoutsListed, GradientFloors, ListDropouts, MaskedPass, TrainingState, TrainingTruth
from ..reference.build import Prepared, ReferenceProcess
from ..results.records import Check
from ..results.verdicts import Verdict
from ..verdict.findings import StepTruth
from ..weights import npz
from ..weights.canonical import Array
from ..workload import probe
from .checks import Local, judge_loss
from .compared import Coverage
from .gradients import judge_gradients
from .learner import Learner
from .step import Distance, Step

NAME = "dropout"
SURE = 5.0  # standard deviations by which a share of dropped values may differ by chance
RANDOM = 1e-4  # share by which the losses of two equal passes may differ, as where a framework adds in another order
GRADIENTS = "masked-pass.npz"
SCALE = 1e-3  # share by which the scale of two frameworks may differ


@dataclass(frozen=True)
class Pair:
    """A call of a dropout layer of the reference, and the call of the subject that is compared with it."""

    right: DropoutCall
    own: DropoutCall

    @property
    def misplaced(self) -> str:
        """Where the subject's call is instead; "" when it is between the same layers with weights."""
        if (self.right.before, self.right.after) == (self.own.before, self.own.after):
            return ""
        return f"{self.own.name} is called {_place(self.own)}; the reference's {self.right.name} {_place(self.right)}"


def _place(call: DropoutCall) -> str:
    if call.before and call.after:
        return f"between {call.before} and {call.after}"
    return f"after {call.before}" if call.before else f"before {call.after}"


def paired(reference: Sequence[DropoutCall], subject: Sequence[DropoutCall]) -> list[Pair]:
    """The calls of both that belong together: by name and number, and in the order of the calls where names differ."""
    own = {(call.name, call.call): call for call in subject}
    if len(reference) == len(subject) and any((call.name, call.call) not in own for call in reference):
        return [Pair(right, other) for right, other in zip(reference, subject)]
    named = [(call, own.get((call.name, call.call))) for call in reference]
    return [Pair(right, other) for right, other in named if other is not None]


def faults(reference: DropoutsListed, subject: DropoutsListed, pairs: Sequence[Pair]) -> list[str]:
    """What is wrong with the dropout layers of a subject, in sentences."""
    matched = {id(call) for pair in pairs for call in (pair.right, pair.own)}
    lacking, more = (
        list(dict.fromkeys(call.name for call in listed.calls if id(call) not in matched))
        for listed in (reference, subject)
    )
    sentences = []
    if lacking and more:
        owns_and_rights = (f"{len(listed.calls)} times ({_names(listed)})" for listed in (subject, reference))
        sentences.append("it drops {}; the reference drops {}".format(*owns_and_rights))
    elif lacking:
        sentences.append(
            f"it has no dropout layer where the reference has {', '.join(f'`{name}`' for name in lacking)}"
        )
    elif more:
        sentences.append(f"it drops in {', '.join(more)}, and the reference does not")
    rights, owns = ({each.name: each for each in listed.layers} for listed in (reference, subject))
    for names in dict.fromkeys((pair.right.name, pair.own.name) for pair in pairs):
        sentences += _wrong(rights[names[0]], owns[names[1]])
    return sentences


def _names(listed: DropoutsListed) -> str:
    return ", ".join(call.name for call in listed.calls)


def _wrong(right: DropoutLayer, own: DropoutLayer) -> list[str]:
    """What is wrong with one layer."""
    rate = 1 - 1 / right.scale
    if math.isnan(own.scale):
        return [f"{own.name} does not make zeros and one other value, as the reference's {right.name} does"]
    if right.channels != own.channels:
        each, other = (("whole channels", "single values")[:: 1 if layer.channels else -1][0] for layer in (own, right))
        return [f"{own.name} drops {each}; the reference's drops {other}"]
    if abs(own.rate - rate) > SURE * math.sqrt(rate * (1 - rate) / own.draws):
        return [f"{own.name} drops {own.rate:.3g} of the values; the reference's drops {rate:.3g}"]
    if abs(own.scale - right.scale) > SCALE * right.scale:
        missing = ": it is not divided by 1 - p" if abs(own.scale - 1) <= SCALE else ""
        return [
            f"{own.name} multiplies what it keeps by {own.scale:.4g}; the reference's by {right.scale:.4g}{missing}"
        ]
    return []


def draw(listed: DropoutsListed, seed: int, step: int) -> dict[str, Array]:
    """The masks of all calls of the reference's dropout layers in one step: ``mask_key`` -> 0, or the scale of what is kept."""
    layers = {layer.name: layer for layer in listed.layers}
    masks = {}
    for call in listed.calls:
        layer = layers[call.name]
        shape = (*call.shape[:2], *(1 for _ in call.shape[2:])) if layer.channels else call.shape
        kept = probe.generator(seed, f"{call.name}/{call.call}: dropout of step {step}").random(shape) < 1 / layer.scale
        masks[mask_key(call.name, call.call)] = np.array(
            np.broadcast_to(kept * np.float32(layer.scale), call.shape), np.float32
        )
    return masks


def in_layout(mask: Array, shape: tuple[int, ...], channels_last: bool) -> Array | None:
    """A mask of the reference in the layout of a subject; None where its shape does not fit."""
    moved = np.moveaxis(mask, 1, -1) if mask.ndim > 2 else mask
    first, second = (moved, mask) if channels_last and mask.ndim > 3 else (mask, moved)
    if first.shape == shape:
        return first
    return np.ascontiguousarray(second) if second.shape == shape else None


def judge_dropout(
    step: int,
    reference: DropoutsListed,
    subject: DropoutsListed,
    masks: Mapping[str, Array],
    channels_last: bool,
    compare: Callable[[Mapping[str, Array]], Sequence[Check]],
) -> Check:
    """Judge the dropout of a subject in one step.

    masks: of the reference. channels_last: see Framework.
    compare: compares loss and gradients of the subject when it is given these masks, by its own calls and in its own layout.
    """
    known = len(reference.calls)
    irregular = [layer.name for layer in reference.layers if math.isnan(layer.scale)]
    if irregular:
        says = f"{irregular[0]} of the reference does not make zeros and one other value, and gets no masks"
        return Check(NAME, step, Verdict.UNTESTED, says=says, known=known)
    pairs = paired(reference.calls, subject.calls)
    wrong = faults(reference, subject, pairs)
    if wrong:
        return Check(NAME, step, Verdict.DIFFERENT, says="; ".join(wrong), compared=len(pairs), known=known)
    misplaced = next((pair.misplaced for pair in pairs if pair.misplaced), "")
    given = {}
    for pair in pairs:
        mask = in_layout(masks[mask_key(pair.right.name, pair.right.call)], pair.own.shape, channels_last)
        if mask is None:
            verdict = Verdict.DIFFERENT if misplaced else Verdict.UNTESTED
            shapes = (
                f"{pair.own.name} drops in a tensor of shape {pair.own.shape}; the reference's in {pair.right.shape}"
            )
            return Check(NAME, step, verdict, says=misplaced or shapes, compared=len(pairs), known=known)
        given[mask_key(pair.own.name, pair.own.call)] = mask
    worst = max(compare(given), key=lambda check: check.verdict.rank)
    says = f"with the same masks, {worst.name}: {worst.says}" if worst.says else ""
    if worst.verdict.fails and misplaced:
        says = f"{misplaced}; {says}"
    return replace(worst, name=NAME, step=step, says=says, compared=len(pairs), known=known)


class DropoutComparison:
    """Compares dropout as trained. The reference's layers, masks and exact steps are computed once and kept in files.

    states: those of the reference that checks start from.
    """

    def __init__(self, process: ReferenceProcess, prepared: Prepared, states: Sequence[TrainingState]) -> None:
        self.process, self.prepared, self.states = process, prepared, states
        self.listed = process.worker.ask(ListDropouts())
        self.masks = [draw(self.listed, process.request.seed, state.steps) for state in states]
        self._truths: dict[int, StepTruth] = {}
        for index, masks in enumerate(self.masks):
            npz.save_file(masks, self._file("masks", index))

    def checks(self, learner: Learner, local: Local) -> list[Check]:
        """The check of every state for a subject. local: what its layer checks allow."""
        adapter = learner.worker.framework
        if adapter.dropouts is Framework.dropouts:
            says = f"xverify gives dropout masks in torch, Keras and Jittor, and not in {adapter.name}"
            return [Check(NAME, 0, Verdict.UNTESTED, says=says)]
        subject = learner.worker.ask(ListDropouts())
        for whose, functions in (("the reference", self.listed.functions), (learner.label, subject.functions)):
            if functions:
                says = (
                    f"{whose} calls {', '.join(functions)} of torch.nn.functional, which gets no masks; write a layer"
                )
                return [Check(NAME, 0, Verdict.UNTESTED, says=says)]
        if not self.listed.calls and not subject.calls:
            return [Check(NAME, 0, Verdict.UNTESTED, says="there is no dropout layer to give masks to")]
        first, second = (self._pass(learner, 0, {}) for _ in range(2))
        if abs(first - second) > RANDOM * abs(first):
            says = (
                f"two passes from one state have the losses {first:.6g} and {second:.6g} although its dropout layers are off: "
                "functional dropout (F.dropout) or another random operation, which cannot be given masks; write it as a layer"
            )
            return [Check(NAME, 0, Verdict.UNTESTED, says=says)]
        found = []
        for index, state in enumerate(self.states):
            self.process.listener.phase(learner.label, f"one pass with given dropout masks, after {state.steps} steps")
            compare = partial(self._compare, learner, local, index)
            found.append(
                judge_dropout(state.steps, self.listed, subject, self.masks[index], adapter.channels_last, compare)
            )
        return found

    def _compare(self, learner: Learner, local: Local, index: int, masks: Mapping[str, Array]) -> Sequence[Check]:
        """The loss and the gradients of a subject that is given these masks, beside the exact ones."""
        loss, truth = self._pass(learner, index, masks), self._truth(index)
        step = Step(
            index=index,
            number=self.states[index].steps,
            taken=npz.OnDisk(learner.worker.folder / GRADIENTS),
            before={},
            optimizer_state={},
            exact=npz.OnDisk(self._file("masked-truth", index)),
            truth=truth,
            fused_parameters=learner.fused_parameters,
            recipe=learner.optimizer.recipe,
        )
        noise = partial(self._noise, index)
        return (
            judge_loss(step, loss, loss, local.rounding),
            judge_gradients(step, local.more_rounding, noise, Coverage(), Distance()),
        )

    def _pass(self, learner: Learner, index: int, masks: Mapping[str, Array]) -> float:
        """Let a subject make a pass with these masks, and write its gradients. Returns its loss."""
        folder = learner.worker.folder
        given, path = folder / "dropout-masks.npz", folder / GRADIENTS
        path.unlink(missing_ok=True)  # a file that is mapped keeps its content
        npz.save_file(dict(masks), given)
        question = MaskedPass(state=self.states[index], case=self._case(index), masks=str(given), path=str(path))
        return learner.worker.ask(question)

    def _truth(self, index: int) -> StepTruth:
        """The exact step with masks, computed once."""
        if index not in self._truths:
            self.process.phase(f"the step after {self.states[index].steps} with dropout masks, in float64")
            question = TrainingTruth(
                state=self.states[index],
                inputs=str(self.prepared.training),
                case=self._case(index),
                path=str(self._file("masked-truth", index)),
                seed=self.process.request.seed,
                once=False,
                masks=str(self._file("masks", index)),
                precision=self._precision,
            )
            self._truths[index] = self.process.worker.ask(question).truth
        return self._truths[index]

    def _noise(self, index: int, times: float) -> Mapping[str, Array]:
        """The rms of the noise of each value of every gradient when rounding is this many times as large."""
        path = self._file("masked-noise", index)
        question = GradientFloors(
            state=self.states[index],
            inputs=str(self.prepared.training),
            case=self._case(index),
            seed=self.process.request.seed,
            times=times,
            path=str(path),
            masks=str(self._file("masks", index)),
            precision=self._precision,
        )
        self.process.worker.ask(question)
        return npz.OnDisk(path)

    @property
    def _precision(self) -> str:
        """The precision in which the frameworks compute."""
        optimizer = self.process.request.optimizer
        return optimizer.recipe.precision if optimizer else "float32"

    def _case(self, index: int) -> int:
        return self.states[index].steps % self.process.request.cases

    def _file(self, what: str, index: int) -> Path:
        return self.process.space / f"{what}-{index}.npz"
