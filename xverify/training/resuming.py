"""Carry weights and optimizer state from one framework to another, and make further steps in both, which must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .. import host, messages, writing
from ..errors import Failed, Unsupported, UsageError
from ..framework.adapter import Framework
from ..messages.checkpoint import (
    CheckpointOpened,
    DescribeCheckpoint,
    GoOn,
    LoadCheckpoint,
    OpenCheckpoint,
    SaveCheckpoint,
)
from ..messages.training import PrepareTraining, SaveState, SetState, TrainingState
from ..processes.command import interpreter
from ..processes.reading import convert_weights
from ..processes.worker import Worker
from ..progress import Listener
from ..reference.build import build_question
from ..results.verdicts import Verdict
from ..weights import normal_form, npz
from ..weights.canonical import Array
from ..workload import datasets
from ..workload.keys import state_key
from ..workload.optimizers import VARIANTS, Optimizer
from ..workload.recipe import DIFFERENCES
from ..workload.spec import ModelFolder
from . import continuing
from .checkpoint_settings import Value, complete, other_settings
from .continuing import REPLICAS, STEPS, Apart, Made, State, StepJudged
from .step import OWN


@dataclass(frozen=True)
class Asked:
    """What a conversion is asked for.

    source, target: the adapters. file: of the first framework. given: a file of the other one that is only checked; None: ``out``
        is written. weights: a weight file, for a file without weights. settings: those of the optimizer that the user gives.
    """

    folder: ModelFolder
    source: type[Framework]
    target: type[Framework]
    file: Path
    out: Path | None
    given: Path | None
    weights: Path | None
    settings: Mapping[str, Value]
    seed: int = 0


@dataclass
class Converted:
    """What was found.

    optimizer: the settings, with the variants of the first framework. call: how the other framework makes this optimizer.
    assumed: settings that no file says. notes: sentences on what cannot be converted exactly, and on what was left.
    differences: what differs in the file that was read back. steps: one for each further step. apart: see
    continuing.apart.
    """

    optimizer: Optimizer
    steps_before: int = 0
    parameters: int = 0
    call: str = ""
    assumed: dict[str, Value] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    steps: list[StepJudged] = field(default_factory=list)
    apart: Apart = field(default_factory=Apart)
    verdict: Verdict = Verdict.EQUAL


@dataclass(frozen=True)
class WentOn:
    """The further steps in the first framework.

    made: of each. replicas: see continuing.apart.
    """

    made: list[Made]
    replicas: list[tuple[Mapping[str, Array], Mapping[str, Array]]]


class Side:
    """One of the two frameworks: its worker with the model. place: a folder for files. optimizer: set by ``prepare``."""

    def __init__(self, worker: Worker, folder: ModelFolder, place: Path, batches: Path) -> None:
        self.worker, self.folder, self.place, self.batches = worker, folder, place, batches
        self.name = worker.framework.name
        self.optimizer = Optimizer()
        self.names: Sequence[str] = ()
        self.build()

    def build(self) -> None:
        """Build the model."""
        question = build_question(self.folder, self.worker.framework.reads(), None, trains=True)
        self.built = self.worker.ask(question)

    def prepare(self, settings: Optimizer) -> None:
        """Give the model the framework's own optimizer. Raises UsageError where the framework does not have it."""
        adapter = self.worker.framework
        mode = adapter.implicit_mode or next(iter(adapter.modes))
        try:
            reply = self.worker.ask(
                PrepareTraining(inputs=str(self.batches), mode=mode, optimizer=settings, match=False)
            )
        except Unsupported as error:
            says = str(error).replace("; run with --match-optimizer", "")
            raise UsageError(f"{self.name} cannot go on with this optimizer: {says}") from None
        # In the reply, the recipe has the framework's own names.
        self.optimizer, self.names = replace(settings, variants=reply.optimizer.variants), reply.names

    def load(self, steps: int) -> None:
        """Load the opened file into the optimizer that is prepared. steps: made so far."""
        try:
            refused = self.worker.ask(LoadCheckpoint(steps))
        except Unsupported as error:
            refused = f"{self.name} cannot go on from this file: {error}"
        if refused:
            raise UsageError(refused)

    def open(self, path: Path, given: Mapping[str, Value], weights: Path | None = None) -> CheckpointOpened:
        """Read what a file says. given, weights: see OpenCheckpoint."""
        apart = "" if weights is None else str(weights.absolute())
        try:
            opened = self.worker.ask(OpenCheckpoint(str(path.absolute()), str(path), dict(given), apart))
        except (Unsupported, Failed) as error:
            raise UsageError(f"{path}: {error}") from None
        if opened.refused:
            raise UsageError(opened.refused)
        return opened

    def state(self) -> State:
        """The present state."""
        weights, state = (self.place / f"present-{what}.npz" for what in ("weights", "state"))
        saved = self.worker.ask(SaveState(str(weights), str(state)))
        return State(npz.load_file(weights), npz.load_file(state), saved.steps)

    def set(self, state: State) -> None:
        """Set a state."""
        weights, optimizer_state = (self.place / f"given-{what}.npz" for what in ("weights", "state"))
        npz.save_file(state.weights, weights)
        npz.save_file(state.state, optimizer_state)
        self.worker.ask(SetState(TrainingState(str(weights), str(optimizer_state), state.steps)))

    def go_on(self) -> list[Made]:
        """Make the further steps: what each made."""
        paths = [self.place / f"step-{number}.npz" for number in range(STEPS)]
        self.worker.ask(GoOn(tuple(map(str, paths))))
        return [Made(npz.load_file(path)) for path in paths]


def convert(asked: Asked, space: Path, listener: Listener) -> Converted:
    """Convert, or check the given file, and make further steps. Raises UsageError for files and settings that cannot be used."""
    batches, spec = space / "batches.npz", asked.folder.spec
    npz.save_file(datasets.synthetic(spec, spec.items, asked.seed, STEPS).arrays, batches)
    places = [space / what for what in ("source", "target")]
    for place in places:
        place.mkdir()
    listener.phase(asked.source.name, "reading the state")
    with worker_of(asked.source, places[0]) as worker:
        source = Side(worker, asked.folder, places[0], batches)
        found, begin = _begin(asked, source)
        listener.phase(asked.source.name, f"making {STEPS} further steps")
        made = source.go_on()
        begin, kept = continuing.from_axes(begin, made[0]), begin
        went_on = WentOn(made, [_replica(source, kept, number) for number in range(REPLICAS + 1)])
    listener.phase(asked.target.name, "converting")
    with worker_of(asked.target, places[1]) as worker:
        target = Side(worker, asked.folder, places[1], batches)
        _end(asked, found, source, target, begin, went_on)
    return found


def worker_of(adapter: type[Framework], place: Path) -> Worker:
    """A worker for one of the two frameworks. place: an empty folder."""
    return Worker(adapter, interpreter(adapter), place, host.cores(), "cpu", 1800.0)


# -- the first framework ------------------------------------------------------------------------------------------------


def _begin(asked: Asked, side: Side) -> tuple[Converted, State]:
    """Load the file of the first framework: what is known about it, and its state."""
    beside = asked.source.checkpoint_beside
    of_own = asked.weights if asked.weights is not None and beside and asked.weights.suffix == beside else None
    opened = side.open(asked.file, asked.settings, of_own)
    settings, assumed, steps = complete(asked.file, asked.settings, opened)
    found = Converted(settings, assumed=assumed)
    side.prepare(settings)
    if not opened.has_weights and asked.weights is None:
        raise UsageError(f"{asked.file} holds no weights: give them with --weights FILE, in any format of weights")
    if opened.steps is None and "step" not in asked.settings and settings.state_names:
        found.notes.append(
            f"{asked.file} does not say how many steps were made, on which only schedules of {settings.name} depend: 1 is written; "
            "--set step=N gives the number"
        )
    side.load(steps)
    if asked.weights is not None and of_own is None:
        path = side.place / "read-weights.npz"
        convert_weights(asked.weights, path)
        side.worker.ask(messages.Load(path=str(path)))
    if opened.left:
        found.notes.append(f"not converted: {', '.join(opened.left)} of {asked.file}")
    found.optimizer = side.optimizer
    begin = side.state()
    found.steps_before, found.parameters = begin.steps, len(side.names)
    return found, begin


def _replica(side: Side, begin: State, number: int) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """Make the further steps from the state, which is perturbed for all numbers but 0: the weights before and after them."""
    weights = continuing.perturbed(begin.weights, number)
    side.set(
        State(weights, continuing.perturbed(begin.state, REPLICAS + number) if number else begin.state, begin.steps)
    )
    made = side.go_on()
    return weights, _weights(made[-1], side.names)


def _weights(made: Made, names: Sequence[str]) -> dict[str, Array]:
    return {name: made.weight(name) for name in names}


# -- the other framework ------------------------------------------------------------------------------------------------


def _end(
    asked: Asked,
    found: Converted,
    source: Side,
    target: Side,
    begin: State,
    went_on: WentOn,
) -> None:
    """Write the file of the other framework, or take the given one; load it, and compare."""
    settings = found.optimizer.plain
    target.prepare(settings)
    own = _with_own_eps(found.optimizer, target.optimizer)
    if own != settings:
        target.prepare(own)
    wanted = _for_target(begin, source, target)
    form = target.worker.ask(DescribeCheckpoint(own))
    found.call = form.call
    if asked.out is not None:
        if not asked.out.name.endswith(form.suffixes):
            raise UsageError(f"--out {asked.out}: a file of {target.name} ends in {' or '.join(form.suffixes)}")
        _write(target, wanted, asked.out)
        target.build()
        target.prepare(own)  # its state is now that of other steps, so that a file that is not loaded shows
    path = asked.given or asked.out
    assert path is not None
    opened = target.open(path, {"name": own.name, "beta1": own.beta1, "beta2": own.beta2})
    if not opened.has_weights:
        beside = "".join(f" or in {each}" for each in files(asked.target, path)[1:])
        raise UsageError(f"{path} holds no weights, without which no step can be checked: save them in it{beside}")
    found.differences += other_settings(path, opened, own)
    target.load(wanted.steps if opened.steps is None else opened.steps)
    read = target.state()
    _compare(found, source, target, wanted, read, target.go_on(), went_on)


def _with_own_eps(source: Optimizer, target: Optimizer) -> Optimizer:
    """The settings with eps as the other framework's formula needs it: inside of a square root, its square stands."""
    inside = ["eps-inside" in each.variants for each in (source, target)]
    if inside[0] == inside[1]:
        return source.plain
    return replace(source.plain, eps=source.eps**2 if inside[1] else source.eps**0.5)


def _for_target(begin: State, source: Side, target: Side) -> State:
    """The state with the names of the other framework. Of a weight that it stores as several, the first one is the whole sum."""
    fused = source.built.fused_parameters
    weights, state = dict(begin.weights), dict(begin.state)
    count = len(source.optimizer.state_names)
    for total, parts in fused.items():
        if total in target.built.shapes:
            continue
        for number, part in enumerate(parts):
            weights[part] = weights[total] if number == 0 else np.zeros_like(weights[total])
            for index in range(count):
                if state_key(total, index) in state:
                    state[state_key(part, index)] = state[state_key(total, index)]
        weights.pop(total, None)
    for total, parts in target.built.fused_parameters.items():
        for index in range(count):
            if state_key(parts[0], index) in state:
                state[state_key(total, index)] = state[state_key(parts[0], index)]
    _correct_maximum(state, source.optimizer, target.optimizer, begin.steps)
    return State(normal_form(weights, target.built.fused_parameters), state, begin.steps)


def _correct_maximum(state: dict[str, Array], source: Optimizer, target: Optimizer, steps: int) -> None:
    """Convert the largest second moment of AMSGrad, so that the next step is divided by the same: one may keep it corrected."""
    corrected = ["corrected maximum" in each.variants for each in (source, target)]
    if not source.recipe.amsgrad or corrected[0] == corrected[1] or not steps:
        return
    correction = np.float32(1 - source.beta2**steps)
    index = source.state_names.index("largest")
    for key in [each for each in state if each.endswith(f"/{index}")]:
        state[key] = state[key] / correction if corrected[1] else state[key] * correction


def files(target: type[Framework], out: Path) -> list[Path]:
    """The files of a training run that are written for this path."""
    return list(dict.fromkeys([out, out.with_suffix(target.checkpoint_beside)] if target.checkpoint_beside else [out]))


def _write(target: Side, wanted: State, path: Path) -> None:
    target.set(wanted)
    try:
        with ExitStack() as stack:
            made, *others = [
                stack.enter_context(writing.replacing(each)) for each in files(target.worker.framework, path)
            ]
            target.worker.ask(SaveCheckpoint(str(made.absolute())))
            for other in others:
                made.with_name(other.name).replace(other)
    except Unsupported as error:
        raise UsageError(f"{target.name} cannot keep this state: {error}") from None


def _compare(
    found: Converted,
    source: Side,
    target: Side,
    wanted: State,
    read: State,
    made: list[Made],
    went_on: WentOn,
) -> None:
    """Judge the state that was read, and the further steps."""
    names, own, count = target.names, target.optimizer, len(target.optimizer.state_names)
    found.differences += continuing.differences(continuing.in_axes(wanted, made[0]), read, names, own)
    before, judged = wanted, list(names)
    for each in made:
        found.steps.append(continuing.judge_step(found.optimizer, own, judged, before, each))
        judged = [name for name in judged if name not in each.axes]  # the state after a step is no longer torch's
        before = continuing.after(each, names, count, before.steps + 1)
    shared = [name for name in names if name in source.names]
    found.differences += continuing.other_gradients(went_on.made[0], made[0], shared)
    ends = [_weights(each[-1], shared) for each in (went_on.made, made)]
    found.apart = continuing.apart(shared, ends[0], ends[1], went_on.replicas)
    same = own == found.optimizer and len(shared) == len(names)
    found.verdict = continuing.verdict(found.steps, found.apart, same)
    if found.differences:
        found.verdict = Verdict.DIFFERENT
    found.notes += _notes(source, target, found)


def _notes(source: Side, target: Side, found: Converted) -> list[str]:
    """Sentences on what the formula of the other framework does otherwise."""
    notes = []
    for side, other in ((target, source), (source, target)):
        for variant in side.optimizer.variants:
            if variant not in other.optimizer.variants:
                notes.append(f"{side.name}: {VARIANTS.get(variant) or DIFFERENCES.get(variant, variant)}")
    for side, other in ((target, source), (source, target)):
        for total, parts in side.built.fused_parameters.items():
            if total in side.names and total not in other.names:
                notes.append(
                    f"{total} is one parameter in {side.name}, and {' and '.join(parts)} are two in {other.name}: {OWN['one bias']}"
                )
    return notes
