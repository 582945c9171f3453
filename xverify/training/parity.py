"""The parity of training: where does a framework's learning part from the reference's?

weights -> forward -> loss -> backward -> gradients -> update -> statistics, and the same again from later states. Every check
begins from the reference's own state of that step, so that a fault colours no other check. Forward and backward are judged layer by
layer (``replay``, ``backward``), the rest by what the timed callable itself returns and leaves behind.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Crashed, Failed, SubjectError, TimedOut
from ..reference.reference import Reference
from ..reference.request import Request
from ..results.records import Check, Curve, Error, Layers, Training
from ..verdict.layers import summarise
from ..weights import normal_form, npz
from ..worker.process import Worker
from ..workload import probe
from ..workload.optimizers import Optimizer
from .checks import Local, judge_gradients, judge_loss, judge_statistics, judge_update
from .step import Size, State, Step

STEPS = {"quick": (0, 2), "standard": (0, 1, 2, 5, 20), "rigorous": (0, 1, 2, 5, 20)}
CURVE = {"quick": 10, "standard": 50, "rigorous": 50}
REPLICAS = 3
# Seconds of a step of the reference, from which on a quick run looks at less: its first state, without a curve.
LONG = 1.5
FEWER = 2  # items on which layers are judged then; and noise moves the whole step once, not twice
FIRST = 4  # steps after which replicas that have parted go no further
BAND = 10  # times the spread of three replicas, within which a curve may be rounding alone, too
SPREAD = 1e-3  # of the loss: where rounding alone pulls replicas so far apart, a curve tells nothing more
RANKS = ("EQUAL", "DRIFT", "DIFFERENT", "INVALID")


@dataclass(frozen=True)
class Learner:
    """A subject that learns: its worker, and what the worker said of it."""

    label: str
    worker: Worker
    optimizer: Optimizer
    held: tuple[str, ...]
    fused_parameters: Mapping[str, tuple[str, ...]]
    key: tuple[str, ...]


@dataclass(frozen=True)
class Observed:
    """What a subject does from the reference's first state.

    captured: what its worker says of its layers, {"stopped": why} where none could be captured; None where another subject that
    builds the same model speaks for them. step: what it says of the step.
    """

    captured: dict[str, Any] | None
    step: dict[str, Any]


class TrainingParity:
    """The reference's side: states, exact steps and the loss curve, made once and kept in files."""

    def __init__(self, request: Request, reference: Reference) -> None:
        self.request, self.reference, self.worker = request, reference, reference.worker
        assert request.optimizer is not None
        self.optimizer = request.optimizer
        self.space = reference.space
        self.layers: list[str] = []
        self.states: list[State] = []
        self.truths: dict[int, dict[str, Any]] = {}
        self.widened: dict[tuple[int, float], dict[str, float]] = {}
        self.captured: set[tuple[str, ...]] = set()
        self.replayed: dict[tuple[str, ...], tuple[list[Check], Layers]] = {}
        self.few = reference.few_training
        self.no_curve = ""
        self.losses: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def prepare(self, curve: bool = True, seconds: float = 0.0) -> None:
        """Train the reference: the states that every check begins from, and the band that curves are seen in.

        curve: without, ``judge_steps`` alone can be asked. seconds: what a step of the reference is known to take, or 0; when that
        is too long for a quick run, it is not trained at all. Raises Failed when the reference's own loss is not finite.
        """
        self.layers = self.reference.list_layers()
        steps, count = list(STEPS[self.request.effort]), CURVE[self.request.effort]
        start = {"weights": str(self.reference.weights), "optimizer_state": "", "steps": 0}
        self.states = [start]
        quick = self.request.effort == "quick"
        if not (quick and seconds > LONG):
            self._phase("training in float32")
            begun = self.worker.request(
                "learn",
                inputs=str(self.reference.training),
                mode="eager",
                optimizer=self.optimizer.to_dict(),
                match=False,
            )
            seconds = seconds or begun["second_step_seconds"]
        if quick and seconds > LONG:
            self.no_curve = (
                f"a step of the reference takes {seconds:.0f} s: --effort standard draws it, and looks at later steps"
            )
            self.few = self.reference.fewer_training(FEWER)
            return
        if curve:
            self._draw_band(start, count)
        reply = self.worker.request("trajectory", state=start, at=steps, folder=str(self.space))
        self.states = [start, *reply["states"][1:]]

    def _draw_band(self, start: State, count: int) -> None:
        """The reference's loss curve of so many steps, and the band of its replicas."""
        self._phase("its loss curve, and those of replicas a unit in the last place apart")
        self.losses = self.worker.request("curve", state=start, steps=count)["losses"]
        last = len(self.losses) - 1
        if not math.isfinite(self.losses[last]):
            begins = self._begins(self.worker, last)
            raise Failed(
                f"its own training diverges: the loss is {self.losses[last]} at step {last}{begins}; a smaller --lr than "
                f"{self.optimizer.lr:g} may help"
            )
        replicas: list[State] = []
        for index in range(REPLICAS):
            replicas.append({**start, "weights": str(self.space / f"replica-{index}.npz")})
            moved = probe.perturb(npz.load_file(self.reference.weights), self.request.seed + index)
            npz.save_file(moved, Path(replicas[-1]["weights"]))
        for steps in dict.fromkeys((FIRST, count)):
            found = [self.worker.request("curve", state=each, steps=steps)["losses"] for each in replicas]
            columns = list(zip(self.losses, *found))
            self.low, self.high = [min(column) for column in columns], [max(column) for column in columns]
            if self._judged() < len(columns):
                break
        if self.request.effort == "quick":
            self.losses = self.losses[: len(self.low)]  # no subject goes further than the replicas did

    def observe(self, learner: Learner) -> Observed:
        """Capture a subject's layers, and let it make its first step; once ``prepare`` is done.

        It asks nothing of the reference's process, and may run beside it: one subject at a time.
        """
        captured = None
        if learner.key not in self.captured:
            captured = self._capture(learner)
            self.captured.add(learner.key)
        step = self._step(learner, 0)
        learner.worker.request("release_memory")
        return Observed(captured, step)

    def judge(self, learner: Learner, observed: Observed) -> tuple[Error, Training]:
        """All checks of a subject, and the verdict that they come to."""
        known = len(self.reference.shapes)
        by_layer, layers = self._local(learner, observed.captured)
        local = Local.of(by_layer)
        # With other weights it would not have come this far.
        checks = [Check("weights", 0, "EQUAL", compared=known, known=known), *by_layer]
        untested: list[str] = []
        size = Size()
        for index in range(len(self.states)):
            reply = self._step(learner, index) if index else observed.step
            checks += self._rungs(learner, index, reply, local, untested, size)
        if self.no_curve:
            checks.append(Check("curve", 0, "UNTESTED", says=self.no_curve))
        checks = sorted(checks, key=lambda check: check.step)
        curve = None if self.no_curve else self._curve(learner, checks)
        learnt = Training(
            optimizer=self.optimizer.says(),
            variants=learner.optimizer.variants,
            checks=tuple(checks),
            curve=curve,
            untested=tuple(dict.fromkeys(untested)),
            held=learner.held,
            layers=layers,
        )
        return self._error(learnt, size), learnt

    def judge_steps(self, learner: Learner) -> list[Check]:
        """The checks of whole steps alone, without those layer by layer."""
        return [
            check
            for index in range(len(self.states))
            for check in self._rungs(learner, index, self._step(learner, index), Local(), [], Size())
        ]

    def again(self, learner: Learner, error: Error) -> Error:
        """Another launch's first step: the loss, the update and the statistics must hold there, too."""
        local = Local.of(self._local(learner, None)[0])
        checks = self._rungs(learner, 0, self._step(learner, 0), local, [], Size())
        broken = next((check for check in checks if check.verdict in ("DIFFERENT", "INVALID")), None)
        if broken is None or error.verdict in ("DIFFERENT", "INVALID"):
            return error
        return replace(error, verdict=broken.verdict, reason=f"in a later launch: {broken.name}: {broken.says}")

    # -- layer by layer -----------------------------------------------------------------------------------------------

    def _local(self, learner: Learner, captured: dict[str, Any] | None) -> tuple[list[Check], Layers]:
        """The checks forward and backward, once for all modes that build the same model. captured: what was, if it was."""
        if learner.key not in self.replayed:
            self.replayed[learner.key] = self._replay(learner, captured or self._capture(learner))
        checks, layers = self.replayed[learner.key]
        return list(checks), layers

    def _capture(self, learner: Learner) -> dict[str, Any]:
        """What a subject's worker captured of its layers, forward and backward; {"stopped": why} where it could not."""
        self.reference.listener.phase(learner.label, "capturing its layers, forward and backward")
        folder = _captured_in(learner)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            captured = learner.worker.request(
                "learn_capture", state=self.states[0], inputs=str(self.few), folder=str(folder), wanted=self.layers
            )
        except (Crashed, TimedOut):
            raise
        except SubjectError as error:
            return {"stopped": str(error)}
        return captured if captured["records"] else {"stopped": "no layer could be captured"}

    def _replay(self, learner: Learner, captured: dict[str, Any]) -> tuple[list[Check], Layers]:
        known, folder = self.layers, _captured_in(learner)
        try:
            if "stopped" in captured:
                raise SubjectError(captured["stopped"])
            self._phase(f"replaying the layers of {learner.label}, forward and backward")
            reply = self.worker.request(
                "learn_replay",
                state=self.states[0],
                inputs=str(self.few),
                folder=str(folder),
                records=captured["records"],
                channels_last=captured["channels_last"],
                seed=self.request.seed,
            )
        except (Crashed, TimedOut):
            raise
        except SubjectError as error:
            empty = Layers(known=len(known), subject=learner.label, stopped=str(error))
            return [Check(name, 0, "UNTESTED", says=str(error), known=len(known)) for name in LOCAL], empty
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        found = [(name, summarise(reply[name], known, learner.label)) for name in LOCAL]
        return [_layered(name, layers) for name, layers in found], found[0][1]

    # -- step by step -------------------------------------------------------------------------------------------------

    def _step(self, learner: Learner, index: int) -> dict[str, Any]:
        """A step from this state, as the subject makes it, into its file; what its worker says of it."""
        state = self.states[index]
        self.reference.listener.phase(learner.label, f"one step from the reference's state after {state['steps']}")
        return learner.worker.request(
            "training_step", state=state, case=self._case(index), path=str(_stepped_in(learner))
        )

    def _rungs(
        self,
        learner: Learner,
        index: int,
        reply: Mapping[str, Any],
        local: Local,
        untested: list[str],
        size: Size,
    ) -> list[Check]:
        """The checks of one whole step. reply: of ``_step``; untested, size: what is found out about it on the way."""
        state, truth = self.states[index], self._truth(index)
        before: Mapping[str, np.ndarray] = npz.OnDisk(Path(state["weights"]))
        if learner.fused_parameters:
            before = normal_form(dict(before), learner.fused_parameters)
        optimizer_state = npz.OnDisk(Path(state["optimizer_state"])) if state["optimizer_state"] else {}
        exact = npz.OnDisk(self._truth_path(index))
        taken = npz.OnDisk(_stepped_in(learner))
        step = Step(index, state["steps"], taken, before, optimizer_state, exact, truth, learner.fused_parameters)
        checks = [
            judge_loss(step, reply, self._rows(), local.rounding),
            judge_gradients(step, local.wider, lambda times: self._widened(index, times), untested, size),
            judge_update(step, self.optimizer, learner.optimizer.variants, reply["sparse"]),
        ]
        if truth["statistics"]:
            checks.append(judge_statistics(step, local.rounding))
        return checks

    def _truth(self, index: int) -> dict[str, Any]:
        if index not in self.truths:
            self._phase(f"the step after {self.states[index]['steps']} in float64, and its noise")
            path = str(self._truth_path(index))
            self.truths[index] = self._ask("learn_truth", index, path=path, once=bool(self.no_curve))
        return self.truths[index]

    def _ask(self, operation: str, index: int, **more: Any) -> dict[str, Any]:
        """The reference's worker, about the step from a state."""
        return self.worker.request(
            operation,
            state=self.states[index],
            inputs=str(self.reference.training),
            case=self._case(index),
            seed=self.request.seed,
            **more,
        )

    def _case(self, index: int) -> int:
        """The batch that the step from a state learns from."""
        steps: int = self.states[index]["steps"]
        return steps % self.request.cases

    def _truth_path(self, index: int) -> Path:
        return self.space / f"truth-{index}.npz"

    def _rows(self) -> int:
        """The labels of a batch, which its loss is the mean over."""
        (output,) = self.reference.model.spec.outputs.values()
        return math.prod(output.sized(self.request.batch)[:-1])

    def _widened(self, index: int, times: float) -> dict[str, float]:
        """How far rounding so many times as large moves every gradient of a step."""
        if (index, times) not in self.widened:
            self._phase(f"the step after {self.states[index]['steps']} with {times:.3g} times the rounding")
            self.widened[index, times] = self._ask("learn_widened", index, times=times)["floors"]
        return self.widened[index, times]

    # -- the curve ----------------------------------------------------------------------------------------------------

    def _curve(self, learner: Learner, checks: Sequence[Check]) -> Curve:
        """The free run, judged as long as rounding alone leaves the replicas together."""
        self.reference.listener.phase(learner.label, f"its loss curve, {len(self.losses)} steps")
        losses = learner.worker.request("curve", state=self.states[0], steps=len(self.losses))["losses"]
        judged = self._judged()
        spreads = [high - low for low, high in zip(self.low, self.high)]
        apart = [
            step
            for step, (loss, right, spread) in enumerate(zip(losses[:judged], self.losses, spreads))
            if not abs(loss - right) <= max(SPREAD * abs(right), BAND * spread)
        ]
        says, verdict = "", "EQUAL"
        if not math.isfinite(losses[-1]) and math.isfinite(self.losses[min(len(losses), len(self.losses)) - 1]):
            verdict = "INVALID"
            says = f"the loss is {losses[-1]} at step {len(losses) - 1}{self._begins(learner.worker, len(losses) - 1)}"
        elif apart:
            verdict = "DRIFT"
            known = ", ".join(dict.fromkeys(check.difference for check in checks if check.difference))
            says = f"leaves the reference's by more than {SPREAD:g} of it at step {apart[0]}"
            says += f" ({known})" if known else ""
        return Curve(tuple(losses), tuple(self.losses), tuple(self.low), tuple(self.high), judged, verdict, says)

    def _judged(self) -> int:
        """How many steps of a curve say anything: until rounding alone has pulled the replicas apart."""
        band = enumerate(zip(self.low, self.high, self.losses))
        return next((step for step, (low, high, right) in band if not high - low <= SPREAD * abs(right)), len(self.low))

    def _begins(self, worker: Worker, step: int) -> str:
        """Where a loss that is not finite begins: the first layer that gives such values, from finite ones."""
        folder = worker.folder / "diverged"
        folder.mkdir(exist_ok=True)
        try:
            reply = worker.request("trajectory", state=self.states[0], at=[step], folder=str(folder))
            captured = worker.request(
                "learn_capture",
                state=reply["states"][-1],
                inputs=str(self.reference.training),
                folder=str(folder),
                wanted=self.layers,
            )
        except SubjectError as error:
            return f" (after step {step - 1}: {error})"
        for record in captured["records"]:
            if not all(np.isfinite(np.load(folder / file)).all() for file in record["outputs"]):
                return f": it begins in {record['name']}"
        return ": it begins in the loss"

    # -- what it comes to ---------------------------------------------------------------------------------------------

    def _error(self, learnt: Training, size: Size) -> Error:
        checks = [check for check in learnt.checks if check.verdict != "UNTESTED"]
        verdict = max((check.verdict for check in checks), key=RANKS.index, default="UNTESTED")
        if (
            learnt.curve is not None
            and learnt.curve.verdict != "EQUAL"
            and RANKS.index(verdict) < RANKS.index(learnt.curve.verdict)
        ):
            verdict = learnt.curve.verdict
        first, reason = learnt.first, None
        if first is not None:
            reason = f"{first.name}, step {first.step}: {first.says}"
        elif learnt.differences:
            reason = "; ".join(dict.fromkeys(check.says for check in learnt.checks if check.difference))
        elif learnt.curve is not None and learnt.curve.says:
            reason = f"loss curve: {learnt.curve.says}"
        compared = [check for check in learnt.checks if check.name == "gradients" and check.step == 0]
        return Error(
            verdict=verdict,
            reason=reason,
            mean_abs=size.mean_abs,
            max_abs=size.largest,
            rel_rms=size.relative,
            compared=sum(check.compared for check in compared),
            expected=sum(check.known for check in compared),
        )

    def _phase(self, doing: str) -> None:
        self.reference.listener.phase("reference", doing)


LOCAL = ("forward", "backward")


def _captured_in(learner: Learner) -> Path:
    return learner.worker.folder / "training-layers"


def _stepped_in(learner: Learner) -> Path:
    return learner.worker.folder / "training-step.npz"


def _layered(name: str, layers: Layers) -> Check:
    """A replay as a check."""
    first = layers.first
    count: dict[str, Any] = {"compared": layers.compared, "known": layers.known}
    if not layers.compared:
        return Check(name, 0, "UNTESTED", says=layers.stopped or "no layer could be captured", **count)
    ratio = max((max(layer.ratio, layer.input_ratio) for layer in layers.layers), default=0.0)
    if first is None:
        return Check(name, 0, "EQUAL", ratio, **count)
    verdict = "DRIFT" if layers.rounding else layers.verdict
    return Check(name, 0, verdict, ratio, first.says(), "rounding" if layers.rounding else "", **count)
